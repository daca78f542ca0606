"""Ablation at the target: what is lost with true, and won with false demonstrations.

The same pairs of prompts are run unablated and under each ablation; calibrated accuracy has
thresholds of its own in every run. *Gap reduction* is `1 - (true - ablated false) / (true -
false)` with unablated `true` and `false`.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4 and §5.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.accuracy.layers import CALIBRATED
from icl_mech.measurements.accuracy.pairs import SIDES
from icl_mech.measurements.heads.ablation_texts import before_and_after, removed
from icl_mech.measurements.heads.definitions import ABLATION, CHOSEN, NONE, RANDOM, REDUCTION
from icl_mech.measurements.heads.drawings import under_conditions
from icl_mech.measurements.heads.texts import head_name
from icl_mech.metrics import (
    Interval,
    Ties,
    mean_ends,
    mean_interval,
    one_more,
    reduction_interval,
    score_interval,
)
from icl_mech.results import Definition, Figure, Quantity, Result, basis, function_of_means
from icl_mech.results.prompts import given
from icl_mech.results.wording import told
from icl_mech.shapes import Bars

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CHOSEN", "NONE", "RANDOM", "Ablation"]

CHANGE = "change of calibrated accuracy"


@dataclass(frozen=True, eq=False, kw_only=True)
class Ablation(Result):
    """Calibrated scores of every pair of prompts under every condition.

    Attributes:
        scores: By condition, side (`true`, `false` demonstrations) and prompt.
        conditions: Names; the first is `none`, random draws are called `random heads`.
        tie_counts: How many scores are ties, nearly ties, and there at all, by condition and
            side (see `near_ties`); None in results that were saved without them.
        n_labels: Number of classes; None in results that were saved without.
        reachable: Calibrated accuracy of a perfect classifier on these queries, or None.
    """

    title: ClassVar[str] = "Ablations"
    shows: ClassVar[tuple[str, ...]] = ("change", "accuracy")
    definitions: ClassVar[tuple[Definition, ...]] = (ABLATION, REDUCTION, CALIBRATED)

    scores: Float[Tensor, "condition side batch"]
    conditions: tuple[str, ...]
    tie_counts: Int[Tensor, "count condition side"] | None = None
    n_labels: int | None = None
    reachable: float | None = None

    @property
    def ties(self) -> Ties:
        """Ties among the scores of all conditions and both sides."""
        return Ties.of(self.tie_counts)

    def quantities(self) -> dict[str, Quantity]:
        """Accuracies, the gap, and what each condition does to them; random draws averaged.

        `change` is accuracy under the condition minus without it, paired. `gap_reduction` is
        the share of the gap that the condition closes; there is none where the interval of the
        gap includes 0.
        """
        drawn = [
            self.scores[self._places(name)].mean(0) for name in self.coordinates()["condition"]
        ]
        scores = torch.stack(drawn).permute(2, 0, 1)
        changes, gap = scores - scores[:, :1], self.scores[0, 0] - self.scores[0, 1]
        dims = ("condition", "side")
        low, high = mean_ends(changes, "change")
        low[0] = high[0] = 0.0  # the model beside itself
        found = {
            "accuracy": Quantity(
                dims,
                scores,
                None,
                "calibrated accuracy",
                score_interval(scores, n_labels=self.n_labels),
                "outcome",
            ),
            "change": Quantity(dims, changes, None, CHANGE, (low, high), "change"),
            "gap": Quantity((), gap, unit="calibrated accuracy", kind="change"),
        }
        if self.gap.low > 0:
            closed = function_of_means(scores, _gap_reduction)
            ends = self._closed_ends(scores)
            found["gap_reduction"] = Quantity(dims[:1], scores, closed, "share of the gap", ends)
        return found

    def _closed_ends(self, scores: Float[Tensor, "batch condition side"]) -> tuple[Tensor, Tensor]:
        """Ends of the share of the gap, by condition; the unablated one closes nothing."""
        true, false = scores[:, 0].unbind(1)
        ends = [(0.0, 0.0)]
        ends += [
            reduction_interval([true], [false], [ablated])[1:]
            for ablated in scores[:, 1:, 1].unbind(1)
        ]
        low, high = torch.tensor(ends, dtype=torch.float64).unbind(1)
        return low.clone(), high.clone()

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Conditions, random draws as one, and sides."""
        return {"condition": tuple(dict.fromkeys(self.conditions)), "side": SIDES}

    def _places(self, condition: str) -> list[int]:
        found = [i for i, name in enumerate(self.conditions) if name == condition]
        if not found:
            raise ResultError(
                f"No condition {condition!r}. {near_matches(condition, set(self.conditions))}"
            )
        return found

    @cached_property
    def gap(self) -> Interval:
        """Unablated accuracy with true minus with false demonstrations, paired."""
        return mean_interval(self.scores[0, 0] - self.scores[0, 1], "change")

    @checked(ResultError)
    def reduction(self, condition: str) -> Interval | None:
        """Share of the gap that the ablation closes; None where the gap's interval holds 0.

        Raises:
            ResultError: unknown condition.
        """
        self._places(condition)
        return self.interval("gap_reduction", condition=condition) if self.gap.low > 0 else None

    def draws(self) -> Float[Tensor, " draw"]:
        """Gap reduction of each random draw; not-a-number where the gap's interval holds 0.

        Raises:
            ResultError: no random heads were drawn.
        """
        places = self._places(RANDOM)
        if self.gap.low <= 0:
            return torch.full((len(places),), torch.nan, dtype=self.scores.dtype)
        return _gap_reduction(self.scores[[0, *places]].mean(-1))[1:]

    def to_pandas(self) -> "pd.DataFrame":
        """One row per condition, random draws together."""
        import pandas as pd

        found = self.estimates()
        rows = []
        for condition in self.coordinates()["condition"]:
            accuracy, change = (
                found[name].sel(condition=condition) for name in ("accuracy", "change")
            )
            closed = [torch.nan] * 3
            if condition != NONE and "gap_reduction" in found:
                closed = found["gap_reduction"].sel(condition=condition).values
            row = {"condition": condition, "draws": len(self._places(condition))}
            for name, ends in (
                ("true", accuracy.sel(side="true").values),
                ("false", accuracy.sel(side="false").values),
                ("gap_reduction", closed),
                ("change_with_true", change.sel(side="true").values),
            ):
                row |= dict(
                    zip((name, f"{name}_low", f"{name}_high"), map(float, ends), strict=True)
                )
            rows.append(row)
        return pd.DataFrame(rows)

    def heads(self, condition: str = CHOSEN) -> tuple[tuple[int, int], ...]:
        """The (layer, head) pairs a condition ablates, where the result says so; else none.

        Raises:
            ResultError: unknown condition.
        """
        place, known = self._places(condition)[0], self.provenance.get("conditions", [])
        changes = known[place] if len(known) > place else []
        pairs = [pair for own in changes for pair in own.get("heads", ())]
        return tuple((int(layer), int(head)) for layer, head in pairs)

    def beside_random(self, side: str = "false") -> Interval | None:
        """Accuracy without the chosen heads minus that without random ones, paired over prompts.

        The interval takes the spread of the draws in: it is that over prompts or, where it is
        wider, that of one more draw beside these (Student's t), which is the null of heads that
        are as good as any others. None if there are no chosen or no random heads.
        """
        if CHOSEN not in self.conditions or RANDOM not in self.conditions:
            return None
        place = SIDES.index(side)
        chosen = self.scores[self._places(CHOSEN)[0], place].double()
        drawn = self.scores[self._places(RANDOM), place].double()
        value, low, high = mean_interval(chosen - drawn.mean(0), "change")
        half = one_more(drawn.mean(1))
        return Interval(value, max(min(low, value - half), -1.0), min(max(high, value + half), 1.0))

    def drawing(self, show: str = "change") -> Bars:
        """What every condition changes on both sides, or the accuracy under it, as dots.

        Args:
            show: `change` or `accuracy`.

        Raises:
            ResultError: unknown `show`.
        """
        self.check_show(show)
        change, draws = show == "change", None
        if RANDOM in self.conditions:
            plain = self.scores[0] if change else torch.zeros_like(self.scores[0])
            draws = (self.scores[self._places(RANDOM)] - plain).double().mean(-1)
        levels = []
        if change and self.gap.low > 0:
            levels.append((self.gap.value, f"the gap {told(self.gap.value)}"))
        elif not change and self.n_labels:
            levels.append((1 / self.n_labels, f"chance {told(1 / self.n_labels)}"))
            if self.reachable is not None:
                levels.append((self.reachable, f"highest reachable {told(self.reachable)}"))
        names = self.coordinates()["condition"]
        return under_conditions(
            self.quantities()[show], names, draws, tuple(levels), basis(self), change=change
        )

    def figures(self) -> list[Figure]:
        """What each condition changes, and the accuracies before and after."""
        n, behind = self.scores.shape[-1], given(self)
        names = [name for name in self.coordinates()["condition"] if name != NONE]
        changes = {
            name: (
                self.interval("change", condition=name, side="false"),
                self.interval("change", condition=name, side="true"),
            )
            for name in names
        }
        closed = {name: self.reduction(name) for name in names}
        draws = self.draws() if RANDOM in names else None
        chosen = tuple(map(head_name, self.heads())) if CHOSEN in names else ()
        return [
            removed(
                changes, closed, self.gap, chosen, self.beside_random(), draws, n, given=behind
            ),
            before_and_after(self._gaps(), n, given=behind),
        ]

    def _gaps(self) -> dict[str, Interval]:
        """Accuracy with true minus with false demonstrations under every condition, paired."""
        accuracy = self.quantities()["accuracy"].per_prompt
        gaps = (accuracy[..., 0] - accuracy[..., 1]).unbind(1)
        names = self.coordinates()["condition"]
        return {name: mean_interval(gap, "change") for name, gap in zip(names, gaps, strict=True)}

    def summary(self) -> str:
        """Gap and gap reductions."""
        gap = f"gap {self.gap}"
        if self.gap.low <= 0:
            return f"{gap}: its interval includes 0, so no share of it can be given{self.ties.note}"
        closed = self.sel("gap_reduction")
        parts = [
            f"{condition} closes {Interval(*map(float, ends))}"
            for condition, *ends in zip(
                self.coordinates()["condition"], closed.values, closed.low, closed.high, strict=True
            )
            if condition not in (NONE, RANDOM)
        ]
        if RANDOM in self.conditions:
            draws = self.draws()
            low, high = np.quantile(draws.numpy(), [0.025, 0.975])
            parts.append(
                f"{len(draws)} random draws {float(draws.mean()):.3g} "
                f"(95 % of draws in [{low:.3g}, {high:.3g}])"
            )
        return f"{gap}; share of it " + ", ".join(parts) + self.ties.note


def _gap_reduction(
    means: Float[Tensor, "*r condition side"],
) -> Float[Tensor, "*r condition"]:
    """`1 - (true - ablated false) / (true - false)`; the first condition is the unablated one."""
    true, false = means[..., :1, 0], means[..., :1, 1]
    return 1 - (true - means[..., 1]) / (true - false)

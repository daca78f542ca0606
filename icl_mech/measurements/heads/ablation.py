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
from icl_mech.measurements.accuracy.pairs import SIDES
from icl_mech.metrics import Interval, Ties, mean_interval
from icl_mech.results import Quantity, Result, basis, function_of_means
from icl_mech.shapes import Bars

if TYPE_CHECKING:
    import pandas as pd

NONE, CHOSEN, RANDOM = "none", "chosen heads", "random heads"
"""Conditions with names of their own: unablated, the heads in question, their control."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Ablation(Result):
    """Calibrated scores of every pair of prompts under every condition.

    Attributes:
        scores: By condition, side (`true`, `false` demonstrations) and prompt.
        conditions: Names; the first is `none`, random draws are called `random heads`.
        tie_counts: How many scores are ties, nearly ties, and there at all, by condition and
            side (see `near_ties`); None in results that were saved without them.
    """

    title: ClassVar[str] = "Ablations"

    scores: Float[Tensor, "condition side batch"]
    conditions: tuple[str, ...]
    tie_counts: Int[Tensor, "count condition side"] | None = None

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
        dims = ("condition", "side")
        found = {
            "accuracy": Quantity(dims, scores, unit="calibrated accuracy"),
            "change": Quantity(dims, scores - scores[:, :1], unit="change of calibrated accuracy"),
            "gap": Quantity((), self.scores[0, 0] - self.scores[0, 1], unit="calibrated accuracy"),
        }
        if self.gap.low > 0:
            closed = function_of_means(scores, _gap_reduction)
            found["gap_reduction"] = Quantity(dims[:1], scores, closed, "share of the gap")
        return found

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
        return mean_interval(self.scores[0, 0] - self.scores[0, 1])

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

    def drawing(self) -> Bars:
        """Accuracy of both sides under every condition."""
        accuracy = self.quantities()["accuracy"]
        low, high = accuracy.ends()
        drawn = self.conditions.count(RANDOM)
        return Bars(
            title="Ablations at the target",
            groups=self.coordinates()["condition"],
            names=("true demonstrations", "false demonstrations"),
            values=accuracy.value(),
            low=low,
            high=high,
            y_title="calibrated accuracy",
            note=basis(self) + f"; {RANDOM}: mean of {drawn} draws" * bool(drawn),
        )

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

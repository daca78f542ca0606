"""Ablation at the target: what is lost with true, and won with false demonstrations.

The same pairs of prompts are run unablated and under each ablation, all on one path, so that equal
scores are equal; calibrated accuracy has thresholds of its own in every run. *Gap reduction* is `1 - (true - ablated false) / (true -
false)` with unablated `true` and `false`.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4 and §5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.accuracy.scores import CALIBRATED, METRICS, OwnChoices, entry_scores
from icl_mech.measurements.base import Pair, PairMeasurement, Variants
from icl_mech.measurements.demonstrations import SIDES, check_pairs
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.measurements.heads.conditions import (
    ABLATION,
    CHOSEN,
    NONE,
    RANDOM,
    REDUCTION,
    Conditions,
    closed_ends,
    gap_reduction,
    heads_close,
)
from icl_mech.measurements.lens.residuals import LastEntryReading, LensVariant
from icl_mech.metrics import Interval, mean_ends, mean_interval
from icl_mech.metrics.calibration import Ties, reachable_accuracy, score_interval
from icl_mech.metrics.means import beyond_draws
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS
from icl_mech.results import Definition, Figure, Quantity, Result, basis, function_of_means
from icl_mech.results.judging import Status, judged, opening, together
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, listed, said, spelled, told
from icl_mech.shapes import Bars

CHANGE = "change of calibrated accuracy"


@dataclass(frozen=True, eq=False, kw_only=True)
class AblationResult(OwnChoices, Result):
    """Calibrated scores of every pair of prompts under every condition.

    Attributes:
        scores: By condition, side (`true`, `false` demonstrations) and prompt.
        conditions: Names; the first is `none`, random draws are called `random heads`.
        tie_counts: How many scores are ties, nearly ties, and there at all, by condition and side.
        n_labels, reachable: Number of classes, and calibrated accuracy of a perfect classifier, or None.
        own_choices: Answers are choices of each prompt, whose accuracy is not calibrated.
    """

    title: ClassVar[str] = "Ablations"
    shows: ClassVar[tuple[str, ...]] = ("change", "accuracy")
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"condition": "names", "side": SIDES}
    definitions: ClassVar[tuple[Definition, ...]] = (ABLATION, REDUCTION, CALIBRATED)

    scores: Float[Tensor, "condition side batch"]
    conditions: tuple[str, ...]
    tie_counts: Int[Tensor, "count condition side"] | None = None
    n_labels: int | None = None
    reachable: float | None = None
    own_choices: bool = False

    @property
    def ties(self) -> Ties:
        """Ties among the scores of all conditions and both sides."""
        return Ties.of(self.tie_counts)

    def quantities(self) -> dict[str, Quantity]:
        """Accuracies, the gap, and what each condition does to them; random draws averaged.

        `change` is accuracy under the condition minus without it, paired. `gap_reduction` is the share
        of the gap that the condition closes; there is none where the interval of the gap includes 0.
        """
        drawn = [self.scores[self._places(name)].mean(0) for name in self.names]
        scores = torch.stack(drawn).permute(2, 0, 1)
        changes, gap = scores - scores[:, :1], self.scores[0, 0] - self.scores[0, 1]
        dims = ("condition", "side")
        low, high = mean_ends(changes, "change")
        low[0] = high[0] = 0.0  # beside itself
        labels = None if self.own_choices else self.n_labels
        known, unit = score_interval(scores, n_labels=labels), self._named("calibrated accuracy")
        found = {
            "accuracy": Quantity(dims, scores, None, unit, known, "outcome"),
            "change": Quantity(dims, changes, None, self._named(CHANGE), (low, high), "change"),
            "gap": Quantity((), gap, unit=unit, kind="change"),
        }
        if self.gap.low > 0:
            closed = function_of_means(scores, gap_reduction)
            found["gap_reduction"] = Quantity(
                dims[:1], scores, closed, "share of the gap", closed_ends(scores)
            )
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Conditions, random draws as one."""
        return tuple(dict.fromkeys(self.conditions))

    def more_columns(self) -> Mapping[str, list[int]]:
        """How many runs each row is the mean of."""
        draws = [self.conditions.count(name) for name in self.names]
        return {"draws": [count for count in draws for _ in SIDES]}

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
        return gap_reduction(self.scores[[0, *places]].mean(-1))[1:]

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

        The interval takes the spread of the draws in, see `beyond_draws`. None if there are no chosen or no
        two draws of random heads.
        """
        if CHOSEN not in self.conditions or RANDOM not in self.conditions:
            return None
        place = SIDES.index(side)
        chosen = self.scores[self._places(CHOSEN)[0], place]
        drawn = self.scores[self._places(RANDOM), place]
        return beyond_draws(chosen, drawn.T, "change")

    def drawing(self, show: str = "change") -> Bars:
        """What every condition changes on both sides, or the accuracy under it, as dots.

        Args:
            show: `change` or `accuracy`.

        Raises:
            ResultError: unknown `show`.
        """
        self.check_show(show)
        change, note, spread = show == "change", basis(self), []
        heights: dict[str, float | None] = {"the gap": self.gap.value if self.gap.low > 0 else None}
        if not change:
            most = None if self.own_choices else self.reachable
            known = (1 / self.n_labels, most) if self.n_labels else (None, None)
            heights = dict(zip(("chance", "highest reachable"), known, strict=True))
        names = self.names[int(change) :]
        if RANDOM in names:
            plain = self.scores[0] if change else torch.zeros_like(self.scores[0])
            draws = (self.scores[self._places(RANDOM)] - plain).double().mean(-1)
            line = names.index(RANDOM)
            spread = [(line, side, tuple(draws[:, side].tolist())) for side in range(2)]
            note += f"; {RANDOM}: mean of {len(draws)} draws"
        return self.sel(show, condition=list(names)).dots(
            "Ablations at the target",
            ["unablated" if name == NONE else name for name in names],
            ("true demonstrations", "false demonstrations"),
            note=note,
            meanings=("true", "false"),
            sides=("hurts", "helps") if change else (),
            spread=tuple(spread),
            levels=tuple((own, f"{name} {told(own)}") for name, own in heights.items() if own),
        )

    def figures(self) -> list[Figure]:
        """What each condition changes, and the accuracies before and after."""
        return [self._removed(), self._before_and_after()]

    def _change(self, condition: str) -> tuple[Interval, str]:
        """Of accuracy with false demonstrations; with both in words."""
        own = self.sel("change", condition=condition)
        false, true = (own.interval(side=side) for side in ("false", "true"))
        by = f"by {said(false, sign=True)} with false and by {said(true, sign=True)} with true"
        return false, f"{by} demonstrations"

    def _effect(self, chosen: str) -> tuple[Status, str]:
        """Status of the claim that the gap closes, and what changes without heads of this name."""
        prompts = self.scores.shape[-1]
        if CHOSEN in self.names:
            false, by = self._change(CHOSEN)
            status = heads_close(false, self.beside_random(), self.gap, prompts)
            return status, f"without {chosen} accuracy changes {by}"
        own = {name: self._change(name) for name in self.names if name not in (NONE, RANDOM)}
        status = together(*(judged(false, prompts=prompts) for false, _ in own.values()))
        effect = "; ".join(f"without {name} {by}" for name, (_, by) in own.items())
        return status if self.gap.low > 0 else "cannot be judged", f"accuracy changes {effect}"

    def _closed(self) -> str:
        """Which share of the gap the chosen heads close, and random ones, as the end of a sentence."""
        share = self.reduction(CHOSEN) if CHOSEN in self.names else None
        beside, parts = self.beside_random(), []
        if share is not None:
            parts.append(f"; that closes {said(share)} of the gap of {said(self.gap)}")
        if RANDOM in self.names and self.gap.low > 0:
            mean, low, high = map(told, self._random())
            draws = counted(len(self._places(RANDOM)), "draw")
            parts.append(
                f", random heads of the same layers close {mean} (95 % of {draws} in {low} to {high})"
            )
        if beside is not None:
            parts.append(f"; beyond random heads that is {said(beside, sign=True)}")
        return "".join(parts)

    def _random(self) -> tuple[float, float, float]:
        """Share of the gap that random heads close, and the ends of 95 % of the draws."""
        low, high = np.quantile((draws := self.draws()).numpy(), [0.025, 0.975])
        return float(draws.mean()), float(low), float(high)

    def _removed(self) -> Figure:
        """Does removing heads (or late layers) close the gap?"""
        of_heads, pairs = CHOSEN in self.names, counted(self.scores.shape[-1], "pair")
        names = tuple(map(head_name, self.heads())) if of_heads else ()
        many = "the head" if len(names) == 1 else f"the {spelled(len(names))} heads"
        status, effect = self._effect(f"{many} ({listed(names)})" if names else "the chosen heads")
        gap, no_gap = said(self.gap), self.gap.low <= 0
        answer = f"{opening(status, f'{pairs} of prompts')} {effect}{self._closed()}."
        limits = "what the parts do at other positions, or together with others: the model is cut at one token."
        if of_heads and status == "mixed":
            answer += " It is not clear that this is more than random heads do."
        if no_gap:
            answer = f"Cannot be judged, since there is no clear gap to close ({gap}): {effect}."
            limits = f"the share of the gap that is closed: the gap itself, {gap}, includes 0. Nor {limits}"
        random = (
            " Random heads: as many from the same layers; filled: mean of the draws, hollow: each."
        )
        chosen = f" Chosen heads (layer.head): {', '.join(names)}."
        return Figure(
            "change",
            f"Does removing {'the heads' if of_heads else 'parts of the model'} close the gap?",
            answer,
            f"**{self._named('Change of calibrated accuracy')} when parts of the model are set to 0 at the last token of "
            "the prompt**, for true and for false demonstrations; right of the line it helps, left of it "
            f"it hurts. Bars: 95 % score intervals, paired over {pairs} of prompts{given(self)}."
            f"{chosen * bool(names)}{random * (RANDOM in self.names)}",
            "that these heads are one cause of the errors under false demonstrations."
            * (of_heads and status == "supported"),
            limits,
            "Ablations",
        )

    def _before_and_after(self) -> Figure:
        """Accuracies under every condition beside the unablated ones."""
        (_, plain), *others = self._gaps().items()
        parts = listed(f"{said(gap)} with {name} ablated" for name, gap in others)
        most = ", and the most a perfect classifier can reach, where known"
        return Figure(
            "accuracy",
            "How wide is the gap before and after?",
            f"Unablated the gap between true and false demonstrations is {said(plain)}; it is {parts}.",
            f"**{self._named('Calibrated accuracy')} under every condition, unablated on top**"
            f"{', each with thresholds of its own' * (not self.own_choices)}. Bars: 95 % score intervals over {counted(self.scores.shape[-1], 'pair')} of "
            f"prompts{given(self)}. Dashes: chance"
            f"{most * (not self.own_choices)}.{' Hollow grey marks: single draws.' * (RANDOM in self.names)}",
            "",
            "whether two conditions differ: overlapping bars of pairs may hide it; see the changes.",
            "Gap before and after",
        )

    def _gaps(self) -> dict[str, Interval]:
        """Accuracy with true minus with false demonstrations under every condition, paired."""
        accuracy = self.quantities()["accuracy"].per_prompt
        gaps = (accuracy[..., 0] - accuracy[..., 1]).unbind(1)
        return {
            own: mean_interval(gap, "change") for own, gap in zip(self.names, gaps, strict=True)
        }

    def summary(self) -> str:
        """Gap and gap reductions."""
        gap = f"gap {self.gap}"
        if self.gap.low <= 0:
            return f"{gap}: its interval includes 0, so no share of it can be given{self.ties.note}"
        closed = self.sel("gap_reduction")
        parts = [
            f"{condition} closes {closed.interval(condition=condition)}"
            for condition in self.names
            if condition not in (NONE, RANDOM)
        ]
        if RANDOM in self.conditions:
            mean, low, high = (f"{own:.3g}" for own in self._random())
            count = len(self._places(RANDOM))
            parts.append(f"{count} random draws {mean} (95 % of draws in [{low}, {high}])")
        return f"{gap}; share of it " + ", ".join(parts) + self.ties.note


@dataclass(frozen=True)
class Ablation(Conditions, PairMeasurement[AblationResult]):
    """Calibrated accuracy with and without ablations at the target.

    Attributes:
        variant: Of the scores' lens, `sound` or `reference`.

    Raises:
        PromptError: sets that are not pairs.
        RunError: nothing to ablate, unknown options or parts, names of conditions that are
            taken, or heads the model does not have.

    Source: Halawi et al. 2023, §4 and §5.
    """

    variant: LensVariant = "sound"

    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse what cannot be ablated or compared.

        Raises:
            PromptError: sets that are not pairs.
            RunError: as `check_conditions`.
        """
        check_pairs(*data)
        self.check_conditions(model.info)

    def passes(self, model: LanguageModel, data: Pair) -> list[Variants]:
        """Each side under all conditions, on one path."""
        changes = [interventions for _, interventions in self.conditions(model.info)]
        reading = LastEntryReading(self.variant)
        return [Variants(side, [reading], title="ablations", variants=changes) for side in data]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> AblationResult:
        """Calibrated scores, with thresholds of their own in every run."""
        (true, _), exact = data, self.variant == "reference"
        found = [
            [entry_scores(lens, 0, true.answers, None, true, exact_ties=exact) for (lens,) in side]
            for side in read
        ]
        calibrated = METRICS.index("calibrated")
        scores = [torch.stack([own.scores[calibrated, :, -1] for own in side]) for side in found]
        counts = [torch.stack([own.tie_counts[:, -1] for own in side], dim=1) for side in found]
        conditions = self.conditions(model.info)
        return AblationResult(
            scores=torch.stack(scores, dim=1),
            conditions=tuple(name for name, _ in conditions),
            tie_counts=torch.stack(counts, dim=2),
            n_labels=true.n_labels,
            reachable=reachable_accuracy(true.answers, true.n_labels) if true.has_classes else 1.0,
            own_choices=not true.has_classes,
            provenance={"conditions": [[c.to_dict() for c in own] for _, own in conditions]},
        )


ablation = door(
    Ablation,
    "ablation",
    then=("what",),
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones.",
    interventions="Made in every run, the unablated one included.",
)

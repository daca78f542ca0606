"""`LayerAccuracy`: accuracy after each layer on both sides, their gap and the critical layer."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.measurements.lens.texts import LENS
from icl_mech.measurements.accuracy.definitions import (
    CALIBRATED,
    CRITICAL,
    GAP,
    PERMUTED,
    PLAIN,
    REACHABLE,
)
from icl_mech.measurements.accuracy.pairs import (
    METRIC_NAMES,
    METRICS,
    OUTCOMES,
    SIDES,
    PairScores,
)
from icl_mech.measurements.accuracy.texts import (
    Sides,
    constant_answer,
    followed,
    format_found,
    harm,
    uncalibrated,
)
from icl_mech.measurements.lens.fitted_texts import noted
from icl_mech.measurements.lens.residuals import LensVariant
from icl_mech.measurements.lens.words import AFTER
from icl_mech.metrics import (
    Interval,
    Kind,
    bootstrap_interval,
    critical_layer,
    mean_interval,
    reachable_accuracy,
)
from icl_mech.results import Definition, Figure, Quantity, basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, told
from icl_mech.shapes import LayerCurves, Meaning, Panel

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerAccuracy(PairScores):
    """Scores of every pair of prompts at every entry; entry 0 is the embedding.

    Attributes:
        scores: By metric, side, prompt and entry.
        true_probs: Normalised label probabilities with true demonstrations.
        false_probs: The same with false ones.
        answers: True class of each query.
        variant: Of lens and critical layer.
        interval_kind: Kind of the intervals.
    """

    title: ClassVar[str] = "True and false demonstrations by layer"
    shows: ClassVar[tuple[str, ...]] = (*METRICS, "gap")
    definitions: ClassVar[tuple[Definition, ...]] = (
        LENS, CALIBRATED, REACHABLE, GAP, CRITICAL, PERMUTED, PLAIN,
    )  # fmt: skip

    true_probs: Float[Tensor, "batch entry label"]
    false_probs: Float[Tensor, "batch entry label"]
    answers: Int[Tensor, " batch"]
    variant: LensVariant = "sound"

    def quantities(self) -> dict[str, Quantity]:
        """The metrics by side and layer, and the `gap`, paired over prompts."""
        paired = self.pair_scores[:, 0] - self.pair_scores[:, 1]
        return {
            **super().quantities(),
            "gap": Quantity(("layer",), paired, unit="accuracy gap", kind="change"),
        }

    def _labels(self) -> int:
        return self.true_probs.shape[-1]

    @property
    def pair_scores(self) -> Float[Tensor, "batch side entry"]:
        """Calibrated scores, paired."""
        return self.scores[0].transpose(0, 1)

    @property
    def gap(self) -> Float[Tensor, " entry"]:
        """Calibrated accuracy with true minus with false demonstrations."""
        return self.accuracy("true") - self.accuracy("false")

    @property
    def final_gap(self) -> Interval:
        """The gap at the last entry."""
        return self.interval("gap", layer=self.scores.shape[-1] - 1)

    @property
    def critical(self) -> Interval | None:
        """The critical layer with its bootstrap interval.

        None where it is not defined: the interval of the final gap includes 0. Resamples
        without a final gap are left out.
        """
        if self.final_gap.low <= 0:
            return None

        def statistic(means: Tensor) -> Tensor:
            gap = means[:, 0] - means[:, 1]
            layer = critical_layer(gap, self.variant).double()
            return torch.where(gap[:, -1] > 0, layer, torch.nan)

        # Not a quantity: which layer is critical must not hang on how a mean is rounded.
        low, high = bootstrap_interval(self.pair_scores, statistic)
        return Interval(float(critical_layer(self.gap, self.variant)), float(low), float(high))

    @property
    def reachable(self) -> float:
        """Calibrated accuracy of a perfect classifier: below 1 where classes are unbalanced."""
        return reachable_accuracy(self.answers, self.true_probs.shape[-1])

    def drawing(self, show: str = "calibrated") -> LayerCurves:
        """One metric after each layer on both sides; beside calibrated accuracy the gap.

        Args:
            show: One of `shows`.

        Raises:
            ResultError: unknown `show`, or a metric that is not defined for these prompts.
        """
        self.check_show(show)
        found = self.sel(show)
        ends = [found.values, found.low, found.high]
        names: tuple[str, ...] = ("true demonstrations", "false demonstrations")
        meanings: tuple[Meaning, ...] = ("true", "false")
        chance = 1 / self.true_probs.shape[-1]
        levels: tuple[tuple[float, str], ...] = ((chance, f"chance {told(chance)}"),)
        marks: tuple[tuple[float, str], ...] = ()
        panels: tuple[Panel, ...] = ()
        y_range = None if show == "gap" else (-0.03, 1.05)
        if show == "gap":
            names, meanings, ends = ("gap",), ("other",), [end[None] for end in ends]
            levels = ((0.0, "no gap"),)
        elif show == "calibrated":
            gap, critical = self.sel("gap"), self.critical
            more = (gap.values, gap.low, gap.high)
            ends = [torch.cat([own, end[None]]) for own, end in zip(ends, more, strict=True)]
            names, meanings = (*names, "gap"), (*meanings, "other")
            levels = (*levels, (self.reachable, f"highest reachable {told(self.reachable)}"))
            panels = (
                Panel("Calibrated accuracy", (0, 1), METRIC_NAMES[show], levels, y_range=y_range),
                Panel("Gap, true minus false", (2,), "accuracy gap", ((0.0, "no gap"),)),
            )
            if critical is not None and len(self.answers) >= FEWEST_PROMPTS:
                marks = ((critical.value, "critical layer"),)
        elif show == "plain":
            constant = constant_answer(self.commonest, chance)
            levels = () if self.commonest <= chance else levels
            levels = (*levels, (self.commonest, f"{constant} {told(self.commonest)}"))
        elif show in ("top_labels", "label_space"):
            levels = ()
        pairs = counted(len(self.answers), "pair") + " of prompts"
        return LayerCurves(
            title=f"{found.unit[0].upper()}{found.unit[1:]} by layer",
            names=names,
            values=ends[0],
            low=ends[1],
            high=ends[2],
            y_title=found.unit,
            x_title=AFTER,
            note=noted(self) + basis(self, pairs),
            meanings=meanings,
            panels=panels,
            marks=marks,
            levels=() if panels else levels,
            y_range=None if panels else y_range,
        )

    @property
    def commonest(self) -> float:
        """Share of the most frequent true class: what a constant answer scores uncalibrated."""
        return float(torch.bincount(self.answers).max()) / len(self.answers)

    def _sides(self, metric: str) -> Sides:
        """One metric at the last layer, its gap paired."""
        last = self.scores.shape[-1] - 1
        true, false = (self.interval(metric, side=side, layer=last) for side in SIDES)
        scores = self.scores[METRICS.index(metric), ..., -1]
        kind: Kind = "change" if metric in OUTCOMES else "value"
        gap = (
            self.final_gap if metric == "calibrated" else mean_interval(scores[0] - scores[1], kind)
        )
        return Sides(true, false, gap, len(self.answers), given(self), self.interval_kind)

    def figures(self) -> list[Figure]:
        """Calibrated accuracy with its gap, the permuted score, and what calibration leaves out."""
        chance, own = 1 / self.true_probs.shape[-1], self._sides("calibrated")
        counts = self.tie_counts
        alike = counts is not None and bool((counts[0, :, 0] == counts[2, :, 0]).all())
        shown = [harm(own, self.critical, chance, self.reachable, alike=alike)]
        # Of two classes the wrong one is the false one: nothing that accuracy does not say.
        if self.true_probs.shape[-1] > 2 and self.defined("permuted"):
            score = self.interval("permuted", side="false", layer=self.scores.shape[-1] - 1)
            shown.append(followed(score, chance, own))
        space = self.accuracy("true", "label_space") >= 0.5
        half = self.scores.shape[-1] - int(space.flip(0).int().cummin(0).values.sum())
        return [
            *shown,
            uncalibrated(self._sides("plain"), self.commonest, chance),
            format_found(
                self._sides("label_space"), half if half < self.scores.shape[-1] else None
            ),
        ]

    def summary(self) -> str:
        """Final accuracies, gap and critical layer."""
        critical = self.critical
        where = (
            "no critical layer (the gap's interval includes 0)"
            if critical is None
            else f"critical layer {critical}"
        )
        last = self.sel(layer=self.scores.shape[-1] - 1)
        true, false = (last.interval(side=side) for side in ("true", "false"))
        return (
            f"calibrated accuracy {true} with true and {false} with false "
            f"demonstrations, gap {self.final_gap}; {where}{self.ties.note}"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per metric, side and entry."""
        import pandas as pd

        metrics = [name for name in METRICS if self.defined(name)]
        tables = [self.sel(name).to_pandas() for name in metrics]
        found = pd.concat(tables, keys=metrics, names=["metric"]).reset_index(level=0)
        return found.reset_index(drop=True).rename(columns={"side": "demonstrations"})

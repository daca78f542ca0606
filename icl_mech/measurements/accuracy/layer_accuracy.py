"""Accuracy by layer with true and with false demonstrations, their gap and critical layer.

Entry `l` of the logit lens is read as if the model ended there. The *gap* is the accuracy
with true minus with false demonstrations; the *critical layer* is the first entry from which
the gap stays at or above half its final value, or another fraction of it (`reference`: the first
crossing).

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import RunError
from icl_mech.measurements.accuracy.scores import (
    CALIBRATED,
    METRICS,
    OUTCOMES,
    PAPER,
    PERMUTED,
    PLAIN,
    REACHABLE,
    OfPairs,
    PairScores,
    Sides,
    entry_scores,
)
from icl_mech.measurements.base import Pair
from icl_mech.measurements.demonstrations import SIDES, taught_classes
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.by_class import ByClass, over_own
from icl_mech.measurements.lens.residuals import LENS, LensVariant
from icl_mech.metrics import Interval, bootstrap_interval, critical_layer, mean_interval
from icl_mech.metrics.calibration import reachable_accuracy
from icl_mech.metrics.intervals import holding
from icl_mech.metrics.layers import HALF, Crossing
from icl_mech.metrics.means import Kind
from icl_mech.models import LanguageModel
from icl_mech.results import Definition, Quantity
from icl_mech.results.judging import Status, judged

GAP = Definition(
    "accuracy gap",
    r"g_\ell = \operatorname{acc}_\ell(\text{true}) - \operatorname{acc}_\ell(\text{false})",
    "Calibrated accuracy with true demonstrations minus that with false demonstrations for the "
    "same queries.",
    f"{PAPER}, §4",
)

CRITICAL = Definition(
    "critical layer",
    r"\min\{\ell : g_{\ell'} \ge \tau\, g_L \text{ for all } \ell' \ge \ell\}",
    "The first layer from which the gap stays at or above a fraction τ of its final value "
    "(`threshold`, by default one half). Undefined unless the interval of the final gap lies "
    "above 0. Its interval is a percentile bootstrap over pairs of prompts.",
    f"{PAPER}, §4",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerAccuracyResult(PairScores):
    """Scores of every pair of prompts at every entry; entry 0 is the embedding.

    Attributes:
        scores: Scores by metric, side, prompt and entry.
        true_probs: Normalised label probabilities with true demonstrations.
        false_probs: The same with false ones.
        answers: True class of each query.
        variant: Variant of lens and critical layer.
        interval_kind: Kind of the intervals.
        threshold: Fraction of the final gap that is reached from the critical layer on.
        labels: Names of the classes; empty in results that were saved without them.
    """

    shows: ClassVar[tuple[str, ...]] = (*METRICS, "gap", "classes")
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"side": SIDES, "label": "classes"}
    definitions: ClassVar[tuple[Definition, ...]] = (
        LENS,
        *(CALIBRATED, REACHABLE, GAP, CRITICAL),
        *(PERMUTED, PLAIN),
    )

    true_probs: Float[Tensor, "batch entry label"]
    false_probs: Float[Tensor, "batch entry label"]
    answers: Int[Tensor, " batch"]
    variant: LensVariant = "sound"
    threshold: float = HALF
    labels: tuple[str, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """The metrics by side and layer, the `gap`, paired over prompts, and probabilities among the label words.

        `label_prob` is over all queries, `class_prob` of each class over its own.
        """
        paired = self.pair_scores[:, 0] - self.pair_scores[:, 1]
        gap = Quantity(("layer",), paired, unit="accuracy gap", kind="change")
        quantities = {**super().quantities(), "gap": gap}
        if not self.own_choices:
            dims, unit = ("side", "layer", "label"), "probability among the label words"
            probs = torch.stack([self.true_probs, self.false_probs], 1)
            quantities["label_prob"] = Quantity(dims, probs, unit=unit, kind="outcome")
            quantities["class_prob"] = over_own(probs, self.answers, dims, unit)
        return quantities

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

    @cached_property
    def final_gap(self) -> Interval:
        """The gap at the last entry."""
        return self.interval("gap", layer=self.last)

    @cached_property
    def critical(self) -> Interval | None:
        """The critical layer with its bootstrap interval, at the measurement's `threshold`."""
        return self.critical_at(self.threshold)

    def critical_at(self, threshold: float) -> Interval | None:
        """The critical layer at another fraction of the final gap, such as a quarter or three quarters.

        None unless the interval of the final gap lies above 0. Resamples whose final gap is not above 0 are left out.

        Raises:
            ResultError: a fraction that is not above 0 and at most 1.
        """
        if self.final_gap.low <= 0:
            return None
        return critical_interval(self.pair_scores, self.gap, self.variant, threshold)

    @property
    def last(self) -> int:
        """The last entry."""
        return self.scores.shape[-1] - 1

    def at_last(self, metric: str = "calibrated") -> Sides:
        """One metric at the last layer, its gap paired."""
        true, false = (self.interval(metric, side=side, layer=self.last) for side in SIDES)
        scores = self.scores[METRICS.index(metric), ..., -1]
        kind: Kind = "change" if metric in OUTCOMES else "value"
        gap = (
            self.final_gap if metric == "calibrated" else mean_interval(scores[0] - scores[1], kind)
        )
        return Sides(true, false, gap, self.pairs)

    @property
    def status(self) -> Status:
        """Status of the claim that false demonstrations lower accuracy."""
        return judged(self.final_gap, prompts=self.pairs)

    # --- probabilities of classes ---

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; numbers in results that were saved without names."""
        return self.labels or tuple(f"class {label + 1}" for label in range(self._labels()))

    @property
    def by_class(self) -> ByClass:
        """What the lens gives each class with true demonstrations, over all queries and over its own.

        Raises:
            ResultError: the prompts have choices of their own, not classes.
        """
        own = self.sel("class_prob", side="true")
        space = self.accuracy("true", "label_space")
        return ByClass(self.sel("label_prob", side="true"), own, space, self.classes)

    # --- what accuracy is compared with ---

    @property
    def chance(self) -> float:
        """Accuracy of guessing: one over the number of classes."""
        return 1 / self.true_probs.shape[-1]

    @property
    def reachable(self) -> float:
        """Calibrated accuracy of a perfect classifier: below 1 where classes are unbalanced."""
        best = reachable_accuracy(self.answers, self.true_probs.shape[-1])
        return 1.0 if self.own_choices else best

    @property
    def commonest(self) -> float:
        """Fraction of the most frequent true class: the uncalibrated accuracy of the majority-class baseline."""
        return float(torch.bincount(self.answers).max()) / len(self.answers)

    @property
    def even(self) -> bool:
        """True if classes are equally frequent, so that every constant answer has chance accuracy."""
        return self.commonest <= self.chance + 1e-9

    # --- other measures ---

    @cached_property
    def false_label(self) -> Interval:
        """Permuted score of the last layer with false demonstrations."""
        return self.interval("permuted", side="false", layer=self.last)

    @property
    def followed(self) -> Status:
        """Status of the claim that the model answers with the label that false demonstrations teach."""
        return judged(self.false_label, null=self.chance, prompts=self.pairs)

    @property
    def format_from(self) -> int | None:
        """First entry from which label words have half of the probability or more, with true demonstrations."""
        most = self.accuracy("true", "label_space") >= 0.5
        first = self.last + 1 - int(most.flip(0).int().cummin(0).values.sum())
        return first if first <= self.last else None

    @property
    def alike_at_embedding(self) -> bool:
        """True if every score at the embedding is a tie."""
        counts = self.tie_counts
        return counts is not None and bool((counts[0, :, 0] == counts[2, :, 0]).all())

    def on_page(self) -> tuple[str, ...]:
        """Calibrated accuracy and its gap, the permuted score, the uncalibrated measures, and each class."""
        # Accuracy of choices is not calibrated, and the first figure is about it.
        there = {
            "permuted": self.tells_followed,
            "plain": not self.own_choices,
            "classes": not self.own_choices,
        }
        every = ("calibrated", "gap", "permuted", "plain", "label_space", "classes")
        return tuple(show for show in every if there.get(show, True))


def critical_interval(
    scores: Float[Tensor, "batch side entry"],
    gap: Float[Tensor, " entry"],
    crossing: Crossing,
    threshold: float,
) -> Interval:
    """The critical layer of a gap, with its bootstrap interval over paired scores."""

    def statistic(means: Tensor) -> Tensor:
        gaps = means[:, 0] - means[:, 1]
        layer = critical_layer(gaps, crossing, threshold).double()
        return torch.where(gaps[:, -1] > 0, layer, torch.nan)

    # Not a quantity: which layer is critical must not depend on how a mean is rounded.
    low, high = bootstrap_interval(scores, statistic)
    return holding(float(critical_layer(gap, crossing, threshold)), float(low), float(high))


@dataclass(frozen=True)
class LayerAccuracy(OfPairs[LayerAccuracyResult]):
    """Accuracy at every layer with true and with false demonstrations of the same queries.

    Attributes:
        threshold: Fraction of the final gap that is reached from the critical layer on, a half in the paper.

    Raises:
        PromptError: sets that are not pairs, or have no answers.
        RunError: unknown variant or interval, a lens of another model, or an invalid fraction.

    Source: Halawi et al. 2023, §4.
    """

    threshold: float = HALF

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            RunError: names the field and the values it may have.
        """
        super().__post_init__()
        if not 0 < self.threshold <= 1:
            raise RunError(
                f"threshold={self.threshold}; expected a fraction of the final gap, above 0 and at "
                "most 1."
            )

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> LayerAccuracyResult:
        """Scores at the targets of both sides."""
        true, false = data
        taught, exact = taught_classes(false), self.variant == "reference"
        sides = [
            entry_scores(lens, 0, true.answers, taught, true, exact_ties=exact) for (lens,) in read
        ]
        return LayerAccuracyResult(
            scores=torch.stack([side.scores for side in sides], dim=1),
            true_probs=sides[0].probs,
            false_probs=sides[1].probs,
            tie_counts=torch.stack([side.tie_counts for side in sides], dim=1),
            answers=true.answers,
            variant=self.variant,
            interval_kind=self.interval,
            own_choices=not true.has_classes,
            threshold=self.threshold,
            labels=true.labels if true.has_classes else (),
        )


layer_accuracy = door(
    LayerAccuracy,
    "layer_accuracy",
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones, see `build_prompt_pairs`.",
)

"""Layers in which heads match prefixes, and in which false demonstrations begin to lower accuracy.

The prefix-matching scores of a layer's heads are summed and compared with the fraction of the
final gap `(true - false)` that has opened after each layer. If heads that copy false labels
cause the gap, it opens in their layers.

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracy, LayerAccuracyResult
from icl_mech.measurements.accuracy.scores import METRICS
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.head_scores import HeadScores, HeadScoresResult
from icl_mech.measurements.heads.label_attention import MATCHING, Attended
from icl_mech.measurements.lens.residuals import LensVariant
from icl_mech.metrics import Interval
from icl_mech.models import LanguageModel
from icl_mech.results import Definition, Quantity, Result, function_of_means, quantity
from icl_mech.results.judging import Status, judged
from icl_mech.results.quantities import kept

GAP_SHARE = Definition(
    "fraction of the final gap",
    r"g_\ell / g_L, \quad g_\ell = \operatorname{acc}_\ell(\text{true}) - \operatorname{acc}_\ell(\text{false})",
    "How much of the final gap between true and false demonstrations is present after each layer.",
)

SHARE = "fraction of the final gap"


@dataclass(frozen=True, eq=False, kw_only=True)
class MatchingByLayerResult(Result):
    """Prefix matching summed over each layer, and the gap.

    Attributes:
        per_prompt: Prefix-matching score, summed over the heads of a layer.
        gap_share: Gap after each layer over the gap at the end; not-a-number unless the
            interval of the final gap lies above 0.
        gap_low: Lower ends of its 95 % bootstrap interval, paired over prompts.
        gap_high: Upper ends.
        pair_scores: Calibrated scores behind the gap; None in results that were saved without.
    """

    definitions: ClassVar[tuple[Definition, ...]] = (MATCHING, GAP_SHARE)

    per_prompt: Float[Tensor, "batch layer"] = quantity(
        "prefix-matching score, summed over heads", name="prefix_matching"
    )
    gap_share: Float[Tensor, " layer"]
    gap_low: Float[Tensor, " layer"]
    gap_high: Float[Tensor, " layer"]
    pair_scores: Float[Tensor, "batch side entry"] | None = None

    def quantities(self) -> dict[str, Quantity]:
        """Prefix matching and, where there is a final gap, the fraction of it that has opened."""
        if self.pair_scores is None or not self.has_gap:
            return super().quantities()
        share = function_of_means(self.pair_scores, _gap_share)
        return {
            **super().quantities(),
            "gap_share": Quantity(("layer",), self.pair_scores, share, SHARE),
        }

    @property
    def matching(self) -> Float[Tensor, " layer"]:
        """Prefix matching by layer, averaged over prompts."""
        return self.quantities()["prefix_matching"].value()

    @property
    def has_gap(self) -> bool:
        """True if there is a final gap, of which a fraction can be taken."""
        return not bool(self.gap_share.isnan().any())

    # --- facts ---

    @property
    def count(self) -> int:
        """Number of pairs of prompts."""
        return len(self.per_prompt)

    @property
    def best(self) -> int:
        """The layer with the largest prefix matching."""
        return int(self.matching.argmax())

    @property
    @kept
    def opened(self) -> Interval | None:
        """Fraction of the final gap that opens across that layer; None without a gap."""
        if not self.has_gap:
            return None
        if self.pair_scores is None:
            before = float(self.gap_share[self.best - 1]) if self.best else 0.0
            return Interval(float(self.gap_share[self.best]) - before, torch.nan, torch.nan)
        share = function_of_means(self.pair_scores, _opened(self.best))
        quantity = Quantity((), self.pair_scores, share)
        return Interval(float(quantity.value()), *map(float, quantity.ends()))

    @property
    def status(self) -> Status:
        """Status of the claim that part of the gap opens there."""
        return judged(self.opened, prompts=self.count)


@dataclass(frozen=True)
class MatchingByLayer(PairMeasurement[MatchingByLayerResult]):
    """Prefix matching of whole layers on false prompts, compared with the gap between both sides.

    Attributes:
        over: Attention to the `labels`, or to the tokens `before_labels`.
        variant: Variant of the lens for the accuracy, `sound` or `reference`.

    Raises:
        PromptError: sets that are not pairs, or prompts without a class to match.
        RunError: processed weights.

    Source: Halawi et al. 2023, §5.
    """

    over: Attended = "labels"
    variant: LensVariant = "sound"

    why_not = "prefix matching compares demonstrations of the query's class with the others"

    @property
    def scoring(self) -> HeadScores:
        """The measurement that scores the heads."""
        return HeadScores(over=self.over)

    @property
    def accuracy(self) -> LayerAccuracy:
        """The measurement that gives the gap."""
        return LayerAccuracy(self.variant)

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject whatever head scores and accuracy by layer reject.

        Raises:
            PromptError: sets that are not pairs, or prompts without a class to match.
            RunError: processed weights.
        """
        self.accuracy.check(model, data)
        self.scoring.check(model, data[1])

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """The passes of head scores on the false prompts, and those of accuracy by layer."""
        return [*self.scoring.passes(model, data[1]), *self.accuracy.passes(model, data)]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> MatchingByLayerResult:
        """Prefix matching and gap by layer."""
        heads = self.scoring.result(model, data[1], read[:1])
        return side_by_side(heads, self.accuracy.result(model, data, read[1:]))


matching_by_layer = door(
    MatchingByLayer,
    "matching_by_layer",
    true="Prompts with true demonstrations.",
    false="The same queries with false demonstrations; heads are scored on these.",
)


def side_by_side(heads: HeadScoresResult, accuracy: LayerAccuracyResult) -> MatchingByLayerResult:
    """Prefix matching summed over heads, and the fraction of the final gap, by layer."""
    scores = accuracy.scores[METRICS.index("calibrated")].transpose(0, 1).double()
    gap_low, _ = Quantity(("entry",), scores[:, 0] - scores[:, 1], kind="change").ends()
    if float(gap_low[-1]) > 0:
        share = Quantity(("layer",), scores, function_of_means(scores, _gap_share))
        value, (low, high) = _gap_share(scores.mean(0)), share.ends()
    else:
        value, low, high = (torch.full(scores.shape[-1:], torch.nan)[1:].double() for _ in range(3))
    return MatchingByLayerResult(
        per_prompt=heads.matching.sum(-1),
        gap_share=value,
        gap_low=low,
        gap_high=high,
        pair_scores=scores.contiguous(),
        provenance=heads.provenance,
    )


def _gap_share(means: Float[Tensor, "*r side entry"]) -> Float[Tensor, "*r layer"]:
    """Gap after each layer over the gap at the end; not-a-number where that is not above 0."""
    gap = means[..., 0, :] - means[..., 1, :]
    final = gap[..., -1:]
    return torch.where(final > 0, gap[..., 1:] / final, torch.nan)


def _opened(layer: int) -> Callable[[Tensor], Tensor]:
    """Fraction of the final gap that opens across one layer."""

    def share(means: Float[Tensor, "*r side entry"]) -> Float[Tensor, "*r"]:
        gap = means[..., 0, :] - means[..., 1, :]
        across = (gap[..., layer + 1] - gap[..., layer]) / gap[..., -1]
        return torch.where(gap[..., -1] > 0, across, torch.nan)

    return share

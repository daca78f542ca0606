"""Where heads match prefixes, and where false demonstrations begin to cost accuracy.

The prefix-matching scores of a layer's heads are added; beside them stands the share of the
final gap `(true - false)` that has opened after each layer. If heads that copy false labels
make the gap, it opens where they are.

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.accuracy.layers import AccuracyByLayer, LayerAccuracy
from icl_mech.measurements.accuracy.pairs import METRICS
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.heads.label_attention import Attended
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.heads.scoring import HeadScoring
from icl_mech.measurements.lens.residuals import LensVariant
from icl_mech.models import LanguageModel
from icl_mech.results import Quantity, Result, basis, function_of_means, jsonable
from icl_mech.shapes import LayerCurves

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class MatchingByLayer(Result):
    """Prefix matching of whole layers beside the gap.

    Attributes:
        per_prompt: Prefix-matching score, heads of a layer added.
        gap_share: Gap after each layer over the gap at the end; not-a-number where the
            interval of the final gap includes 0.
        gap_low: Lower ends of its 95 % bootstrap interval, paired over prompts.
        gap_high: Upper ends.
        pair_scores: Calibrated scores behind the gap; None in results that were saved without.
    """

    title: ClassVar[str] = "Prefix matching and the gap by layer"

    per_prompt: Float[Tensor, "batch layer"]
    gap_share: Float[Tensor, " layer"]
    gap_low: Float[Tensor, " layer"]
    gap_high: Float[Tensor, " layer"]
    pair_scores: Float[Tensor, "batch side entry"] | None = None

    def quantities(self) -> dict[str, Quantity]:
        """Prefix matching and, where there is a final gap, the share of it that has opened."""
        dims, unit = ("layer",), "prefix-matching score, added over heads"
        found = {"prefix_matching": Quantity(dims, self.per_prompt, unit=unit)}
        if self.pair_scores is not None and self.has_gap:
            share = function_of_means(self.pair_scores, _gap_share)
            unit = "share of the final gap"
            found["gap_share"] = Quantity(dims, self.pair_scores, share, unit)
        return found

    @property
    def matching(self) -> Float[Tensor, " layer"]:
        """Mean over prompts."""
        return self.quantities()["prefix_matching"].value()

    @property
    def has_gap(self) -> bool:
        """False if there is no final gap to have a share of."""
        return not bool(self.gap_share.isnan().any())

    def drawing(self) -> LayerCurves:
        """Both curves; the share of the gap on the right axis."""
        name, gap = "prefix matching, all heads", "share of the final gap (right axis)"
        shown = 2 if self.has_gap else 1
        low, high = self.quantities()["prefix_matching"].ends()
        note = basis(self)
        if not self.has_gap:
            note += "; no share is drawn: the interval of the final gap includes 0"
        return LayerCurves(
            title="Prefix matching by layer, and where the gap opens",
            names=(name, gap)[:shown],
            values=torch.stack([self.matching, self.gap_share])[:shown],
            low=torch.stack([low, self.gap_low])[:shown],
            high=torch.stack([high, self.gap_high])[:shown],
            y_title="prefix-matching score, added over heads",
            note=note,
            right=(gap,)[: shown - 1],
            right_title="share of the final gap",
        )

    def summary(self) -> str:
        """The layer that matches most, and the share of the gap that has opened by then."""
        best = int(self.matching.argmax())
        text = f"heads match prefixes most in layer {best} (sum {float(self.matching[best]):.3g})"
        if not self.has_gap:
            return f"{text}; the interval of the final gap includes 0, so it has no shares"
        return f"{text}; by then {float(self.gap_share[best]):.0%} of the final gap has opened"

    def to_pandas(self) -> "pd.DataFrame":
        """One row per layer."""
        import pandas as pd

        low, high = self.quantities()["prefix_matching"].ends()
        return pd.DataFrame(
            {
                "layer": range(len(self.matching)),
                "prefix_matching": self.matching.tolist(),
                "prefix_matching_low": low.tolist(),
                "prefix_matching_high": high.tolist(),
                "gap_share": self.gap_share.tolist(),
                "gap_share_low": self.gap_low.tolist(),
                "gap_share_high": self.gap_high.tolist(),
            }
        )


@dataclass(frozen=True)
class LayerMatching(PairMeasurement[MatchingByLayer]):
    """Prefix matching of whole layers on false prompts, beside the gap of both sides.

    Attributes:
        over: Attention to the `labels`, or to the tokens `before_labels`.
        variant: Of the accuracy's lens, `sound` or `reference`.
    """

    name: ClassVar[str] = "matching_by_layer"

    over: Attended = "labels"
    variant: LensVariant = "sound"

    @property
    def scoring(self) -> HeadScoring:
        """How the heads are scored."""
        return HeadScoring(over=self.over)

    @property
    def accuracy(self) -> AccuracyByLayer:
        """Where the gap comes from."""
        return AccuracyByLayer(self.variant)

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse what head scores and accuracy by layer refuse.

        Raises:
            PromptError: sets that are not pairs, or prompts without a class to match.
            RunError: processed weights.
        """
        self.accuracy.check(model, data)
        self.scoring.check(model, data[1])

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """Those of head scores on the false prompts, and those of accuracy by layer."""
        return [*self.scoring.passes(model, data[1]), *self.accuracy.passes(model, data)]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> MatchingByLayer:
        """Both by layer."""
        heads = self.scoring.result(model, data[1], read[:1])
        return matching_by_layer(heads, self.accuracy.result(model, data, read[1:]))


@checked(ResultError)
def matching_by_layer(heads: HeadScores, accuracy: LayerAccuracy) -> MatchingByLayer:
    """Prefix matching summed over heads, and the share of the final gap, by layer.

    Args:
        heads: `HeadScores` of the false prompts.
        accuracy: `LayerAccuracy` of the same prompts with true and false demonstrations.

    Raises:
        ResultError: results of different prompts or models.

    Source: Halawi et al. 2023, §5.
    """
    scores = accuracy.scores[METRICS.index("calibrated")].transpose(0, 1).double()
    found, expected = heads.matching.shape[:2], (len(scores), scores.shape[-1] - 1)
    if tuple(found) != expected:
        raise ResultError(
            f"Head scores of {found[0]} prompts in {found[1]} layers, accuracy of {expected[0]} "
            f"prompts in {expected[1]} layers; give results of the same prompts and model."
        )
    _check_sources(heads.provenance, accuracy.provenance)
    gap_low, _ = Quantity(("entry",), scores[:, 0] - scores[:, 1]).ends()
    if float(gap_low[-1]) > 0:
        share = Quantity(("layer",), scores, function_of_means(scores, _gap_share))
        value, (low, high) = _gap_share(scores.mean(0)), share.ends()
    else:
        value, low, high = (torch.full((expected[1],), torch.nan).double() for _ in range(3))
    return MatchingByLayer(
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


def _check_sources(heads: Mapping[str, Any], accuracy: Mapping[str, Any]) -> None:
    """Refuse results whose provenance says that they have different prompts or models."""
    for what, own, other in (
        ("models", heads.get("model", {}).get("name"), accuracy.get("model", {}).get("name")),
        ("false prompts", heads.get("prompts"), accuracy.get("false_prompts")),
    ):
        if own is not None and other is not None and jsonable(own) != jsonable(other):
            raise ResultError(
                f"Head scores and accuracy are of different {what}: {own} and {other}. Give "
                "head scores of the prompts with false demonstrations."
            )

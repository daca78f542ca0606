"""Where heads match prefixes, and where false demonstrations begin to cost accuracy.

The prefix-matching scores of a layer's heads are added; beside them stands the share of the
final gap `(true - false)` that has opened after each layer. If heads that copy false labels
make the gap, it opens where they are.

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.accuracy.layers import AccuracyByLayer, LayerAccuracy
from icl_mech.measurements.accuracy.pairs import METRICS
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.heads.definitions import GAP_SHARE, MATCHING
from icl_mech.measurements.heads.label_attention import Attended
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.heads.scoring import HeadScoring
from icl_mech.measurements.heads.texts import opening_gap
from icl_mech.measurements.lens.residuals import LensVariant
from icl_mech.metrics import Interval
from icl_mech.models import LanguageModel
from icl_mech.results import (
    Definition,
    Figure,
    Quantity,
    Result,
    basis,
    function_of_means,
    jsonable,
)
from icl_mech.results.prompts import given
from icl_mech.results.wording import percent
from icl_mech.shapes import LayerCurves, Meaning, Panel

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
    definitions: ClassVar[tuple[Definition, ...]] = (MATCHING, GAP_SHARE)

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
        """Prefix matching by layer and, on axes of its own, the share of the gap after each."""
        low, high = self.quantities()["prefix_matching"].ends()
        # A layer acts between two readings, so there is one more of these.
        ends = [_widened(end, before=False) for end in (self.matching, low, high)]
        share = (self.gap_share, self.gap_low, self.gap_high)
        ends += [_widened(end, before=True) for end in share] if self.has_gap else []
        rows = len(ends) // 3
        panels = (
            Panel("Prefix matching, heads added", (0,), "prefix-matching score"),
            Panel("Share of the final gap", (1,), "share of the final gap", ((1.0, "final gap"),)),
        )
        note = basis(self)
        if not self.has_gap:
            note += "; no share is drawn: the interval of the final gap includes 0"
        meanings: tuple[Meaning, ...] = ("label", "other")
        return LayerCurves(
            title="Prefix matching by layer, and where the gap opens",
            names=("heads of the layer", "gap after the layer")[:rows],
            values=torch.stack(ends[0::3]),
            low=torch.stack(ends[1::3]),
            high=torch.stack(ends[2::3]),
            y_title="prefix-matching score",
            x_title="layer of the heads (gap: read after layer …, 0: the embedding)",
            note=note,
            meanings=meanings[:rows],
            panels=panels[:rows],
            columns=1,
        )

    def figures(self) -> list[Figure]:
        """Whether the gap opens where heads match prefixes."""
        best = int(self.matching.argmax())
        score = self.interval("prefix_matching", layer=best)
        share = None
        if self.has_gap and self.pair_scores is not None:
            opened = Quantity(
                (), self.pair_scores, function_of_means(self.pair_scores, _opened(best))
            )
            share = Interval(float(opened.value()), *map(float, opened.ends()))
        elif self.has_gap:
            before = float(self.gap_share[best - 1]) if best else 0.0
            share = Interval(float(self.gap_share[best]) - before, torch.nan, torch.nan)
        return [opening_gap(best, score, share, len(self.per_prompt), given=given(self))]

    def summary(self) -> str:
        """The layer that matches most, and the share of the gap that has opened by then."""
        best = int(self.matching.argmax())
        text = f"heads match prefixes most in layer {best} (sum {float(self.matching[best]):.3g})"
        if not self.has_gap:
            return f"{text}; the interval of the final gap includes 0, so it has no shares"
        return f"{text}; by then {percent(float(self.gap_share[best]))} of the final gap has opened"

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
    gap_low, _ = Quantity(("entry",), scores[:, 0] - scores[:, 1], kind="change").ends()
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


def _opened(layer: int) -> Callable[[Tensor], Tensor]:
    """How much of the final gap opens across one layer."""

    def share(means: Float[Tensor, "*r side entry"]) -> Float[Tensor, "*r"]:
        gap = means[..., 0, :] - means[..., 1, :]
        across = (gap[..., layer + 1] - gap[..., layer]) / gap[..., -1]
        return torch.where(gap[..., -1] > 0, across, torch.nan)

    return share


def _widened(end: Float[Tensor, " layer"], *, before: bool) -> Float[Tensor, " entry"]:
    """One more place: behind the layers (heads), or before them (readings after layers)."""
    blank = torch.full((1,), torch.nan, dtype=end.dtype)
    return torch.cat([blank, end] if before else [end, blank])


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

"""Where heads match prefixes, and where false demonstrations begin to cost accuracy.

The prefix-matching scores of a layer's heads are added; beside them stands the share of the
final gap `(true - false)` that has opened after each layer. If heads that copy false labels
make the gap, it opens where they are.

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.metrics import bootstrap_interval
from icl_mech.results import Result
from icl_mech.results.storage import jsonable
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
    """

    title: ClassVar[str] = "Prefix matching and the gap by layer"

    per_prompt: Float[Tensor, "batch layer"]
    gap_share: Float[Tensor, " layer"]
    gap_low: Float[Tensor, " layer"]
    gap_high: Float[Tensor, " layer"]

    @property
    def matching(self) -> Float[Tensor, " layer"]:
        """Mean over prompts."""
        return self.per_prompt.double().mean(0)

    @property
    def has_gap(self) -> bool:
        """False if there is no final gap to have a share of."""
        return not bool(self.gap_share.isnan().any())

    def drawing(self) -> LayerCurves:
        """Both curves; the share of the gap on the right axis."""
        name, gap = "prefix matching, all heads", "share of the final gap (right axis)"
        shown = 2 if self.has_gap else 1
        low, high = bootstrap_interval(self.per_prompt.double())
        note = f"means over {len(self.per_prompt)} prompts, 95 % bootstrap intervals"
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

        low, high = bootstrap_interval(self.per_prompt.double())
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


def matching_by_layer(heads: Any, accuracy: Any) -> MatchingByLayer:
    """Prefix matching summed over heads, and the share of the final gap, by layer.

    Args:
        heads: `HeadScores` of the false prompts.
        accuracy: `LayerAccuracy` of the same prompts with true and false demonstrations.

    Raises:
        ResultError: results of different prompts or models.

    Source: Halawi et al. 2023, §5.
    """
    found = (len(heads.matching), heads.matching.shape[1])
    expected = (len(accuracy.answers), accuracy.true_probs.shape[1] - 1)
    if found != expected:
        raise ResultError(
            f"Head scores of {found[0]} prompts in {found[1]} layers, accuracy of {expected[0]} "
            f"prompts in {expected[1]} layers; give results of the same prompts and model."
        )
    _check_sources(heads.provenance, accuracy.provenance)

    def share(means: Tensor) -> Tensor:
        gap = means[..., 0, :] - means[..., 1, :]
        final = gap[..., -1:]
        return torch.where(final > 0, gap[..., 1:] / final, torch.nan)

    scores = accuracy.pair_scores.double()
    if accuracy.final_gap.low > 0:
        value = share(scores.mean(0))
        low, high = bootstrap_interval(scores, share)
    else:
        value, low, high = (torch.full((expected[1],), torch.nan).double() for _ in range(3))
    return MatchingByLayer(
        per_prompt=heads.matching.sum(-1),
        gap_share=value,
        gap_low=low,
        gap_high=high,
        provenance=heads.provenance,
    )


def _check_sources(heads: dict[str, Any], accuracy: dict[str, Any]) -> None:
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

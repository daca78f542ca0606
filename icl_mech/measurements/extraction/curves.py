"""AUC curves with intervals and R, for one prompt set and for averages over several.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.3.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.metrics import (
    FEWEST,
    Interval,
    class_resamples,
    class_scores,
    cumulative_share,
    macro_auc,
    quantile_ends,
    resampled_auc,
)
from icl_mech.results import Result
from icl_mech.results.quantities import Statistic
from icl_mech.shapes import LayerCurves

if TYPE_CHECKING:
    import pandas as pd

TwoClasses = Literal["normalised", "reference"]

AUC, SHARE = "AUCROC of attention to label words", "R: share of its sum up to this layer"


@dataclass(frozen=True, eq=False, kw_only=True)
class AucCurves(Result):
    """AUC and R by layer; ends are those of 95 % bootstrap intervals over prompts.

    Attributes:
        auc: AUC of each layer; not-a-number if fewer than two classes are left.
        auc_low: Lower ends.
        auc_high: Upper ends.
        cumulative: R after each layer; a number even where R is undefined.
        cumulative_low: Lower ends; not-a-number where R is undefined.
        cumulative_high: Upper ends.
        sums: Rows: denominator of R, mean AUC of the first and of the last third of the
            layers, last minus first. Columns: value and ends.
        notes: What was left out or is undefined, and why.
    """

    title: ClassVar[str] = "What the prediction is read from"

    auc: Float[Tensor, " layer"]
    auc_low: Float[Tensor, " layer"]
    auc_high: Float[Tensor, " layer"]
    cumulative: Float[Tensor, " layer"]
    cumulative_low: Float[Tensor, " layer"]
    cumulative_high: Float[Tensor, " layer"]
    sums: Float[Tensor, "4 3"]
    notes: tuple[str, ...] = ()

    @property
    def defined(self) -> bool:
        """False if fewer than two classes were left."""
        return bool(self.auc.isfinite().all())

    @property
    def cumulative_defined(self) -> bool:
        """True if the denominator of R is positive and its interval excludes 0."""
        return _clearly_positive(self.sums[0])

    @property
    def denominator(self) -> Interval:
        """`sum_l (AUC_l - 0.5)`."""
        return Interval(*self.sums[0].tolist())

    @property
    def first_third(self) -> Interval:
        """Mean AUC of the first third of the layers."""
        return Interval(*self.sums[1].tolist())

    @property
    def last_third(self) -> Interval:
        """Mean AUC of the last third of the layers."""
        return Interval(*self.sums[2].tolist())

    @property
    def rise(self) -> Interval:
        """Mean AUC of the last third minus that of the first, paired over prompts."""
        return Interval(*self.sums[3].tolist())

    def drawing(self) -> LayerCurves:
        """AUC (left axis) and, where it is defined, R (right axis)."""
        values = [(self.auc, self.auc_low, self.auc_high)]
        if self.cumulative_defined:
            values.append((self.cumulative, self.cumulative_low, self.cumulative_high))
        rows = [torch.stack(column) for column in zip(*values, strict=True)]
        names = (AUC, SHARE)[: len(values)]
        return LayerCurves(
            title="Extraction from label words by layer",
            names=names,
            values=rows[0],
            low=rows[1],
            high=rows[2],
            y_title="AUCROC",
            note="; ".join([self._note(), *self.notes]),
            right=names[1:],
            right_title="R" if names[1:] else "",
            levels=((0.5, "chance"),),
        )

    def summary(self) -> str:
        """Mean AUC early and late, where R passes one half, and what is undefined."""
        if not self.defined:
            return "AUC of attention to label words: " + "; ".join(self.notes)
        rise = self.rise
        verdict = "no clear change"
        if rise.low > 0 or rise.high < 0:
            verdict = "rising with depth" if rise.low > 0 else "falling with depth"
        text = (
            f"AUC of attention to label words: {self.first_third} in the first third of the layers, "
            f"{self.last_third} in the last, difference {rise}: {verdict}"
        )
        if self.cumulative_defined:
            half = int((self.cumulative >= 0.5).int().argmax())
            text += f"; R passes one half in layer {half} of 0 to {len(self.auc) - 1}"
        return "; ".join([text, *self.notes])

    def to_pandas(self) -> "pd.DataFrame":
        """One row per layer."""
        import pandas as pd

        return pd.DataFrame(
            {
                "layer": range(len(self.auc)),
                "auc": self.auc.tolist(),
                "auc_low": self.auc_low.tolist(),
                "auc_high": self.auc_high.tolist(),
                "cumulative": self.cumulative.tolist(),
                "cumulative_low": self.cumulative_low.tolist(),
                "cumulative_high": self.cumulative_high.tolist(),
                "cumulative_defined": self.cumulative_defined,
            }
        )

    def _note(self) -> str:
        """What the intervals rest on."""
        return "95 % bootstrap intervals over prompts"


def auc_statistic(
    attention: Float[Tensor, "batch layer label"],
    truth: Int[Tensor, " batch"],
    two_classes: TwoClasses,
) -> Statistic:
    """AUC by layer as a function of resampling weights.

    Resamples that lose a class are not-a-number, and all of them where hardly any holds all
    classes: the few others would pass for an interval.
    """
    classes = tuple(truth.unique().tolist())
    scores = class_scores(attention, classes, raw_pair=two_classes == "reference")

    def statistic(weights: Float[Tensor, "r batch"]) -> Float[Tensor, "r layer"]:
        # Multiplied back to counts, which float32 sums exactly.
        drawn = resampled_auc(scores, truth, (weights * len(truth)).float())
        whole = drawn.isfinite().all(1).double().mean()
        return drawn if whole >= FEWEST else torch.full_like(drawn, torch.nan)

    return statistic


def resampled(
    attention: Float[Tensor, "batch layer label"],
    truth: Int[Tensor, " batch"],
    two_classes: TwoClasses,
    *,
    seed: int = 0,
) -> tuple[Float[Tensor, " layer"], Float[Tensor, "r layer"] | None, int]:
    """AUC by layer, the same in every resample, and how many resamples were redrawn.

    Not-a-number with fewer than two classes; no resamples if the classes are too rare.
    """
    classes = tuple(truth.unique().tolist())
    if len(classes) < 2:
        return torch.full((attention.shape[1],), torch.nan, dtype=torch.float64), None, 0
    scores = class_scores(attention, classes, raw_pair=two_classes == "reference")
    weights, redrawn = class_resamples(truth, seed=seed)
    drawn = None if weights is None else resampled_auc(scores, truth, weights)
    return macro_auc(scores, truth), drawn, redrawn


def curve_fields(
    auc: Float[Tensor, " layer"], drawn: Float[Tensor, "r layer"] | None
) -> dict[str, Any]:
    """All fields of `AucCurves` but its notes; without resamples the ends are not-a-number."""
    cumulative, sums = cumulative_share(auc), _sums(auc)
    if drawn is None:
        ends, share_ends, sum_ends = _nothing(auc), _nothing(auc), _nothing(sums)
    else:
        ends, sum_ends = quantile_ends(drawn), quantile_ends(_sums(drawn))
        share_ends = quantile_ends(cumulative_share(drawn))
    table = torch.stack([sums, *sum_ends], dim=-1)
    if not _clearly_positive(table[0]):
        share_ends = _nothing(auc)
    return {
        "auc": auc, "auc_low": ends[0], "auc_high": ends[1], "cumulative": cumulative,
        "cumulative_low": share_ends[0], "cumulative_high": share_ends[1], "sums": table,
    }  # fmt: skip


def share_note(fields: dict[str, Any]) -> tuple[str, ...]:
    """Says why R is undefined, if it is."""
    found = Interval(*fields["sums"][0].tolist())
    if not fields["auc"].isfinite().all() or _clearly_positive(fields["sums"][0]):
        return ()
    return (f"R undefined: its denominator, the sum of AUC - 0.5, is {found}, not clearly above 0",)


def _nothing(like: Tensor) -> tuple[Tensor, Tensor]:
    # Tensors of their own: files refuse two that share memory.
    return torch.full_like(like, torch.nan), torch.full_like(like, torch.nan)


def _clearly_positive(interval: Tensor) -> bool:
    return bool(interval[0] > 0) and bool(interval[1] > 0)


def _sums(auc: Float[Tensor, "*r layer"]) -> Float[Tensor, "*r 4"]:
    third = max(1, auc.shape[-1] // 3)
    first, last = auc[..., :third].mean(-1), auc[..., -third:].mean(-1)
    return torch.stack([(auc - 0.5).sum(-1), first, last, last - first], dim=-1)

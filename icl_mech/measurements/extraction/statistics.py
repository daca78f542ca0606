"""AUC of attention as a function of resampled prompts, and what is computed from it.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.3.
"""

from typing import Any, Literal

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.metrics import (
    FEWEST,
    Interval,
    auc_ends,
    class_resamples,
    class_scores,
    cumulative_share,
    macro_auc,
    mean_ends,
    quantile_ends,
    resampled_auc,
)
from icl_mech.results.quantities import Statistic
from icl_mech.results.wording import said

TwoClasses = Literal["normalised", "reference"]


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
    auc: Float[Tensor, " layer"], drawn: Float[Tensor, "r layer"] | None, prompts: int
) -> dict[str, Any]:
    """All fields of `AucCurves` but its notes; without resamples the ends are not-a-number."""
    cumulative, sums = cumulative_share(auc), _sums(auc)
    if drawn is None:
        ends, share_ends, sum_ends = _nothing(auc), _nothing(auc), _nothing(sums)
    else:
        ends = auc_ends(auc, drawn, prompts)
        sum_ends = _sum_ends(sums, _sums(drawn), len(auc), prompts)
        share_ends = quantile_ends(cumulative_share(drawn), prompts)
    table = torch.stack([sums, *sum_ends], dim=-1)
    if not clearly_positive(table[0]):
        share_ends = _nothing(auc)
    return {
        "auc": auc, "auc_low": ends[0], "auc_high": ends[1], "cumulative": cumulative,
        "cumulative_low": share_ends[0], "cumulative_high": share_ends[1], "sums": table,
    }  # fmt: skip


def _sum_ends(
    sums: Float[Tensor, " 4"], drawn: Float[Tensor, "r 4"], layers: int, prompts: int
) -> tuple[Tensor, Tensor]:
    """Ends of the sum and of the means over thirds, which are AUCs; and of their difference."""
    low, high = auc_ends(
        torch.stack([sums[0] / layers + 0.5, sums[1], sums[2]]),
        torch.stack([drawn[:, 0] / layers + 0.5, drawn[:, 1], drawn[:, 2]], dim=1),
        prompts,
    )
    low[0], high[0] = (low[0] - 0.5) * layers, (high[0] - 0.5) * layers
    least, most = quantile_ends(drawn[:, 3], prompts)
    if bool(least == most):
        # Classes told apart perfectly everywhere: as of outcomes that do not change.
        least, most = mean_ends(torch.zeros(prompts, dtype=torch.float64), "change")
        least, most = least + sums[3], most + sums[3]
    return torch.cat([low, least[None]]), torch.cat([high, most[None]])


def share_note(fields: dict[str, Any]) -> tuple[str, ...]:
    """Says why R is undefined, if it is."""
    found = Interval(*fields["sums"][0].tolist())
    if not fields["auc"].isfinite().all() or clearly_positive(fields["sums"][0]):
        return ()
    return (
        f"R undefined: its denominator, the sum of AUC − 0.5, is {said(found)}, not clearly above 0",
    )


def _nothing(like: Tensor) -> tuple[Tensor, Tensor]:
    # Tensors of their own: files refuse two that share memory.
    return torch.full_like(like, torch.nan), torch.full_like(like, torch.nan)


def clearly_positive(interval: Tensor) -> bool:
    """True for a value above 0 whose interval lies above 0."""
    return bool(interval[0] > 0) and bool(interval[1] > 0)


def _sums(auc: Float[Tensor, "*r layer"]) -> Float[Tensor, "*r 4"]:
    third = max(1, auc.shape[-1] // 3)
    first, last = auc[..., :third].mean(-1), auc[..., -third:].mean(-1)
    return torch.stack([(auc - 0.5).sum(-1), first, last, last - first], dim=-1)

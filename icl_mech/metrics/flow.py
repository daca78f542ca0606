"""Sums of attention and saliency by type of edge and between spans, and how peaked these scores are.

Sources: Wang et al. 2023, *Label Words are Anchors*, §2.1; for spans, Bogdan et al. 2025, *Thought Anchors:
Which LLM Reasoning Steps Matter?*, §5.
"""

from typing import Literal

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Count, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.agreement import rank_agreement


@checked(ResultError)
def flow_sums(
    saliency: Float[Tensor, "batch dest src"],
    label_dest: Bool[Tensor, "batch dest"],
    label_src: Bool[Tensor, "batch src"],
    target_dest: Bool[Tensor, "batch dest"],
) -> Float[Tensor, "batch 3"]:
    """Sums of saliency from texts to label words, label words to target, and the rest.

    The diagonal and everything above it are left out. Divided by `flow_counts` these are
    S_wp, S_pq and S_ww. Sums over a partition of the rows add up to the sum
    over all rows.
    """
    strict = saliency.tril(saliency.shape[2] - saliency.shape[1] - 1)
    to_labels = torch.einsum("bd,bd->b", strict.sum(-1), label_dest.to(strict.dtype))
    rows = torch.einsum("bds,bd->bs", strict, target_dest.to(strict.dtype))
    to_target = torch.einsum("bs,bs->b", rows, label_src.to(strict.dtype))
    rest = strict.sum((1, 2)) - to_labels - to_target
    return torch.stack([to_labels, to_target, rest], dim=1)


@checked(ResultError)
def flow_counts(
    label_positions: Int[Tensor, "batch demo"],
    targets: Int[Tensor, " batch"],
    window: Count | None = None,
) -> Float[Tensor, "batch 3"]:
    """Number of (i, j) pairs behind S_wp, S_pq and S_ww.

    `sum p`, `#p` and `q (q + 1) / 2 - sum p - #p`; positions of -1, and those at or after the target `q`,
    do not count. With a window W only pairs with `i - j < W` exist: `sum min(p, W - 1)`, `#(p > q - W)`,
    and all pairs are those with the W - 1 columns before each row. Source: Wang et al. 2023, §2.1.
    """
    real = (label_positions >= 0) & (label_positions < targets[:, None])
    reach = int(targets.max()) if window is None else window - 1
    to_labels = (label_positions.clamp(max=reach) * real).sum(1)
    to_target = (real & (targets[:, None] - label_positions <= reach)).sum(1)
    short = targets.clamp(max=reach)
    pairs = short * (short + 1) // 2 + (targets - short) * reach
    return torch.stack([to_labels, to_target, pairs - to_labels - to_target], dim=1).double()


@checked(ResultError)
def normalised_flow(
    mean_scores: Float[Tensor, "*r score layer"],
) -> Float[Tensor, "*r score layer"]:
    """Each layer's mean scores divided by their sum over the three kinds (0 where all are 0).

    A kind without edges has a mean of NaN and stays NaN; the sum is over the others.
    """
    missing = mean_scores.isnan()
    total = mean_scores.masked_fill(missing, 0.0).sum(-2, keepdim=True)
    shares = mean_scores / total.clamp(min=torch.finfo(total.dtype).tiny)
    return torch.where((total > 0) | missing, shares, 0.0)


Average = Literal["mean", "median"]
"""How rows are averaged; the median of an even number is the mean of the two middle ones."""


@checked(ResultError)
def span_sums(
    values: Float[Tensor, "*head dest src"],
    reading: Float[Tensor, "span dest"],
    read: Float[Tensor, "span2 src"],
) -> Float[Tensor, "*head span span2"]:
    """Sums over the edges between every two spans.

    Args:
        values: Attention or saliency.
        reading: 1 where a row belongs to a span.
        read: 1 where a column does.
    """
    return torch.einsum("...ij,ai,bj->...ab", values, reading, read)


@checked(ResultError)
def vertical_scores(
    matrix: Float[Tensor, "*head span span2"],
    proximity: Count = 4,
    *,
    average: Average = "mean",
    control_depth: bool = False,
) -> Float[Tensor, "*head span2"]:
    """`v[b]` = average over `a >= b + proximity` of `M[a, b]`; NaN for the last spans.

    Args:
        matrix: Reading span, then the span that is read.
        proximity: Number of following spans left out, the span itself included.
        average: `mean` or `median` over the rows.
        control_depth: Every row `a` is first replaced by the ranks of its entries `b <= a -
            proximity`, divided by their number, so that rows with many entries weigh alike.
    """
    count = matrix.shape[-1]
    rows, columns = torch.meshgrid(torch.arange(count), torch.arange(count), indexing="ij")
    far = (rows >= columns + proximity).to(matrix.device)
    values = matrix.double().masked_fill(~far, torch.nan)
    if control_depth:
        values = torch.stack([_ranked(row) for row in values.unbind(-2)], dim=-2)
    return values.nanmean(-2) if average == "mean" else values.nanquantile(0.5, dim=-2)


def _ranked(row: Float[Tensor, "*head span"]) -> Float[Tensor, "*head span"]:
    """Average ranks, from 1, of the finite entries, divided by their number."""
    known = row.isfinite()
    # Compare all pairs of entries: ties share the mean of their ranks.
    low = ((row[..., None] > row[..., None, :]) & known[..., None, :]).sum(-1)
    same = ((row[..., None] == row[..., None, :]) & known[..., None, :]).sum(-1)
    ranks = low + (same + 1) / 2
    return torch.where(known, ranks / known.sum(-1, keepdim=True).clamp(min=1), torch.nan).double()


@checked(ResultError)
def kurtosis(values: Float[Tensor, "*head span"]) -> Float[Tensor, " *head"]:
    """Fisher's kurtosis `m4 / m2^2 - 3` (biased) of the finite entries.

    High where a few entries stand out. NaN for equal entries and for fewer than four: two always give -2 and
    three -1.5.
    """
    values = values.double()
    enough = values.isfinite().sum(-1) >= 4
    centred = values - values.nanmean(-1, keepdim=True)
    second, fourth = (centred**power for power in (2, 4))
    m2, m4 = second.nanmean(-1), fourth.nanmean(-1)
    largest = values.abs().nan_to_num().amax(-1)
    spread = enough & (m2 > (1e-12 * largest) ** 2)
    return torch.where(spread, m4 / torch.where(spread, m2, 1.0) ** 2 - 3, torch.nan)


@checked(ResultError)
def rank_correlation(one: Float[Tensor, " span"], other: Float[Tensor, " span"]) -> float:
    """Spearman's rank correlation over the places where both are finite.

    NaN for fewer than three of them, or where one side is constant.
    """
    known = one.isfinite() & other.isfinite()
    if int(known.sum()) < 3:
        return float("nan")
    first, second = (values.double()[known][None] for values in (one, other))
    return float(rank_agreement(first, second))

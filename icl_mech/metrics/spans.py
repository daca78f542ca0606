"""Scores of spans from matrices between them, and how peaked such scores are.

Source: Bogdan et al. 2025, *Thought Anchors: Which LLM Reasoning Steps Matter?*, §5.
"""

from typing import Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.ranks import rank_agreement

Average = Literal["mean", "median"]
"""How rows are averaged: their median is the mean of the two middle ones of an even number."""


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
    """`v[b]` = average over `a >= b + proximity` of `M[a, b]`; not-a-number for the last ones.

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
    """Average ranks from 1 of the entries that are numbers, divided by how many there are."""
    known = row.isfinite()
    # Every entry against every other: equal ones share the mean of their ranks.
    low = ((row[..., None] > row[..., None, :]) & known[..., None, :]).sum(-1)
    same = ((row[..., None] == row[..., None, :]) & known[..., None, :]).sum(-1)
    ranks = low + (same + 1) / 2
    return torch.where(known, ranks / known.sum(-1, keepdim=True).clamp(min=1), torch.nan).double()


@checked(ResultError)
def kurtosis(values: Float[Tensor, "*head span"]) -> Float[Tensor, " *head"]:
    """Fisher's kurtosis `m4 / m2^2 - 3` (biased) of the entries that are numbers.

    High where a few entries stand out; not-a-number of fewer than two, or of equal ones.
    """
    values = values.double()
    centred = values - values.nanmean(-1, keepdim=True)
    second, fourth = (centred**power for power in (2, 4))
    m2, m4 = second.nanmean(-1), fourth.nanmean(-1)
    largest = values.abs().nan_to_num().amax(-1)
    spread = m2 > (1e-12 * largest) ** 2
    return torch.where(spread, m4 / torch.where(spread, m2, 1.0) ** 2 - 3, torch.nan)


@checked(ResultError)
def rank_correlation(one: Float[Tensor, " span"], other: Float[Tensor, " span"]) -> float:
    """Spearman's rank correlation over the places where both are numbers.

    Not-a-number for fewer than three of them, or where one side is the same everywhere.
    """
    known = one.isfinite() & other.isfinite()
    if int(known.sum()) < 3:
        return float("nan")
    first, second = (values.double()[known][None] for values in (one, other))
    return float(rank_agreement(first, second))

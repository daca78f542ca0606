"""Rank correlation, prompt by prompt."""

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError


@checked(ResultError)
def rank_agreement(
    one: Float[Tensor, "batch cell"], other: Float[Tensor, "batch cell"]
) -> Float[Tensor, " batch"]:
    """Spearman correlation over cells, of each prompt; ties share their mean rank.

    NaN where all cells of one side are equal.
    """
    ranks = [_ranks(own.double()) for own in (one, other)]
    centred = [own - own.mean(1, keepdim=True) for own in ranks]
    norms = [own.norm(dim=1) for own in centred]
    product = (centred[0] * centred[1]).sum(1)
    return torch.where(norms[0] * norms[1] > 0, product / (norms[0] * norms[1]), torch.nan)


def _ranks(values: Float[Tensor, "batch cell"]) -> Float[Tensor, "batch cell"]:
    below = (values[:, None, :] < values[:, :, None]).sum(-1)
    equal = (values[:, None, :] == values[:, :, None]).sum(-1)
    return below.double() + (equal.double() - 1) / 2

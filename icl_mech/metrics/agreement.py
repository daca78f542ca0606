"""Agreement between two runs over the same prompts, or two rankings. Source of loyalty: Wang et al. 2023, §2.2."""

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError


@checked(ResultError)
def same_label(
    predicted: Int[Tensor, " batch"], reference: Int[Tensor, " batch"]
) -> Bool[Tensor, " batch"]:
    """True where the predicted class is unchanged; the fraction of True is the label loyalty."""
    return predicted == reference


@checked(ResultError)
def word_overlap(
    top_tokens: Int[Tensor, "batch k"], reference: Int[Tensor, "batch k"]
) -> Float[Tensor, " batch"]:
    """Jaccard overlap of two sets of top-k next tokens; its mean is the word loyalty."""
    common = (top_tokens[:, :, None] == reference[:, None, :]).any(-1).sum(-1).double()
    return common / (top_tokens.shape[1] + reference.shape[1] - common)


@checked(ResultError)
def rank_agreement(
    one: Float[Tensor, "batch cell"], other: Float[Tensor, "batch cell"]
) -> Float[Tensor, " batch"]:
    """Spearman correlation over cells for each prompt; ties share their mean rank.

    NaN where all cells of one input are equal.
    """
    ranks = [_ranks(side.double()) for side in (one, other)]
    centred = [rank - rank.mean(1, keepdim=True) for rank in ranks]
    norms = [deviation.norm(dim=1) for deviation in centred]
    product = (centred[0] * centred[1]).sum(1)
    return torch.where(norms[0] * norms[1] > 0, product / (norms[0] * norms[1]), torch.nan)


def _ranks(values: Float[Tensor, "batch cell"]) -> Float[Tensor, "batch cell"]:
    below = (values[:, None, :] < values[:, :, None]).sum(-1)
    equal = (values[:, None, :] == values[:, :, None]).sum(-1)
    return below.double() + (equal.double() - 1) / 2

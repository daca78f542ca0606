"""How far two runs over the same prompts agree. Source: Wang et al. 2023, §2.2."""

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError


@checked(ResultError)
def same_label(
    predicted: Int[Tensor, " batch"], reference: Int[Tensor, " batch"]
) -> Bool[Tensor, " batch"]:
    """Whether the predicted class is unchanged; the share of True is the label loyalty."""
    return predicted == reference


@checked(ResultError)
def word_overlap(
    top_tokens: Int[Tensor, "batch k"], reference: Int[Tensor, "batch k"]
) -> Float[Tensor, " batch"]:
    """Jaccard overlap of two sets of likeliest next tokens; its mean is the word loyalty."""
    common = (top_tokens[:, :, None] == reference[:, None, :]).any(-1).sum(-1).double()
    return common / (top_tokens.shape[1] + reference.shape[1] - common)

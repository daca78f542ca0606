"""Scores of attention heads from their attention to demonstrations' labels.

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

import numpy as np
import torch
from einops import einsum

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError


@checked(ResultError)
def same_share(
    demo_classes: Int[Tensor, "batch demo"],
    row_classes: Int[Tensor, " batch"],
    sizes: Int[Tensor, "batch demo"],
) -> Float[Tensor, " batch"]:
    """Share of the earlier label tokens that carry the row's label (0 without any)."""
    same = (sizes * (demo_classes == row_classes[:, None])).sum(1).double()
    return same / sizes.sum(1).clamp(min=1)


@checked(ResultError)
def attention_to_same(
    attention: Float[Tensor, "batch *head demo"],
    demo_classes: Int[Tensor, "batch demo"],
    row_classes: Int[Tensor, " batch"],
) -> Float[Tensor, " batch *head"]:
    """Attention to the labels that equal the row's."""
    same = (demo_classes == row_classes[:, None]).to(attention.dtype)
    return einsum(attention, same, "b ... d, b d -> b ...")


@checked(ResultError)
def prefix_matching(
    same: Float[Tensor, " batch *head"], total: Float[Tensor, " batch *head"], n_labels: Count
) -> Float[Tensor, " batch *head"]:
    """`same - (all - same) / (C - 1)`, in [-1/(C-1), 1]."""
    return same - (total - same) / (n_labels - 1)


@checked(ResultError)
def shuffled_prefix_matching(
    attention: Float[Tensor, "batch *head demo"],
    demo_classes: Int[Tensor, "batch demo"],
    row_classes: Int[Tensor, " batch"],
    n_labels: Count,
    *,
    permutations: Count = 20,
    seed: Natural = 0,
) -> Float[Tensor, " batch *head"]:
    """Mean prefix matching with the demonstrations' labels permuted in the score only.

    What a head gets that does not see the labels (by recency alone): the model is not run
    again, the row's label is kept. Class -1 says that there is no demonstration; it stays
    where it is.
    """
    generator = np.random.default_rng(seed)
    absent = (demo_classes < 0).numpy()
    places = torch.from_numpy(np.argsort(absent, axis=1, kind="stable"))
    same = torch.zeros_like(demo_classes, dtype=attention.dtype)
    for _ in range(permutations):
        order = torch.from_numpy(np.argsort(generator.random(absent.shape) + absent, axis=1))
        shuffled = demo_classes.scatter(1, places, demo_classes.gather(1, order))
        same += (shuffled == row_classes[:, None]).to(attention.dtype) / permutations
    # The score is linear in the matches: one product with their mean.
    matched = einsum(attention, same, "b ... d, b d -> b ...")
    return prefix_matching(matched, attention.sum(-1), n_labels)

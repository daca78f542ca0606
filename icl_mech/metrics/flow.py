"""Sums of saliency by kind of edge. Source: Wang et al. 2023, *Label Words are Anchors*, §2.1."""

import torch
from einops import einsum

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError


@checked(ResultError)
def flow_sums(
    saliency: Float[Tensor, "batch dest src"],
    label_dest: Bool[Tensor, "batch dest"],
    label_src: Bool[Tensor, "batch src"],
    target_dest: Bool[Tensor, "batch dest"],
) -> Float[Tensor, "batch 3"]:
    """Sums of saliency from texts to label words, label words to target, and the rest.

    Diagonal and everything above it are left out. Divided by `flow_counts` these are
    S_wp, S_pq and S_ww. Sums over some rows of a map and over the others add up to those
    over all.
    """
    strict = saliency.tril(saliency.shape[2] - saliency.shape[1] - 1)
    to_labels = einsum(strict.sum(-1), label_dest.to(strict.dtype), "b dest, b dest -> b")
    rows = einsum(strict, target_dest.to(strict.dtype), "b dest src, b dest -> b src")
    to_target = einsum(rows, label_src.to(strict.dtype), "b src, b src -> b")
    rest = strict.sum((1, 2)) - to_labels - to_target
    return torch.stack([to_labels, to_target, rest], dim=1)


@checked(ResultError)
def flow_counts(
    label_positions: Int[Tensor, "batch demo"], targets: Int[Tensor, " batch"]
) -> Float[Tensor, "batch 3"]:
    """Numbers of (i, j) pairs behind S_wp, S_pq and S_ww.

    `sum p`, `#p` and `q (q + 1) / 2 - sum p - #p`; positions of -1, and those the target `q`
    does not see, do not count. Source: Wang et al. 2023, §2.1.
    """
    real = (label_positions >= 0) & (label_positions < targets[:, None])
    to_labels = (label_positions * real).sum(1)
    to_target = real.sum(1)
    pairs = targets * (targets + 1) // 2
    return torch.stack([to_labels, to_target, pairs - to_labels - to_target], dim=1).double()


@checked(ResultError)
def normalised_flow(
    mean_scores: Float[Tensor, "*r score layer"],
) -> Float[Tensor, "*r score layer"]:
    """Each layer's mean scores divided by their sum over the three kinds (0 where all are 0)."""
    total = mean_scores.sum(-2, keepdim=True)
    return torch.where(total > 0, mean_scores / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)

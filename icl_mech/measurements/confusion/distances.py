"""Distances between classes' keys, ROC-AUC between pairs of classes, and how their ranks agree."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.metrics import macro_auc, resampled_auc


def label_pairs(n_labels: int) -> list[tuple[int, int]]:
    """Pairs of classes, the smaller index first."""
    return list(combinations(range(n_labels), 2))


def principal_directions(
    queries: Float[Tensor, "layer batch d"], components: int
) -> list[Float[Tensor, "d _"]]:
    """Per layer the principal directions of the centred queries, times their singular values.

    No more than the rank: a direction whose singular value is float noise of the queries does
    not count, so a layer whose queries are all alike has none.
    """
    directions = []
    for own in queries.double():
        centred = own - own.mean(0)
        _, singular, rows = torch.linalg.svd(centred, full_matrices=False)
        noise = torch.finfo(torch.float32).eps * max(own.shape) * torch.linalg.matrix_norm(own, 2)
        kept = min(components, int((singular > noise).sum()))
        directions.append(rows[:kept].T * singular[:kept])
    return directions


def key_distances(
    keys: Float[Tensor, "context layer label d"], directions: list[Float[Tensor, "d _"]]
) -> Float[Tensor, "context layer label label"]:
    """Euclidean distances between the classes' projected keys; not-a-number without direction."""
    layers = []
    for layer, own in enumerate(directions):
        projected = keys[:, layer].double() @ own
        apart = projected[:, :, None] - projected[:, None]
        empty = own.shape[1] == 0
        layers.append(apart.new_full(apart.shape[:3], torch.nan) if empty else apart.norm(dim=-1))
    return torch.stack(layers, dim=1)


def normalised(
    distances: Float[Tensor, "*r layer label label"],
) -> Float[Tensor, "*r layer label label"]:
    """Each layer divided by its largest distance; 0 is most confusable, 1 least.

    Not-a-number where all distances are 0.
    """
    largest = distances.amax((-2, -1), keepdim=True)
    return torch.where(largest > 0, distances / largest, torch.nan)


def pair_auc(
    label_logits: Float[Tensor, "batch label"],
    answers: Int[Tensor, " batch"],
    pair: tuple[int, int],
    weights: Float[Tensor, "r batch"] | None = None,
) -> Float[Tensor, " r"]:
    """ROC-AUC of `P(a)/P(b)` on the prompts whose true class is a or b.

    Args:
        label_logits: The ratio's logarithm is a difference of two of them.
        answers: True classes.
        pair: a and b; both must occur.
        weights: How often each prompt occurs in each resample (default: the sample itself).
    """
    first, second = pair
    inside = (answers == first) | (answers == second)
    margin = (label_logits[inside, first] - label_logits[inside, second]).double()
    scores = torch.stack([margin, -margin], dim=-1)[:, None]
    if weights is None:
        return macro_auc(scores, answers[inside])
    return resampled_auc(scores, answers[inside], weights[:, inside])[:, 0]


def pair_aucs(
    label_logits: Float[Tensor, "batch label"],
    answers: Int[Tensor, " batch"],
    pairs: Sequence[tuple[int, int]],
    weights: Float[Tensor, "r batch"] | None = None,
) -> Float[Tensor, "r pair"]:
    """`pair_auc` of several pairs; not-a-number in resamples without one of the classes."""
    return torch.stack([pair_auc(label_logits, answers, pair, weights) for pair in pairs], dim=1)


def rank_correlation(
    one: Float[Tensor, "layer pair"], other: Float[Tensor, "r pair"]
) -> Float[Tensor, "r layer"]:
    """Spearman correlation of every row of one with every row of the other.

    Not-a-number with fewer than two pairs, or where all values of a row are equal.
    """
    first, second = (_standardised(rows.double().numpy()) for rows in (one, other))
    return torch.from_numpy(second @ first.T)


def _standardised(rows: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata

    ranks = rankdata(rows, axis=1)
    ranks = ranks - ranks.mean(1, keepdims=True)
    length = np.linalg.norm(ranks, axis=1, keepdims=True)
    missing = (length == 0) | np.isnan(rows).any(1, keepdims=True)
    return np.where(missing, np.nan, ranks / np.where(missing, 1.0, length))

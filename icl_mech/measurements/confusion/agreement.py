"""Agreement of two tables over pairs of classes: distances of keys, and measured confusion.

ROC-AUC of each pair, its rank correlation with distances, intervals of both over prompts, and their
limitations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.metrics import macro_auc
from icl_mech.metrics.auc import auc_ends, class_resamples, resampled_auc
from icl_mech.metrics.intervals import quantile_ends


def label_pairs(n_labels: int) -> list[tuple[int, int]]:
    """Pairs of classes, the smaller index first."""
    return list(combinations(range(n_labels), 2))


def normalised(
    distances: Float[Tensor, "*r layer label label"],
) -> Float[Tensor, "*r layer label label"]:
    """Each layer's distances divided by the largest; 0 is most confusable, 1 least.

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
        label_logits: Label logits, of which two are subtracted for the logarithm of the ratio.
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
    """Spearman correlation of every row of `one` with every row of `other`.

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


@dataclass(frozen=True, eq=False)
class Agreement:
    """Measured confusion and its correlation with predicted confusion.

    Attributes:
        auc: Value and ends of the interval of each pair; not-a-number where unknown.
        correlation: The same by layer.
        present: Classes that occur among the true ones.
        redrawn: Resamples that lost a class and were drawn again; None: there are no intervals.
    """

    auc: Float[Tensor, "end label label"]
    correlation: Float[Tensor, "end layer"]
    present: tuple[int, ...]
    redrawn: int | None


def agreement(
    label_logits: Float[Tensor, "batch label"],
    answers: Int[Tensor, " batch"],
    distances: Float[Tensor, "layer label label"],
) -> Agreement:
    """Measured confusion and its correlation, with bootstrap intervals over prompts; distances and classes are fixed."""
    n_labels = label_logits.shape[1]
    present = answers.unique().tolist()
    pairs = [(a, b) for a, b in label_pairs(n_labels) if {a, b} <= set(present)]
    auc = torch.full((3, n_labels, n_labels), torch.nan, dtype=torch.float64)
    auc[:, present, present] = 1.0
    correlation = torch.full((3, len(distances)), torch.nan, dtype=torch.float64)
    if not pairs:
        return Agreement(auc, correlation, tuple(present), 0)
    weights, redrawn = class_resamples(answers)
    first, second = (list(side) for side in zip(*pairs, strict=True))
    predicted = distances[:, first, second]
    measured = pair_aucs(label_logits, answers, pairs)
    auc[0, first, second] = auc[0, second, first] = measured[0]
    correlation[0] = rank_correlation(predicted, measured)[0]
    if weights is None:
        return Agreement(auc, correlation, tuple(present), None)
    drawn = pair_aucs(label_logits, answers, pairs, weights)
    sizes = answers.bincount(minlength=n_labels)
    of_pair = [int(sizes[a] + sizes[b]) for a, b in pairs]
    columns = [auc_ends(measured[0, [i]], drawn[:, [i]], n) for i, n in enumerate(of_pair)]
    ends = torch.stack([torch.cat(side) for side in zip(*columns, strict=True)])
    auc[1:, first, second] = auc[1:, second, first] = ends
    ranks = rank_correlation(predicted, drawn)
    ends = torch.stack(quantile_ends(ranks, len(answers)))
    # Resamples that are all equal, as with AUCs of 1, show nothing of the spread.
    still = ((ranks - correlation[0]).abs() < 1e-9) | ranks.isnan()
    correlation[1:] = ends.masked_fill(still.all(0), torch.nan)
    return Agreement(auc, correlation, tuple(present), redrawn)


def limits(
    labels: Sequence[str],
    layers: Sequence[int],
    distances: Float[Tensor, "layer label label"],
    measured: Agreement,
) -> Iterator[str]:
    """Limitations of these numbers, one sentence each."""
    if len(labels) == 2:
        yield (
            "with two classes there is a single pair, whose distance is 1 by construction: "
            "nothing to rank"
        )
    known, lacking = measured.correlation[0].isfinite(), measured.correlation[1].isnan()
    if measured.redrawn is not None and bool((known & lacking).any()):
        yield (
            "a correlation that is identical in all resamples, or rests on too few prompts, has "
            "no interval"
        )
    if len(labels) == 3:
        yield (
            "with three classes there are three pairs: without ties the correlation can only be "
            "±0.5 or ±1"
        )
    absent = [name for c, name in enumerate(labels) if c not in measured.present]
    if absent:
        yield f"no prompt has the true class {', '.join(absent)}: its pairs are not measured"
    perfect = int((measured.auc[0].triu(1) == 1).sum())
    if perfect > 1:
        yield f"{perfect} pairs are distinguished perfectly (AUC 1), so they cannot be ranked"
    alike = [
        layer for layer, apart in zip(layers, distances, strict=True) if bool(apart.isnan().any())
    ]
    if alike:
        yield (
            f"no distances in layer {', '.join(map(str, alike))}: all queries or all keys are "
            "identical there"
        )
    if measured.redrawn is None:
        yield "no intervals: a class is so rare that resamples miss it"
    elif measured.redrawn:
        yield f"{measured.redrawn} resamples missed a class and were redrawn"

"""AUC of class scores over several classes, its bootstrap, and its cumulative fraction by layer.

Over the prompts whose true class is a or b,
`AUC(a|b) = P(score_a of an a-prompt > score_a of a b-prompt)`, ties counting one half. The macro
one-vs-one AUC is the mean of `(AUC(a|b) + AUC(b|a)) / 2` over all pairs of classes: what
scikit-learn's `roc_auc_score(..., multi_class="ovo", average="macro")` computes.

A resample weights prompts. With `M[i, j]` the outcome of comparing prompts i and j (0, 1 or a
tie), its AUC is `w_a M w_b / (sum w_a * sum w_b)`: all resamples of a pair of classes are one
matrix product per layer. Entries and weights are small multiples of 1/4, so float32 is exact
up to 4000 prompts.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.3.
"""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import RESAMPLES, known_mean, quantile_ends
from icl_mech.metrics.means import mean_ends, wilson

FEWEST = 0.01
"""Smallest fraction of resamples that must contain all classes; below it no resamples are used."""


@checked(ResultError)
def class_scores(
    attention: Float[Tensor, "batch layer label"],
    classes: tuple[int, ...],
    *,
    raw_pair: bool = False,
) -> Float[Tensor, "batch layer kept"]:
    """Scores of the kept classes: their columns, rows normalised to sum 1 after the choice.

    A row that sums to 0 becomes uniform.

    Args:
        attention: Summed attention to the label words of each class.
        classes: Classes to keep, ascending.
        raw_pair: With two classes, use the attention to the later one alone.
    """
    kept = attention[..., list(classes)].double()
    if raw_pair and len(classes) == 2:
        return torch.stack([-kept[..., 1], kept[..., 1]], dim=-1)
    total = kept.sum(-1, keepdim=True)
    tiny = torch.finfo(kept.dtype).tiny
    return torch.where(total > 0, kept / total.clamp(min=tiny), 1 / len(classes))


@checked(ResultError)
def empty_layers(attention: Float[Tensor, "batch layer label"]) -> Bool[Tensor, " layer"]:
    """Layers in which no prompt attends to any of these classes."""
    return (attention.sum(-1) <= 0).all(0)


@checked(ResultError)
def macro_auc(
    scores: Float[Tensor, "batch layer kept"], truth: Int[Tensor, " batch"]
) -> Float[Tensor, " layer"]:
    """Macro one-vs-one AUC of every layer; chance is 0.5.

    Args:
        scores: One column per class that occurs in `truth`, in class order.
        truth: Class of each prompt.
    """
    pairs = [
        torch.stack([outcome.double().mean() for outcome in outcomes])
        for _, _, outcomes in _pairs(scores, truth)
    ]
    return torch.stack(pairs).mean(0)


@checked(ResultError)
def resampled_auc(
    scores: Float[Tensor, "batch layer kept"],
    truth: Int[Tensor, " batch"],
    weights: Float[Tensor, "r batch"],
) -> Float[Tensor, "r layer"]:
    """`macro_auc` of every resample.

    Args:
        scores: As for `macro_auc`.
        truth: Class of each prompt.
        weights: How often each prompt occurs in each resample; a resample without one of the
            classes gives NaN.
    """
    total = torch.zeros(len(weights), scores.shape[1], dtype=torch.float64)
    count = 0
    for first, second, outcomes in _pairs(scores, truth):
        left, right = weights[:, first].contiguous(), weights[:, second].contiguous()
        size = left.sum(1).double() * right.sum(1).double()
        for layer, outcome in enumerate(outcomes):
            total[:, layer] += ((left @ outcome) * right).sum(1).double() / size
        count += 1
    return total / count


@checked(ResultError)
def class_resamples(
    truth: Int[Tensor, " batch"], *, resamples: Count = RESAMPLES, seed: Natural = 0
) -> tuple[Float[Tensor, "r batch"] | None, int]:
    """Bootstrap counts of each prompt per resample, with every class present.

    Resamples that lose a class are redrawn.

    Returns:
        The counts and the number of redrawn resamples; None instead of counts if the classes
        are so rare that hardly any resample contains them all.
    """
    generator = np.random.default_rng(seed)
    n = len(truth)
    columns = [(truth == c).numpy() for c in truth.unique().tolist()]
    accepted: list[np.ndarray] = []
    held = redrawn = 0
    while held < resamples:
        missing = resamples - held
        counts = generator.multinomial(n, np.full(n, 1 / n), size=min(resamples, 4 * missing))
        whole = np.all([counts[:, column].any(1) for column in columns], axis=0).nonzero()[0]
        taken = whole[:missing]
        accepted.append(counts[taken].astype(np.float32))
        held += len(taken)
        # Draws after the last one needed do not count as redrawn.
        used = int(taken[-1]) + 1 if len(taken) == missing else len(counts)
        redrawn += used - len(taken)
        # Give up on classes so rare that almost every resample loses one.
        if redrawn > 20 * resamples and held < FEWEST * redrawn:
            return None, redrawn
    return torch.from_numpy(np.concatenate(accepted)), redrawn


@checked(ResultError)
def auc_ends(
    auc: Float[Tensor, " *cell"], drawn: Float[Tensor, " r *cell"], prompts: Count
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of the 95 % interval of an AUC, or of a mean of several, from its resamples.

    Wilson's interval with the effective number of prompts that gives the variance of the resamples.
    Half a prompt more at either end keeps that variance from 0 where classes are separated
    perfectly in every resample.

    Args:
        auc: The estimates.
        drawn: Their resamples; NaN for those without one of the classes.
        prompts: Number of prompts behind the estimates.
    """
    known = ~drawn.isnan()
    count = known.sum(0)
    numbers = drawn.double().nan_to_num()
    mean = numbers.sum(0) / count
    variance = ((numbers - mean).square() * known).sum(0) / count
    # Variance of one prompt, with half a prompt at either end as in `share_ends`.
    of_one = (prompts**2 * variance + ((auc**2) + (1 - auc) ** 2) / 2) / (prompts + 1)
    middle = (prompts * auc + 0.5) / (prompts + 1)
    n = prompts * middle * (1 - middle) / of_one
    low, high = wilson(auc.double(), n)
    return torch.where(count > 0, low, torch.nan), torch.where(count > 0, high, torch.nan)


@checked(ResultError)
def cumulative_share(auc: Float[Tensor, "*r layer"]) -> Float[Tensor, "*r layer"]:
    """`R_l = sum_{i<=l} (AUC_i - 0.5) / sum_i (AUC_i - 0.5)`; 1 in the last layer.

    NaN where the denominator is 0. Source: Wang et al. 2023, §2.3.
    """
    sums = _excess(auc).cumsum(-1)
    return sums / sums[..., -1:]


def _excess(auc: Float[Tensor, "*r layer"]) -> Float[Tensor, "*r layer"]:
    """AUC - 0.5; NaN layers count as 0, unless every layer is NaN."""
    missing = auc.isnan()
    return (auc - 0.5).masked_fill(missing & ~missing.all(-1, keepdim=True), 0.0)


def _pairs(
    scores: Tensor, truth: Tensor
) -> Iterator[tuple[Tensor, Tensor, Iterator[Float[Tensor, "first second"]]]]:
    """Prompts of each pair of classes and, layer by layer, their comparisons.

    The entry of prompts i and j is `([a_i > a_j] + [b_j > b_i]) / 2`, ties one half.
    """
    present = truth.unique().tolist()
    for a, b in combinations(range(len(present)), 2):
        first, second = ((truth == present[c]).nonzero()[:, 0] for c in (a, b))
        yield first, second, _outcomes(scores[first][..., [a, b]], scores[second][..., [a, b]])


def _outcomes(first: Tensor, second: Tensor) -> Iterator[Tensor]:
    for layer in range(first.shape[1]):
        higher = (first[:, layer, 0, None] - second[None, :, layer, 0]).sign()
        lower = (second[None, :, layer, 1] - first[:, layer, 1, None]).sign()
        yield (0.5 + 0.25 * (higher + lower)).float()


TwoClasses = Literal["normalised", "reference"]


def auc_statistic(
    attention: Float[Tensor, "batch layer label"],
    truth: Int[Tensor, " batch"],
    two_classes: TwoClasses,
) -> Callable[[Tensor], Tensor]:
    """AUC by layer as a function of resampling weights.

    Resamples that lose a class give NaN. All of them do where hardly any contains all classes:
    an interval from the few that remain would look trustworthy.
    """
    classes = tuple(truth.unique().tolist())
    scores = class_scores(attention.nan_to_num(0.0), classes, raw_pair=two_classes == "reference")

    def statistic(weights: Float[Tensor, "r batch"]) -> Float[Tensor, "r layer"]:
        # Multiplied back to counts, which float32 sums exactly.
        drawn = resampled_auc(scores, truth, (weights * len(truth)).float())
        whole = drawn.isfinite().all(1).double().mean()
        values = drawn if whole >= FEWEST else torch.full_like(drawn, torch.nan)
        return values.masked_fill(_unseen(attention), torch.nan)

    return statistic


def resampled(
    attention: Float[Tensor, "batch layer label"],
    truth: Int[Tensor, " batch"],
    two_classes: TwoClasses,
) -> tuple[Float[Tensor, " layer"], Float[Tensor, "r layer"] | None, int]:
    """AUC by layer, its values in every resample, and the number of redrawn resamples.

    NaN with fewer than two classes; no resamples if the classes are too rare.
    """
    classes = tuple(truth.unique().tolist())
    if len(classes) < 2:
        return torch.full((attention.shape[1],), torch.nan, dtype=torch.float64), None, 0
    scores = class_scores(attention.nan_to_num(0.0), classes, raw_pair=two_classes == "reference")
    weights, redrawn = class_resamples(truth)
    unseen, auc = _unseen(attention), macro_auc(scores, truth)
    drawn = None if weights is None else resampled_auc(scores, truth, weights)
    drawn = None if drawn is None else drawn.masked_fill(unseen, torch.nan)
    return auc.masked_fill(unseen, torch.nan), drawn, redrawn


def _unseen(attention: Float[Tensor, "batch layer label"]) -> Bool[Tensor, " layer"]:
    """Layers in which the target reaches no label word in any prompt; attention to them is undefined there."""
    return attention.isnan().all(2).all(0)


def curve_fields(
    auc: Float[Tensor, " layer"], drawn: Float[Tensor, "r layer"] | None, prompts: int
) -> dict[str, Any]:
    """The curves of an `ExtractionResult`; the ends are NaN without resamples."""
    cumulative, sums = cumulative_share(auc), _sums(auc)
    if drawn is None:
        ends, share_ends, sum_ends = _nothing(auc), _nothing(auc), _nothing(sums)
    else:
        ends = auc_ends(auc, drawn, prompts)
        known = max(1, int(auc.isfinite().sum()))
        sum_ends = _sum_ends(sums, _sums(drawn), known, prompts)
        share_ends = quantile_ends(cumulative_share(drawn), prompts)
    table = torch.stack([sums, *sum_ends], dim=-1)
    # A cumulative fraction of a total that may be 0 has no meaningful interval.
    if not clearly_positive(table[0]):
        share_ends = _nothing(auc)
    return {
        "auc": auc,
        "auc_low": ends[0],
        "auc_high": ends[1],
        "cumulative": cumulative,
        "cumulative_low": share_ends[0],
        "cumulative_high": share_ends[1],
        "sums": table,
    }


def _sum_ends(
    sums: Float[Tensor, " 4"], drawn: Float[Tensor, "r 4"], layers: int, prompts: int
) -> tuple[Tensor, Tensor]:
    """Ends of the sum over layers, of the means over the first and last third, and of their difference."""
    low, high = auc_ends(
        torch.stack([sums[0] / layers + 0.5, sums[1], sums[2]]),
        torch.stack([drawn[:, 0] / layers + 0.5, drawn[:, 1], drawn[:, 2]], dim=1),
        prompts,
    )
    low[0], high[0] = (low[0] - 0.5) * layers, (high[0] - 0.5) * layers
    least, most = quantile_ends(drawn[:, 3], prompts)
    if bool(least == most):
        # Perfect separation in every resample: use the interval of outcomes that never change.
        least, most = mean_ends(torch.zeros(prompts, dtype=torch.float64), "change")
        least, most = least + sums[3], most + sums[3]
    return torch.cat([low, least[None]]), torch.cat([high, most[None]])


def _nothing(like: Tensor) -> tuple[Tensor, Tensor]:
    # Separate tensors: safetensors rejects tensors that share memory.
    return torch.full_like(like, torch.nan), torch.full_like(like, torch.nan)


def clearly_positive(interval: Tensor) -> bool:
    """True for a value above 0 whose interval lies above 0."""
    return bool(interval[0] > 0) and bool(interval[1] > 0)


def _sums(auc: Float[Tensor, "*r layer"]) -> Float[Tensor, "*r 4"]:
    third = max(1, auc.shape[-1] // 3)
    first, last = known_mean(auc[..., :third], -1), known_mean(auc[..., -third:], -1)
    return torch.stack([_excess(auc).sum(-1), first, last, last - first], dim=-1)

"""The layer at which true and false demonstrations diverge, and the cost of exiting late.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4 and §5.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Natural, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import Interval, quantile_ends, resample_weights
from icl_mech.metrics.means import mean_interval

Crossing = Literal["sound", "reference"]
HALF = 0.5
"""Fraction of the final gap at the critical layer."""

GapStatistic = Literal["ratio_of_means", "mean_of_ratios"]


@checked(ResultError)
def critical_layer(
    gap: Float[Tensor, "*r entry"], crossing: Crossing = "sound", threshold: float = HALF
) -> Int[Tensor, "*r"]:
    """First entry from which the gap stays at or above a fraction of its final value.

    Args:
        gap: Gap at each entry.
        crossing: `reference`: first entry at or above that fraction, whatever follows.
        threshold: The fraction: a half in the paper.

    Raises:
        ResultError: a fraction that is not above 0 and at most 1.
    """
    if not 0 < threshold <= 1:
        raise ResultError(
            f"threshold={threshold}; expected a fraction of the final gap, above 0 and at most 1."
        )
    # Halving is exact; other fractions are rounded, so allow for it where a gap equals the fraction.
    slack = 0.0 if threshold == HALF else 1e-12
    above: Bool[Tensor, "*r entry"] = gap >= gap[..., -1:] * threshold - slack
    if crossing == "sound":
        above = above.flip(-1).int().cummin(-1).values.flip(-1).bool()
    return above.int().argmax(-1)


@checked(ResultError)
def early_exit_layer(false_accuracy: Float[Tensor, "task entry"]) -> int:
    """Entry before the last with the largest mean advantage over the last; first on ties."""
    advantage = (false_accuracy - false_accuracy[:, -1:]).mean(0)[:-1]
    # Means of 0/1 scores: equal advantages may differ in the last bit.
    return int((advantage >= advantage.max() - 1e-9).int().argmax())


@checked(ResultError)
def stratified_halves(
    classes: Int[Tensor, " batch"], seed: Natural = 0
) -> tuple[Int[Tensor, " half"], Int[Tensor, " rest"]]:
    """Two random halves of the prompts, stratified by class."""
    generator = np.random.default_rng(seed)
    sides: tuple[list[int], list[int]] = ([], [])
    for label in torch.unique(classes).tolist():
        members = generator.permutation((classes == label).nonzero()[:, 0].numpy()).tolist()
        # The odd prompt of a class goes to the smaller half.
        order = sides if len(sides[0]) <= len(sides[1]) else sides[::-1]
        order[0].extend(members[::2])
        order[1].extend(members[1::2])
    first, second = (torch.tensor(sorted(side), dtype=torch.long) for side in sides)
    return first, second


@checked(ResultError)
def gap_reduction(
    true: Float[Tensor, "*r task"],
    false: Float[Tensor, "*r task"],
    ablated_false: Float[Tensor, "*r task"],
    how: GapStatistic = "ratio_of_means",
) -> Float[Tensor, "*r"]:
    """`1 - (true - ablated false) / (true - false)`, the fraction of the gap that is closed.

    Args:
        true: Unablated accuracy with true demonstrations, per task.
        false: Unablated accuracy with false demonstrations.
        ablated_false: Ablated accuracy with false demonstrations.
        how: Ratio of the means over tasks, or mean of the tasks' ratios (the published one).
    """
    left, gap = true - ablated_false, true - false
    if how == "ratio_of_means":
        left, gap = left.mean(-1, keepdim=True), gap.mean(-1, keepdim=True)
    return (1 - left / gap).mean(-1)


@checked(ResultError)
def reduction_interval(
    true: Sequence[Float[Tensor, " _"]],
    false: Sequence[Float[Tensor, " _"]],
    ablated_false: Sequence[Float[Tensor, " _"]],
    how: GapStatistic = "ratio_of_means",
) -> Interval:
    """Gap reduction over tasks with its paired bootstrap interval.

    Args:
        true: Per task, unablated scores with true demonstrations.
        false: The same with false demonstrations.
        ablated_false: Ablated scores with false demonstrations; the same prompts.
        how: See `gap_reduction`.
    """
    means, whole = [], []
    for task, scores in enumerate(zip(true, false, ablated_false, strict=True)):
        stacked = torch.stack([score.double() for score in scores], dim=1)
        weights = resample_weights(len(stacked), seed=task)
        means.append(weights @ stacked)
        whole.append(stacked.mean(0))
    drawn, point = torch.stack(means, dim=1), torch.stack(whole)
    resampled = gap_reduction(drawn[..., 0], drawn[..., 1], drawn[..., 2], how)
    value = gap_reduction(point[..., 0], point[..., 1], point[..., 2], how)
    low, high = map(float, quantile_ends(resampled, min(len(scores) for scores in true)))
    # An ablation that changes no score gives the same ratio in every resample. The interval of its
    # change still has a width: the result is at least as wide.
    gaps = point[:, 0] - point[:, 1]
    gaps = gaps if how == "mean_of_ratios" else gaps.mean().expand_as(gaps)
    below, above = torch.zeros(2, dtype=torch.float64)
    for ablated, plain, gap in zip(ablated_false, false, gaps, strict=True):
        change = mean_interval(ablated.double() - plain.double(), "change")
        below += ((change.value - change.low) / gap) ** 2
        above += ((change.high - change.value) / gap) ** 2
    least = float(value - below.sqrt() / len(gaps))
    most = float(value + above.sqrt() / len(gaps))
    return Interval(float(value), min(low, least), max(high, most))

"""Risk control: p-values of the hypothesis that a mean loss exceeds a level, and thresholds for which it is rejected.

Losses lie in [0, 1]. Thresholds are tested in a fixed order from several starts, each with its part of the error
probability (Learn then Test): with probability at least `1 - delta`, no accepted threshold has a risk above the level.

Sources: Angelopoulos et al. 2021, *Learn then Test*, arXiv 2110.01052; Bates et al. 2021, *Distribution-free,
risk-controlling prediction sets*, arXiv 2101.02703 (the Hoeffding-Bentkus bound).
"""

from math import e

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Count, checked
from icl_mech.errors import ResultError


@checked(ResultError)
def hoeffding_bentkus(
    risk: Float[Tensor, "*cell"], level: float | int, count: Count
) -> Float[Tensor, "*cell"]:
    """p-values of the hypothesis that the expected loss is at least `level`, given mean losses over `count` prompts.

    `min(exp(-n h(min(r, a), a)), e P(B <= ceil(n r)))` with `h(r, a) = r log(r / a) + (1 - r) log((1 - r) / (1 - a))`
    and `B` binomial with n trials of probability a; at most 1. Valid for independent losses in [0, 1], and for a random
    sample without replacement.

    Args:
        risk: Mean losses r, from 0 to 1.
        level: Level a, above 0 and below 1.
        count: Number of prompts n.

    Raises:
        ResultError: a level or a mean loss outside its range.
    """
    from scipy.stats import binom

    if not 0 < level < 1:
        raise ResultError(
            f"level={level} must lie between 0 and 1; risks are means of losses in [0, 1]."
        )
    mean = risk.double()
    if bool(((mean < -1e-9) | (mean > 1 + 1e-9)).any()):
        raise ResultError(
            f"Mean losses must lie in [0, 1], but they reach from {float(mean.min()):.3g} to "
            f"{float(mean.max()):.3g}."
        )
    below = mean.clamp(0, level)
    entropy = torch.special.xlogy(below, below / level)
    entropy = entropy + torch.special.xlogy(1 - below, (1 - below) / (1 - level))
    # Rounding must not raise the number of losses to the next integer.
    losses = (count * mean - 1e-6).ceil().clamp(min=0)
    tail = torch.from_numpy(e * binom.cdf(losses.numpy(), count, level)).reshape(mean.shape)
    return torch.minimum((-count * entropy).exp(), tail).clamp(max=1.0)


@checked(ResultError)
def learn_then_test(
    p_values: Float[Tensor, "*r threshold"], delta: float | int, starts: Count = 1
) -> Bool[Tensor, "*r threshold"]:
    """Thresholds accepted with a family-wise error of at most `delta`.

    From each of the evenly spaced starts, thresholds are accepted one after the other up to the first whose p-value
    exceeds `delta / starts`. One start is the fixed-sequence test; as many starts as thresholds, Bonferroni's.

    Args:
        p_values: p-values, the safest threshold first.
        delta: Probability that any accepted threshold has too large a risk.
        starts: Number of starts.

    Raises:
        ResultError: more starts than thresholds, or a probability outside (0, 1).
    """
    count = p_values.shape[-1]
    if starts > count or not 0 < delta < 1:
        raise ResultError(
            f"starts={starts} must be at most the number of thresholds, {count}, and delta={delta} "
            "between 0 and 1."
        )
    passed = p_values <= delta / starts
    accepted = torch.zeros_like(passed)
    for number in range(starts):
        start = number * count // starts
        accepted[..., start:] |= passed[..., start:].int().cummin(-1).values.bool()
    return accepted

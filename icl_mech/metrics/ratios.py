"""95 % intervals of ratios of paired means, such as the fraction of a gain that goes through a path.

Fieller intervals: the ratios `r` for which the interval of the mean of `numerator - r denominator` includes 0, with the
interval of `student_ends`. With Student's t alone that is Fieller's formula; the studentised bootstrap keeps coverage for
skewed values. Such an interval is bounded only where the mean of the denominator differs clearly from 0; elsewhere the ratio
is undefined and no ends are given.

Sources: Fieller 1954, *Some problems in interval estimation*; Hall 1988, *Theoretical comparison of bootstrap confidence
intervals*; its coverage: `docs/benchmarks/coverage.md`.
"""

from collections.abc import Callable, Sequence
from math import nan

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import RESAMPLES, Interval, resample_weights
from icl_mech.metrics.means import LONGEST, reaches
from icl_mech.metrics.nested import over_units

DOUBLINGS = 40
"""How often the search distance of an end is doubled."""

HALVINGS = 30
"""Bisections after that."""

Ends = tuple[Tensor, Tensor, Tensor]
"""Mean, low and high of `numerator - ratio * denominator`."""


class _Pairs:
    """Values of one group, centred, with the moments of their resamples."""

    def __init__(self, numerator: Tensor, denominator: Tensor, weights: Tensor) -> None:
        self.n = len(numerator)
        self.means = numerator.mean(0), denominator.mean(0)
        top, bottom = numerator - self.means[0], denominator - self.means[1]
        products = top.square(), top * bottom, bottom.square()
        self.spread = tuple(product.sum(0) for product in products)
        self.shifts = weights @ top, weights @ bottom
        self.products = tuple(weights @ product for product in products)

    def ends(self, ratio: Tensor, weight: float) -> Ends:
        """Mean and `student_ends` of `weight * numerator - ratio * denominator`."""
        mean = weight * self.means[0] - ratio * self.means[1]
        error = (_combined(self.spread, ratio, weight) / (self.n - 1) / self.n).sqrt()
        shift = weight * self.shifts[0] - ratio * self.shifts[1]
        second = _combined(self.products, ratio, weight)
        spread = ((second - shift.square()).clamp(min=0) / (self.n - 1)).sqrt()
        least, most = reaches(shift, spread, error, self.n)
        return mean, mean - most * error, mean - least * error


def _combined(products: tuple[Tensor, ...], ratio: Tensor, weight: float) -> Tensor:
    """Squares of `weight * top - ratio * bottom`; 0 where only rounding error is left."""
    top, both, bottom = products
    whole = weight**2 * top + ratio.square() * bottom
    combined = whole - 2 * weight * ratio * both
    return torch.where(combined > 1e-12 * whole, combined, 0.0)


@checked(ResultError)
def ratio_ends(
    numerator: Float[Tensor, " batch *cell"],
    denominator: Float[Tensor, " batch *cell"],
    *,
    resamples: Count = RESAMPLES,
    seed: Natural = 0,
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of the 95 % intervals of `mean(numerator) / mean(denominator)`, paired over prompts.

    NaN where the interval of the mean of the denominator includes 0, or for a single prompt. Zero width where the
    ratio is the same for all prompts.

    Args:
        numerator: Values, prompt axis first.
        denominator: Values of the same prompts.
        resamples: Number of bootstrap resamples.
        seed: Of the resampling.

    Raises:
        ResultError: values of different shapes.
    """
    groups = [_pairs(numerator, denominator, resamples, seed)]
    low, high = _inverted(groups[0].ends, groups)
    return low.reshape(numerator.shape[1:]), high.reshape(numerator.shape[1:])


@checked(ResultError)
def ratio_interval(
    numerator: Float[Tensor, " batch"],
    denominator: Float[Tensor, " batch"],
    *,
    resamples: Count = RESAMPLES,
    seed: Natural = 0,
) -> Interval:
    """`mean(numerator) / mean(denominator)`, paired over prompts, with its interval.

    An example is the fraction of a gain that goes through a path: the numerator is each prompt's loss under attention
    knockout of the path, the denominator its gain from demonstrations. All three numbers are NaN where the 95 % interval
    of the gain includes 0, since a fraction of it is then undefined. The fraction may lie outside [0, 1].

    Args:
        numerator: Value of each prompt.
        denominator: Value for the same prompts.
        resamples: Number of bootstrap resamples.
        seed: Of the resampling.

    Raises:
        ResultError: different numbers of prompts.
    """
    low, high = ratio_ends(numerator, denominator, resamples=resamples, seed=seed)
    return _interval(numerator.double().mean(), denominator.double().mean(), low, high)


def nested_ratio(
    numerators: Sequence[Float[Tensor, " batch"]],
    denominators: Sequence[Float[Tensor, " batch"]],
    *,
    sampled: bool = True,
    drawn: float = 0.0,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The ratio of the means over groups (seeds, tasks), each the mean over its prompts, with its interval.

    The interval holds the ratios for which that of the mean over groups of `numerator - ratio * denominator`
    (`over_units`) includes 0: groups have equal weights, whatever their number of prompts. NaN as in
    `ratio_interval`.

    Args:
        numerators: Value of each prompt in each group.
        denominators: Values for the same groups and prompts.
        sampled: Groups stand for others of their kind, so their spread counts; otherwise the ratio is over
            exactly these groups (strata).
        drawn: Fraction of the pool of queries that each group draws, see `over_units`.
        resamples: Number of bootstrap resamples.
        seed: Of the resampling.

    Raises:
        ResultError: no groups, or groups or prompts that cannot be paired.
    """
    if not len(numerators) or len(numerators) != len(denominators):
        raise ResultError(
            f"There are {len(numerators)} groups of numerators and {len(denominators)} of "
            "denominators; for both, give one tensor for each seed or task."
        )
    pairs = zip(numerators, denominators, strict=True)
    groups = [_pairs(top, bottom, resamples, seed + i) for i, (top, bottom) in enumerate(pairs)]

    def ends(ratio: Tensor, weight: float) -> Ends:
        of_groups = (group.ends(ratio, weight) for group in groups)
        each = (torch.stack(part) for part in zip(*of_groups, strict=True))
        estimate = over_units(*each, sampled=sampled, drawn=drawn)
        return estimate.value, estimate.low, estimate.high

    low, high = _inverted(ends, groups)
    top, bottom = (sum(group.means[i] for group in groups) for i in (0, 1))
    return _interval(torch.as_tensor(top), torch.as_tensor(bottom), low, high)


def _interval(top: Tensor, bottom: Tensor, low: Tensor, high: Tensor) -> Interval:
    if bool(low.isnan().any()):
        return Interval(nan, nan, nan)
    return Interval(float(top / bottom), float(low), float(high))


def _pairs(numerator: Tensor, denominator: Tensor, resamples: int, seed: int) -> _Pairs:
    """Paired values of one group, one column per cell.

    Raises:
        ResultError: they cannot be paired.
    """
    if numerator.shape != denominator.shape or not len(numerator):
        raise ResultError(
            f"Values of shapes {tuple(numerator.shape)} and {tuple(denominator.shape)} cannot be "
            "paired; give the same prompts for both, at least one."
        )
    n = len(numerator)
    weights = resample_weights(n, resamples=resamples, seed=seed)
    return _Pairs(numerator.double().reshape(n, -1), denominator.double().reshape(n, -1), weights)


def _inverted(
    ends: Callable[[Tensor, float], Ends], groups: Sequence[_Pairs]
) -> tuple[Tensor, Tensor]:
    """The farthest ratios on either side whose interval includes 0; NaN where there are none.

    Args:
        ends: Interval of the mean of `weight * numerator - ratio * denominator`, given `ratio` and `weight`.
        groups: Pairs of values.
    """
    top, bottom = (torch.stack([group.means[i] for group in groups]).mean(0) for i in (0, 1))
    nothing = torch.full_like(top, nan)
    if any(group.n < 2 for group in groups):
        return nothing, nothing.clone()
    # Weight 0 and ratio -1 give the interval of the denominator itself.
    _, low, high = ends(torch.full_like(bottom, -1.0), 0.0)
    clear = (low > 0) | (high < 0)
    size = torch.where(clear, bottom, 1.0)
    centre = torch.where(clear, top / size, 0.0)
    _, low, high = ends(centre, 1.0)
    # A first step small relative to the width at the estimate starts inside the interval.
    step = torch.where(clear, (high - low) / (LONGEST * size.abs()), 0.0)

    def holds(ratio: Tensor) -> Tensor:
        _, low, high = ends(ratio, 1.0)
        return (low <= 0) & (high >= 0)

    sides = [torch.where(clear, _end(holds, centre, side * step), nan) for side in (-1, 1)]
    return sides[0], sides[1]


def _end(holds: Callable[[Tensor], Tensor], centre: Tensor, step: Tensor) -> Tensor:
    """The farthest ratio from `centre` in the direction of `step` for which `holds` is true."""
    near, far = centre.clone(), centre + step
    for _ in range(DOUBLINGS):
        inside = holds(far) & (step != 0)
        if not bool(inside.any()):
            break
        near = torch.where(inside, far, near)
        step = torch.where(inside, 2 * step, step)
        far = torch.where(inside, far + step, far)
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        inside = holds(middle)
        near, far = torch.where(inside, middle, near), torch.where(inside, far, middle)
    return near

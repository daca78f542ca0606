"""95 % intervals of ratios of paired means: what share of a gain goes through a path.

Fieller's: the ratios `r` for which the mean of `numerator - r denominator` is not clear of 0, by the interval that means of
such values have (`student_ends`). With Student's t alone that is Fieller's formula; the studentised bootstrap beside it holds
for skewed values. Such an interval has two ends where the mean of the denominator is clear of 0, and only then is
a ratio to it anything: without it there are none.

Sources: Fieller 1954, *Some problems in interval estimation*; Hall 1988, *Theoretical comparison of bootstrap confidence
intervals*; how often it holds: `docs/benchmarks/coverage.md`.
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
"""How often the distance in which an end is looked for is doubled."""

HALVINGS = 30
"""How often it is halved then."""

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
        """As `student_ends` of `own * numerator - ratio * denominator`."""
        mean = weight * self.means[0] - ratio * self.means[1]
        error = (_combined(self.spread, ratio, weight) / (self.n - 1) / self.n).sqrt()
        shift = weight * self.shifts[0] - ratio * self.shifts[1]
        second = _combined(self.products, ratio, weight)
        spread = ((second - shift.square()).clamp(min=0) / (self.n - 1)).sqrt()
        least, most = reaches(shift, spread, error, self.n)
        return mean, mean - most * error, mean - least * error


def _combined(products: tuple[Tensor, ...], ratio: Tensor, weight: float) -> Tensor:
    """Squares of `own * top - ratio * bottom`; what is left of them by rounding alone is none."""
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

    Not-a-number where the interval of the mean of the denominator includes 0, or there is a single prompt. No width
    where the ratio is the same for all prompts.

    Args:
        numerator: Values, prompt axis first.
        denominator: Of the same prompts.
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

    The share of a gain that goes through a path: the numerator is what each prompt loses when the path is cut, the
    denominator what it gains from its demonstrations. All three numbers are not-a-number where the gain is not clear: its own 95 %
    interval includes 0, and a share of it is undefined. Nothing keeps a share between 0 and 1.

    Args:
        numerator: Value of each prompt.
        denominator: Of the same prompts.
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

    The ratios for which the mean over groups of `numerator - ratio * denominator` is not clear of 0, by the interval of
    such means (`over_units`): groups count alike, whatever their number of prompts. Not-a-number as in `ratio_interval`.

    Args:
        numerators: Of each group the value of each prompt.
        denominators: Of the same groups and prompts.
        sampled: Groups stand for others of their kind, so their spread counts; else the ratio is of just these (strata).
        drawn: Which share of the pool of queries each group draws, see `over_units`.
        resamples: Number of bootstrap resamples.
        seed: Of the resampling.

    Raises:
        ResultError: no groups, or groups or prompts that do not pair.
    """
    if not len(numerators) or len(numerators) != len(denominators):
        raise ResultError(
            f"{len(numerators)} groups of numerators and {len(denominators)} of denominators; give one tensor for "
            "each seed or task in both."
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
    """Values of one group in columns.

    Raises:
        ResultError: they do not pair.
    """
    if numerator.shape != denominator.shape or not len(numerator):
        raise ResultError(
            f"Values of the shapes {tuple(numerator.shape)} and {tuple(denominator.shape)} cannot be paired; give the same "
            "prompts of both, one at least."
        )
    n = len(numerator)
    weights = resample_weights(n, resamples=resamples, seed=seed)
    return _Pairs(numerator.double().reshape(n, -1), denominator.double().reshape(n, -1), weights)


def _inverted(
    ends: Callable[[Tensor, float], Ends], groups: Sequence[_Pairs]
) -> tuple[Tensor, Tensor]:
    """The farthest ratios on either side whose ends include 0; not-a-number where there are none.

    Args:
        ends: Of the mean of `own * numerator - ratio * denominator`, from `ratio` and `own`.
        groups: Pairs of values.
    """
    top, bottom = (torch.stack([group.means[i] for group in groups]).mean(0) for i in (0, 1))
    nothing = torch.full_like(top, nan)
    if any(group.n < 2 for group in groups):
        return nothing, nothing.clone()
    _, low, high = ends(torch.full_like(bottom, -1.0), 0.0)
    clear = (low > 0) | (high < 0)
    size = torch.where(clear, bottom, 1.0)
    centre = torch.where(clear, top / size, 0.0)
    _, low, high = ends(centre, 1.0)
    step = torch.where(clear, (high - low) / (LONGEST * size.abs()), 0.0)

    def holds(ratio: Tensor) -> Tensor:
        _, low, high = ends(ratio, 1.0)
        return (low <= 0) & (high >= 0)

    sides = [torch.where(clear, _end(holds, centre, side * step), nan) for side in (-1, 1)]
    return sides[0], sides[1]


def _end(holds: Callable[[Tensor], Tensor], centre: Tensor, step: Tensor) -> Tensor:
    """How far from `centre` in the direction of `step` it holds."""
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

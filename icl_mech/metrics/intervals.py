"""95 % intervals: bootstrap over prompts (seeded), Wilson for 0/1 outcomes; see `mean_ends`.

Functions take per-prompt values and reduce the prompt axis as the last step. Simultaneous tests and intervals
for many means control the family-wise error.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError

RESAMPLES = 10_000
"""Bootstrap resamples behind every interval."""

LEVEL = 0.95
"""Coverage of every interval."""


class Interval(NamedTuple):
    """A number with the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """E.g. `0.71 [0.62, 0.79]`."""
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def holding(value: float, low: float, high: float) -> Interval:
    """The interval, extended to the value where the value lies outside it.

    Percentiles of a biased statistic (a rank correlation, a fraction) may all lie on one side of the estimate.
    """
    return Interval(value, min(low, value), max(high, value))


@checked(ResultError)
def resample_weights(
    n: Count, *, resamples: Count = RESAMPLES, seed: Natural = 0
) -> Float[Tensor, "r n"]:
    """Bootstrap counts of `n` prompts in each resample, divided by `n`.

    A mean over a resample is then a weighted mean: `weights @ per_prompt`.
    """
    return (_drawn if n * resamples <= 1_000_000 else _drawn.__wrapped__)(
        n, resamples, seed
    ).clone()


@lru_cache(4)
def _drawn(n: int, resamples: int, seed: int) -> Tensor:
    # Counts are all a mean needs; the order of the draws does not matter.
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    return torch.from_numpy(counts).double() / n


@checked(ResultError)
def known_mean(
    values: Float[Tensor, " *any"], dim: int | tuple[int, ...]
) -> Float[Tensor, " *fewer"]:
    """Mean along axes over entries that are not NaN; NaN where there are none."""
    return values.nanmean(dim) if bool(values.isnan().any()) else values.mean(dim)


@checked(ResultError)
def means_over(
    weights: Float[Tensor, "r batch"], per_prompt: Float[Tensor, " batch *rest"]
) -> Float[Tensor, " r *rest"]:
    """Weighted means over the prompts whose value is not NaN; NaN where there are none.

    Args:
        weights: Weights of each resample; each row adds up to 1.
        per_prompt: Values, prompt axis first.
    """
    flat = per_prompt.double().reshape(len(per_prompt), -1)
    missing = flat.isnan()
    means = weights @ flat.masked_fill(missing, 0.0)
    if bool(missing.any()):
        known = weights @ (~missing).double()
        means = torch.where(known > 0, means / known, torch.nan)
    return means.reshape(len(weights), *per_prompt.shape[1:])


@checked(ResultError)
def bootstrap_interval(
    per_prompt: Float[Tensor, " batch *rest"],
    statistic: Callable[[Tensor], Tensor] | None = None,
    *,
    resamples: Count = RESAMPLES,
    seed: Natural = 0,
) -> tuple[Tensor, Tensor]:
    """Low and high ends of the percentile bootstrap interval of a function of the mean.

    Use `mean_ends` for means themselves: its coverage is better for few skewed values. Means are over the
    prompts whose value is not NaN.

    Args:
        per_prompt: Values, prompt axis first.
        statistic: Applied to `[resample, *rest]` means, so that ratios are recomputed in each
            resample. Default: the mean itself.
        resamples: Number of resamples.
        seed: Of the resampling.
    """
    n = per_prompt.shape[0]
    means = means_over(resample_weights(n, resamples=resamples, seed=seed), per_prompt)
    return quantile_ends(means if statistic is None else statistic(means), n)


@checked(ResultError)
def quantile_ends(
    drawn: Float[Tensor, " r *cell"], count: Count | None = None
) -> tuple[Tensor, Tensor]:
    """Ends of the middle 95 % of the resamples.

    NaN resamples are left out; cells without any number stay NaN.

    Args:
        drawn: Values of the resamples.
        count: Number of prompts; the ends are then widened as Student's t is wider than the normal
            distribution, and because resamples vary less than samples (Hesterberg 2015,
            *What teachers should know about the bootstrap*). One prompt has no interval.
    """
    if count == 1:
        nothing = torch.full(drawn.shape[1:], torch.nan, dtype=torch.float64)
        return nothing, nothing.clone()
    tail = (1 - LEVEL) / 2 if count is None else _widened(count)
    low, high = quantiles(drawn.reshape(len(drawn), -1), tail, 1 - tail)
    return low.reshape(drawn.shape[1:]), high.reshape(drawn.shape[1:])


def quantiles(drawn: Float[Tensor, "r cell"], *levels: float) -> Float[Tensor, "level cell"]:
    """Quantiles of each column without NaNs; columns without any number stay NaN."""
    known = ~drawn.isnan().all(0)
    values = torch.full((len(levels), drawn.shape[1]), torch.nan, dtype=torch.float64)
    if bool(known.any()):
        numbers = (drawn if bool(known.all()) else drawn[:, known]).numpy()
        # A ratio whose denominator vanishes in some resamples is infinite there.
        with np.errstate(invalid="ignore"):
            ends = np.nanquantile(numbers, levels, axis=0)
        values[:, known] = torch.from_numpy(np.asarray(ends)).double()
    return values


def _widened(count: int) -> float:
    from scipy.stats import t

    # The bootstrap variance is (n - 1) / n of the unbiased one; the second factor undoes that.
    far = float(t.ppf((1 + LEVEL) / 2, count - 1)) * (count / (count - 1)) ** 0.5
    return NormalDist().cdf(-far)


@checked(ResultError)
def wilson_interval(outcomes: Bool[Tensor, " batch"]) -> Interval:
    """Fraction of True with its Wilson score interval (no continuity correction)."""
    from scipy.stats import binomtest

    n, k = outcomes.numel(), int(outcomes.sum())
    ends = binomtest(k, n).proportion_ci(LEVEL, method="wilson")
    return Interval(k / n, float(ends.low), float(ends.high))


ONE_SIDED = (1 + LEVEL) / 2
"""Level of the one-sided statement that a 95 % interval lies above 0."""

FEWEST = 4
"""With fewer prompts, too many resamples repeat a single one: means of noise then exceed the limit far too often."""

AT_ONCE = 256
"""Resamples in memory at a time: 256 x 2000 cells are 4 MB."""


@checked(ResultError)
def above_together(
    per_prompt: Float[Tensor, " batch *cell"],
    *,
    resamples: Count = 2000,
    seed: Natural = 0,
    level: float = LEVEL,
) -> Bool[Tensor, " *cell"]:
    """Cells whose mean over prompts lies above 0, with a family-wise error of 5 %.

    max-T: each mean is divided by its standard error, and the largest of these ratios is compared
    with the largest ratios of resampled deviations from the means. Cells that are the same for all
    prompts count as above 0 if their value is. None for fewer than four prompts, whose resamples too often repeat a
    single prompt.

    Args:
        per_prompt: Values, prompt axis first.
        resamples: Number of bootstrap resamples.
        seed: Of the resampling.
        level: One minus the family-wise error; `ONE_SIDED` matches 95 % intervals that lie
            above 0.
    """
    n, cells = len(per_prompt), per_prompt.shape[1:]
    flat = per_prompt.double().reshape(n, -1)
    mean = flat.mean(0)
    if n < FEWEST:
        return torch.zeros(cells, dtype=torch.bool)
    error = flat.std(0, correction=1) / n**0.5
    # Constant cells have no standard error; they are judged by their value alone.
    moving = error > 1e-12
    centred = (flat - mean)[:, moving]
    if not centred.shape[1]:
        return (mean > 0).reshape(cells)
    limit = torch.cat([part.max(1).values for part in _ratios(centred, resamples, seed)])
    limit = limit.quantile(level)
    ratio = torch.where(moving, mean / error.clamp(min=1e-12), torch.inf * mean.sign())
    return ((mean > 0) & (ratio > limit)).reshape(cells)


@checked(ResultError)
def ends_together(
    per_prompt: Float[Tensor, " batch *cell"], *, resamples: Count = 2000, seed: Natural = 0
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of simultaneous 95 % intervals of means over prompts.

    max-T as in `above_together`, with the largest ratio in either direction.
    """
    n, cells = len(per_prompt), per_prompt.shape[1:]
    flat = per_prompt.double().reshape(n, -1)
    mean = flat.mean(0)
    if n < 2:
        nothing = torch.full(cells, torch.nan, dtype=torch.float64)
        return nothing, nothing.clone()
    error = flat.std(0, correction=1) / n**0.5
    moving = error > 1e-12
    half = torch.zeros_like(mean)
    if bool(moving.any()):
        ratios = _ratios((flat - mean)[:, moving], resamples, seed)
        half = error * torch.cat([part.abs().max(1).values for part in ratios]).quantile(LEVEL)
    return (mean - half).reshape(cells), (mean + half).reshape(cells)


def _ratios(
    centred: Float[Tensor, "batch cell"], resamples: int, seed: int
) -> Iterator[Float[Tensor, "part cell"]]:
    """Means of resampled deviations, each divided by its standard error."""
    n = len(centred)
    for rows in resample_weights(n, resamples=resamples, seed=seed).split(AT_ONCE):
        shift = rows @ centred
        spread = (rows @ centred**2 - shift**2).clamp(min=0.0) / (n - 1)
        # A resample that repeats one prompt has no spread and is uninformative.
        yield torch.where(spread > 1e-24, shift / spread.sqrt(), torch.zeros_like(shift))

"""95 % intervals of means over prompts and prediction intervals of one more draw: the choice by kind of value.

*Binary outcomes*, and values that stand for them (calibrated scores, means over draws), have score
intervals: Wilson's, and Tango's for paired differences. Both invert a test, so neither ever has zero width.
Values strictly between the ends vary less than binary ones: they count as more prompts (an effective n), by
the ratio of the binary variance at the same mean to theirs. For binary values the intervals are exactly
Wilson's and Tango's.

*Other values* take, at each end, the wider of studentised bootstrap and Student's t. The percentile
interval covers means of 20 to 100 skewed values in only .83-.92 of the cases, since small samples miss the
tail; the studentised bootstrap divides each resampled mean by its own standard error. With outliers on both
sides that interval is too short (coverage .87 for 48 prompts, a tenth of them ten times as large): resamples
without outliers have ratios near 0. Student's t is too long there, and too short for skewed values.

Few values cannot show how skewed they are: `prompts_needed` estimates how many it takes.

Sources: Wilson 1927, *Probable inference*; Tango 1998, *Equivalence test and confidence interval
for the difference in proportions for the paired-sample design*, Statistics in Medicine 17; Hall 1988,
*Theoretical comparison of bootstrap confidence intervals*; Cochran 1977, *Sampling techniques*, 2.15 (the
number of values needed grows with the square of the skewness); taking the wider end and the factor 4 are
ours (`docs/benchmarks/coverage.md`).
"""

from math import inf
from statistics import NormalDist
from typing import Literal

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import LEVEL, RESAMPLES, Interval, quantiles, resample_weights

STEPS = 60
"""Bisections of an interval of length 1: below the rounding of double precision."""

Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
"""The .975 quantile of the normal distribution, 1.96."""


@checked(ResultError)
def share_ends(
    per_prompt: Float[Tensor, " batch *cell"], *, step: float = 0.0
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of the interval of means of values in [0, 1]: Wilson's, with an effective n.

    Args:
        per_prompt: Values, prompt axis first.
        step: Distance between attainable means, if that is more than one prompt makes: the ends
            are those of means half a step lower and higher (continuity correction; Newcombe 1998, *Two-sided confidence intervals for the single proportion*, method 4).

    Raises:
        ResultError: a step outside [0, 1].
    """
    if not 0 <= step <= 1:
        raise ResultError(
            f"step={step} is not possible: means in [0, 1] lie at most 1 apart. Give a step "
            "between 0 and 1, or leave it out."
        )
    values = per_prompt.double()
    share = values.mean(0)
    n = len(values) / _relative_variance(values, 0.0)
    low = wilson((share - step / 2).clamp(min=0.0), n)[0]
    return low, wilson((share + step / 2).clamp(max=1.0), n)[1]


def wilson(share: Float[Tensor, " *cell"], n: Float[Tensor, " *cell"]) -> tuple[Tensor, Tensor]:
    """Ends of Wilson's interval of proportions of `n` prompts; an effective `n` need not be whole."""
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * (share * (1 - share) / n + Z**2 / (4 * n**2)).clamp(min=0).sqrt()
    low, high = (centre - half).clamp(min=0.0), (centre + half).clamp(max=1.0)
    return torch.minimum(low, share), torch.maximum(high, share)


@checked(ResultError)
def paired_ends(
    differences: Float[Tensor, " batch *cell"],
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of Tango's interval of means of paired differences in [-1, 1], with an effective n."""
    values = differences.double()
    mean = values.mean(0)
    n = len(values) / _relative_variance(values, -1.0)
    gained, lost = values.clamp(min=0).mean(0), (-values).clamp(min=0).mean(0)
    low = _reached(mean, gained, lost, n, torch.full_like(mean, -1.0), Z)
    high = _reached(mean, gained, lost, n, torch.ones_like(mean), -Z)
    return torch.minimum(low, mean), torch.maximum(high, mean)


def _reached(
    mean: Tensor, gained: Tensor, lost: Tensor, n: Tensor, far: Tensor, level: float
) -> Tensor:
    """The difference between `mean` and `far` at which the score is `level`, by bisection."""
    near = mean.clone()
    for _ in range(STEPS):
        middle = (near + far) / 2
        inside = (_score(middle, gained, lost, n) - level) * level < 0
        near, far = torch.where(inside, middle, near), torch.where(inside, far, middle)
    return far


def _score(delta: Tensor, gained: Tensor, lost: Tensor, n: Tensor) -> Tensor:
    """Tango's statistic for a true difference `delta`; `gained` and `lost` are proportions."""
    b = (2 - gained + lost) * delta - gained - lost
    c = -lost * delta * (1 - delta)
    # Maximum-likelihood estimate of the lost proportion under the constraint `delta`.
    down = ((b**2 - 8 * c).clamp(min=0).sqrt() - b) / 4
    variance = (2 * down + delta * (1 - delta)).clamp(min=1e-300)
    return (gained - lost - delta) * (n / variance).sqrt()


SAME = 1e-4
"""Relative error that rounding to float32 may cause in the quantities the ends imply."""


def scored(interval: Interval, n: int) -> bool:
    """True if `mean_ends` would give these ends to n binary outcomes, or to n changes of -1, 0 or 1.

    Both ends of Wilson's interval imply the same effective n, which is n or more: `z^2 (1 - L) L / (v - L)^2` for the
    end `L` and the proportion `v`. Tango's ends have scores of z and -z for some whole number of lost prompts. Ends of other
    means do so only by accident. Differences of non-binary values are not recognised.

    Args:
        interval: An interval with finite ends.
        n: Number of prompts.
    """
    value, low, high = interval
    if not (-1 <= low < high <= 1 and low <= value <= high):
        return False
    if low >= 0:
        ends = [end for end in (low, high) if min(end, 1 - end) > 1e-9]
        implied = [(end - value) ** 2 / (end * (1 - end)) for end in ends]
        most = Z**2 / n * (1 + SAME)
        if implied and max(implied) <= most and max(implied) - min(implied) <= SAME * max(implied):
            return len(ends) == 2 or value in (low, high)
    lost = torch.arange(n + 1, dtype=torch.float64) / n
    gained = lost + value
    if abs(value * n - round(value * n)) > SAME:
        return False
    possible = (gained >= -1e-9) & (gained + lost <= 1 + 1e-9)
    count = torch.full_like(lost, float(n))
    off = [
        (_score(torch.full_like(lost, end), gained, lost, count) - level).abs()
        for end, level in ((low, Z), (high, -Z))
        if abs(end) < 1 - 1e-9
    ]
    return bool(off) and bool((possible & (torch.stack(off).amax(0) < SAME * Z)).any())


def _relative_variance(values: Tensor, low: float) -> Tensor:
    """Variance relative to that of binary values with the same mean (for differences -1, 0, 1), at most 1.

    Half a prompt more at either end keeps it from 0 where all values are the same; for differences
    the end is the largest observed size.
    """
    n = len(values) + 1
    if low < 0:
        end = values.abs().amax(0)
        end = torch.where(end > 0, end, 1.0)
        mean, squares = values.sum(0) / n, (values.square().sum(0) + end**2) / n
        largest = (values.abs().sum(0) + end) / n
    else:
        mean, squares = (values.sum(0) + 0.5) / n, (values.square().sum(0) + 0.5) / n
        largest = mean
    return ((squares - mean**2) / (largest - mean**2)).clamp(max=1.0)


AT_ONCE = 512
"""Cells that are resampled together: 10 000 x 512 numbers are 40 MB."""

LONGEST = 5.0
"""Largest distance of an end from the mean, in multiples of Student's t.

Few, mostly equal values give resamples with hardly any spread, whose ratios explode.
"""

FEWEST_VALUES = 12
"""Fewer values do not show how skewed they are: a skewness of 1 is then within chance."""

PER_SQUARE = 4
"""Values needed for a skewness of 1: simulated intervals then have a coverage of .93."""


@checked(ResultError)
def student_ends(
    per_prompt: Float[Tensor, " batch *cell"], *, resamples: Count = RESAMPLES, seed: Natural = 0
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of the 95 % interval of means; NaN for a single prompt.

    `mean - max(t, q[.975]) * s` and `mean + max(t, -q[.025]) * s`, where `s` is the standard
    error, `t` the .975 quantile of Student's t with n - 1 degrees of freedom, and `q` are quantiles
    of `(m* - mean) / s*` over the resamples, no farther than 5 t. Cells that are the same for all
    prompts have ends equal to their mean: constant values without bounds do not show how far
    others could lie.

    Args:
        per_prompt: Values, prompt axis first.
        resamples: Number of bootstrap resamples.
        seed: Of the resampling.
    """
    n, cells = len(per_prompt), per_prompt.shape[1:]
    values = per_prompt.double().reshape(n, -1)
    if n < 2:
        nothing = torch.full(cells, torch.nan, dtype=torch.float64)
        return nothing, nothing.clone()
    weights = resample_weights(n, resamples=resamples, seed=seed)
    parts = [_student(part, weights) for part in values.split(AT_ONCE, dim=1)]
    low, high = (torch.cat(ends).reshape(cells) for ends in zip(*parts, strict=True))
    return low, high


@checked(ResultError)
def prompts_needed(per_prompt: Float[Tensor, " batch *cell"]) -> Float[Tensor, " *cell"]:
    """Number of prompts from which the interval of a mean has its coverage for values as skewed as these.

    `4 g^2`, rounded up, with the skewness `g = mean((x - mean)^3) / mean((x - mean)^2)^1.5`; 0
    where values are the same for all prompts. Small samples underestimate skewness (`g^2 < n`
    always), so more prompts than this may be needed, and outliers missing from the sample do not
    show at all: n prompts reveal nothing about values rarer than 3 in n.
    """
    centred = per_prompt.double() - per_prompt.double().mean(0)
    size = centred.abs().amax(0)
    moving = size > 1e-12 * per_prompt.double().abs().amax(0)
    centred = centred / torch.where(moving, size, 1.0)
    variance, third = centred.square().mean(0), centred.pow(3).mean(0)
    skewness = third / torch.where(moving, variance, 1.0) ** 1.5
    # Keep rounding error from counting as skewness.
    return torch.where(moving, (PER_SQUARE * skewness.square() - 1e-9).ceil(), 0.0).clamp(min=0.0)


@checked(ResultError)
def one_more(draws: Float[Tensor, " draw"]) -> float:
    """Half-width of the 95 % prediction interval of one more draw around the mean of these."""
    from scipy.stats import t

    count = len(draws)
    if count < 2:
        return float("nan")
    # The new draw and the mean of the others both vary: s^2 (1 + 1 / n).
    spread: float = float(draws.double().std(correction=1)) * (1 + 1 / count) ** 0.5
    far = float(t.ppf((1 + LEVEL) / 2, count - 1))
    return far * spread


def _student(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    n = len(values)
    mean = values.mean(0)
    centred = values - mean
    error = (centred.square().sum(0) / (n - 1) / n).sqrt()
    # The rounding error of equal numbers is no spread.
    still = error <= 1e-12 * mean.abs()
    shift = weights @ centred
    spread = ((weights @ centred.square() - shift.square()).clamp(min=0) / (n - 1)).sqrt()
    least, most = reaches(shift, spread, error, n)
    error = torch.where(still, 0.0, error)
    return mean - most * error, mean - least * error


def reaches(shift: Tensor, spread: Tensor, error: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Distances of the ends from the mean in standard errors (one negative, one positive), see `student_ends`.

    Args:
        shift: Deviations of resampled means from the mean.
        spread: Standard errors of the resamples.
        error: Standard error of the mean.
        n: Number of values.
    """
    from scipy.stats import t

    # A resample that repeats one value has no spread, and its mean lies as far away as a mean can.
    # Rounding leaves a spread of about 1e-8; the limit below which it counts as none lies well above.
    usual = float(t.ppf((1 + LEVEL) / 2, n - 1))
    far = LONGEST * usual
    ratio = (shift / spread.clamp(min=1e-6 * error)).nan_to_num(0.0).clamp(-far, far)
    least, most = quantiles(ratio, (1 - LEVEL) / 2, (1 + LEVEL) / 2)
    return least.clamp(max=-usual), most.clamp(min=usual)


Kind = Literal["value", "outcome", "change", "contrast", "correlation", "amount"]
"""Kind of per-prompt values: any number; an outcome in [0, 1]; a difference of two outcomes; of two changes; a
correlation; an amount, which is never negative (a divergence, attention, a factor)."""

RANGES: dict[Kind, tuple[float, float]] = {"correlation": (-1.0, 1.0), "amount": (0.0, torch.inf)}
"""Range of values of these kinds, and so of their means; intervals of outcomes stay inside by construction."""


@checked(ResultError)
def mean_ends(
    per_prompt: Float[Tensor, " batch *cell"] | Bool[Tensor, " batch *cell"],
    kind: Kind = "value",
    *,
    seed: Natural = 0,
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of the 95 % intervals of means over prompts, for many cells at once.

    Args:
        per_prompt: Values, prompt axis first; True and False are outcomes.
        kind: `outcome`: in [0, 1], Wilson's interval with an effective n; `change`: differences
            of two outcomes, Tango's; `contrast`: of two changes, likewise; `value`: the
            studentised bootstrap or Student's t, whichever reaches farther (`student_ends`), never beyond
            -1 and 1 for a `correlation`, never below 0 for an `amount`.
        seed: Of the bootstrap.
    """
    if kind == "change":
        return paired_ends(per_prompt.double())
    if kind == "contrast":
        # Differences of two changes lie in [-2, 2]; Tango's interval needs [-1, 1].
        low, high = paired_ends(per_prompt.double() / 2)
        return 2 * low, 2 * high
    if kind == "outcome" or per_prompt.dtype == torch.bool:
        return share_ends(per_prompt.double())
    low, high = student_ends(per_prompt, seed=seed)
    least, most = RANGES.get(kind, (-torch.inf, torch.inf))
    return low.clamp(least, most), high.clamp(least, most)


@checked(ResultError)
def mean_interval(
    per_prompt: Float[Tensor, " batch"] | Bool[Tensor, " batch"],
    kind: Kind = "value",
    *,
    seed: Natural = 0,
) -> Interval:
    """Mean over prompts with its interval, see `mean_ends`."""
    low, high = mean_ends(per_prompt, kind, seed=seed)
    return Interval(float(per_prompt.double().mean()), float(low), float(high))


@checked(ResultError)
def beyond_draws(
    own: Float[Tensor, " batch"], drawn: Float[Tensor, "batch draw"], kind: Kind = "value"
) -> Interval | None:
    """The mean of values minus the mean of random draws, paired over prompts.

    The interval accounts for the spread of the draws: it is the wider of the interval over prompts and the
    prediction interval of one more draw (Student's t), which is the null distribution of values no better than random
    ones. None for fewer than two draws, or where one has no value.
    """
    if drawn.shape[1] < 2 or bool(drawn.isnan().any()):
        return None
    value, low, high = mean_interval(own.double() - drawn.double().mean(1), kind)
    half, most = one_more(drawn.double().mean(0)), 1.0 if kind == "change" else inf
    return Interval(value, max(min(low, value - half), -most), min(max(high, value + half), most))

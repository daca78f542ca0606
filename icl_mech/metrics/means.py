"""Intervals of means that hold for skewed values and for values with outliers.

The percentile interval covers means of 20 to 100 skewed values in .83-.92 of the cases, since
few of them hold the tail; the studentised bootstrap divides each resampled mean by its own
standard error. With outliers on both sides that one is too short (.87 of 48 prompts, a tenth of
them ten times as large): resamples without outliers have ratios near 0. Student's t is too long
there, and too short where values are skewed, so each end is the farther one of the two.

Few values cannot show how skewed they are: `prompts_needed` says how many it takes.

Sources: Hall 1988, *Theoretical comparison of bootstrap confidence intervals*; Cochran 1977,
*Sampling techniques*, 2.15 (that the number of values grows with the square of the skewness);
that the farther end is taken, and the factor 4, are ours (`docs/benchmarks/coverage.md`).
"""

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import LEVEL, RESAMPLES, quantiles, resample_weights

AT_ONCE = 512
"""Cells that are resampled together: 10 000 x 512 numbers are 40 MB."""

LONGEST = 5.0
"""An end lies at most so many times as far from the mean as Student's t puts it.

Few values of which most are equal leave resamples with hardly any spread.
"""

FEWEST_VALUES = 12
"""Fewer say nothing of how skewed values are: a skewness of 1 is then no more than chance."""

PER_SQUARE = 4
"""Values that a skewness of 1 takes: with so many simulated intervals hold in .93 of the cases."""


@checked(ResultError)
def student_ends(
    per_prompt: Float[Tensor, " batch *cell"], *, resamples: Count = RESAMPLES, seed: Natural = 0
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of the 95 % interval of means; not-a-number for a single prompt.

    `mean - max(t, q[.975]) * s` and `mean + max(t, -q[.025]) * s`, where `s` is the standard
    error, `t` the .975 quantile of Student's t with n - 1 degrees of freedom, and `q` are quantiles
    of `(m* - mean) / s*` over the resamples, no farther than 5 t. Cells that are the same for all
    prompts have ends equal to their mean: values without bounds say nothing about how far others
    could lie.

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
    found = [_student(part, weights) for part in values.split(AT_ONCE, dim=1)]
    low, high = (torch.cat(ends).reshape(cells) for ends in zip(*found, strict=True))
    return low, high


@checked(ResultError)
def prompts_needed(per_prompt: Float[Tensor, " batch *cell"]) -> Float[Tensor, " *cell"]:
    """From how many prompts on the interval of a mean holds for values as skewed as these.

    `4 g^2`, rounded up, with the skewness `g = mean((x - mean)^3) / mean((x - mean)^2)^1.5`; 0
    where values are the same for all prompts. A few values show less skewness than there is
    (`g^2 < n` always), so that more prompts than this may be needed, and outliers that are not
    among them do not show at all: n prompts say nothing of what fewer than 3 in n have.
    """
    centred = per_prompt.double() - per_prompt.double().mean(0)
    size = centred.abs().amax(0)
    moving = size > 1e-12 * per_prompt.double().abs().amax(0)
    centred = centred / torch.where(moving, size, 1.0)
    variance, third = centred.square().mean(0), centred.pow(3).mean(0)
    skewness = third / torch.where(moving, variance, 1.0) ** 1.5
    # Rounding is no skewness.
    return torch.where(moving, (PER_SQUARE * skewness.square() - 1e-9).ceil(), 0.0).clamp(min=0.0)


@checked(ResultError)
def one_more(draws: Float[Tensor, " draw"]) -> float:
    """Half the width of the 95 % interval of one more draw around the mean of these."""
    from scipy.stats import t

    count = len(draws)
    if count < 2:
        return float("nan")
    spread: float = float(draws.double().std(correction=1)) * (1 + 1 / count) ** 0.5
    far = float(t.ppf((1 + LEVEL) / 2, count - 1))
    return far * spread


def _student(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    from scipy.stats import t

    n = len(values)
    mean = values.mean(0)
    centred = values - mean
    error = (centred.square().sum(0) / (n - 1) / n).sqrt()
    # Rounding of equal numbers is no spread.
    still = error <= 1e-12 * mean.abs()
    shift = weights @ centred
    spread = ((weights @ centred.square() - shift.square()).clamp(min=0) / (n - 1)).sqrt()
    # A resample of one value repeated has no spread: its mean lies as far away as a mean can.
    # Rounding leaves about 1e-8 of it, so what counts as none lies well above.
    usual = float(t.ppf((1 + LEVEL) / 2, n - 1))
    far = LONGEST * usual
    ratio = (shift / spread.clamp(min=1e-6 * error)).nan_to_num(0.0).clamp(-far, far)
    least, most = quantiles(ratio, (1 - LEVEL) / 2, (1 + LEVEL) / 2)
    least, most = least.clamp(max=-usual), most.clamp(min=usual)
    error = torch.where(still, 0.0, error)
    return mean - most * error, mean - least * error

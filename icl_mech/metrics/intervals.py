"""95 % intervals: bootstrap over prompts (seeded), Wilson for 0/1 outcomes; see `mean_ends`.

Per-prompt values come in; the prompt axis is reduced here, last.
"""

from collections.abc import Callable
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


@checked(ResultError)
def resample_weights(
    n: Count, *, resamples: Count = RESAMPLES, seed: Natural = 0
) -> Float[Tensor, "r n"]:
    """How often each of `n` prompts is drawn in each bootstrap resample, divided by `n`.

    A mean over a resample is then a weighted mean: `weights @ per_prompt`.
    """
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    return torch.from_numpy(counts).double() / n


@checked(ResultError)
def bootstrap_interval(
    per_prompt: Float[Tensor, " batch *rest"],
    statistic: Callable[[Tensor], Tensor] | None = None,
    *,
    resamples: Count = RESAMPLES,
    seed: Natural = 0,
) -> tuple[Tensor, Tensor]:
    """Low and high ends of the percentile bootstrap interval of a function of the mean.

    For means themselves `mean_ends` holds better: few skewed values show little of their tail.

    Args:
        per_prompt: Values, prompt axis first.
        statistic: Applied to `[resample, *rest]` means; ratios are so recomputed in each
            resample. Default: the mean itself.
        resamples: Number of resamples.
        seed: Of the resampling.
    """
    n = per_prompt.shape[0]
    rest = per_prompt.shape[1:]
    weights = resample_weights(n, resamples=resamples, seed=seed)
    means = (weights @ per_prompt.double().reshape(n, -1)).reshape(resamples, *rest)
    return quantile_ends(means if statistic is None else statistic(means), n)


@checked(ResultError)
def quantile_ends(
    drawn: Float[Tensor, " r *cell"], count: Count | None = None
) -> tuple[Tensor, Tensor]:
    """Ends that hold the middle 95 % of the resamples.

    Resamples that are not-a-number are left out; cells without any number stay so.

    Args:
        drawn: Values of the resamples.
        count: Of how many prompts: the ends are then as much wider as Student's t is than the
            normal distribution, and as resamples vary less than samples (Hesterberg 2015,
            *What teachers should know about the bootstrap*). One prompt has no interval.
    """
    if count == 1:
        nothing = torch.full(drawn.shape[1:], torch.nan, dtype=torch.float64)
        return nothing, nothing.clone()
    tail = (1 - LEVEL) / 2 if count is None else _widened(count)
    low, high = quantiles(drawn.reshape(len(drawn), -1), tail, 1 - tail)
    return low.reshape(drawn.shape[1:]), high.reshape(drawn.shape[1:])


def quantiles(drawn: Float[Tensor, "r cell"], *levels: float) -> Float[Tensor, "level cell"]:
    """Quantiles of each column, not-a-numbers left out; columns without any number stay so."""
    known = ~drawn.isnan().all(0)
    found = torch.full((len(levels), drawn.shape[1]), torch.nan, dtype=torch.float64)
    if bool(known.any()):
        numbers = (drawn if bool(known.all()) else drawn[:, known]).numpy()
        # A ratio whose denominator vanishes in some resamples is infinite there.
        with np.errstate(invalid="ignore"):
            ends = np.nanquantile(numbers, levels, axis=0)
        found[:, known] = torch.from_numpy(np.asarray(ends)).double()
    return found


def _widened(count: int) -> float:
    from scipy.stats import t

    far = float(t.ppf((1 + LEVEL) / 2, count - 1)) * (count / (count - 1)) ** 0.5
    return NormalDist().cdf(-far)


@checked(ResultError)
def wilson_interval(outcomes: Bool[Tensor, " batch"]) -> Interval:
    """Share of True with its Wilson score interval (no continuity correction)."""
    from scipy.stats import binomtest

    n, k = outcomes.numel(), int(outcomes.sum())
    ends = binomtest(k, n).proportion_ci(LEVEL, method="wilson")
    return Interval(k / n, float(ends.low), float(ends.high))


@checked(ResultError)
def wilson_ends(
    outcomes: Float[Tensor, " batch *rest"],
) -> tuple[Float[Tensor, " *rest"], Float[Tensor, " *rest"]]:
    """Ends of the Wilson score interval of the mean of 0/1 outcomes, for many at once."""
    n = outcomes.shape[0]
    share = outcomes.double().mean(0)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (share * (1 - share) / n + z**2 / (4 * n**2)).sqrt()
    return (centre - half).clamp(min=0.0), (centre + half).clamp(max=1.0)

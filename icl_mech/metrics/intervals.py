"""95 % intervals: percentile bootstrap over prompts (seeded), Wilson for 0/1 outcomes.

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
    return quantile_ends(means if statistic is None else statistic(means))


@checked(ResultError)
def quantile_ends(drawn: Float[Tensor, " r *cell"]) -> tuple[Tensor, Tensor]:
    """Ends that hold the middle 95 % of the resamples.

    Resamples that are not-a-number are left out; cells without any number stay so.
    """
    tail = (1 - LEVEL) / 2
    flat = drawn.reshape(len(drawn), -1)
    known = ~flat.isnan().all(0)
    ends = torch.full((2, flat.shape[1]), torch.nan, dtype=torch.float64)
    if bool(known.any()):
        numbers = (flat if bool(known.all()) else flat[:, known]).numpy()
        # A ratio whose denominator vanishes in some resamples is infinite there.
        with np.errstate(invalid="ignore"):
            found = np.nanquantile(numbers, [tail, 1 - tail], axis=0)
        ends[:, known] = torch.from_numpy(found).double()
    low, high = ends.reshape(2, *drawn.shape[1:])
    return low, high


@checked(ResultError)
def mean_interval(per_prompt: Float[Tensor, " batch"], *, seed: Natural = 0) -> Interval:
    """Mean over prompts with its bootstrap interval."""
    low, high = bootstrap_interval(per_prompt, seed=seed)
    return Interval(float(per_prompt.double().mean()), float(low), float(high))


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

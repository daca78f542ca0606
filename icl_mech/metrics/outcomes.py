"""Score intervals for means of bounded values: Wilson's, and Tango's for paired differences.

Both come from inverting a test, so none is of zero width, whatever was seen. Values between the
ends (ties of calibrated scores, means over draws) vary less than yes or no: they count as more
prompts, by the variance they have beside that of yes or no with the same mean. Of yes and no
alone the intervals are exactly Wilson's and Tango's.

Sources: Wilson 1927, *Probable inference*; Tango 1998, *Equivalence test and confidence interval
for the difference in proportions for the paired-sample design*, Statistics in Medicine 17.
"""

from statistics import NormalDist

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import LEVEL

STEPS = 60
"""Bisections of an interval of length 1: below the rounding of double precision."""

Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
"""1.96."""


@checked(ResultError)
def share_ends(
    per_prompt: Float[Tensor, " batch *cell"], *, step: float = 0.0
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of the interval of means of values in [0, 1]: Wilson's, with an effective n.

    Args:
        per_prompt: Values, prompt axis first.
        step: How far apart the means are that can come about, if that is more than yes or no of
            one prompt makes: the ends are those of means half a step lower and higher (Newcombe
            1998, *Two-sided confidence intervals for the single proportion*, method 4).

    Raises:
        ResultError: a step that is no share.
    """
    if not 0 <= step <= 1:
        raise ResultError(f"Means in [0, 1] lie 0 to 1 apart, not step={step}; leave it out.")
    values = per_prompt.double()
    share = values.mean(0)
    n = len(values) / _relative_variance(values, 0.0)
    low = wilson((share - step / 2).clamp(min=0.0), n)[0]
    return low, wilson((share + step / 2).clamp(max=1.0), n)[1]


def wilson(share: Float[Tensor, " *cell"], n: Float[Tensor, " *cell"]) -> tuple[Tensor, Tensor]:
    """Ends of Wilson's interval of shares of `n` prompts, which need not be whole."""
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * (share * (1 - share) / n + Z**2 / (4 * n**2)).clamp(min=0).sqrt()
    low, high = (centre - half).clamp(min=0.0), (centre + half).clamp(max=1.0)
    return torch.minimum(low, share), torch.maximum(high, share)


@checked(ResultError)
def paired_ends(
    differences: Float[Tensor, " batch *cell"],
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of the interval of means of paired differences in [-1, 1]: Tango's, effective n."""
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
    """The difference between the mean and `far` whose score is `level`."""
    near = mean.clone()
    for _ in range(STEPS):
        middle = (near + far) / 2
        inside = (_score(middle, gained, lost, n) - level) * level < 0
        near, far = torch.where(inside, middle, near), torch.where(inside, far, middle)
    return far


def _score(delta: Tensor, gained: Tensor, lost: Tensor, n: Tensor) -> Tensor:
    """Tango's statistic for a true difference `delta`; `gained` and `lost` are shares."""
    b = (2 - gained + lost) * delta - gained - lost
    c = -lost * delta * (1 - delta)
    # The constrained estimate of the share that is lost.
    down = ((b**2 - 8 * c).clamp(min=0).sqrt() - b) / 4
    variance = (2 * down + delta * (1 - delta)).clamp(min=1e-300)
    return (gained - lost - delta) * (n / variance).sqrt()


def _relative_variance(values: Tensor, low: float) -> Tensor:
    """Variance beside that of values at the ends (and 0) with the same mean, at most 1.

    Half a prompt more at either end keeps it from 0 where all values are the same; of differences
    the end is the largest that was seen.
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

"""Tokens that stand out from those around them.

A small multiple of the local median is not a usable threshold: the masses of ordinary tokens differ by factors
of hundreds. Their logarithms are approximately normal, so a token is judged by its distance from its neighbours,
relative to the typical distance in the same text.

Sources: Rosner 1983, *Percentage points for a generalized ESD many-outlier procedure* (outliers are
removed one after the other, so that they do not mask each other); the median and the upper quantile
in place of mean and standard deviation, and simulated percentage points, are ours.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import LEVEL


@checked(ResultError)
def nearby_medians(mass: Float[Tensor, " pos"], window: Count = 16) -> Float[Tensor, " pos"]:
    """Median over the tokens at most `window` positions away, the token itself left out.

    Tokens whose mass is NaN are left out of the medians of others.
    """
    places = torch.arange(len(mass))
    near = (places[:, None] - places).abs() <= window
    near &= places[:, None] != places
    values = mass.double().expand(len(mass), -1).masked_fill(~near, torch.nan)
    return values.nanquantile(0.5, dim=1) if len(mass) else mass.double()


@checked(ResultError)
def matched_means(
    values: Float[Tensor, " pos"], marked: Bool[Tensor, " pos"], window: Count = 16
) -> tuple[float, float]:
    """Mean over marked tokens, and over position-matched unmarked ones.

    All unmarked tokens at most `window` positions away are matched to a marked token; their mean
    counts as one number for each marked token. Tokens whose value is NaN are left out on both sides,
    and so are marked tokens without a match.

    Returns:
        NaN twice if no marked token has a match.
    """
    known = values.isfinite()
    others = known & ~marked
    marked_values, matched = [], []
    for place in (marked & known).nonzero()[:, 0].tolist():
        near = slice(max(0, place - window), place + window + 1)
        if bool(others[near].any()):
            marked_values.append(float(values[place]))
            matched.append(float(values[near][others[near]].double().mean()))
    if not marked_values:
        return float("nan"), float("nan")
    return sum(marked_values) / len(marked_values), sum(matched) / len(matched)


FEWEST_TOKENS = 10
"""Fewer tokens do not give a usable spread."""

SIMULATED = 512
"""Limits are simulated up to this many tokens; beyond it, spread and medians are known almost exactly."""

DRAWS = 2000
VALUES = 500_000
"""Number of simulated values, split into texts; at least `DRAWS` texts."""

AT_ONCE = 4_000_000
"""Numbers in memory at a time while simulating."""

GRID = 1.25
"""Limits are simulated for numbers of tokens that grow by this factor, and interpolated."""

ONE_ABOVE = 0.8413447460685429
"""Level of the normal quantile one standard deviation above the median."""


class Outliers(NamedTuple):
    """Which tokens stand out, and by how much.

    Attributes:
        scores: Logarithm of the mass over the nearby median, in units of the text's spread; NaN where
            a mass is 0 or unknown.
        limit: Score that the largest one in a text without outliers exceeds in 5 % of cases.
        stands: Tokens above the limit, in the last step or an earlier one.
    """

    scores: Float[Tensor, " pos"]
    limit: float
    stands: Bool[Tensor, " pos"]


@checked(ResultError)
def uniform_mass(
    count: Natural, first_row: Natural = 0, reach: Count | None = None
) -> Float[Tensor, " pos"]:
    """Column mass `m[j]` of `count` tokens before a last row, if every row attended uniformly to all tokens.

    `m[j] = 1 / (q - j) * sum over i of 1 / (i + 1)`, over the rows `i > j` up to `q = count` that
    are not before `first_row`: all rows for attention, those that reach the loss for saliency. In a layer whose
    rows see `reach` tokens, row i reads `min(i + 1, reach)` of them, and j is read by `reach - 1` rows.
    """
    rows = torch.arange(count + 1, dtype=torch.float64)
    seen = rows + 1 if reach is None else (rows + 1).clamp(max=reach)
    read = torch.where(rows >= first_row, 1 / seen, 0.0)
    below = read.flip(0).cumsum(0).flip(0)[1:]
    if reach is None or reach > count:
        return below / (count - rows[:-1])
    beyond = torch.cat([below[reach - 1 :], below.new_zeros(reach - 1)])
    return (below - beyond) / (count - rows[:-1]).clamp(max=reach - 1)


@checked(ResultError)
def standing_out(
    mass: Float[Tensor, " pos"], expected: Float[Tensor, " pos"], window: Count = 16
) -> Outliers:
    """Tokens that stand out from those at most `window` positions away, with a family-wise error of 5 %.

    The score of a token is `log(mass / expected)` minus the nearby median, divided by the
    upper spread of these differences (their 0.84 quantile). Tokens above the limit are excluded from medians
    and spread, and the rest is tested again, until none is above the limit. Where logarithms are normal around
    a level that changes slowly, any token is called an outlier in 5 % of the texts.

    Args:
        mass: Column masses; NaN for excluded tokens.
        expected: Mass expected from position alone, up to a factor.
        window: Largest distance in positions that counts as nearby.

    Returns:
        No token and no limit if fewer than 10 have a mass above 0 or their spread is 0. Outliers mask
        each other if more than one token in six is one.
    """
    logs = (mass.double() / expected.double()).log().numpy()[None]
    logs = np.where(np.isfinite(logs), logs, np.nan)
    known = ~np.isnan(logs)
    out = np.zeros_like(known)
    scores, limit = np.full_like(logs, np.nan), math.nan
    while True:
        kept = known & ~out
        if kept.sum() < FEWEST_TOKENS:
            break
        apart = logs - _medians(np.where(kept, logs, np.nan), window)
        # The upper quantile resists outliers, and ignores the lower tail, which does not matter here.
        spread = float(np.nanquantile(apart[kept], ONE_ABOVE))
        if not spread > 0:
            break
        scores, limit = apart / spread, _limit(int(kept.sum()), window)
        more = known & ~out & (scores > limit)
        if not more.any():
            break
        out |= more
    return Outliers(torch.from_numpy(scores[0]), limit, torch.from_numpy(out[0]))


def _limit(count: int, window: int) -> float:
    """Limit for so many tokens, interpolated between simulated ones."""
    from scipy.special import ndtri

    if count > SIMULATED:
        # The nearby median has a sampling error, which adds to the variance.
        return float(ndtri(LEVEL ** (1 / count))) * math.sqrt(1 + math.pi / (4 * window))
    step = math.log(count / FEWEST_TOKENS) / math.log(GRID)
    ends = [round(FEWEST_TOKENS * GRID**power) for power in (math.floor(step), math.ceil(step))]
    return float(np.interp(math.log(count), np.log(ends), [_simulated(n, window) for n in ends]))


@lru_cache
def _simulated(count: int, window: int) -> float:
    """The 95 % quantile of the largest score among so many normal values."""
    generator = np.random.default_rng(0)
    largest = []
    together = max(1, AT_ONCE // (count * (2 * min(window, count) + 1)))
    for _ in range(0, max(DRAWS, VALUES // count), together):
        values = generator.standard_normal((together, count))
        apart = values - _medians(values, window)
        spread = np.quantile(apart, ONE_ABOVE, axis=1)
        largest.append(apart.max(1) / np.where(spread > 0, spread, np.inf))
    return float(np.quantile(np.concatenate(largest), LEVEL))


def _medians(values: np.ndarray, window: int) -> np.ndarray:
    """Median of each row's known values at most `window` places away, the place itself left out."""
    count = values.shape[1]
    reach = min(window, count)
    padded = np.pad(values, ((0, 0), (reach, reach)), constant_values=np.nan)
    near = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1, axis=1)
    near = np.sort(np.delete(near, reach, axis=2), axis=2)  # not-a-number comes last
    known = (~np.isnan(near)).sum(2)[..., None]
    low, high = (np.maximum(known - offset, 0) // 2 for offset in (1, 0))
    middle = [np.take_along_axis(near, index, axis=2)[..., 0] for index in (low, high)]
    return np.asarray((middle[0] + middle[1]) / 2)

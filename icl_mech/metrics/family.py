"""Which of many means lie above 0: one statement about all of them at once."""

from collections.abc import Iterator

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import LEVEL, resample_weights

ONE_SIDED = (1 + LEVEL) / 2
"""Level of a statement that a 95 % interval lies above 0."""

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
    """Cells whose mean over prompts lies above 0, where chance picks any in 5 % of the cases.

    max-T: each mean is divided by its standard error, and the largest of these ratios is compared
    with the largest ones that resampled deviations from the means give. Cells that are the same
    for all prompts count as above 0 if they are.

    Args:
        per_prompt: Values, prompt axis first.
        resamples: Number of bootstrap resamples.
        seed: Of the resampling.
        level: One minus the share of cases in which chance picks any; `ONE_SIDED` is that of
            95 % intervals that lie above 0.
    """
    n, cells = len(per_prompt), per_prompt.shape[1:]
    flat = per_prompt.double().reshape(n, -1)
    mean = flat.mean(0)
    if n < 2:
        return torch.zeros(cells, dtype=torch.bool)
    error = flat.std(0, correction=1) / n**0.5
    moving = error > 1e-12
    centred = (flat - mean)[:, moving]
    if not centred.shape[1]:
        return (mean > 0).reshape(cells)
    limit = torch.cat([own.max(1).values for own in _ratios(centred, resamples, seed)])
    limit = limit.quantile(level)
    ratio = torch.where(moving, mean / error.clamp(min=1e-12), torch.inf * mean.sign())
    return ((mean > 0) & (ratio > limit)).reshape(cells)


@checked(ResultError)
def ends_together(
    per_prompt: Float[Tensor, " batch *cell"], *, resamples: Count = 2000, seed: Natural = 0
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of intervals of means over prompts that all hold at once in 95 % of the cases.

    max-T, as `above_together`, with the largest ratio in either direction.
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
        half = error * torch.cat([own.abs().max(1).values for own in ratios]).quantile(LEVEL)
    return (mean - half).reshape(cells), (mean + half).reshape(cells)


def _ratios(
    centred: Float[Tensor, "batch cell"], resamples: int, seed: int
) -> Iterator[Float[Tensor, "part cell"]]:
    """Means of resampled deviations, each divided by its standard error."""
    n = len(centred)
    for rows in resample_weights(n, resamples=resamples, seed=seed).split(AT_ONCE):
        shift = rows @ centred
        spread = (rows @ centred**2 - shift**2).clamp(min=0.0) / (n - 1)
        # A resample of one prompt repeated has no spread; it says nothing.
        yield torch.where(spread > 1e-24, shift / spread.sqrt(), torch.zeros_like(shift))

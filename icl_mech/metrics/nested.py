"""Hierarchical intervals: prompts within seeds, seeds within tasks or models.

Prompts of one seed share demonstrations and queries, so means over tasks and seeds vary more than
their prompts show. Each level's mean has the variance of its groups' estimates, which includes that
of all levels below, with Student's t for that many groups: a bootstrap of five seeds would be too
narrow.

Groups have equal weights. If a group has no estimate, the mean over groups is undefined.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import LEVEL, bootstrap_interval
from icl_mech.metrics.means import RANGES as OTHERS
from icl_mech.metrics.means import Kind, Z, mean_ends

Levels: TypeAlias = Tensor | Sequence["Levels"]
"""Per-prompt values of one seed, or a sequence of these: seeds, then tasks or models."""

RANGES: dict[Kind, tuple[float, float]] = {
    "outcome": (0.0, 1.0),
    "change": (-1.0, 1.0),
    "contrast": (-2.0, 2.0),
    **OTHERS,
}
"""Range of the means of these kinds."""

DIFFERENCE: dict[Kind, Kind] = {"outcome": "change", "change": "contrast"}
"""Kind of a difference of two values, where it differs from theirs."""

FEW_GROUPS = 5
"""Fewer seeds than this are also shown as points."""


@dataclass(frozen=True, eq=False)
class NestedInterval:
    """A mean over groups with its 95 % interval.

    Attributes:
        value: The mean of the groups' estimates.
        low: Lower end.
        high: Upper end.
        groups: Estimate of each group of the first level.
        within: Ends of the interval conditional on these groups.
        sizes: Number of groups at each level, outermost first, then of prompts (means over
            groups).
        reason: Why there is no number or no interval; empty otherwise.
    """

    value: Float[Tensor, " *cell"]
    low: Float[Tensor, " *cell"]
    high: Float[Tensor, " *cell"]
    groups: Float[Tensor, " group *cell"]
    within: tuple[Tensor, Tensor]
    sizes: tuple[float, ...]
    reason: str = ""

    @property
    def few(self) -> bool:
        """True if the groups should also be shown as points."""
        return len(self.groups) < FEW_GROUPS


def nested_interval(
    values: Levels,
    *,
    minus: Levels | None = None,
    statistic: Callable[[Tensor], Tensor] | None = None,
    kind: Kind = "value",
) -> NestedInterval:
    """Mean over tasks, seeds and prompts with an interval that generalises to new ones of each.

    With a single group at a level the interval is that of the level below, conditional on this group. Groups are
    assumed to have different prompts; for seeds that share queries see `over_units`.

    Args:
        values: Values of the prompts of each seed, prompt axis first; nested once more (or more
            often) for tasks and models.
        minus: Another setting over the same seeds and prompts; the difference is paired.
        statistic: Function of means over prompts `[resample, *cell]`, applied in every seed:
            ratios of means.
        kind: Kind of the values, see `mean_ends`; `outcome` becomes `change` for differences.

    Raises:
        ResultError: nothing at some level, values that are not tensors, levels that differ, or settings that
            cannot be paired.
    """
    if isinstance(values, Tensor):
        values = [values]
    depth = _depth(values)
    if minus is not None:
        minus = [minus] if isinstance(minus, Tensor) else minus
        kind = DIFFERENCE.get(kind, kind)
    result = _level(values, minus, statistic, kind, depth)
    reason = ""
    if bool(result.value.isnan().any()):
        reason = "undefined in at least one group, so the mean over groups is undefined too"
    elif bool(result.low.isnan().any()):
        reason = "no interval: a single value has no spread"
    return NestedInterval(
        result.value, result.low, result.high, result.groups, result.within, result.sizes, reason
    )


@dataclass(frozen=True, eq=False)
class _Estimated:
    """Estimate of one level with its ends, its variance towards either end, and degrees of freedom."""

    value: Tensor
    low: Tensor
    high: Tensor
    groups: Tensor
    within: tuple[Tensor, Tensor]
    sizes: tuple[float, ...]
    variances: Float[Tensor, " 2 *cell"]
    freedom: Float[Tensor, " *cell"]


def _level(
    values: Levels,
    minus: Levels | None,
    statistic: Callable[[Tensor], Tensor] | None,
    kind: Kind,
    depth: int,
) -> _Estimated:
    if depth == 0:
        return _prompts(values, minus, statistic, kind)
    others = [None] * len(values) if minus is None else list(minus)
    if len(others) != len(values):
        raise ResultError(
            f"One setting has {len(values)} groups and the other {len(others)}, so they cannot be "
            "paired. Give the same seeds, tasks and models for both."
        )
    inner = [
        _level(first, second, statistic, kind, depth - 1)
        for first, second in zip(values, others, strict=True)
    ]
    groups = torch.stack([estimate.value for estimate in inner])
    value, count = groups.mean(0), len(inner)
    # Groups are independent, so their variances add up, towards either end.
    inner_variances = torch.stack([estimate.variances for estimate in inner])
    variances = inner_variances.sum(0) / count**2
    freedom = _freedom(
        inner_variances.mean(1), torch.stack([estimate.freedom for estimate in inner])
    )
    half = _student(freedom) * variances.sqrt()
    within = value - half[0], value + half[1]
    if count > 1:
        # The variance between groups includes that within; by chance it may be estimated below it.
        between = groups.var(0, correction=1) / count
        half = torch.maximum(half, _student(torch.tensor(count - 1.0)) * between.sqrt())
        freedom = torch.where(between > variances.mean(0), float(count - 1), freedom)
        variances = torch.maximum(variances, between)
    low, high = value - half[0], value + half[1]
    if kind != "value":
        least, most = RANGES[kind]
        low, high = low.clamp(min=least), high.clamp(max=most)
    sizes = [
        sum(counts) / count for counts in zip(*(estimate.sizes for estimate in inner), strict=True)
    ]
    return _Estimated(value, low, high, groups, within, (float(count), *sizes), variances, freedom)


def _prompts(
    values: Levels, minus: Levels | None, statistic: Callable[[Tensor], Tensor] | None, kind: Kind
) -> _Estimated:
    """Estimate of one seed: the mean over its prompts, or the function of it."""
    if not isinstance(values, Tensor) or not isinstance(minus, Tensor | None):
        raise ResultError(
            "The levels have different depths; nest every task and seed in the same way."
        )
    if not len(values):
        raise ResultError("A seed has no prompts, so it has no mean; leave it out.")
    samples = values.double()
    if minus is not None and minus.shape != values.shape:
        raise ResultError(
            f"Values of shapes {tuple(values.shape)} and {tuple(minus.shape)} cannot be paired; "
            "give the same prompts for both settings."
        )
    if statistic is None:
        per_prompt = samples if minus is None else samples - minus.double()
        value, (low, high) = per_prompt.mean(0), mean_ends(per_prompt, kind)
    elif minus is None:
        value, (low, high) = (
            statistic(samples.mean(0)[None])[0],
            bootstrap_interval(samples, statistic),
        )
    else:
        function = statistic

        def difference(means: Tensor) -> Tensor:
            return function(means[:, 0]) - function(means[:, 1])

        both = torch.stack([samples, minus.double()], dim=1)
        value, (low, high) = difference(both.mean(0)[None])[0], bootstrap_interval(both, difference)
    # Intervals over prompts already account for an estimated variance, hence infinite degrees of freedom.
    variances = (torch.stack([value - low, high - value]) / Z).square()
    freedom = torch.full_like(value, torch.inf)
    sizes = (float(len(values)),)
    return _Estimated(value, low, high, value[None], (low, high), sizes, variances, freedom)


def _depth(values: Levels) -> int:
    """Number of levels of groups.

    Raises:
        ResultError: no groups at some level.
    """
    if isinstance(values, Tensor):
        return 0
    if not len(values):
        raise ResultError("There are no seeds, tasks or models to average over; give at least one.")
    depths = {_depth(group) for group in values}
    if len(depths) != 1:
        raise ResultError(
            "The levels have different depths; nest every task and seed in the same way."
        )
    return depths.pop() + 1


def _freedom(
    variances: Float[Tensor, " group *cell"], freedom: Float[Tensor, " group *cell"]
) -> Float[Tensor, " *cell"]:
    """Degrees of freedom of a sum of variances (Satterthwaite 1946)."""
    spread = (variances.square() / freedom).sum(0)
    return torch.where(spread > 0, variances.sum(0).square() / spread, torch.inf)


def _student(freedom: Float[Tensor, " *cell"]) -> Float[Tensor, " *cell"]:
    from scipy.stats import t

    return torch.from_numpy(np.asarray(t.ppf((1 + LEVEL) / 2, freedom.numpy())))


class Estimate(NamedTuple):
    """Numbers with the ends of their 95 % intervals."""

    value: Float[Tensor, " *cell"]
    low: Float[Tensor, " *cell"]
    high: Float[Tensor, " *cell"]


def over_units(
    values: Float[Tensor, " unit *cell"],
    low: Float[Tensor, " unit *cell"],
    high: Float[Tensor, " unit *cell"],
    *,
    sampled: bool = True,
    drawn: float = 0.0,
) -> Estimate:
    """`nested_interval` from units (seeds, tasks) that already have estimates with intervals.

    With `S` units of variance `s^2` and half-widths `h` (root mean square), whose queries are a
    fraction `f` of the pool, the half-width is `sqrt(max(t^2 s^2 / S, h^2 (1 - f) / S) + f h^2)`: units that
    draw `n` of one pool of `P` queries share some of them, and more units do not narrow `v / P`, the variance of
    the mean over the pool itself (`h^2` stands for `v / n`). A single unit keeps its half-width. If a unit has
    no value, the mean is undefined.

    A unit without ends has an unknown width, not zero width. If units are not sampled, one such unit leaves the mean
    without ends. If they are, `h` is taken over the units with ends; where none has any, only the spread counts,
    all of it attributed to queries (`f h^2 <= t^2 s^2 f / (1 - f)`), and no spread gives no ends.

    Args:
        values: Estimate of each unit.
        low: Lower ends of their intervals; NaN if nothing is known of the prompts.
        high: Upper ends.
        sampled: The units stand for others of their kind, so their spread counts; otherwise the mean is over
            exactly these units.
        drawn: Fraction of the pool of queries that each unit draws; 0: units share none, or it is unknown.

    Source: for units known by their values alone, Nadeau and Bengio 2003, *Inference for the generalization error*.
    """
    count, mean = len(values), values.mean(0)
    if count == 1:
        return Estimate(mean, low[0], high[0])
    squares = torch.stack([values - low, high - values], dim=1).square()
    squares = squares.nanmean(0) if sampled else squares.mean(0)
    least, shared = squares * (1 - drawn) / count, squares * drawn
    if sampled:
        spread = _student(torch.tensor(count - 1.0)).square() * values.var(0, correction=1)
        unknown = squares.isnan() & (spread > 1e-18)
        # Upper bound: all of the spread may come from queries.
        most = spread * (drawn / (1 - drawn) if drawn < 1 else torch.nan)
        least = torch.where(unknown, 0.0, least).maximum(spread / count)
        shared = torch.where(unknown, most, shared)
    below, above = (least + shared).sqrt()
    return Estimate(mean, mean - below, mean + above)

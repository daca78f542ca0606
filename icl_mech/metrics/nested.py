"""Intervals over levels: prompts within seeds, seeds within tasks or models.

Demonstrations and queries depend on the seed, so that prompts of one seed share what they say:
means over tasks and seeds vary more than their prompts show. Each level's mean has the variance
of its groups' estimates, which holds that of all levels below, with Student's t of that many
groups: a bootstrap of five seeds would be too narrow.

Groups count alike. Groups that cannot be given leave the whole undefined.
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
"""Between which the means of these kinds lie."""

DIFFERENCE: dict[Kind, Kind] = {"outcome": "change", "change": "contrast"}
"""What a difference of two of a kind is, where it is another one."""

FEW_GROUPS = 5
"""Fewer seeds are shown as points too."""


@dataclass(frozen=True, eq=False)
class NestedInterval:
    """A mean over groups with its 95 % interval.

    Attributes:
        value: The mean of the groups' estimates.
        low: Lower end.
        high: Upper end.
        groups: Estimate of each group of the first level.
        within: Ends of the interval that takes these groups as given.
        sizes: Number of groups of each level, the first one first, then of prompts (means over
            groups).
        reason: Why there is no number or no interval, or nothing.
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
        """True if the groups should be shown as points too."""
        return len(self.groups) < FEW_GROUPS


def nested_interval(
    values: Levels,
    *,
    minus: Levels | None = None,
    statistic: Callable[[Tensor], Tensor] | None = None,
    kind: Kind = "value",
) -> NestedInterval:
    """Mean over tasks, seeds and prompts with an interval that holds for new ones of each.

    With one group of a level the interval is that of the level below, given this group. Groups are taken to have
    prompts of their own: seeds that share queries vary less than their mean, see `over_units`.

    Args:
        values: Per seed the values of its prompts, prompt axis first; nested once more (or more
            often) for tasks and models.
        minus: Another setting over the same seeds and prompts; the difference is paired.
        statistic: Function of means over prompts `[resample, *cell]`, applied in every seed:
            ratios of means.
        kind: Of the values, see `mean_ends`; of differences `outcome` becomes `change`.

    Raises:
        ResultError: nothing at some level, values that are no tensors, levels that differ, or
            settings that do not pair.
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
        reason = "undefined in one of the groups, so the mean over them is, too"
    elif bool(result.low.isnan().any()):
        reason = "one value has no spread: no interval"
    return NestedInterval(
        result.value, result.low, result.high, result.groups, result.within, result.sizes, reason
    )


@dataclass(frozen=True, eq=False)
class _Estimated:
    """Estimate and ends, and its variance towards either end with degrees of freedom."""

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
            f"{len(values)} groups of one setting and {len(others)} of the other, so they cannot be "
            "paired; give the same seeds, tasks and models."
        )
    inner = [
        _level(first, second, statistic, kind, depth - 1)
        for first, second in zip(values, others, strict=True)
    ]
    groups = torch.stack([estimate.value for estimate in inner])
    value, count = groups.mean(0), len(inner)
    # Independent groups: variances of their mean add up, and so do those of the ends.
    inner_variances = torch.stack([estimate.variances for estimate in inner])
    variances = inner_variances.sum(0) / count**2
    freedom = _freedom(
        inner_variances.mean(1), torch.stack([estimate.freedom for estimate in inner])
    )
    half = _student(freedom) * variances.sqrt()
    within = value - half[0], value + half[1]
    if count > 1:
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
    """One seed: the mean over its prompts, or the function of it."""
    if not isinstance(values, Tensor) or not isinstance(minus, Tensor | None):
        raise ResultError("Levels of different depth; nest every task and seed alike.")
    if not len(values):
        raise ResultError("A seed without prompts has no mean; leave it out.")
    samples = values.double()
    if minus is not None and minus.shape != values.shape:
        raise ResultError(
            f"Values of the shapes {tuple(values.shape)} and {tuple(minus.shape)} cannot be paired; "
            "give the same prompts of both settings."
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
    # Intervals over prompts hold as they are: as if their variance were known.
    variances = (torch.stack([value - low, high - value]) / Z).square()
    freedom = torch.full_like(value, torch.inf)
    sizes = (float(len(values)),)
    return _Estimated(value, low, high, value[None], (low, high), sizes, variances, freedom)


def _depth(values: Levels) -> int:
    """How many levels of groups there are.

    Raises:
        ResultError: no groups at some level.
    """
    if isinstance(values, Tensor):
        return 0
    if not len(values):
        raise ResultError("No seeds, tasks or models: there is nothing to average over.")
    depths = {_depth(group) for group in values}
    if len(depths) != 1:
        raise ResultError("Levels of different depth; nest every task and seed alike.")
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
    """`nested_interval` from results alone: units (seeds, tasks) that have intervals of their own.

    With `S` units of variance `s^2` whose own half-widths are `h` (root mean square), of queries that are a
    share `f` of those there are, the half-width is `sqrt(max(t^2 s^2 / S, h^2 (1 - f) / S) + f h^2)`: units that
    draw `n` of one pool of `P` queries share some of them, and more units do not narrow `v / P`, the variance of
    the mean over the pool itself (`h^2` stands for `v / n`). Of one unit it is that unit's own. A unit without a
    value leaves the mean undefined.

    A unit without ends has an unknown width, not none. Of units that are not sampled one such leaves the mean
    without ends. Of sampled ones `h` is that of the units with ends; where none has, the spread alone counts, all
    of it taken to be that of queries (`f h^2 <= t^2 s^2 f / (1 - f)`), and no spread gives no ends.

    Args:
        values: Of each unit.
        low: Lower ends of their own intervals; not-a-number: nothing is known of the prompts.
        high: Upper ends.
        sampled: The units stand for others of their kind, so their spread counts; else the mean is
            of just these.
        drawn: Which share of the pool of queries each unit draws; 0: units share none, or it is unknown.

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
        # All the spread may be that of queries.
        most = spread * (drawn / (1 - drawn) if drawn < 1 else torch.nan)
        least = torch.where(unknown, 0.0, least).maximum(spread / count)
        shared = torch.where(unknown, most, shared)
    below, above = (least + shared).sqrt()
    return Estimate(mean, mean - below, mean + above)

"""Agreement of runs on heads and layers, compared with the agreement that chance gives.

Every statistic is a mean over pairs of runs: the Jaccard overlap of their top-k heads, the rank correlation of all
their heads, or the distance of their layers. Under the null hypothesis, runs have nothing in common: the heads of each
run are relabelled at random, within their layers or in the whole model. Heads of one layer resemble each other, so
layers alone produce agreement; relabelling within layers keeps it and is the stricter null.

Source: Méloux, Portet and Peyrard 2025, *Mechanistic interpretability as statistical estimation* (mean pairwise Jaccard
index of repeated runs); the two nulls and the interval are ours.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import LEVEL, Interval

Within = Literal["layer", "model"]
"""Heads that chance exchanges: those of one layer, or all of the model."""

DRAWS = 9_999
"""Random relabellings; the observed one counts as one more."""

AT_ONCE = 500
"""Relabellings in memory at a time."""

ROUNDING = 1e-9


class Agreement(NamedTuple):
    """Mean agreement over pairs of runs.

    Attributes:
        interval: The mean, with a 95 % interval for new runs; not-a-number ends with fewer than three runs.
        chance: Its expectation under the null.
        p: One-sided p-value of agreement beyond chance.
        by_run: The same p-value for the mean agreement of each run with the others.
    """

    interval: Interval
    chance: float
    p: float
    by_run: tuple[float, ...]


Pairwise = Float[Tensor, " *draw group run run"]
"""Agreement of every two runs of a group; NaN where one is missing, and on the diagonal."""


@checked(ResultError)
def top_heads(
    scores: Float[Tensor, "layer head"], k: Count, *, seed: Natural = 0
) -> Bool[Tensor, "layer head"]:
    """The k heads with the largest scores; of equal scores, random ones.

    Ties resolved by index would agree between runs that have nothing in common.
    """
    flat = scores.double().flatten()
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(flat)))
    best = order[flat[order].argsort(descending=True, stable=True)[:k]]
    return torch.zeros(len(flat), dtype=torch.bool).scatter(0, best, True).reshape(scores.shape)


@checked(ResultError)
def head_overlap(
    chosen: Bool[Tensor, "group run layer head"],
    present: Bool[Tensor, "group run"],
    *,
    within: Within = "layer",
    seed: Natural = 0,
) -> Agreement:
    """Mean Jaccard overlap of chosen heads over all pairs of runs of a group.

    Groups differ in something else; their runs with one index share a relabelling. The chance level is exact
    (hypergeometric within each layer, or in the model); so is the p-value of two runs in one group, and
    otherwise it is a permutation p-value.

    Args:
        chosen: The chosen heads of every run.
        present: False for runs that are missing.
        within: Heads that are exchanged.
        seed: Seed of the relabellings.

    Raises:
        ResultError: no two runs of a group are present.
    """
    chance = _pairs_of(present, lambda g, i, j: _chance(chosen[g, i], chosen[g, j], within)[1])
    found = _agreement(chosen.double(), present, _jaccard, chance, within=within, seed=seed)
    if len(present) == 1 and int(present.sum()) == 2:
        first, second = chosen[0][present[0]]
        p = overlap_p(first, second, within=within)
        return found._replace(p=p, by_run=tuple(p if there else 1.0 for there in present[0]))
    return found


@checked(ResultError)
def head_correlation(
    scores: Float[Tensor, "group run layer head"],
    present: Bool[Tensor, "group run"],
    *,
    within: Within = "layer",
    seed: Natural = 0,
) -> Agreement:
    """Mean Spearman correlation over heads of all pairs of runs of a group; ties share their mean rank.

    Arguments as for `head_overlap`. The chance level is exact: within layers, it is the part of the
    correlation that the layers' mean ranks explain; in the model it is 0.

    Raises:
        ResultError: no two runs of a group are present.
    """
    from scipy.stats import rankdata

    shape = scores.shape
    flat = scores.double().reshape(*shape[:2], -1)
    ranks = torch.from_numpy(rankdata(flat.numpy(), axis=-1))
    ranks = ranks - ranks.mean(-1, keepdim=True)
    norm = ranks.norm(dim=-1, keepdim=True)
    # Runs in which all heads are equal rank nothing: they agree with no other run.
    ranks = torch.where(norm > 0, ranks / norm.clamp(min=ROUNDING), 0.0).reshape(shape)
    means = ranks.mean(-1)

    def explained(g: int, i: int, j: int) -> float:
        return float((means[g, i] * means[g, j]).sum() * shape[-1]) if within == "layer" else 0.0

    chance = _pairs_of(present, explained)
    return _agreement(ranks, present, _products, chance, within=within, seed=seed)


@checked(ResultError)
def layer_distance(
    layers: Float[Tensor, "group run"], entries: Count, *, seed: Natural = 0
) -> Agreement:
    """Mean distance of layers over all pairs of runs of a group; NaN for runs without one.

    Under the null, the layer of every run is drawn from all entries: the chance level is `(L² − 1) / 3L`.

    Args:
        layers: The layer of every run.
        entries: Number of layers it may be, L.
        seed: Seed of the draws.

    Raises:
        ResultError: no two runs of a group are present.
    """
    present = ~layers.isnan()
    places = layers.double().nan_to_num().long().clamp(0, entries - 1)
    distances = (layers.double()[:, :, None] - layers.double()[:, None]).abs()
    size = float(max(1, entries - 1))
    observed = _masked(distances, present)
    mean, by_run = _means(observed)
    generator, above, rows = np.random.default_rng(seed), 0, torch.zeros(layers.shape[1])
    for count in _batches():
        # One permutation of the entries for each index, as groups share what differs between indices.
        drawn = torch.from_numpy(generator.random((count, layers.shape[1], entries)).argsort(-1))
        index = places.T[None].expand(count, -1, -1)
        moved = drawn.gather(2, index).transpose(1, 2).double()
        null = _masked((moved[..., :, None] - moved[..., None, :]).abs(), present)
        null_mean, null_rows = _means(null)
        above += int((null_mean <= mean + ROUNDING).sum())
        rows = rows + (null_rows <= by_run + ROUNDING).sum(0)
    chance = (entries**2 - 1) / (3 * entries)
    interval = _interval(observed / size, 0.0, 1.0)
    return Agreement(
        Interval(mean.item(), interval.low * size, interval.high * size),
        chance,
        (1 + above) / (1 + DRAWS),
        _p_values(rows, present),
    )


@checked(ResultError)
def overlap_p(
    first: Bool[Tensor, "layer head"],
    second: Bool[Tensor, "layer head"],
    *,
    within: Within = "layer",
) -> float:
    """Probability that two sets share at least as many heads by chance, exact.

    In the whole model this is the hypergeometric tail; within layers, that of a sum of hypergeometric numbers.
    """
    shared = int((first & second).sum())
    return float(_chance(first, second, within)[0][shared:].sum().clip(0, 1))


def _chance(first: Tensor, second: Tensor, within: Within) -> tuple[np.ndarray, float]:
    """Probabilities of every number of shared heads, and the expected Jaccard overlap."""
    from scipy.stats import hypergeom

    one, two = (
        (side.sum(-1).tolist() if within == "layer" else [int(side.sum())])
        for side in (first, second)
    )
    size = first.shape[-1] if within == "layer" else first.numel()
    shares = np.ones(1)
    for a, b in zip(one, two, strict=True):
        shares = np.convolve(shares, hypergeom.pmf(np.arange(min(a, b) + 1), size, a, b))
    both = sum(one) + sum(two)
    shared = np.arange(len(shares))
    jaccard = shared / np.maximum(both - shared, 1) if both else np.zeros(len(shares))
    return shares, float((shares * jaccard).sum())


def _pairs_of(present: Bool[Tensor, "group run"], value: Callable[[int, int, int], float]) -> float:
    """The mean of a value over all pairs of runs that are present."""
    groups, runs = present.shape
    values = [
        value(g, i, j)
        for g in range(groups)
        for i in range(runs)
        for j in range(i)
        if bool(present[g, i] & present[g, j])
    ]
    if not values:
        raise ResultError(
            "Agreement needs at least two runs that differ in one respect; none are there."
        )
    return sum(values) / len(values)


def _jaccard(chosen: Tensor) -> Pairwise:
    shared = chosen @ chosen.transpose(-1, -2)
    sizes = chosen.sum(-1)
    return shared / (sizes[..., :, None] + sizes[..., None, :] - shared).clamp(min=1)


def _products(ranks: Tensor) -> Pairwise:
    return ranks @ ranks.transpose(-1, -2)


def _agreement(
    values: Float[Tensor, "group run layer head"],
    present: Bool[Tensor, "group run"],
    compare: Callable[[Tensor], Tensor],
    chance: float,
    *,
    within: Within,
    seed: int,
) -> Agreement:
    groups, runs, layers, heads = values.shape
    observed = _masked(compare(values.flatten(2)), present)
    mean, by_run = _means(observed)
    rows_size = (layers, heads) if within == "layer" else (1, layers * heads)
    laid = values.reshape(groups, runs, *rows_size)
    generator, above, rows = np.random.default_rng(seed), 0, torch.zeros(runs)
    for count in _batches():
        order = torch.from_numpy(generator.random((count, 1, runs, *rows_size)).argsort(-1))
        moved = laid[None].expand(count, *laid.shape)
        moved = moved.gather(-1, order.expand(count, *laid.shape)).flatten(3)
        null_mean, null_rows = _means(_masked(compare(moved), present))
        above += int((null_mean >= mean - ROUNDING).sum())
        rows = rows + (null_rows >= by_run - ROUNDING).sum(0)
    low = 0.0 if compare is _jaccard else -1.0
    return Agreement(
        _interval(observed, low, 1.0), chance, (1 + above) / (1 + DRAWS), _p_values(rows, present)
    )


def _batches() -> list[int]:
    return [min(AT_ONCE, DRAWS - start) for start in range(0, DRAWS, AT_ONCE)]


def _p_values(rows: Tensor, present: Bool[Tensor, "group run"]) -> tuple[float, ...]:
    """p-values by run; 1 for runs that are in no group."""
    return tuple(
        (1 + int(count)) / (1 + DRAWS) if there else 1.0
        for count, there in zip(rows.tolist(), present.any(0).tolist(), strict=True)
    )


def _masked(pairs: Tensor, present: Bool[Tensor, "group run"]) -> Pairwise:
    both = present[:, :, None] & present[:, None]
    both = both & ~torch.eye(present.shape[1], dtype=torch.bool)
    return torch.where(both, pairs, torch.nan)


def _means(pairs: Pairwise) -> tuple[Float[Tensor, " *draw"], Float[Tensor, " *draw run"]]:
    """Means over all pairs, and over the pairs of each run (0 for runs without any)."""
    known = (~pairs.isnan()).double()
    filled = pairs.nan_to_num()
    sums, counts = filled.sum((-3, -1)), known.sum((-3, -1))
    return sums.sum(-1) / counts.sum(-1), sums / counts.clamp(min=1)


def _interval(pairs: Float[Tensor, "group run run"], least: float, most: float) -> Interval:
    """Score interval for new runs of a mean over pairs of runs.

    Of Wilson's form, with Student's t for R − 1 degrees of freedom and as many effective observations as the variance of
    the mean (jackknife over runs) is worth, but no fewer than R/2, the number of pairs that share no run. Runs that
    all agree thus do not give an interval of no width. Coverage: `tests.benchmarks.stability_coverage`.
    """
    from scipy.stats import t

    mean, _ = _means(pairs)
    used = [run for run in range(pairs.shape[-1]) if not bool(pairs[:, run].isnan().all())]
    count = len(used)
    if count < 3:
        return Interval(float(mean), torch.nan, torch.nan)
    left = []
    for run in used:
        rest = [other for other in used if other != run]
        left.append(float(_means(pairs[:, rest][:, :, rest])[0]))
    share = (float(mean) - least) / (most - least)
    pseudo = [count * float(mean) - (count - 1) * value for value in left]
    known = np.array([value for value in pseudo if value == value])
    variance = float(known.var(ddof=1)) / len(known) / (most - least) ** 2 if len(known) > 1 else 0
    size = max(count / 2, share * (1 - share) / variance) if variance > ROUNDING else count / 2
    z = float(t.ppf((1 + LEVEL) / 2, count - 1)) ** 2
    centre, half = (
        share + z / (2 * size),
        np.sqrt(z * (share * (1 - share) / size + z / (4 * size**2))),
    )
    ends = [float(np.clip((centre + sign * half) / (1 + z / size), 0, 1)) for sign in (-1, 1)]
    low, high = (least + (most - least) * end for end in ends)
    return Interval(float(mean), min(low, float(mean)), max(high, float(mean)))

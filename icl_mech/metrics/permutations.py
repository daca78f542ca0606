"""Tests by permutation whose units are not prompts: words, and classes.

*Words.* A prompt shows the same few words again and again, so any of them that is read much by chance is
read much in all prompts, and an interval over prompts calls that certain. What is drawn at random is the
word: do named ones differ from others by more than their words explain?

*Classes.* An interval over prompts takes the classes as given, and the ranks of a few pairs agree by
chance. In the Mantel test one table's classes are given other names, in all orders or in many: rows and
columns move together, so that pairs that share a class still share one.

Source: Mantel 1967, *The detection of disease clustering and a generalized regression approach*.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from math import comb, factorial
from typing import NamedTuple

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError

DRAWS = 9_999
"""Draws of words, if there are more ways to choose them."""

AT_ONCE = 500
"""Draws in memory at a time."""


class KindsTest(NamedTuple):
    """How often words chosen at random lie as high as the named ones.

    Attributes:
        p_value: One-sided, that the named words lie higher.
        smallest: The smallest that so many words can give.
        named: Number of words that were named.
        others: Number of other words.
        below: One-sided, that the named words lie lower.
    """

    p_value: float
    smallest: float
    named: int
    others: int
    below: float


@checked(ResultError)
def kinds_test(
    values: Float[Tensor, " pos"],
    words: Sequence[str],
    marked: Bool[Tensor, " pos"],
    *,
    seed: Natural = 0,
) -> KindsTest:
    """Permutation test of the mean over words, each word's mean being one value.

    Words that are marked anywhere have the mean of their marked places, and their other places
    count nowhere; the others have that of theirs, of as many as the rarest named word has at most
    (spread evenly): means of more places would vary less, and a rare named word stand out for that
    alone. Then as many words as were named are chosen among all: in all ways if there are no more
    than 9999, else drawn, and the given choice counts as one more. Words rarer than the named ones
    vary more, so p-values are rather too large.

    Args:
        values: Of all places of all prompts; not-a-number for places that do not count.
        words: What stands there.
        marked: The named places.
        seed: Of the draws.

    Returns:
        Not-a-number if there are no words on one side.
    """
    named_values: dict[str, list[float]] = {}
    other_values: dict[str, list[float]] = {}
    for value, word, named in zip(values.tolist(), words, marked.tolist(), strict=True):
        if value == value:
            (named_values if named else other_values).setdefault(word, []).append(value)
    named = [float(np.mean(seen)) for seen in named_values.values()]
    most = min(map(len, named_values.values()), default=1)
    rest = [
        float(np.mean(_some(seen, most)))
        for word, seen in other_values.items()
        if word not in named_values
    ]
    if not named or not rest:
        return KindsTest(float("nan"), float("nan"), len(named), len(rest), float("nan"))
    every = np.array([*named, *rest])
    means = np.concatenate(
        [every[chosen].mean(1) for chosen in _choices(len(every), len(named), seed)]
    )
    # Equal means differ by the order in which they are summed.
    rounding = 1e-12 * np.abs(every).max()
    high, low = means >= means[0] - rounding, means <= means[0] + rounding
    return KindsTest(float(high.mean()), 1 / len(means), len(named), len(rest), float(low.mean()))


def _some(values: Sequence[float], most: int) -> list[float]:
    """So many of them at most, spread evenly."""
    count = min(most, len(values))
    return [values[place * len(values) // count] for place in range(count)]


def _choices(count: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Places of the words chosen, the given ones (the first) first, a part at a time."""
    if comb(count, size) <= DRAWS:
        yield np.array(list(combinations(range(count), size)))
        return
    generator = np.random.default_rng(seed)
    yield np.arange(size)[None]
    for drawn in range(0, DRAWS, AT_ONCE):
        order = generator.random((min(AT_ONCE, DRAWS - drawn), count))
        yield order.argpartition(size - 1, axis=1)[:, :size]


ORDERS = 10_000
"""Orders of the classes at most: all of them up to seven classes, else drawn."""


class Relabelling(NamedTuple):
    """Shares of the orders of the classes, the given one counted, by layer.

    Attributes:
        above: Orders whose rank correlation is at least the one found: the one-sided p-value of a
            positive correlation.
        below: At most the one found: that of a negative one.
        smallest: Orders that share the largest correlation: `above` can be no smaller.
    """

    above: Float[Tensor, " layer"]
    below: Float[Tensor, " layer"]
    smallest: Float[Tensor, " layer"]


@checked(ResultError)
def relabelling(
    one: Float[Tensor, "layer label label"],
    other: Float[Tensor, "label label"],
    *,
    orders: Count = ORDERS,
    seed: Natural = 0,
) -> Relabelling:
    """Where the rank correlation over pairs lies among those of renamed classes.

    Exact if there are no more than `orders` orders of the classes. Otherwise these are drawn, and
    the given order counts as one more, so that the level holds all the same (Phipson & Smyth
    2010). If the classes' names say nothing, a p-value of at most a comes up with probability at
    most a.

    Args:
        one: Symmetric tables; the diagonal is not read.
        other: The table whose classes are renamed.
        orders: How many orders at most.
        seed: Of the draws.

    Returns:
        Not-a-number in layers with a value that is, or if there are fewer than two classes.
    """
    from scipy.stats import rankdata

    count = len(other)
    first, second = np.triu_indices(count, 1)
    missing = torch.full((len(one),), torch.nan, dtype=torch.float64)
    ranked = rankdata(other.double().numpy()[first, second])
    if count < 2 or np.isnan(ranked).any():
        return Relabelling(missing, missing.clone(), missing.clone())
    table = np.zeros((count, count))
    table[first, second] = table[second, first] = ranked
    names = _orders(count, orders, seed)
    renamed = table[names[:, first], names[:, second]]
    # Ranks are halves of whole numbers, so sums of products are exact, and ties are ties.
    sums = renamed @ rankdata(one.double().numpy()[:, first, second], axis=1).T
    shares = (sums >= sums[0], sums <= sums[0], sums == sums.max(0))
    known = ~np.isnan(sums[0])
    return Relabelling(*(torch.from_numpy(np.where(known, s.mean(0), np.nan)) for s in shares))


def _orders(count: int, most: int, seed: int) -> np.ndarray:
    """Orders of so many classes, the given one first."""
    if factorial(count) <= most:
        return np.array(list(permutations(range(count))))
    given = np.arange(count)
    drawn = np.random.default_rng(seed).permuted(np.tile(given, (most, 1)), axis=1)
    return np.concatenate([given[None], drawn])

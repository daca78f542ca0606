"""Permutation tests whose units are words or classes rather than prompts.

*Words.* Prompts repeat the same few words, so a word that happens to attract attention does so in all prompts,
and an interval over prompts treats that as certain. Here the word is the random unit: do named words differ
from others by more than a random choice of words would?

*Classes.* An interval over prompts takes the classes as given, and the ranks of a few pairs agree by
chance. The Mantel test permutes the classes of one table, in all orders or in many: rows and
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
"""Random choices of words, if there are more ways to choose them."""

AT_ONCE = 500
"""Draws in memory at a time."""


class KindsTest(NamedTuple):
    """Result of comparing the named words with randomly chosen ones.

    Attributes:
        p_value: One-sided p-value that the named words lie higher.
        smallest: The smallest p-value attainable with so many words.
        named: Number of words that were named.
        others: Number of other words.
        below: One-sided p-value that the named words lie lower.
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

    A word that is marked anywhere has the mean of its marked places; its other places are ignored.
    An unmarked word has the mean of its places, at most as many as the rarest named word has
    (spread evenly): means of more places would vary less, and a rare named word would stand out for
    that alone. Then as many words as were named are chosen among all: in all ways if there are no
    more than 9999, else at random, and the given choice counts as one more. Words rarer than the
    named ones vary more, so p-values are conservative.

    Args:
        values: Value at every place of every prompt; NaN for excluded places.
        words: The word at each place.
        marked: The named places.
        seed: Of the draws.

    Returns:
        NaN if there are no words on one side.
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
    # Equal means may differ by rounding, depending on the order of summation.
    rounding = 1e-12 * np.abs(every).max()
    high, low = means >= means[0] - rounding, means <= means[0] + rounding
    return KindsTest(float(high.mean()), 1 / len(means), len(named), len(rest), float(low.mean()))


def _some(values: Sequence[float], most: int) -> list[float]:
    """The values, or `most` of them spread evenly."""
    count = min(most, len(values))
    return [values[place * len(values) // count] for place in range(count)]


def _choices(count: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Indices of the chosen words in batches; the given choice (the first words) comes first."""
    if comb(count, size) <= DRAWS:
        yield np.array(list(combinations(range(count), size)))
        return
    generator = np.random.default_rng(seed)
    yield np.arange(size)[None]
    for drawn in range(0, DRAWS, AT_ONCE):
        order = generator.random((min(AT_ONCE, DRAWS - drawn), count))
        yield order.argpartition(size - 1, axis=1)[:, :size]


ORDERS = 10_000
"""Largest number of permutations of the classes: all of them up to seven classes, else random ones."""


class Relabelling(NamedTuple):
    """Permutation p-values by layer, as fractions of the orders of the classes, the given one included.

    Attributes:
        above: Fraction with a rank correlation of at least the observed one: the one-sided p-value of a
            positive correlation.
        below: Fraction with at most the observed one: the p-value of a negative correlation.
        smallest: Fraction with the largest correlation: `above` can be no smaller.
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
    """Mantel test of the rank correlation over pairs of classes.

    Exact if there are no more than `orders` permutations of the classes. Otherwise they are drawn at
    random, and the given order counts as one more, which keeps the level (Phipson & Smyth 2010): if
    the classes are exchangeable, a p-value of at most a occurs with probability at most a.

    Args:
        one: Symmetric tables; the diagonal is not read.
        other: The table whose classes are renamed.
        orders: Largest number of permutations.
        seed: Of the draws.

    Returns:
        NaN in layers with a NaN, or if there are fewer than two classes.
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
    # Ranks are multiples of 1/2, so sums of products are exact and ties stay ties.
    sums = renamed @ rankdata(one.double().numpy()[:, first, second], axis=1).T
    shares = (sums >= sums[0], sums <= sums[0], sums == sums.max(0))
    known = ~np.isnan(sums[0])
    return Relabelling(*(torch.from_numpy(np.where(known, s.mean(0), np.nan)) for s in shares))


def _orders(count: int, most: int, seed: int) -> np.ndarray:
    """Permutations of so many classes, the identity first."""
    if factorial(count) <= most:
        return np.array(list(permutations(range(count))))
    given = np.arange(count)
    drawn = np.random.default_rng(seed).permuted(np.tile(given, (most, 1)), axis=1)
    return np.concatenate([given[None], drawn])

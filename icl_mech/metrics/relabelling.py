"""Do two tables over pairs of classes agree in rank by more than chance? The Mantel test.

An interval over prompts takes the classes as given, and the ranks of a few pairs agree by chance.
Here one table's classes are given other names, in all orders or in many: rows and columns move
together, so that pairs that share a class still share one.

Source: Mantel 1967, *The detection of disease clustering and a generalized regression approach*.
"""

from itertools import permutations
from math import factorial
from typing import NamedTuple

import numpy as np
import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError

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
    own = np.arange(count)
    drawn = np.random.default_rng(seed).permuted(np.tile(own, (most, 1)), axis=1)
    return np.concatenate([own[None], drawn])

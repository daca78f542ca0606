"""Sets of heads: the heads that two sets share, compared with chance."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from icl_mech.measurements.causal.head_maps import Head
from icl_mech.results import Definition
from icl_mech.results.judging import holm

SHARED = Definition(
    "overlap beyond chance",
    r"P\left(|A \cap B| \geq k\right), \quad |A \cap B| \sim \mathrm{Hypergeometric}(H, |A|, |B|)",
    "Probability that two sets share at least as many heads if one is drawn at random from all H "
    "heads of the model; Holm's correction over all pairs of sets, one-sided 2.5 %.",
)


class Overlap(NamedTuple):
    """Heads that two sets share.

    Attributes:
        first: Name of a set.
        second: Name of the other.
        heads: The shared heads, in the order of the first set.
        expected: Mean number of shared heads if one of them were drawn at random.
        p_value: Probability of at least as many.
        beyond: True if it passes Holm's correction over all pairs.
    """

    first: str
    second: str
    heads: tuple[Head, ...]
    expected: float
    p_value: float
    beyond: bool


def overlaps(
    sets: Mapping[str, Sequence[Head]], pairs: Sequence[tuple[str, str]], total: int
) -> tuple[Overlap, ...]:
    """Overlap of pairs of sets.

    Args:
        sets: Heads by name.
        pairs: Names of the sets to compare.
        total: Number of heads of the model.
    """
    from scipy.stats import hypergeom

    shared, p_values = [], []
    for first, second in pairs:
        shared.append(tuple(head for head in sets[first] if head in set(sets[second])))
        chance = hypergeom(total, len(set(sets[first])), len(set(sets[second])))
        p_values.append(float(chance.sf(len(shared[-1]) - 1)))
    return tuple(
        Overlap(*pair, heads, len(set(sets[pair[0]])) * len(set(sets[pair[1]])) / total, p, beyond)
        for pair, heads, p, beyond in zip(pairs, shared, p_values, holm(p_values), strict=True)
    )

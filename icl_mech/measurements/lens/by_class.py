"""What a lens gives each class: over all queries, which is its prior, and over the queries of the class."""

from typing import NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.metrics import mean_ends
from icl_mech.results import Quantity
from icl_mech.results.base import Samples
from icl_mech.results.quantities import function_of_means

WEAK = 0.1
"""Label words that together have less than this probability of the next word hardly are what a layer predicts."""


class Preference(NamedTuple):
    """The class that the lens prefers most between the embedding and the last layer.

    Attributes:
        label: Its name.
        layer: The layer where its mean over all queries is largest.
        there: This mean, and the one over the queries of the class; NaN without any.
        last: The same after the last layer.
        space: Mean probability of all label words at `layer`; NaN if unknown.
    """

    label: str
    layer: int
    there: tuple[float, float]
    last: tuple[float, float]
    space: float


class ByClass(NamedTuple):
    """Probability of each class among the label words, by layer.

    Attributes:
        every: Mean over all queries: the prior of the lens.
        own: Mean over the queries of the class; NaN without any.
        space: Mean probability of all label words over the vocabulary; None if unknown.
        labels: Names of the classes.
    """

    every: Samples
    own: Samples
    space: Float[Tensor, " layer"] | None
    labels: tuple[str, ...]

    @property
    def weak(self) -> tuple[bool, ...]:
        """Layers where label words have little probability; empty if it is unknown."""
        return () if self.space is None else tuple((self.space < WEAK).tolist())

    @property
    def preferred(self) -> Preference:
        """The class that the lens prefers most; at the embedding, prompts are alike, unless there is no other layer."""
        every, own = self.every.values, self.own.values
        first = min(1, len(every) - 2)
        layer, label = divmod(int(every[first:-1].argmax()), len(self.labels))
        layer += first
        space = torch.nan if self.space is None else float(self.space[layer])
        there, last = ((float(every[i, label]), float(own[i, label])) for i in (layer, -1))
        return Preference(self.labels[label], layer, there, last, space)


def over_own(
    probs: Float[Tensor, "batch *cell label"],
    answers: Int[Tensor, " batch"],
    dims: tuple[str, ...],
    unit: str,
) -> Quantity:
    """Probability of each class over the queries of this class alone; NaN for a class without any.

    Args:
        probs: Probabilities among the label words.
        answers: True class of each query.
        dims: Names of the axes of a cell, `label` last.
        unit: Quantity and unit.
    """
    probs, classes = probs.double(), range(probs.shape[-1])
    ends = torch.full((2, *probs.shape[1:]), torch.nan, dtype=torch.float64)
    values = torch.full_like(probs, torch.nan)
    for label in classes:
        own = answers == label
        if bool(own.any()):
            values[own, ..., label] = probs[own, ..., label]
            ends[..., label] = torch.stack(mean_ends(probs[own, ..., label], "outcome"))
    means = function_of_means(values, lambda every: every)
    return Quantity(dims, values, means, unit, (ends[0], ends[1]), "outcome")

"""Gradient readings of prompts with a common beginning, which is run forward only once.

For a batch of prompts behind a beginning of keys `K` and values `V`, the loss of prompt `b`
depends on the beginning through its own copy of `K`, `V` alone. So the backward pass has two
halves: one through the rows after the beginning, which ends in the gradients `dL_b/dK` and
`dL_b/dV`, and one through the beginning, as a vector-Jacobian product batched over `b`.
The forward pass of the beginning, and what it keeps, is there once for the whole run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from icl_mech._typing import Tensor
from icl_mech.models import KeyValues, Site

Sink = tuple[int, Site, Tensor]
"""Number of a reading, its site, and the zeros whose gradient is its reduction."""


@dataclass(frozen=True, eq=False)
class Beginning:
    """The common beginning with its graph, which every batch of a run goes through again.

    Attributes:
        cache: Its keys and values, one prompt, in the graph.
        sinks: Its readings.
    """

    cache: KeyValues
    sinks: Sequence[Sink]

    def leaves(self, seen: KeyValues) -> KeyValues:
        """Each prompt's own copy, outside the graph; gradients are asked of those that a reading lies below."""
        return KeyValues(
            _leaves(seen.keys, self.cache.keys), _leaves(seen.values, self.cache.values)
        )

    def reductions(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """`[prompt, ...]` of each sink, from the gradients of `asking(leaves)`."""
        outputs = asking(self.cache)
        sinks = [sink for *_, sink in self.sinks]

        def product(*vectors: Tensor) -> tuple[Tensor, ...]:
            return torch.autograd.grad(
                outputs, sinks, vectors, retain_graph=True, materialize_grads=True
            )

        # Vectors are those of a batch of one prompt.
        found = torch.vmap(product)(*(gradient[:, None] for gradient in gradients))
        return [reduction[:, 0] for reduction in found]


def asking(cache: KeyValues) -> list[Tensor]:
    """The keys and values that take part in the backward pass."""
    return [tensor for tensor in (*cache.keys, *cache.values) if tensor.requires_grad]


def _leaves(seen: Sequence[Tensor], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(
        copy.detach().requires_grad_(mine.requires_grad)
        for copy, mine in zip(seen, own, strict=True)
    )

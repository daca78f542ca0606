"""Gradient readings of prompts with a common beginning, which is run forward only once.

For a batch of prompts after a beginning of keys `K` and values `V`, the loss of prompt `b`
depends on the beginning through its own copy of `K`, `V` alone. So the backward pass has two
halves: one through the rows after the beginning, which ends in the gradients `dL_b/dK` and
`dL_b/dV`, and one through the beginning, as a vector-Jacobian product batched over `b`.

`Beginning` holds the graph of the whole beginning, once for the run. Where that does not fit,
`RecomputedBeginning` holds the residual stream only, and makes each block's graph again when the
backward pass of a batch reaches it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from icl_mech._typing import Tensor
from icl_mech.models import KeyValues, Site

Sink = tuple[int, Site, Tensor]
"""Number of a reading, its site, and the zeros whose gradient is its reduction."""


@dataclass(frozen=True, eq=False)
class Beginning:
    """The common beginning with its graph, which every batch of a run goes through again.

    Attributes:
        cache: Its keys and values, one prompt; those that a reading lies below ask for gradients.
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
        return _back(asking(self.cache), gradients, [sink for *_, sink in self.sinks])


class Block(NamedTuple):
    """The graph of one block of a beginning.

    Attributes:
        entering: The residual it starts from, one prompt.
        leaving: The residual after it.
        kept: Its keys and values.
        sinks: Of the readings in it, in the order of the beginning's.
    """

    entering: Tensor
    leaving: Tensor
    kept: tuple[Tensor, Tensor]
    sinks: Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class RecomputedBeginning(Beginning):
    """The common beginning without a graph: blocks run again, from the last to the lowest read.

    Attributes:
        block: Runs one block with its graph.
        together: Prompts that go back through a block at a time.
    """

    block: Callable[[int], Block]
    together: int

    def reductions(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """As of a beginning with its graph."""
        given = iter(gradients)
        keys, values = (
            {layer: next(given) for layer, own in enumerate(part) if own.requires_grad}
            for part in (self.cache.keys, self.cache.values)
        )
        found: dict[int, Tensor] = {}  # by number of the sink
        above: list[Tensor] = []  # the gradient of the residual that leaves a block
        for layer in sorted(keys, reverse=True):
            block = self.block(layer)
            outputs = [*block.kept, *([block.leaving] if above else [])]
            vectors = [keys[layer], values[layer], *above]
            # Keys and values that nothing read stands below have no graph.
            asked = [
                (output, vector)
                for output, vector in zip(outputs, vectors, strict=True)
                if output.requires_grad
            ]
            numbers = [n for n, (_, site, _) in enumerate(self.sinks) if site.layer == layer]
            if not asked:  # nothing later sees this block, or a hook has cut the graph
                above, count = [], len(keys[layer])
                sinks = {n: self.sinks[n][2] for n in numbers}
                found |= {n: sink.new_zeros(count, *sink.shape[1:]) for n, sink in sinks.items()}
                continue
            entering, *own = _back(
                [output for output, _ in asked],
                [vector for _, vector in asked],
                [block.entering, *block.sinks],
                together=self.together,
            )
            above = [entering]
            found |= zip(numbers, own, strict=True)
        return [found[number] for number in range(len(self.sinks))]


def asking(cache: KeyValues) -> list[Tensor]:
    """The keys and values that take part in the backward pass."""
    return [tensor for tensor in (*cache.keys, *cache.values) if tensor.requires_grad]


def _back(
    outputs: Sequence[Tensor],
    vectors: Sequence[Tensor],
    inputs: Sequence[Tensor],
    *,
    together: int | None = None,
) -> list[Tensor]:
    """`[prompt, ...]` of each input: products of every prompt's vectors with the Jacobian."""

    def product(*own: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(outputs, inputs, own, retain_graph=True, materialize_grads=True)

    # Vectors are those of a batch of one prompt.
    batched = (vector.unsqueeze(1) for vector in vectors)
    found = torch.vmap(product, chunk_size=together)(*batched)
    return [reduction[:, 0] for reduction in found]


def _leaves(seen: Sequence[Tensor], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(
        copy.detach().requires_grad_(mine.requires_grad)
        for copy, mine in zip(seen, own, strict=True)
    )

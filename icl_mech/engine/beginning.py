"""Gradient readings of prompts with a common prefix (the beginning), which is run forward only once.

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
"""Index of a reading, its hook point, and the zeros whose gradient is its reduction."""


@dataclass(frozen=True, eq=False)
class Beginning:
    """The common beginning with its graph, which every batch of a run goes through again.

    Attributes:
        cache: Its keys and values, one prompt; those above a reading require gradients.
        sinks: Its readings.
    """

    cache: KeyValues
    sinks: Sequence[Sink]

    def leaves(self, seen: KeyValues) -> KeyValues:
        """Each prompt's copy of the keys and values, detached; those above a reading require gradients."""
        return KeyValues(
            _leaves(seen.keys, self.cache.keys), _leaves(seen.values, self.cache.values)
        )

    def reductions(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Reductions `[prompt, ...]` of each sink, from the gradients of `asking(leaves)`."""
        return _back(asking(self.cache), gradients, [sink for *_, sink in self.sinks])


class Block(NamedTuple):
    """The graph of one block of a beginning.

    Attributes:
        entering: The residual it starts from, one prompt.
        leaving: The residual after it.
        kept: Its keys and values.
        sinks: Sinks of the readings in this block, in the order of the beginning's sinks.
    """

    entering: Tensor
    leaving: Tensor
    kept: tuple[Tensor, Tensor]
    sinks: Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class RecomputedBeginning(Beginning):
    """The common beginning without a graph: blocks are rerun, from the last down to the lowest one read.

    Attributes:
        block: Runs one block with its graph.
        together: Number of prompts backpropagated through a block at a time.
    """

    block: Callable[[int], Block]
    together: int

    def reductions(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Reductions of each sink, the same as those of a beginning with its graph."""
        given = iter(gradients)
        keys, values = (
            {layer: next(given) for layer, tensor in enumerate(part) if tensor.requires_grad}
            for part in (self.cache.keys, self.cache.values)
        )
        by_sink: dict[int, Tensor] = {}  # by number of the sink
        above: list[Tensor] = []  # the gradient of the residual that leaves a block
        for layer in sorted(keys, reverse=True):
            block = self.block(layer)
            outputs = [*block.kept, *([block.leaving] if above else [])]
            vectors = [keys[layer], values[layer], *above]
            # Keys and values with no reading below them have no graph.
            asked = [
                (output, vector)
                for output, vector in zip(outputs, vectors, strict=True)
                if output.requires_grad
            ]
            numbers = [n for n, (_, site, _) in enumerate(self.sinks) if site.layer == layer]
            if not asked:  # no later block attends to this one, or a hook has cut the graph
                above, count = [], len(keys[layer])
                sinks = {n: self.sinks[n][2] for n in numbers}
                by_sink |= {n: sink.new_zeros(count, *sink.shape[1:]) for n, sink in sinks.items()}
                continue
            entering, *reductions = _back(
                [output for output, _ in asked],
                [vector for _, vector in asked],
                [block.entering, *block.sinks],
                together=self.together,
            )
            above = [entering]
            by_sink |= zip(numbers, reductions, strict=True)
        return [by_sink[number] for number in range(len(self.sinks))]


def asking(cache: KeyValues) -> list[Tensor]:
    """Keys and values that take part in the backward pass."""
    return [tensor for tensor in (*cache.keys, *cache.values) if tensor.requires_grad]


def _back(
    outputs: Sequence[Tensor],
    vectors: Sequence[Tensor],
    inputs: Sequence[Tensor],
    *,
    together: int | None = None,
) -> list[Tensor]:
    """Vector-Jacobian products `[prompt, ...]` of each input, for every prompt's vectors."""

    def product(*grad_outputs: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(
            outputs, inputs, grad_outputs, retain_graph=True, materialize_grads=True
        )

    # vmap maps over prompts; the graph was built with a batch of one, whose axis each vector needs.
    batched = (vector.unsqueeze(1) for vector in vectors)
    products = torch.vmap(product, chunk_size=together)(*batched)
    return [reduction[:, 0] for reduction in products]


def _leaves(seen: Sequence[Tensor], originals: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(
        copy.detach().requires_grad_(original.requires_grad)
        for copy, original in zip(seen, originals, strict=True)
    )

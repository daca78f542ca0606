"""Random sets of components, the control of a circuit of the same size.

Heads and nodes are drawn uniformly. Edges drawn uniformly mostly lie on no path from the embedding to the logits, so that
hardly any acts. We draw connected sets instead: edges in random order, each with random edges that lead to it from nodes
already reached and from it to nodes with a way to the logits, until there are exactly as many as asked for; a path that
would exceed this number is left out. This scheme is ours.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from icl_mech._typing import Bool, Tensor
from icl_mech.measurements.circuits.graph import Components, owners
from icl_mech.models import ModelInfo

Edge = tuple[int, int]
"""A writer and a reader."""


def random_sets(
    parts: Components, info: ModelInfo, count: int, draws: int, seed: int
) -> list[Bool[Tensor, " component"]]:
    """Sets of exactly `count` components without duplicates; each edge of a set lies on a path from embedding to logits."""
    seeds = [seed + 7919 * draw + 104729 * count for draw in range(draws)]
    if parts.granularity != "edges":
        return [_uniform(len(parts), count, number) for number in seeds]
    graph = _Graph.of(parts.mask, owners(info))
    drawn = []
    for number in seeds:
        laid = torch.zeros_like(parts.mask)
        for writer, reader in graph.drawn(count, random.Random(number)):
            laid[writer, reader] = True
        drawn.append(laid[parts.mask])
    return drawn


def _uniform(total: int, count: int, seed: int) -> Bool[Tensor, " component"]:
    chosen = torch.zeros(total, dtype=torch.bool)
    chosen[torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count]] = True
    return chosen


@dataclass(frozen=True)
class _Graph:
    """All edges of a model.

    Attributes:
        edges: The edges.
        into: Edges into each node.
        out: Edges out of each node.
        nodes: Nodes of which each reader is an input; none for the logits.
    """

    edges: Sequence[Edge]
    into: Sequence[Sequence[Edge]]
    out: Sequence[Sequence[Edge]]
    nodes: Sequence[Sequence[int]]

    @classmethod
    def of(
        cls, mask: Bool[Tensor, "writer reader"], owner: Bool[Tensor, "writer reader"]
    ) -> "_Graph":
        edges: list[Edge] = [(writer, reader) for writer, reader in mask.nonzero().tolist()]
        nodes = [column.nonzero().flatten().tolist() for column in owner.T]
        into: list[list[Edge]] = [[] for _ in owner]
        out: list[list[Edge]] = [[] for _ in owner]
        for edge in edges:
            out[edge[0]].append(edge)
            for node in nodes[edge[1]]:
                into[node].append(edge)
        return cls(edges, into, out, nodes)

    def drawn(self, count: int, rng: random.Random) -> set[Edge]:
        """A random connected set; drawn again where no path has the length that is missing."""
        while True:
            growing = _Growing(self, rng)
            for edge in rng.sample(self.edges, len(self.edges)):
                growing.add(edge, count)
                if len(growing.chosen) == count:
                    return growing.chosen
            if not count:
                return set()


@dataclass
class _Growing:
    """A connected set of edges that grows.

    Attributes:
        graph: All edges.
        rng: Draws the paths.
        chosen: The set.
        reached: Nodes to which it leads from the embedding.
        leading: Nodes from which it leads to the logits.
    """

    graph: _Graph
    rng: random.Random
    chosen: set[Edge] = field(default_factory=set)
    reached: set[int] = field(default_factory=lambda: {0})
    leading: set[int] = field(default_factory=set)

    def add(self, edge: Edge, count: int) -> None:
        """Add an edge with the path that connects it, if the set then has at most `count` edges."""
        room = count - len(self.chosen)
        if not room or edge in self.chosen:
            return
        path = self._path(edge, room)
        if len(path) > room:
            return
        for writer, reader in path:
            self.chosen.add((writer, reader))
            self.leading.add(writer)
            self.reached.update(self.graph.nodes[reader])

    def _path(self, edge: Edge, room: int) -> list[Edge]:
        """A path through the edge; cut off once it is too long."""
        path, (writer, reader) = [edge], edge
        while writer not in self.reached and len(path) <= room:
            path.append(self.rng.choice(self.graph.into[writer]))
            writer = path[-1][0]
        while (nodes := self.graph.nodes[reader]) and len(path) <= room:
            if not self.leading.isdisjoint(nodes):
                break
            path.append(self.rng.choice(self.graph.out[self.rng.choice(nodes)]))
            reader = path[-1][1]
        return path

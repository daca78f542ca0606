"""Which sets of components are run for a circuit, and the interventions that keep each of them alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.circuits.ablated import ReplaceEdges, ReplaceNodes, Stored
from icl_mech.measurements.circuits.graph import Circuit, Components, Ranking, top
from icl_mech.measurements.circuits.random_sets import random_sets
from icl_mech.models import ModelInfo

Chosen = Bool[Tensor, " component"]

SAME = 1e-3
"""Largest difference between a run without any edge and the counterfactual run, relative to the metric."""


@dataclass(frozen=True, eq=False)
class Sets:
    """A circuit, random sets of its size, and for scores the sets of the curve with theirs.

    All sets of edges are connected: edges on no path from the embedding to the logits are left out, and random sets have as
    many edges as then remain.

    Attributes:
        circuit: The circuit.
        random: Random sets of its size.
        before_pruning: Number of its components, also of edges that are left out.
        sizes: Sizes of the curve, each once, before edges are left out.
        at: Index of each fraction in `sizes`.
        curve: The components with the largest scores, by size.
        random_curve: Random sets, by size and draw.
    """

    circuit: Chosen
    random: Sequence[Chosen]
    before_pruning: int
    sizes: tuple[int, ...] = ()
    at: tuple[int, ...] = ()
    curve: Sequence[Chosen] = ()
    random_curve: Sequence[Sequence[Chosen]] = ()

    @classmethod
    def of(
        cls,
        parts: Components,
        circuit: Circuit,
        info: ModelInfo,
        *,
        fraction: float,
        fractions: Sequence[float],
        ranking: Ranking,
        draws: int,
        seed: int,
    ) -> "Sets":
        """The sets for a circuit; fields as in `CircuitFaithfulness`.

        Raises:
            RunError: a circuit without a component at this granularity, or without a path of edges.
        """
        total, scores, kept = len(parts), parts.scores(circuit), parts.kept(circuit)
        if kept is None:
            assert scores is not None
            kept = top(scores, max(1, int(fraction * total)), ranking)
        if not bool(kept.any()):
            raise RunError(
                f"The circuit has no component among the {parts.granularity} of the model; it would be empty."
            )
        chosen = parts.connected(kept, info)
        if circuit.kept is not None and not bool(chosen.any()):
            raise RunError(
                f"None of the {int(kept.sum())} edges of the circuit lies on a path of its edges from the embedding to the "
                "logits, so kept alone it is empty. Give edges that form such a path, or use granularity='nodes' or 'heads'."
            )

        def control(like: Chosen) -> list[Chosen]:
            return random_sets(parts, info, int(like.sum()), draws, seed)

        if scores is None:
            return cls(chosen, control(chosen), int(kept.sum()))
        counts = [int(f * total) for f in fractions]
        sizes = tuple(sorted(set(counts)))
        curve = [parts.connected(top(scores, size, ranking), info) for size in sizes]
        return cls(
            chosen,
            control(chosen),
            int(kept.sum()),
            sizes,
            tuple(sizes.index(count) for count in counts),
            curve,
            [control(kept_alone) for kept_alone in curve],
        )

    @property
    def acting(self) -> tuple[int, ...]:
        """Number of components in each set of the curve."""
        return tuple(int(chosen.sum()) for chosen in self.curve)

    @property
    def overlap(self) -> tuple[int, ...]:
        """Number of components that each random set shares with the circuit."""
        return tuple(int((self.circuit & drawn).sum()) for drawn in self.random)

    @property
    def every(self) -> list[Chosen]:
        """All sets that are kept alone: also what is left when the circuit or a random set is cut out, and none."""
        cut = [~chosen for chosen in (self.circuit, *self.random)]
        by_size = [chosen for sets in self.random_curve for chosen in sets]
        return [self.circuit, *self.random, *cut, *self.curve, *by_size, self.empty]

    @property
    def empty(self) -> Chosen:
        """No component."""
        return torch.zeros_like(self.circuit)

    @property
    def whole(self) -> Chosen:
        """All components."""
        return torch.ones_like(self.circuit)


@dataclass(frozen=True, eq=False)
class Runs:
    """One run for each distinct set.

    Attributes:
        info: The model.
        parts: The components.
        stored: What ablated components write.
        parallel: As in `Components.of`.
        sets: The sets by their content.
    """

    info: ModelInfo
    parts: Components
    stored: Stored
    parallel: bool
    sets: dict[bytes, Chosen] = field(default_factory=dict)

    def add(self, sets: Sequence[Chosen]) -> None:
        """Run these sets, too."""
        for chosen in sets:
            self.sets.setdefault(_content(chosen), chosen)

    def __contains__(self, chosen: Chosen) -> bool:
        """True if this set is run."""
        return _content(chosen) in self.sets

    @property
    def interventions(self) -> list[list[Intervention]]:
        """The interventions of each run: everything outside the set is ablated."""
        return [self._keeping(chosen) for chosen in self.sets.values()]

    def _keeping(self, chosen: Chosen) -> list[Intervention]:
        if bool(chosen.all()):
            return []
        if self.parts.granularity == "edges":
            kept = self.parts.laid(self.parts.connected(chosen, self.info))
            return [ReplaceEdges(self.parts.mask & ~kept, self.stored, self.parallel)]
        return [ReplaceNodes(self.parts.laid(~chosen), self.stored)]

    def of(
        self, sets: Sequence[Chosen], values: Float[Tensor, "batch run"]
    ) -> Float[Tensor, "batch set"]:
        """The values of some sets, given those of every run."""
        order = list(self.sets)
        return values[:, [order.index(_content(chosen)) for chosen in sets]]


def _content(chosen: Chosen) -> bytes:
    return chosen.numpy().tobytes()


def check_empty(empty: Float[Tensor, " batch"], other: Float[Tensor, " batch"]) -> None:
    """Reject runs in which ablating every edge does not give the counterfactual's answer.

    Raises:
        RunError: gives the largest difference.
    """
    off = float((empty - other).abs().max())
    if off > SAME * max(1.0, float(other.abs().max())):
        raise RunError(
            f"Without any edge the metric should be that of the counterfactual run, but differs by {off:.3g} logits: edges "
            "of this model cannot be ablated exactly. Use granularity='heads' or 'nodes'."
        )

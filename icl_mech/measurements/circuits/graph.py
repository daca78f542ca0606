"""The computational graph of a model, and circuits: scored or chosen nodes or edges of it.

Nodes are the embedding, every head and every MLP (*writers*). An edge leads from a node to an input of a later one
(*readers*): the queries, keys and values of heads, MLPs, the logits. Query heads that share keys and values have one edge
to these.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Heads
from icl_mech.errors import RunError
from icl_mech.measurements.causal.tracing import edges_of, reader_names, writer_names
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.models import ModelInfo

Granularity = Literal["heads", "nodes", "edges"]
"""What a circuit consists of: heads (all MLPs stay), heads and MLPs (the embedding stays), or edges."""

Level = Literal["nodes", "edges"]

Ranking = Literal["signed", "absolute"]
"""Which components come first: those with the largest scores, or with the largest absolute scores."""


@dataclass(frozen=True, eq=False)
class Circuit:
    """Scores of nodes or edges, the ones chosen, or both.

    Attributes:
        level: What the tensors are indexed by: `nodes` (writers), or `edges` (writers and readers).
        scores: A score for each; NaN where there is none.
        kept: True for those in the circuit.
        origin: Where it comes from, such as the name of a file.
    """

    level: Level
    scores: Float[Tensor, " *component"] | None = None
    kept: Bool[Tensor, " *component"] | None = None
    origin: str = ""

    def __post_init__(self) -> None:
        """Check that there is something to choose by.

        Raises:
            RunError: neither scores nor chosen components.
        """
        if self.scores is None and self.kept is None:
            raise RunError("A Circuit needs scores=, kept= (the chosen nodes or edges), or both.")

    @classmethod
    def of_heads(cls, heads: Heads, info: ModelInfo) -> "Circuit":
        """The circuit of some heads.

        Raises:
            RunError: no head, or heads the model does not have.
        """
        names = writer_names(info)
        kept = torch.zeros(len(names), dtype=torch.bool)
        if not heads:
            raise RunError("circuit=[] holds no head; give at least one pair (layer, head).")
        for head in heads:
            if head_name(head) not in names or min(head) < 0:
                raise RunError(
                    f"Head {tuple(head)} does not exist; {info.name!r} has {info.n_layers} layers with "
                    f"{info.n_heads} heads each."
                )
            kept[names.index(head_name(head))] = True
        return cls("nodes", kept=kept, origin="heads")

    def check(self, info: ModelInfo, *, parallel: bool = False) -> None:
        """Reject a circuit of another model; `parallel` as in `tracing.edges_of`.

        Raises:
            RunError: says which sizes differ, or names an edge in the circuit that the model does not have.
        """
        sizes = [len(writer_names(info))]
        if self.level == "edges":
            sizes.append(len(reader_names(info)))
        for tensor in (self.scores, self.kept):
            if tensor is not None and list(tensor.shape) != sizes:
                raise RunError(
                    f"The circuit has the axes {list(tensor.shape)}, but {info.name!r} needs {sizes} "
                    "(writers, and readers of edges). It belongs to another model."
                )
        if self.level == "nodes":
            return
        scored = [] if self.scores is None else [self.scores.nan_to_num(0.0) != 0]
        used = torch.stack([*scored, *([] if self.kept is None else [self.kept])]).any(0)
        absent = (used & ~edges_of(info, parallel=parallel)).nonzero().tolist()
        if absent:
            writer, reader = writer_names(info)[absent[0][0]], reader_names(info)[absent[0][1]]
            raise RunError(
                f"The circuit has the edge '{writer} > {reader}', but {info.name!r} has no such edge"
                + (": the MLP of a block does not see its heads." if parallel else ".")
                + " Leave it out (kept=False, and a score of 0 or NaN)."
            )

    def of_nodes(self) -> "Circuit":
        """The same circuit by node: the sum of a node's edge scores (NaN without any), and the nodes with an edge in it."""
        if self.level == "nodes":
            return self
        return Circuit(
            "nodes",
            None if self.scores is None else _sums(self.scores),
            None if self.kept is None else self.kept.any(1),
            self.origin,
        )

    def to_dict(self) -> dict[str, Any]:
        """What identifies it, for the record of a result."""
        digest = hashlib.sha256()
        for tensor in (self.scores, self.kept):
            if tensor is not None:
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        chosen = None if self.kept is None else int(self.kept.sum())
        return {
            "level": self.level,
            "origin": self.origin,
            "chosen": chosen,
            "digest": digest.hexdigest()[:32],
        }


def _sums(scores: Float[Tensor, "writer reader"]) -> Float[Tensor, " writer"]:
    """Sum of the scores in each row; NaN where there is none."""
    return scores.nansum(1).where(~scores.isnan().all(1), torch.nan)


@dataclass(frozen=True, eq=False)
class Components:
    """What circuits of a model consist of at one granularity, in a fixed order.

    Attributes:
        granularity: What they are.
        mask: True for writers, or for pairs of writers and readers, that are components.
        names: Name of each, such as `3.1`, `mlp 2` or `3.1 > 4.0 q`.
    """

    granularity: Granularity
    mask: Bool[Tensor, " *component"]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, info: ModelInfo, granularity: Granularity, *, parallel: bool = False
    ) -> "Components":
        """All components of a model; `parallel` as in `tracing.edges_of`."""
        writers = writer_names(info)
        if granularity == "edges":
            readers = reader_names(info)
            mask = edges_of(info, parallel=parallel)
            pairs = mask.nonzero().tolist()
            return cls(granularity, mask, tuple(f"{writers[w]} > {readers[r]}" for w, r in pairs))
        inside = [
            name != "embed" and (granularity == "nodes" or not name.startswith("mlp"))
            for name in writers
        ]
        names = tuple(name for name, chosen in zip(writers, inside, strict=True) if chosen)
        return cls(granularity, torch.tensor(inside), names)

    def __len__(self) -> int:
        """Number of components."""
        return len(self.names)

    def scores(self, circuit: Circuit) -> Float[Tensor, " component"] | None:
        """The circuit's score of every component, NaN where it has none; None without scores."""
        circuit = self._at(circuit)
        return None if circuit.scores is None else circuit.scores[self.mask].double()

    def kept(self, circuit: Circuit) -> Bool[Tensor, " component"] | None:
        """True for components in the circuit; None if it has scores only."""
        circuit = self._at(circuit)
        return None if circuit.kept is None else circuit.kept[self.mask]

    def _at(self, circuit: Circuit) -> Circuit:
        if self.granularity != "edges":
            return circuit.of_nodes()
        if circuit.level == "nodes":
            raise RunError(
                "granularity='edges' needs a circuit of edges, but this one has nodes. Use "
                "granularity='nodes' or 'heads'."
            )
        return circuit

    def laid(self, chosen: Bool[Tensor, " component"]) -> Bool[Tensor, " *component"]:
        """The chosen components on the axes of `mask`."""
        laid = torch.zeros_like(self.mask)
        laid[self.mask] = chosen
        return laid

    def connected(self, chosen: Bool[Tensor, " component"], info: ModelInfo) -> Tensor:
        """The chosen edges that lie on a path of chosen edges from the embedding to the logits; nodes as they are."""
        if self.granularity != "edges":
            return chosen
        owner = owners(info)
        kept = self.laid(chosen)
        while True:
            entered = (owner & kept.any(0)).any(1)
            entered[0] = True
            alive = entered & kept.any(1)
            reached = (owner & alive[:, None]).any(0)
            reached[-1] = True
            pruned = kept & alive[:, None] & reached
            if torch.equal(pruned, kept):
                return pruned[self.mask]
            kept = pruned


def owners(info: ModelInfo) -> Bool[Tensor, "writer reader"]:
    """True where a reader is an input of the node; shared keys and values are inputs of every head of their group."""
    readers = reader_names(info)
    shared = info.n_heads // info.n_kv_heads
    rows = []
    for name in writer_names(info):
        layer, _, head = name.partition(".")
        inputs = {name}
        if head:
            group = f"{layer}.{int(head) // shared}"
            inputs = {f"{name} q", f"{group} k", f"{group} v"}
        rows.append([reader in inputs for reader in readers])
    return torch.tensor(rows)


def top(
    scores: Float[Tensor, " component"], count: int, ranking: Ranking
) -> Bool[Tensor, " component"]:
    """The components with the largest scores (or absolute scores), first ones on ties; those without a score last."""
    values = scores.abs() if ranking == "absolute" else scores
    order = values.nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True)
    chosen = torch.zeros(len(scores), dtype=torch.bool)
    chosen[order[:count]] = True
    return chosen

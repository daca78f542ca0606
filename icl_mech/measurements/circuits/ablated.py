"""Runs of a circuit: the outputs of all other nodes, or what they pass along all other edges, are replaced."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.engine import Batched, RowsReading, common_prefix
from icl_mech.engine.layouts import Whole
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import Pair
from icl_mech.measurements.causal.tracing import EMBED, INPUTS, counts, node_sites
from icl_mech.measurements.circuits.alignment import Places, aligned, positions
from icl_mech.models import Hook, HookFunction, LanguageModel, ModelInfo, Site, to_device
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

SAME = 1e-3
"""Largest error, relative to their size, of queries, keys and values that are computed separately."""


@dataclass(frozen=True, eq=False)
class Stored:
    """What every node writes instead, at each token of every prompt; shared by all runs.

    Attributes:
        slots: Index into the values for each token; -1 after the end of a prompt.
        values: By site; without values, 0.
        common: Number of first tokens at which the values are the same for all prompts.
    """

    slots: Int[Tensor, "batch row"]
    values: Mapping[Site, Tensor]
    common: int

    @classmethod
    def of_counterfactuals(cls, read: Mapping[Site, Tensor], data: Pair) -> "Stored":
        """Values of the counterfactual's corresponding tokens, as `RowsReading` read them at `aligned`."""
        prompts, counterfactuals = data
        matching = aligned(*data)
        rows = matching.shape[1]
        slots = torch.arange(len(prompts) * rows).reshape(len(prompts), rows)
        inside = torch.arange(rows) < prompts.lengths[:, None]
        alike = (matching == matching[:1]).all(0) & (matching < common_prefix(counterfactuals)).all(
            0
        )
        return cls(
            torch.where(inside, slots, -1),
            {site: value.flatten(0, 1) for site, value in read.items()},
            _leading(alike),
        )

    @classmethod
    def of_means(
        cls,
        read: Sequence[Mapping[Site, Tensor]],
        batches: Sequence[PromptBatch],
        prompts: PromptBatch,
    ) -> "Stored":
        """Means over all tokens of these prompts at the same place."""
        places = Places.of(prompts, *batches)
        rows = [places.rows(batch) for batch in batches]
        index = torch.cat([table.flatten() for table in rows])
        used = index >= 0
        number = index[used].bincount(minlength=places.total).clamp(min=1)
        values = {}
        for site in read[0]:
            tokens = torch.cat([part[site].flatten(0, 1) for part in read])[used].double()
            sums = tokens.new_zeros(places.total, *tokens.shape[1:]).index_add(
                0, index[used], tokens
            )
            mean = sums / number.reshape(-1, *[1] * (sums.ndim - 1))
            values[site] = mean.to(read[0][site].dtype)
        slots = places.rows(prompts)
        return cls(slots, values, _leading((slots == slots[:1]).all(0)))

    @classmethod
    def zeros(cls, prompts: PromptBatch) -> "Stored":
        """Nothing: every node writes 0."""
        return cls(positions(prompts), {}, int(prompts.lengths.min()))

    def at(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """The values at the columns of a segment; the activation itself at padding."""
        dest = segment.on_host[0]
        slots = self.slots[list(segment.indices)].gather(1, dest.clamp(min=0))
        there = to_device((dest >= 0) & (slots >= 0), activation.device)
        there = there.reshape(*there.shape, *[1] * (activation.ndim - 2))
        if site not in self.values:
            return activation.where(~there, 0.0)
        laid = to_device(self.values[site][slots.clamp(min=0)], activation.device)
        return laid.to(activation).where(there, activation)


def _leading(alike: Bool[Tensor, " row"]) -> int:
    """Number of leading rows that are alike."""
    return int(alike.long().cumprod(0).sum())


def all_rows(model: LanguageModel, rows: Int[Tensor, "batch row"]) -> RowsReading:
    """Reading of what every node writes at these tokens."""
    return RowsReading(node_sites(model.info), rows, only_target=False)


@dataclass(frozen=True, eq=False, repr=False)
class ReplaceNodes(Intervention):
    """What some heads and MLPs write is replaced at all tokens.

    Attributes:
        replaced: True for these writers (embedding, then heads and MLP of every layer).
        stored: What they write instead.
    """

    replaced: Bool[Tensor, " writer"]
    stored: Stored

    def shares(self, prompts: PromptBatch, length: int) -> bool:
        """True if the values at the common beginning are the same for all prompts."""
        return length <= self.stored.common

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """Hooks at the outputs of heads and of MLPs."""
        info = segment.model.info
        hooks: list[Hook] = []
        for layer, nodes in enumerate(self.replaced[1:].reshape(info.n_layers, -1)):
            heads = nodes[:-1].nonzero().flatten()
            if len(heads):
                site = Site("z", layer)
                hooks.append((site, self._hook(site, segment, heads)))
            if bool(nodes[-1]):
                site = Site("mlp_out", layer)
                hooks.append((site, self._hook(site, segment, None)))
        return hooks

    def _hook(self, site: Site, segment: Segment, heads: Tensor | None) -> HookFunction:
        def hook(activation: Tensor) -> Tensor:
            laid = self.stored.at(site, activation, segment)
            if heads is None:
                return laid
            edited = activation.clone()
            chosen = to_device(heads, activation.device)
            edited[:, :, chosen] = laid[:, :, chosen]
            return edited

        return hook


@dataclass(frozen=True, eq=False, repr=False)
class ReplaceEdges(Intervention):
    """What nodes pass along some edges is replaced: each input of a head, MLP or the logits is a mixture.

    `x_v = h + sum over replaced edges u -> v of (z'_u - z_u)`, with the residual h and what u writes in this run, z_u, or
    instead, z'_u. Queries, keys and values are computed from the inputs of each head; the input of an MLP is changed for it
    alone.

    Attributes:
        replaced: True for these edges.
        stored: What nodes write instead.
        parallel: The MLP of a block does not see the output of its attention.
    """

    replaced: Bool[Tensor, "writer reader"]
    stored: Stored
    parallel: bool = False

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """Hooks at every input and output of a node."""
        return _Mixing(self, segment).hooks()


class _Mixing:
    """The changes of one pass; `written` holds what each node writes instead, minus what it writes."""

    def __init__(self, edit: ReplaceEdges, segment: Segment) -> None:
        self.edit, self.segment, self.model = edit, segment, segment.model
        self.info: ModelInfo = segment.model.info
        self.readers = sum(counts(self.info)) + 1
        self.written = self.entering = self.added = torch.zeros(())
        self.count = 0

    def hooks(self) -> list[Hook]:
        """Hooks in the order of the pass."""
        hooks: list[Hook] = []
        for layer in range(self.info.n_layers):
            first = layer * self.readers
            hooks.append((Site("resid_pre", layer), self._enter(layer)))
            for name, count in zip(INPUTS, counts(self.info), strict=True):
                hooks.append((Site(name, layer), self._input(Site(name, layer), first, count)))
                first += count
            hooks.append((Site("z", layer), self._heads(layer)))
            if not self.edit.parallel:
                hooks.append((Site("attn_out", layer), self._before_mlp(first)))
            hooks.append((Site("mlp_out", layer), self._mlp(layer)))
        last = Site("resid_post", self.info.n_layers - 1)
        return [*hooks, (last, self._logits)]

    def _mixture(self, readers: slice) -> Float[Tensor, "batch dest reader d_model"] | None:
        """What is added to the inputs of some readers; None if nothing is."""
        edges = self.edit.replaced[:, readers]
        if not bool(edges.any()):
            return None
        written = self.written[:, :, : self.count]
        weights = to_device(edges[: self.count], written.device).to(written)
        return torch.einsum("btwd,wr->btrd", written, weights)

    def _change(self, site: Site, activation: Tensor) -> Tensor:
        return self.edit.stored.at(site, activation, self.segment) - activation

    def _write(self, changes: Float[Tensor, "batch dest node d_model"]) -> None:
        last = self.count + changes.shape[2]
        self.written[:, :, self.count : last] = changes
        self.count = last

    def _enter(self, layer: int) -> HookFunction:
        def hook(activation: Tensor) -> Tensor | None:
            if layer == 0:
                batch, dest, width = activation.shape
                nodes = len(self.edit.replaced)
                self.written, self.count = activation.new_zeros(batch, dest, nodes, width), 0
                self._write(self._change(EMBED, activation)[:, :, None])
            self.entering = activation
            if not self.edit.parallel:
                return None
            # Queries, keys and values are computed from `entering`, so that the MLP alone sees the mixture.
            return self._add(activation, (layer + 1) * self.readers - 1)

        return hook

    def _add(self, activation: Tensor, reader: int) -> Tensor | None:
        mixture = self._mixture(slice(reader, reader + 1))
        self.added = torch.zeros(()) if mixture is None else mixture[:, :, 0]
        return None if mixture is None else activation + self.added

    def _input(self, site: Site, first: int, count: int) -> HookFunction:
        def hook(activation: Tensor) -> Tensor | None:
            mixture = self._mixture(slice(first, first + count))
            if mixture is None and not self.added.ndim:
                return None
            mixed = (
                self.entering[:, :, None]
                if mixture is None
                else self.entering[:, :, None] + mixture
            )
            made = self.model.projected(site, mixed)
            if made is None:
                raise RunError(f"{self.info.name!r} has no separate projection at {site.name!r}.")
            made = made.expand(*made.shape[:2], count, *made.shape[3:])
            # Each head takes its part of what its input gives.
            return made.diagonal(dim1=2, dim2=3).transpose(2, 3).to(activation).contiguous()

        return hook

    def _heads(self, layer: int) -> HookFunction:
        def hook(activation: Tensor) -> None:
            weight, _ = self.model.head_weights(layer)
            change = self._change(Site("z", layer), activation)
            self._write(torch.einsum("bthk,hkd->bthd", change, weight.to(change)))

        return hook

    def _before_mlp(self, reader: int) -> HookFunction:
        return lambda activation: self._add(activation, reader)

    def _mlp(self, layer: int) -> HookFunction:
        def hook(activation: Tensor) -> Tensor | None:
            self._write(self._change(Site("mlp_out", layer), activation)[:, :, None])
            changed = activation - self.added if self.added.ndim else None
            self.added = torch.zeros(())
            return changed

        return hook

    def _logits(self, activation: Tensor) -> Tensor | None:
        mixture = self._mixture(slice(-1, None))
        return None if mixture is None else activation + mixture[:, :, 0]


def check_separate(model: LanguageModel, prompts: PromptBatch) -> None:
    """Reject models whose queries, keys and values are not the norm and a projection of the residual.

    Raises:
        RunError: names the site where they differ.
    """
    held: dict[Site, Tensor] = {}
    sites = [
        Site(name, layer) for layer in range(model.info.n_layers) for name in ("resid_pre", *INPUTS)
    ]
    segment = Segment.build(model, prompts[:1], [0])

    def keep(site: Site) -> Hook:
        def hook(activation: Tensor) -> None:
            held[site] = activation.detach().clone()

        return site, hook

    with torch.no_grad():
        model.forward(
            segment.tokens, segment.mask, segment.positions, hooks=[keep(site) for site in sites]
        )
        for site in sites:
            if site.name == "resid_pre":
                continue
            made = model.projected(site, held[Site("resid_pre", site.layer)])
            if made is None or not torch.allclose(
                made, held[site], rtol=SAME, atol=SAME * float(held[site].abs().max())
            ):
                raise RunError(
                    f"{site.name!r} of block {site.layer} of {model.info.name!r} is not a projection of the normalised "
                    "residual stream, so single edges cannot be ablated. Use granularity='heads' or 'nodes'."
                )


ROOM = 2**30
"""Bytes that the changes of all nodes may take in one pass."""


@dataclass(frozen=True, eq=False)
class FewRows(Batched, Whole):
    """Whole prompts, as many at a time as there is room for what every node writes at every token."""

    @property
    def rows(self) -> int:
        """Largest number of rows of a pass."""
        info, longest = self.model.info, int(self.prompts.lengths.max())
        nodes = 1 + info.n_layers * (info.n_heads + 1)
        return max(1, ROOM // (4 * nodes * info.d_model * longest))

    def within(self, tokens: int, size: int | None, *, share: bool) -> "FewRows":
        """This layout with batches of at most this size."""
        return replace(self, tokens=tokens, size=min(size or self.rows, self.rows), share=share)

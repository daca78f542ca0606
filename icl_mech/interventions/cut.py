"""`Cut`: attention knockout from some tokens to others; `NamedCut` for interventions that are special cases of it.

An *edge* leads from a column (`src`) into a later row (`dst`). In the chosen layers and heads `mask` sets the
scores of edges to -inf before the softmax, and a row with no key left has an output of zero; `zero` sets the
pattern to 0 after the softmax, without renormalising.

Source: the edges of *Label Words are Anchors* (Wang et al. 2023, §2.2), *Thought Anchors* (Bogdan et al. 2025,
§6) and *Contextualize-then-aggregate* (arXiv 2504.00132).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch

from icl_mech._typing import Bool, Tensor
from icl_mech.checking import Heads, Natural, conformed
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions.base import Intervention, check_layers, editable
from icl_mech.interventions.edges import (
    Block,
    Relation,
    has_edge,
    joined,
    lacking,
    random_edges,
    related,
)
from icl_mech.interventions.token_sets import LAST, Name, TokenSet, members, up_to
from icl_mech.models import Hook, HookFunction, ModelInfo, Site, to_device
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment

Mode = Literal["mask", "zero"]

Tokens = Name | TokenSet | Sequence[Name] | Mapping[str, Any]
"""A set of tokens, by name or as written in a file: `{"at": "anchors", "units": [0]}`."""


class NamedCut(ABC):
    """An intervention that is a special case of `Cut` under another name."""

    @property
    @abstractmethod
    def cut(self) -> "Cut":
        """The equivalent `Cut`."""

    def check(self, info: ModelInfo) -> None:
        """Reject layers and heads the model does not have.

        Raises:
            RunError: names them.
        """
        what, cut = type(self).__name__, self.cut
        check_layers([*(cut.layers or ()), *(layer for layer, _ in cut.heads or ())], info, what)
        wrong = [head for _, head in cut.heads or () if not 0 <= head < info.n_heads]
        if wrong:
            raise RunError(f"{what} names head {wrong[0]}; heads are 0 to {info.n_heads - 1}.")

    def check_prompts(self, prompts: PromptBatch) -> None:
        """Reject prompts that lack the tokens it names.

        Raises:
            IclMechError: says what was found and what was expected.
        """
        cut = self.cut
        for tokens in (cut.sources, cut.destinations):
            tokens.check(prompts)
        for index, prompt in enumerate(prompts):
            cut.blocks(prompt, index, cut.first_layer)

    def has_control(self, prompts: PromptBatch) -> bool:
        """True if every row of every prompt has at least as many uncut earlier tokens as cut ones, for a control."""
        plain = replace(self.cut, control=False)
        return not any(
            lacking(plain.blocks(prompt, index, plain.first_layer), prompt, plain.itself)
            for index, prompt in enumerate(prompts)
        )

    def edges(self, prompts: PromptBatch) -> list[list[Block]]:
        """Edges it cuts in each prompt, up to its target, in the lowest block."""
        edges: list[list[Block]] = []
        for index, prompt in enumerate(prompts):
            end = prompt.target + 1
            blocks = self.cut.blocks(prompt, index, self.first_layer)
            clipped = [(tuple(up_to(a, end)), tuple(up_to(b, end))) for a, b in blocks]
            edges.append([(rows, columns) for rows, columns in clipped if rows and columns])
        return edges

    @property
    def first_layer(self) -> int:
        """The lowest block in which edges are cut."""
        cut = self.cut
        layers = [layer for layer, _ in cut.heads] if cut.heads is not None else cut.layers
        return min(layers) if layers is not None else 0

    @property
    def target_only(self) -> bool:
        """True if only edges into the target are cut."""
        rows = self.cut.destinations
        return rows.positions is None and rows.names == ("target",)

    @property
    def by_number(self) -> bool:
        """True if positions are given for each prompt."""
        cut = self.cut
        return cut.sources.positions is not None or cut.destinations.positions is not None

    def shares(self, prompts: PromptBatch, length: int) -> bool:
        """True if the same edges of the common prefix are cut in every prompt."""
        cut = self.cut
        if cut.by_layer and cut.heads is None and cut.layers is None:
            return False  # the number of layers is not known here
        layers = cut.cut_layers(0) if cut.by_layer else [cut.first_layer]

        def inside(prompt: Prompt, index: int, layer: int) -> list[Block]:
            blocks = cut.blocks(prompt, index, layer)
            clipped = [(up_to(rows, length), up_to(columns, length)) for rows, columns in blocks]
            return [(rows, columns) for rows, columns in clipped if rows and columns]

        return all(
            inside(prompt, index, layer) == inside(prompts[0], 0, layer)
            for index, prompt in enumerate(prompts)
            for layer in layers
        )

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """One or two hooks per layer with edges into rows of this segment."""
        cut, hooks = self.cut, list[Hook]()
        made: dict[int, _Edges | None] = {}
        for layer in cut.cut_layers(segment.model.info.n_layers):
            key = layer if cut.by_layer else 0
            if key not in made:
                made[key] = _Edges.of(cut, segment, layer)
            edges = made[key]
            if edges is None:
                continue
            heads = None
            if cut.heads is not None:
                chosen = [head for head_layer, head in cut.heads if head_layer == layer]
                heads = to_device(torch.tensor(chosen), segment.tokens.device)
            if cut.mode == "mask":
                hooks.append((Site("scores", layer), edges.before(heads, segment, cut.itself)))
            if cut.mode == "zero" or cut.itself:
                hooks.append((Site("pattern", layer), edges.after(heads)))
        return hooks


@dataclass(frozen=True, eq=False, repr=False)
class Cut(NamedCut, Intervention):
    """Knock out attention edges from any tokens to any later ones.

    Attributes:
        src: The columns: a name, several, or a `TokenSet`. See `icl_mech.interventions.token_sets.Name`.
        dst: The rows, likewise.
        relation: `any` source before the row, or only sources in its `own` demonstration or span, or in
            `others` (earlier ones; anchors belong to their unit).
        layers: Blocks in which edges are cut; None: all.
        heads: (layer, head) pairs instead; None: all heads of the layers.
        mode: `mask` (before softmax) or `zero` (after).
        itself: Also cut a token's edge to itself, where it is in both sets; else every row keeps that edge.
        control: Cut random edges instead, up to the target: as many into each row, none of them an edge of the
            cut, each from a token within 8 positions of one that was cut, or within 16, 32, ... where none is
            free. The first token is drawn only if the cut has it. See `has_control`.
        seed: Seed of the draws, including `random` tokens given by name.
    """

    src: Tokens = "before"
    dst: Tokens = "target"
    relation: Relation = "any"
    layers: Sequence[Natural] | None = None
    heads: Heads | None = None
    mode: Mode = "mask"
    itself: bool = False
    control: bool = False
    seed: Natural = 0

    def __post_init__(self) -> None:
        """Check the choices.

        Raises:
            RunError: unknown choice, no layers, or sets that do not go together.
        """
        for name in ("src", "dst"):
            given = getattr(self, name)
            if isinstance(given, Mapping):
                try:
                    object.__setattr__(self, name, TokenSet(**given))
                except TypeError as error:
                    raise RunError(
                        f"{name}={given} is not a valid set of tokens: {error}."
                    ) from None
        if self.heads is not None:
            object.__setattr__(self, "heads", conformed("heads", self.heads, Heads))
        super().__post_init__()
        given, unused = (self.heads, self.layers) if self.heads is not None else (self.layers, None)
        if unused is not None or (given is not None and len(set(given)) != max(1, len(given))):
            raise RunError(
                "Cut needs either layers=[...] or heads=[(layer, head), ...], at least one and "
                f"without duplicates; got layers={self.layers} and heads={self.heads}."
            )
        if "after" in self.sources.names or "before" in self.destinations.names:
            raise RunError(
                "src='before' means the tokens before each row, and dst='after' the rows after "
                "each group of the source. src='after' or dst='before' would cut nothing."
            )
        if self.behind and self.relation != "any":
            raise RunError(
                f"dst='after' requires relation='any', not {self.relation!r}; for rows in other "
                "units use dst='units' or dst='all'."
            )

    @property
    def cut(self) -> "Cut":
        """Itself."""
        return self

    @cached_property
    def sources(self) -> TokenSet:
        """`src` as a set of tokens."""
        return self._set(self.src)

    @cached_property
    def destinations(self) -> TokenSet:
        """`dst` as a set of tokens."""
        return self._set(self.dst)

    def _set(self, given: Any) -> TokenSet:
        return given if isinstance(given, TokenSet) else TokenSet(given, seed=self.seed)

    @property
    def behind(self) -> bool:
        """True if the rows are those that follow each group of the source."""
        return "after" in self.destinations.names and self.destinations.positions is None

    @property
    def by_layer(self) -> bool:
        """True if different edges are cut in each layer."""
        return self.sources.by_layer or self.destinations.by_layer

    def cut_layers(self, n_layers: int) -> list[int]:
        """Blocks in which edges are cut."""
        if self.heads is not None:
            return sorted({layer for layer, _ in self.heads})
        return sorted(set(range(n_layers) if self.layers is None else self.layers))

    def check_prompts(self, prompts: PromptBatch) -> None:
        """Reject prompts in which there is nothing to cut.

        Raises:
            PromptError: a prompt without such tokens, or without an edge between them.
            RunError: positions that do not match the prompts.
        """
        super().check_prompts(prompts)
        for index, prompt in enumerate(prompts):
            blocks = self.blocks(prompt, index, self.first_layer)
            if not any(has_edge(block, self.itself) for block in blocks):
                raise PromptError(
                    f"Cut finds no edge in prompt {index}: {self._lacks(prompt, index)}"
                )

    def _lacks(self, prompt: Prompt, index: int) -> str:
        """The reason why a prompt has no edge, for an error message."""
        sets = (
            {"src": self.sources}
            if self.behind
            else {"src": self.sources, "dst": self.destinations}
        )
        positions: dict[str, list[int]] = {}
        for name, tokens in sets.items():
            groups = tokens.groups(prompt, index, self.first_layer)
            positions[name] = sorted(p for group in groups for p in up_to(group, len(prompt)))
            if not positions[name]:
                return (
                    f"it has no tokens {tokens} for {name}. Name tokens that every prompt has; "
                    "prompts built from bare positions have only anchors, units, query and "
                    "target."
                )
        if self.behind or positions["src"][0] >= positions["dst"][-1]:
            last = len(prompt) - 1 if self.behind else positions["dst"][-1]
            return (
                f"src begins at position {positions['src'][0]} and dst ends at {last}, but a token "
                "attends only to earlier ones. Swap src and dst, or name other tokens."
            )
        return (
            f"none of its {len(members(prompt))} units has an edge with "
            f"relation={self.relation!r}. 'own' needs src before dst within one unit, 'others' at "
            "least two units."
        )

    def blocks(self, prompt: Prompt, index: int, layer: int) -> list[Block]:
        """Edges that are cut in one prompt (number `index` of the run), in one layer."""
        columns = self.sources.groups(prompt, index, layer)
        if self.behind:
            blocks: list[Block] = [
                (range(group[-1] + 1, LAST), group) for group in columns if group
            ]
        else:
            rows = self.destinations.groups(prompt, index, layer)
            blocks = related(joined(rows), joined(columns), self.relation, prompt)
        if not self.control:
            return blocks
        try:
            return random_edges(blocks, prompt, self.itself, self.seed)
        except PromptError as error:
            raise PromptError(
                f"Prompt {index}: {error} Cut fewer edges per row, or compare with another cut; "
                "has_control() says whether a control exists."
            ) from None


@dataclass(frozen=True)
class _Edges:
    """Rows of a segment that lose edges, and the columns each loses.

    Attributes:
        batch: Prompt of each row.
        rows: Index of each row along `dest`.
        columns: True at the columns each row loses.
    """

    batch: Tensor
    rows: Tensor
    columns: Bool[Tensor, "n src"]

    @classmethod
    def of(cls, cut: Cut, segment: Segment, layer: int) -> "_Edges | None":
        """The edges into rows of this segment; None if there are none."""
        masked = torch.zeros(*segment.dest.shape, segment.src.shape[1], dtype=torch.bool)
        own_dest, own_src = segment.on_host
        for row, (prompt, index) in enumerate(zip(segment.prompts, segment.indices, strict=True)):
            blocks = cut.blocks(prompt, index, layer)
            dest, src = own_dest[row], own_src[row]
            # Padding has position -1 and so reads the extra last entry, which is never set.
            length = int(src.max()) + 1
            ends = torch.zeros(2, len(blocks), length + 1)
            for number, block in enumerate(blocks):
                for side, positions in enumerate(block):
                    ends[side, number, list(up_to(positions, length))] = 1.0
            edges = ends[0][:, dest].T @ ends[1][:, src] > 0
            masked[row] = edges & (src[None] < dest[:, None] + cut.itself)
        batch, rows = masked.any(-1).nonzero(as_tuple=True)
        if not len(batch):
            return None
        parts = (batch, rows, masked[batch, rows])
        return cls(*(to_device(part, segment.tokens.device) for part in parts))

    def before(self, heads: Tensor | None, segment: Segment, keyless: bool) -> HookFunction:
        """Hook that sets scores to -inf, except in rows with no key left, whose softmax would be NaN."""
        if not keyless:
            return self._filled(heads, -torch.inf)
        dest, src = segment.dest[self.batch, self.rows], segment.src[self.batch]
        # Keys left are counted up to the row itself: some models add their causal mask to the scores later.
        left = ((src >= 0) & (src <= dest[:, None]) & ~self.columns)[:, None]

        def masked(scores: Tensor) -> Tensor:
            lowest = torch.finfo(scores.dtype).min / 2
            some = ((scores > lowest) & left).any(-1, keepdim=True)
            return scores.masked_fill(self.columns[:, None] & some, -torch.inf)

        return self._edited(heads, masked)

    def after(self, heads: Tensor | None) -> HookFunction:
        """Hook that sets the pattern to 0."""
        return self._filled(heads, 0.0)

    def _filled(self, heads: Tensor | None, value: float) -> HookFunction:
        columns = self.columns[:, None]
        return self._edited(heads, lambda rows: rows.masked_fill(columns, value))

    def _edited(self, heads: Tensor | None, change: Callable[[Tensor], Tensor]) -> HookFunction:
        batch, rows = self.batch, self.rows
        place: Any = (batch, slice(None), rows)
        if heads is not None:
            place = (batch[:, None], heads[None], rows[:, None])

        def hook(activation: Tensor) -> Tensor:
            edited = editable(activation)
            edited[place] = change(activation[place])
            return edited

        return hook

"""Residuals of one run put into another at tokens that stand for each other, and which these are.

What `icl_mech.measurements.causal.transplant` changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import PromptError
from icl_mech.interventions import Intervention, Place
from icl_mech.interventions.places import NOWHERE, Where
from icl_mech.models import Hook, Site, to_device
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.segments import Segment

Role = Literal["anchors", "target", "query", "template"]

Matched = tuple[tuple[int, int], ...]
"""Positions in the run, each with the position of the source that stands for it."""

ROLES: dict[Role, Where] = {"query": "query_text", "template": "format"}
"""Roles of tokens that align one by one."""


def matched(run: Prompt, source: Prompt, at: Role) -> tuple[Matched, int]:
    """The tokens at a place with those that stand for them, and how many label words differ in length."""
    if at == "target":
        return ((run.target, source.target),), 0
    if at == "anchors":
        pairs = list(zip(words(run), words(source), strict=True))
        unlike = sum(_count(own) != _count(other) for own, other in pairs)
        return tuple(pair for own, other in pairs for pair in of_word(own, other)), unlike
    place = Place(ROLES[at])
    return tuple(zip(place.positions(run), place.positions(source), strict=True)), 0


def words(prompt: Prompt) -> tuple[Span, ...]:
    """The label words (displayed answers) before the target: what its anchors begin."""
    return tuple(span for span in prompt.label_spans if span.start < prompt.target)


def of_word(own: Span, other: Span) -> Matched:
    """The tokens of two label words: one by one, or by the first and, from the end, the others."""
    count, given = _count(own), _count(other)
    if count == given:
        places = list(range(count))
    else:
        places = [max(0, given - count + i) if i or count == 1 else 0 for i in range(count)]
    return tuple((own.start + i, other.start + place) for i, place in enumerate(places))


def check_places(true: PromptBatch, false: PromptBatch, at: Sequence[Role]) -> None:
    """Refuse pairs whose tokens do not stand for each other at these places.

    Raises:
        PromptError: names the pair, and why.
    """
    for number, (own, other) in enumerate(zip(true, false, strict=True)):
        counts = len(words(own)), len(words(other))
        if counts[0] != counts[1]:
            raise PromptError(
                f"Pair {number} has {counts[0]} and {counts[1]} demonstrations; label words stand for "
                "each other one by one. Build both sets with build_prompt_pairs."
            )
        if "anchors" in at and not counts[0]:
            raise PromptError(
                f"Pair {number} has no demonstration, so at='anchors' names no token; build the prompts "
                "with shots >= 1."
            )
    for role in at:
        if role in ROLES:
            place = Place(ROLES[role])
            _ = place.rows(true), place.rows(false)  # refuses prompts without such tokens
            place.check_aligned(true, false, every=False)


def drawn(true: Prompt, false: Prompt, at: Role, draws: int, seed: int) -> tuple[Matched, ...]:
    """For each draw random tokens of the same units, as many as stand at a place, or as there are.

    Drawn are tokens of the same demonstration (or of the query) that stand neither there nor in a label
    word nor at the target; those of true and false prompts stand as far before their label word. In equal
    demonstrations the draws are equal, so that prompts which share theirs are treated alike there.
    """
    units = [_units(prompt) for prompt in (true, false)]
    inside = [{own for own, _ in matched(*pair, at)[0]} for pair in ((true, false), (false, true))]
    wanted = [0] * len(units[0])
    for position in inside[0]:
        wanted[sum(span.stop <= position for span in words(true))] += 1
    free = []
    for own, other in zip(*units, strict=True):
        reach = min(own[1] - own[0], other[1] - other[0])
        pairs = ((own[1] - d, other[1] - d) for d in range(1, reach + 1))
        free.append([(t, f) for t, f in pairs if t not in inside[0] and f not in inside[1]])
    found = []
    for draw in range(draws):
        chosen: list[tuple[int, int]] = []
        for unit, (tokens, count) in enumerate(zip(free, wanted, strict=True)):
            generator = torch.Generator().manual_seed(seed + 7919 * draw + 104729 * unit)
            order = torch.randperm(len(tokens), generator=generator)[:count]
            chosen += [tokens[place] for place in sorted(order.tolist())]
        found.append(tuple(chosen))
    return tuple(found)


def _units(prompt: Prompt) -> list[tuple[int, int]]:
    """Tokens of each demonstration before its label word, and those of the query before the target."""
    end = max((span.stop for span in words(prompt)), default=1)
    return [*prompt.units, (end, prompt.target)]


def _count(span: Span) -> int:
    return span.stop - span.start


def table(matches: Sequence[Matched], place: int) -> Int[Tensor, "batch row"]:
    """Positions in the runs (0) or in their sources (1), -1 where a prompt has fewer."""
    found = torch.full((len(matches), max(map(len, matches))), NOWHERE)
    for row, own in enumerate(matches):
        found[row, : len(own)] = torch.tensor([pair[place] for pair in own], dtype=torch.long)
    return found


def read_rows(sets: Sequence[Sequence[Matched]]) -> Int[Tensor, "batch row"]:
    """Positions of the sources that any of these sets takes from, each once; -1 where a prompt has fewer."""
    own = [
        tuple((place, place) for place in sorted({source for _, source in sum(of_prompt, ())}))
        for of_prompt in zip(*sets, strict=True)
    ]
    return table(own, 1)


@dataclass(frozen=True, eq=False, repr=False)
class Graft(Intervention):
    """Residuals entering a block replaced, at some tokens of every prompt, by given ones.

    Attributes:
        layer: The block.
        rows: Positions, -1 where a prompt has fewer.
        slots: Where the value of each stands in `values`.
        values: Given residuals of every prompt.
    """

    layer: int
    rows: Int[Tensor, "batch row"]
    slots: Int[Tensor, "batch row"]
    values: Float[Tensor, "batch slot d_model"]

    @classmethod
    def of(
        cls, layer: int, matches: Sequence[Matched], read: Int[Tensor, "batch slot"], values: Tensor
    ) -> "Graft":
        """From matched tokens and the values of `read_rows`."""
        slots = []
        for own, known in zip(matches, read.tolist(), strict=True):
            slots.append(tuple((position, known.index(source)) for position, source in own))
        return cls(layer, table(matches, 0), table(slots, 1), values)

    @cached_property
    def _rows(self) -> list[list[int]]:
        return self.rows.tolist()

    @cached_property
    def _slots(self) -> list[list[int]]:
        return self.slots.tolist()

    @property
    def first_layer(self) -> int:
        """Its block."""
        return self.layer

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """One, at the entrance of the block."""
        numbers = list(segment.indices)
        found = [
            (row, column, number, slot)
            for row, number in enumerate(numbers)
            for position, slot in zip(self._rows[number], self._slots[number], strict=True)
            if position != NOWHERE and (column := segment.column(row, position)) is not None
        ]
        if not found:
            return []
        batch, dest, prompt, slot = torch.tensor(found).T
        device = segment.tokens.device
        laid, batch, dest = (
            to_device(own, device) for own in (self.values[prompt, slot], batch, dest)
        )

        def hook(activation: Tensor) -> Tensor:
            # The residual stream may be kept, for other runs to go on from.
            edited = activation.clone()
            edited[batch, dest] = laid.to(activation)
            return edited

        return [(Site("resid_pre", self.layer), hook)]

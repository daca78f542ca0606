"""Grafts: residuals of one run put into another at matching tokens, and the matching of these tokens.

`icl_mech.measurements.causal.transplant` builds on them.
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
"""Positions in the run, each with the matching position of the source."""

ROLES: dict[Role, Where] = {"query": "query_text", "template": "format"}
"""Roles of tokens that align one by one."""


def matched(run: Prompt, source: Prompt, at: Role) -> tuple[Matched, int]:
    """Matched (run, source) tokens at a place, and the number of label words that differ in length."""
    if at == "target":
        return ((run.target, source.target),), 0
    if at == "anchors":
        pairs = list(zip(words(run), words(source), strict=True))
        unlike = sum(_count(run_word) != _count(source_word) for run_word, source_word in pairs)
        return tuple(
            pair for run_word, source_word in pairs for pair in of_word(run_word, source_word)
        ), unlike
    place = Place(ROLES[at])
    return tuple(zip(place.positions(run), place.positions(source), strict=True)), 0


def words(prompt: Prompt) -> tuple[Span, ...]:
    """The label words (displayed answers) before the target; their first tokens are the anchors."""
    return tuple(span for span in prompt.label_spans if span.start < prompt.target)


def of_word(own: Span, other: Span) -> Matched:
    """Matched tokens of two label words: one by one, or the first and then, aligned from the end, the others."""
    count, given = _count(own), _count(other)
    if count == given:
        places = list(range(count))
    else:
        places = [max(0, given - count + i) if i or count == 1 else 0 for i in range(count)]
    return tuple((own.start + i, other.start + place) for i, place in enumerate(places))


def check_places(true: PromptBatch, false: PromptBatch, at: Sequence[Role]) -> None:
    """Reject pairs whose tokens do not match at these places.

    Raises:
        PromptError: names the pair, and why.
    """
    for number, (true_prompt, false_prompt) in enumerate(zip(true, false, strict=True)):
        counts = len(words(true_prompt)), len(words(false_prompt))
        if counts[0] != counts[1]:
            raise PromptError(
                f"Pair {number} has {counts[0]} and {counts[1]} demonstrations, but label words "
                "must correspond one to one. Build both sets with build_prompt_pairs."
            )
        if "anchors" in at and not counts[0]:
            raise PromptError(
                f"Pair {number} has no demonstration, so at='anchors' selects no token. Build the "
                "prompts with shots >= 1."
            )
    for role in at:
        if role in ROLES:
            place = Place(ROLES[role])
            _ = place.rows(true), place.rows(false)  # rejects prompts without such tokens
            place.check_aligned(true, false, every=False)


def drawn(true: Prompt, false: Prompt, at: Role, draws: int, seed: int) -> tuple[Matched, ...]:
    """Random tokens of the same units for each draw, as many as the place has, or as there are.

    The draws take tokens of the same demonstration (or of the query) that belong neither to the place nor to a
    label word nor to the target; in true and false prompts they lie equally far before their label word. Equal
    demonstrations give equal draws, so that prompts which share them are treated alike there.
    """
    units = [_units(prompt) for prompt in (true, false)]
    inside = [
        {position for position, _ in matched(*pair, at)[0]}
        for pair in ((true, false), (false, true))
    ]
    wanted = [0] * len(units[0])
    for position in inside[0]:
        wanted[sum(span.stop <= position for span in words(true))] += 1
    free = []
    for true_unit, false_unit in zip(*units, strict=True):
        reach = min(true_unit[1] - true_unit[0], false_unit[1] - false_unit[0])
        pairs = ((true_unit[1] - d, false_unit[1] - d) for d in range(1, reach + 1))
        free.append([(t, f) for t, f in pairs if t not in inside[0] and f not in inside[1]])
    by_draw = []
    for draw in range(draws):
        chosen: list[tuple[int, int]] = []
        for unit, (tokens, count) in enumerate(zip(free, wanted, strict=True)):
            generator = torch.Generator().manual_seed(seed + 7919 * draw + 104729 * unit)
            order = torch.randperm(len(tokens), generator=generator)[:count]
            chosen += [tokens[place] for place in sorted(order.tolist())]
        by_draw.append(tuple(chosen))
    return tuple(by_draw)


def _units(prompt: Prompt) -> list[tuple[int, int]]:
    """Token ranges of each demonstration before its label word, and of the query before the target."""
    end = max((span.stop for span in words(prompt)), default=1)
    return [*prompt.units, (end, prompt.target)]


def _count(span: Span) -> int:
    return span.stop - span.start


def table(matches: Sequence[Matched], place: int) -> Int[Tensor, "batch row"]:
    """Positions in the runs (place 0) or in their sources (place 1), -1 where a prompt has fewer."""
    positions = torch.full((len(matches), max(map(len, matches))), NOWHERE)
    for row, pairs in enumerate(matches):
        positions[row, : len(pairs)] = torch.tensor(
            [pair[place] for pair in pairs], dtype=torch.long
        )
    return positions


def read_rows(sets: Sequence[Sequence[Matched]]) -> Int[Tensor, "batch row"]:
    """Positions of the sources that any of these sets takes from, each once; -1 where a prompt has fewer."""
    pairs = [
        tuple((place, place) for place in sorted({source for _, source in sum(of_prompt, ())}))
        for of_prompt in zip(*sets, strict=True)
    ]
    return table(pairs, 1)


@dataclass(frozen=True, eq=False, repr=False)
class Graft(Intervention):
    """Residuals entering a block replaced by given values at some tokens of every prompt.

    Attributes:
        layer: The block.
        rows: Positions, -1 where a prompt has fewer.
        slots: Index into `values` for each position.
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
        """Build a graft from matched tokens and the values of `read_rows`."""
        slots = []
        for pairs, known in zip(matches, read.tolist(), strict=True):
            slots.append(tuple((position, known.index(source)) for position, source in pairs))
        return cls(layer, table(matches, 0), table(slots, 1), values)

    @cached_property
    def _rows(self) -> list[list[int]]:
        return self.rows.tolist()

    @cached_property
    def _slots(self) -> list[list[int]]:
        return self.slots.tolist()

    @property
    def first_layer(self) -> int:
        """The block whose input is changed."""
        return self.layer

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """One hook, at the entrance of the block."""
        numbers = list(segment.indices)
        entries = [
            (row, column, number, slot)
            for row, number in enumerate(numbers)
            for position, slot in zip(self._rows[number], self._slots[number], strict=True)
            if position != NOWHERE and (column := segment.column(row, position)) is not None
        ]
        if not entries:
            return []
        batch, dest, prompt, slot = torch.tensor(entries).T
        device = segment.tokens.device
        laid, batch, dest = (
            to_device(tensor, device) for tensor in (self.values[prompt, slot], batch, dest)
        )

        def hook(activation: Tensor) -> Tensor:
            # The residual stream may be kept, for other runs to go on from.
            edited = activation.clone()
            edited[batch, dest] = laid.to(activation)
            return edited

        return [(Site("resid_pre", self.layer), hook)]

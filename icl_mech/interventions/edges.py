"""Edges of attention within a prompt, as blocks of rows and columns."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from icl_mech._typing import Bool
from icl_mech.errors import PromptError
from icl_mech.interventions.token_sets import Group, draw_of, members, up_to
from icl_mech.prompts import Prompt

Relation = Literal["any", "own", "others"]

Block = tuple[Group, Group]
"""Rows and columns; all edges between them are cut."""


def joined(groups: Sequence[Group]) -> Group:
    """All positions of the groups."""
    if len(groups) == 1:
        return groups[0]
    return tuple(sorted({position for group in groups for position in group}))


def related(rows: Group, columns: Group, relation: Relation, prompt: Prompt) -> list[Block]:
    """Edges between units with this relation: one block, or one for each unit with rows."""
    if relation == "any":
        return [(rows, columns)]
    units, rows, columns = (
        members(prompt),
        *(up_to(group, len(prompt)) for group in (rows, columns)),
    )
    blocks: list[Block] = []
    for number, unit in enumerate(units):
        theirs = [unit] if relation == "own" else units[:number]
        sources = tuple(p for p in columns if any(p in source_unit for source_unit in theirs))
        blocks.append((tuple(p for p in rows if p in unit), sources))
    return blocks


def has_edge(block: Block, itself: bool) -> bool:
    """True if a column precedes a row (or, with `itself`, is one)."""
    rows, columns = block
    return bool(rows and columns) and columns[0] < rows[-1] + itself


NEAR = 8
"""Distance from a cut column within which its replacement is drawn first."""


class Lack(NamedTuple):
    """A row with too few uncut columns for a control.

    Attributes:
        row: Position of the row.
        needed: Number of edges into it that are cut.
        free: Number of earlier columns left to draw from.
    """

    row: int
    needed: int
    free: int


def lacking(blocks: Sequence[Block], prompt: Prompt, itself: bool) -> Lack | None:
    """The first row, up to the target, with fewer free columns than cut edges; None if there is none."""
    edges = _matrix(blocks, prompt.target + 1, itself)
    needed, free = edges.sum(1), _free(edges).sum(1)
    rows = np.flatnonzero(needed > free)
    return (
        Lack(*(int(counts[rows[0]]) for counts in (np.arange(len(edges)), needed, free)))
        if len(rows)
        else None
    )


def random_edges(blocks: Sequence[Block], prompt: Prompt, itself: bool, seed: int) -> list[Block]:
    """Random control edges: as many other edges into every row, of similar lengths, one block for each row.

    Each cut column of a row, in random order, is replaced by another earlier column of that row, drawn uniformly from
    those that are neither cut nor already drawn within 8 positions of it, or within 16, 32, ..., whichever has any.
    Tokens of demonstrations (or other units) are replaced by other tokens of units where there are enough, because any
    model needs the query. The first token is drawn only where the cut has it in some row. Draws of a row depend on
    the prompt up to that row.

    Raises:
        PromptError: a row has fewer such columns than it loses.
    """
    end = prompt.target + 1
    clipped = tuple((up_to(rows, end), up_to(columns, end)) for rows, columns in blocks)
    if (lack := lacking(clipped, prompt, itself)) is not None:
        raise PromptError(
            f"A cut with control=True draws as many other edges into every row. Row {lack.row} "
            f"would need {lack.needed} earlier tokens that are not cut, but only {lack.free} are "
            "available."
        )
    inside = tuple(sorted({place for unit in members(prompt) for place in up_to(unit, end)}))
    return list(_drawn(clipped, prompt.tokens[:end], inside, itself, seed))


@lru_cache(512)
def _drawn(
    blocks: tuple[Block, ...],
    tokens: tuple[int, ...],
    inside: tuple[int, ...],
    itself: bool,
    seed: int,
) -> tuple[Block, ...]:
    edges = _matrix(blocks, len(tokens), itself)
    free = _free(edges)
    within = np.zeros(len(tokens), dtype=bool)
    within[list(inside)] = True
    of_units = within[None] & free
    alike = ~(edges & ~within[None]).any(1) & (of_units.sum(1) >= edges.sum(1))
    free = np.where(alike[:, None], of_units, free)
    blocks_drawn: list[Block] = []
    for row in np.flatnonzero(edges.any(1)).tolist():
        generator, drawn = draw_of(tokens[: row + 1], seed, 1), list[int]()
        for column in generator.permutation(np.flatnonzero(edges[row])):
            left = np.flatnonzero(free[row])
            far, reach = abs(left - column), NEAR
            while far.min() > reach:
                reach *= 2
            drawn.append(int(generator.choice(left[far <= reach])))
            free[row, drawn[-1]] = False
        blocks_drawn.append(((row,), tuple(sorted(drawn))))
    return tuple(blocks_drawn)


def _matrix(blocks: Sequence[Block], count: int, itself: bool) -> Bool[np.ndarray, "row column"]:
    """Matrix that is True where an edge is cut, for the first `count` positions."""
    edges = np.zeros((count, count), dtype=bool)
    for rows, columns in blocks:
        edges[np.ix_(up_to(rows, count), up_to(columns, count))] = True
    return np.tril(edges, 0 if itself else -1)


def _free(edges: Bool[np.ndarray, "row column"]) -> Bool[np.ndarray, "row column"]:
    """Matrix that is True at earlier columns that are not cut; the first token only if some row loses it."""
    free = np.tril(~edges, -1)
    free[:, 0] &= edges[:, 0].any()
    return free

"""Edges of attention within a prompt, as blocks of rows and columns."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from icl_mech.interventions.token_sets import Group, draw_of, members, up_to
from icl_mech.prompts import Prompt

Relation = Literal["any", "own", "others"]

Block = tuple[Group, Group]
"""Rows and columns; all edges between them are cut."""


def joined(groups: Sequence[Group]) -> Group:
    """All positions of the groups."""
    if len(groups) == 1:
        return groups[0]
    return tuple(sorted({position for own in groups for position in own}))


def related(rows: Group, columns: Group, relation: Relation, prompt: Prompt) -> list[Block]:
    """Edges between units that are related so: one block, or one for each unit with rows."""
    if relation == "any":
        return [(rows, columns)]
    units, rows, columns = members(prompt), *(up_to(own, len(prompt)) for own in (rows, columns))
    found: list[Block] = []
    for number, unit in enumerate(units):
        theirs = [unit] if relation == "own" else units[:number]
        sources = tuple(p for p in columns if any(p in other for other in theirs))
        found.append((tuple(p for p in rows if p in unit), sources))
    return found


def has_edge(block: Block, itself: bool) -> bool:
    """True if a column stands before a row (or, `itself`, is one)."""
    rows, columns = block
    return bool(rows and columns) and columns[0] < rows[-1] + itself


def random_edges(blocks: Sequence[Block], prompt: Prompt, itself: bool, seed: int) -> list[Block]:
    """As many edges of each distance, others first, one block for each row.

    They depend on the prompt up to its target only, which is all that matters for what is read there.
    """
    count = prompt.target + 1
    edges = np.zeros((count, count), dtype=bool)
    for rows, columns in blocks:
        edges[np.ix_(up_to(rows, count), up_to(columns, count))] = True
    edges = np.tril(edges, 0 if itself else -1)
    first = 0 if edges[:, 0].any() else 1
    generator = draw_of(prompt.tokens[:count], seed, 1)
    drawn = np.zeros_like(edges)
    for distance in range(count):
        number = int(np.trace(edges, -distance))
        if number:
            sources = generator.permutation(np.arange(first, count - distance))
            taken = edges[sources + distance, sources]
            sources = np.concatenate([sources[~taken], sources[taken]])[:number]
            drawn[sources + distance, sources] = True
    return [
        ((int(row),), tuple(np.flatnonzero(drawn[row]).tolist()))
        for row in np.flatnonzero(drawn.any(1))
    ]

"""Numbers of every head as a map, with the clear heads framed; which heads are clear."""

from collections.abc import Sequence

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.heads.texts import head_name
from icl_mech.metrics import ONE_SIDED, Interval, above_together
from icl_mech.results import Quantity
from icl_mech.shapes import Grid

FRAMED = 5
"""Heads framed in maps."""


def ordered(values: Float[Tensor, "layer head"], k: int) -> tuple[tuple[int, int], ...]:
    """The k heads with the largest values as (layer, head), largest first."""
    order = values.flatten().argsort(descending=True, stable=True)[:k].tolist()
    return tuple(divmod(int(place), values.shape[1]) for place in order)


def clear_heads(
    per_prompt: Float[Tensor, "batch layer head"], *, below: bool = False
) -> tuple[tuple[int, int], ...]:
    """Heads whose mean lies above 0 (or below), farthest first; one statement about all heads.

    Where none does, one is named in 2.5 % of the cases.
    """
    signed = -per_prompt if below else per_prompt
    found = above_together(signed, level=ONE_SIDED)
    order = ordered(signed.double().mean(0), found.numel())
    return tuple(head for head in order if bool(found[head]))


def head_map(
    title: str,
    found: Quantity,
    framed: Sequence[tuple[int, int]],
    *,
    quantity: str,
    signed: bool,
    note: str = "",
) -> Grid:
    """Layers across and heads down."""
    low, high = found.ends()
    return Grid(
        title=title,
        values=found.value().T,
        row_title="head",
        column_title="layer",
        quantity=quantity,
        note=note,
        signed=signed,
        marked=tuple((head, layer) for layer, head in framed),
        names=tuple(map(head_name, framed)),
        low=low.T,
        high=high.T,
    )


def intervals_of(found: Quantity, heads: Sequence[tuple[int, int]]) -> dict[str, Interval]:
    """One quantity of these heads, with intervals."""
    ends = (found.value(), *found.ends())
    return {head_name(head): Interval(*(float(end[head]) for end in ends)) for head in heads}


def table_of(
    quantities: dict[str, Quantity], heads: Sequence[tuple[int, int]]
) -> dict[str, list[float] | list[int]]:
    """Columns of a table with one row per head: value, low and high of every quantity."""
    rows = tuple(torch.tensor(axis) for axis in zip(*heads, strict=True))
    columns: dict[str, list[float] | list[int]] = {
        "layer": rows[0].tolist(),
        "head": rows[1].tolist(),
    }
    for name, own in quantities.items():
        low, high = own.ends()
        for column, end in ((name, own.value()), (f"{name}_low", low), (f"{name}_high", high)):
            columns[column] = end[rows].tolist()
    return columns

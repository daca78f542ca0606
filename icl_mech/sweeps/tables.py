"""Averages as rows and as tables of papers."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from icl_mech.errors import SweepError
from icl_mech.export_text import one_line, tex_text
from icl_mech.sweeps.cells import FEW, Averaged, Cell, plural
from icl_mech.sweeps.item import DIMS

ALWAYS = ("model", "task")
"""Dimensions that stand in every row unless they were averaged."""


def rows(averages: Averaged) -> list[dict[str, Any]]:
    """One for each number."""
    named = [d for d in DIMS if d in averages.varied or (d in ALWAYS and d not in averages.over)]
    found = []
    for cell in averages.cells:
        place = {"quantity": averages.name, **{dim: cell.dims[dim] for dim in named}}
        flat = [end.flatten().tolist() for end in (cell.value, cell.low, cell.high)]
        points = cell.points.reshape(len(cell.points), -1).T.tolist()
        for labels, value, low, high, own in zip(
            product(*averages.labels), *flat, points, strict=True
        ):
            row = {**place, **dict(zip(averages.axes, labels, strict=True))}
            row |= {"value": value, "low": low, "high": high}
            row |= {plural(dim): count for dim, count in cell.counts.items()}
            row |= {"prompts": cell.prompts, "items": cell.items}
            if averages.over and len(own) < FEW:
                row["points"] = tuple(own)
            found.append(row)
    return found


def latex(given: Sequence[Averaged], columns: str | None, digits: int) -> str:
    r"""A `tabular` with booktabs rules; each number with its interval, small.

    Raises:
        SweepError: no such dimension or axis, or quantities of other axes.
    """
    first = given[0]
    several = len(given) > 1
    free = [*(["quantity"] if several else []), *first.varied, *first.axes]
    across = columns or (free[-1] if free else "quantity")
    if across not in [*free, "quantity"]:
        raise SweepError(
            f"columns={columns!r}; a table of these has {', '.join(free) or 'one number'}."
        )
    down = [name for name in free if name != across]
    heads: dict[Any, None] = {}
    table: dict[tuple[Any, ...], dict[Any, str]] = {}
    basis: dict[str, None] = {}
    for averages in given:
        if (averages.axes, averages.varied) != (first.axes, first.varied):
            raise SweepError("A table holds quantities of the same axes and dimensions.")
        for cell in averages.cells:
            basis[averages.basis(cell)] = None
            for place, text in _texts(averages, cell, digits):
                heads[place[across]] = None
                table.setdefault(tuple(place[name] for name in down), {})[place[across]] = text
    lines = [
        rf"\begin{{tabular}}{{{'l' * max(len(down), 1)}{'c' * len(heads)}}}", r"\toprule",
        " & ".join([*(map(_escaped, down or [""])), *map(_escaped, heads)]) + r" \\", r"\midrule",
    ]  # fmt: skip
    for names, row in table.items():
        own = [_escaped(name) for name in names] or [_escaped(first.name)]
        lines.append(" & ".join([*own, *(row.get(head, "--") for head in heads)]) + r" \\")
    over = " and ".join(plural(dim) for dim in first.over)
    note = (
        f"Means{f' over {over}' if over else ''}, 95 % intervals in brackets; {', '.join(basis)}."
    )
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", f"% {one_line(note)}", ""])


def _texts(averages: Averaged, cell: Cell, digits: int) -> list[tuple[dict[str, Any], str]]:
    flat = zip(*(end.flatten().tolist() for end in (cell.value, cell.low, cell.high)), strict=True)
    found = []
    for labels, (value, low, high) in zip(product(*averages.labels), flat, strict=True):
        place = {"quantity": averages.name, **cell.dims}
        place |= dict(zip(averages.axes, labels, strict=True))
        if value != value:
            found.append((place, "--"))
            continue
        ends = rf"{{\scriptsize [{low:.{digits}f}, {high:.{digits}f}]}}"
        found.append((place, rf"${value:.{digits}f}$ {ends}"))
    return found


def _escaped(text: Any) -> str:
    plain = "" if text is None else f"{text:g}" if isinstance(text, float) else str(text)
    return tex_text(plain)

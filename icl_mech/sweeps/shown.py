"""Averages as rows, as tables of papers, and as small multiples: curves over layers or doses, or dots."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import torch

from icl_mech._typing import Tensor
from icl_mech.errors import SweepError, near_matches
from icl_mech.export_text import one_line, tex_text
from icl_mech.looks.flow_scores import NAMES
from icl_mech.measurements.saliency.reduction import SCORES
from icl_mech.results.figures import ABOUT
from icl_mech.shapes import Bars, LayerCurves, Meaning, Panel, Shape
from icl_mech.sweeps.cells import FEW, Averaged, Cell, plural
from icl_mech.sweeps.item import DIMS

ALWAYS = ("model", "task")
"""Dimensions that every row has unless they were averaged."""


def rows(averages: Averaged) -> list[dict[str, Any]]:
    """One row for each number."""
    named = [d for d in DIMS if d in averages.varied or (d in ALWAYS and d not in averages.over)]
    table = []
    for cell in averages.cells:
        place = {"quantity": averages.name, **{dim: cell.dims[dim] for dim in named}}
        flat = [end.flatten().tolist() for end in (cell.value, cell.low, cell.high)]
        points = cell.points.reshape(len(cell.points), -1).T.tolist()
        for labels, value, low, high, units in zip(
            product(*averages.labels), *flat, points, strict=True
        ):
            row = {**place, **dict(zip(averages.axes, labels, strict=True))}
            row |= {"value": value, "low": low, "high": high}
            row |= {plural(dim): count for dim, count in cell.counts.items()}
            row |= {"prompts": cell.prompts, "items": cell.items}
            if averages.over and len(units) < FEW:
                row["points"] = tuple(units)
            table.append(row)
    return table


def latex(given: Sequence[Averaged], columns: str | None, digits: int) -> str:
    r"""A `tabular` with booktabs rules; each number with its interval, small.

    Raises:
        SweepError: no such dimension or axis, or quantities of different axes.
    """
    first = given[0]
    several = len(given) > 1
    free = [*(["quantity"] if several else []), *first.varied, *first.axes]
    across = columns or (free[-1] if free else "quantity")
    if across not in [*free, "quantity"]:
        raise SweepError(
            f"columns={columns!r} is not available; a table of these averages has {', '.join(free) or 'one number'}."
        )
    down = [name for name in free if name != across]
    heads: dict[Any, None] = {}
    table: dict[tuple[Any, ...], dict[Any, str]] = {}
    basis: dict[str, None] = {}
    for averages in given:
        if (averages.axes, averages.varied) != (first.axes, first.varied):
            raise SweepError(
                "These quantities have different axes or dimensions; give a table quantities of the same ones."
            )
        for cell in averages.cells:
            basis[averages.basis(cell)] = None
            for place, text in _texts(averages, cell, digits):
                heads[place[across]] = None
                table.setdefault(tuple(place[name] for name in down), {})[place[across]] = text
    lines = [
        rf"\begin{{tabular}}{{{'l' * max(len(down), 1)}{'c' * len(heads)}}}",
        r"\toprule",
        " & ".join([*(map(_escaped, down or [""])), *map(_escaped, heads)]) + r" \\",
        r"\midrule",
    ]
    for names, row in table.items():
        labels = [_escaped(name) for name in names] or [_escaped(first.name)]
        lines.append(" & ".join([*labels, *(row.get(head, "--") for head in heads)]) + r" \\")
    over = " and ".join(plural(dim) for dim in first.over)
    note = (
        f"Means{f' over {over}' if over else ''}, 95 % intervals in brackets; {', '.join(basis)}."
    )
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", f"% {one_line(note)}", ""])


def _texts(averages: Averaged, cell: Cell, digits: int) -> list[tuple[dict[str, Any], str]]:
    flat = zip(*(end.flatten().tolist() for end in (cell.value, cell.low, cell.high)), strict=True)
    texts = []
    for labels, (value, low, high) in zip(product(*averages.labels), flat, strict=True):
        place = {"quantity": averages.name, **cell.dims}
        place |= dict(zip(averages.axes, labels, strict=True))
        if value != value:
            texts.append((place, "--"))
            continue
        ends = rf"{{\scriptsize [{low:.{digits}f}, {high:.{digits}f}]}}"
        texts.append((place, rf"${value:.{digits}f}$ {ends}"))
    return texts


def _escaped(text: object) -> str:
    plain = "" if text is None else f"{text:g}" if isinstance(text, float) else str(text)
    return tex_text(plain)


# --- figures ---

ALONG = ("layer", "depth", "seen")
"""Axes of a quantity that run along the horizontal axis of a figure."""

NUMBERS = ("false_share", "shots", "total", "n")
"""Dimensions that run along the horizontal axis if no axis of the quantity does and they have several values."""

TITLES = {
    "depth": "fraction of the model's depth",
    "false_share": "fraction of false labels",
    "shots": "demonstrations per class",
    "total": "demonstrations in total",
    "n": "prompts",
    "seen": "demonstrations seen",
}

USUAL: tuple[Meaning, ...] = ("label", "text", "query", "other", "target", "reference")
MEANINGS: dict[str, Meaning] = {
    **ABOUT,
    "no demonstrations": "reference",
    "plain": "reference",
    "reweighted": "label",
    **{NAMES[score]: ABOUT[score] for score in SCORES},
    **{f"S_{score}": ABOUT[score] for score in SCORES},
}

MOST_PANELS = 24

Spread: TypeAlias = tuple[tuple[int, tuple[float, ...]], ...]
"""Single values: number of the curve, and one value for each column."""


def drawing(
    averages: Averaged,
    *,
    panels: str | None = None,
    curves: str | None = None,
    x: str | None = None,
    beside: Averaged | None = None,
) -> Shape:
    """The shape of averages; `beside` is the difference of two models, drawn next to them.

    Raises:
        SweepError: a dimension or axis that is not there.
    """
    free = [*averages.varied, *averages.axes]
    for option, name in (("panels", panels), ("curves", curves), ("x", x)):
        if name is not None and name not in free:
            hint = near_matches(name, free) if free else "These averages are one number."
            raise SweepError(f"{option}={name!r} is not available. {hint}")
    x = x or _across(averages, free, (panels, curves))
    table = [_named(row, x) for row in rows(averages) if _shown(row, averages)]
    left, apart = [name for name in free if name != x], difference_of(beside)
    for row in rows(beside) if beside is not None else ():
        difference = _named({**dict.fromkeys(free), **row, "model": apart}, x)
        table += [difference] if _shown(row, averages) else []
    if x is None:
        return _dots(averages, table, curves or (left[-1] if len(left) > 1 else None), left)
    inside = curves or (left[-1] if left else "")
    axes = [panels] if panels else [name for name in left if name != inside]
    # Each combination gets its own panel only if the names of curves fix their colours.
    if (
        not {str(row.get(inside)) for row in table} <= {*MEANINGS}
        or _count(table, axes) > MOST_PANELS
    ):
        axes = axes[:1]
    table = [row | _short(row) for row in table] if axes else table
    return _curves(averages, table, x, axes, [name for name in left if name not in axes], apart)


def difference_of(beside: Averaged | None) -> str:
    """Name of the difference of two models: the second minus the first."""
    return f"{beside.cells[0].dims['model']} minus {beside.minus['model']}" if beside else ""


def _count(table: Sequence[dict[str, Any]], names: Sequence[str]) -> int:
    return len({_words(row, names) for row in table})


def _across(averages: Averaged, free: Sequence[str], taken: Sequence[str | None]) -> str | None:
    numbers = [dim for dim in NUMBERS if dim == "false_share" or _numeric(averages, dim)]
    for name in (*(a for a in ALONG if a in averages.axes), *numbers):
        if name in free and name not in taken:
            return name
    return None


def _numeric(averages: Averaged, dim: str) -> bool:
    """True if every cell has a number there: neither `max` nor None."""
    return all(isinstance(cell.dims.get(dim), int) for cell in averages.cells)


def _bare(row: dict[str, Any]) -> str:
    """The dimension by which a row has no demonstrations; empty if it has some."""
    return next((name for name in ("shots", "total") if row.get(name) == 0), "")


def _shown(row: dict[str, Any], averages: Averaged) -> bool:
    """False for the false side of rows without demonstrations, which equals the true side."""
    alike = _bare(row) in averages.varied and "side" in averages.axes
    return not (alike and row["side"] == "false")


def _named(row: dict[str, Any], x: str | None) -> dict[str, Any]:
    """A row with readable names instead of labels, and numbers for doses."""
    named = dict(row)
    if "score" in named:
        named["score"] = NAMES.get(named["score"], named["score"])
    bare = _bare(named)
    if bare and "side" in named:
        named["side"] = "no demonstrations"
        named[bare] = named[bare] if bare == x else ""
    if "false_share" in named and named["false_share"] is None:
        named["false_share"] = 0.0 if named.get("labels") == "correct" else 1.0
    return named


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Names that fit into small axes."""
    return {"score": str(row["score"]).split(":")[0]} if "score" in row else {}


def note(averages: Averaged) -> str:
    """What bars or bands show, and what they are averaged over."""
    bases = sorted({averages.basis(cell) for cell in averages.cells})
    text = f"means over {' or '.join(bases)}, hierarchical 95 % intervals"
    if any(cell.counts[dim] > 1 for cell in averages.cells for dim in averages.fixed):
        text += f" (for these {' and '.join(map(plural, averages.fixed))} only)"
    if units := _units(averages):
        text += f"; small points: individual {' or '.join(map(plural, units))}"
    return text


def _units(averages: Averaged) -> list[str]:
    """The units that small points show: the outermost dimension of means over few."""
    few = [cell for cell in averages.cells if 1 < len(cell.points) < FEW]
    return sorted({next(dim for dim, n in cell.counts.items() if n > 1) for cell in few})


def _title(averages: Averaged) -> str:
    minus = ", ".join(f"{dim} {value}" for dim, value in averages.minus.items())
    return averages.heading + (f", minus that of {minus}" if minus else "")


def _words(row: dict[str, Any], names: Sequence[str]) -> str:
    return ", ".join(_word(name, row[name]) for name in names if row[name] not in ("", None))


def _word(name: str, value: object) -> str:
    if isinstance(value, str):
        return value if value.startswith("S_") else value.replace("_", " ")
    return f"{name.replace('_', ' ')} {value:g}" if isinstance(value, int | float) else str(value)


def _curves(
    averages: Averaged,
    table: Sequence[dict[str, Any]],
    x: str,
    axes: Sequence[str],
    names: Sequence[str],
    apart: str,
) -> LayerCurves:
    heads = list(dict.fromkeys(_words(row, axes) for row in table))
    if len(heads) > MOST_PANELS:
        raise SweepError(
            f"{len(heads)} panels are too many to read (at most {MOST_PANELS}); average over more "
            "dimensions, or select a part of the sweep."
        )
    places = sorted({float(row[x]) for row in table})
    lines: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for row in table:
        key = (_words(row, axes), _words(row, names) or averages.name)
        lines.setdefault(key, {})[float(row[x])] = row
    blank: dict[str, Any] = {"value": math.nan, "low": math.nan, "high": math.nan}
    ends = [
        torch.tensor([[line.get(at, blank)[end] for at in places] for line in lines.values()])
        for end in ("value", "low", "high")
    ]
    curve_names = [name for _, name in lines]
    spread = _spread(list(lines.values()), places)
    parts = _panels([head for head, _ in lines], ends, spread, _word("model", apart))
    return LayerCurves(
        title=_title(averages),
        names=tuple(curve_names),
        values=ends[0].double(),
        low=ends[1].double(),
        high=ends[2].double(),
        y_title=averages.unit or averages.name,
        note=note(averages),
        x=tuple(places),
        x_title=TITLES.get(x, x),
        meanings=_looks(curve_names),
        panels=parts if axes else (),
        columns=2 if len(heads) in (1, 2, 4) else 3,
        spread=spread,
    )


def _panels(
    heads: Sequence[str], ends: Sequence[Tensor], spread: Spread, apart: str
) -> tuple[Panel, ...]:
    """One panel for each head; all but differences share an axis from 0 to the ends of all intervals."""
    shared = [i for i, head in enumerate(heads) if not apart or not head.startswith(apart)]
    values = [v for end in ends for v in end[shared].flatten().tolist() if math.isfinite(v)]
    values += [v for i, units in spread if i in shared for v in units if math.isfinite(v)]
    low, high = min([0.0, *values]), max([0.0, *values])
    reach = (low - 0.05 * (high - low), high + 0.08 * (high - low)) if high > low else None
    panels = []
    for head in dict.fromkeys(heads):
        curves = tuple(i for i, name in enumerate(heads) if name == head)
        alike = Panel(head, curves, y_range=reach)
        zero = Panel(head, curves, "difference", ((0.0, ""),))
        panels.append(alike if curves[0] in shared else zero)
    return tuple(panels)


def _spread(rows: Sequence[Mapping[float, dict[str, Any]]], places: Sequence[float]) -> Spread:
    """One line for each unit of each curve that has several."""
    lines: list[tuple[int, tuple[float, ...]]] = []
    for place, curve in enumerate(rows):
        units = max((len(row.get("points", ())) for row in curve.values()), default=0)
        if units > 1:
            lines += [
                (place, tuple(_point(curve.get(at), unit) for at in places))
                for unit in range(units)
            ]
    return tuple(lines)


def _looks(names: Sequence[str]) -> tuple[Meaning, ...]:
    """Looks of curves, the same for one name in all panels."""
    order = list(dict.fromkeys(names))
    known = [MEANINGS[last] for name in order if (last := name.split(", ")[-1]) in MEANINGS]
    if len(known) < len(order):
        known = [USUAL[i % len(USUAL)] for i in range(len(order))]
    looks = dict(zip(order, known, strict=True))
    return tuple(looks[name] for name in names)


def _point(row: dict[str, Any] | None, unit: int) -> float:
    points = () if row is None else row.get("points", ())
    return float(points[unit]) if unit < len(points) else math.nan


def _dots(
    averages: Averaged, table: Sequence[dict[str, Any]], curves: str | None, left: Sequence[str]
) -> Bars:
    down = [name for name in left if name != curves]
    groups = list(dict.fromkeys(_words(row, down) or averages.name for row in table))
    names = list(dict.fromkeys(_words(row, [curves]) if curves else averages.name for row in table))
    ends = [torch.full((len(groups), len(names)), math.nan, dtype=torch.float64) for _ in range(3)]
    spread = []
    for row in table:
        group = groups.index(_words(row, down) or averages.name)
        dot = names.index(_words(row, [curves]) if curves else averages.name)
        for end, name in zip(ends, ("value", "low", "high"), strict=True):
            end[group, dot] = row[name]
        if len(row.get("points", ())) > 1:
            spread.append((group, dot, tuple(row["points"])))
    value, low, high = ends
    return Bars(
        _title(averages),
        tuple(groups),
        tuple(names),
        value,
        low,
        high,
        averages.unit or averages.name,
        note=note(averages),
        meanings=_looks(names) if {*names} <= {*MEANINGS} else (),
        spread=tuple(spread),
        single=next(iter(_units(averages)), "unit"),
    )

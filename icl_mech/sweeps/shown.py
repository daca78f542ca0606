"""Averages as rows, as tables of papers, and as small multiples: curves over layers or doses, or dots."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
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
        rf"\begin{{tabular}}{{{'l' * max(len(down), 1)}{'c' * len(heads)}}}",
        r"\toprule",
        " & ".join([*(map(_escaped, down or [""])), *map(_escaped, heads)]) + r" \\",
        r"\midrule",
    ]
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


def _escaped(text: object) -> str:
    plain = "" if text is None else f"{text:g}" if isinstance(text, float) else str(text)
    return tex_text(plain)


# --- figures ---

ALONG = ("layer", "depth", "seen")
"""Axes of a quantity that run across a figure."""

NUMBERS = ("false_share", "shots", "total", "n")
"""Dimensions that do so if no axis does and they have several values."""

TITLES = {
    "depth": "share of the model's depth",
    "false_share": "share of false labels",
    "shots": "demonstrations per class",
    "total": "demonstrations in all",
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
"""Single values: place of the curve, one for each column."""

SPARSE = 12
"""Up to this number of columns intervals are bars, not bands."""


def drawing(
    averages: Averaged,
    *,
    panels: str | None = None,
    curves: str | None = None,
    x: str | None = None,
    beside: Averaged | None = None,
) -> Shape:
    """The shape of averages; `beside` them stands the difference of two models.

    Raises:
        SweepError: a dimension or axis that is not there.
    """
    free = [*averages.varied, *averages.axes]
    for option, name in (("panels", panels), ("curves", curves), ("x", x)):
        if name is not None and name not in free:
            hint = near_matches(name, free) if free else "These averages are one number."
            raise SweepError(f"{option}={name!r}. {hint}")
    x = x or _across(averages, free, (panels, curves))
    table = [_named(row, x) for row in rows(averages) if _shown(row, averages)]
    left, apart = [name for name in free if name != x], difference_of(beside)
    for row in rows(beside) if beside is not None else ():
        own = _named({**dict.fromkeys(free), **row, "model": apart}, x)
        table += [own] if _shown(row, averages) else []
    if x is None:
        return _dots(averages, table, curves or (left[-1] if len(left) > 1 else None), left)
    inside = curves or (left[-1] if left else "")
    axes = [panels] if panels else [name for name in left if name != inside]
    # Curves of other things stand in panels of their own only where their names keep their colours.
    if (
        not {str(row.get(inside)) for row in table} <= {*MEANINGS}
        or _count(table, axes) > MOST_PANELS
    ):
        axes = axes[:1]
    table = [row | _short(row) for row in table] if axes else table
    return _curves(averages, table, x, axes, [name for name in left if name not in axes], apart)


def difference_of(beside: Averaged | None) -> str:
    """What the difference of two models is called: the second minus the first."""
    return f"{beside.cells[0].dims['model']} minus {beside.minus['model']}" if beside else ""


def _count(table: Sequence[dict[str, Any]], names: Sequence[str]) -> int:
    return len({_words(row, names) for row in table})


def _across(averages: Averaged, free: Sequence[str], taken: Sequence[str | None]) -> str | None:
    numbers = [own for own in NUMBERS if own == "false_share" or _numeric(averages, own)]
    for name in (*(a for a in ALONG if a in averages.axes), *numbers):
        if name in free and name not in taken:
            return name
    return None


def _numeric(averages: Averaged, dim: str) -> bool:
    """True if every cell has a number there: not `max`, and none that is counted otherwise."""
    return all(isinstance(cell.dims.get(dim), int) for cell in averages.cells)


def _bare(row: dict[str, Any]) -> str:
    """The dimension by which a row has no demonstrations; empty if it has some."""
    return next((name for name in ("shots", "total") if row.get(name) == 0), "")


def _shown(row: dict[str, Any], averages: Averaged) -> bool:
    """Without demonstrations both sides are one."""
    alike = _bare(row) in averages.varied and "side" in averages.axes
    return not (alike and row["side"] == "false")


def _named(row: dict[str, Any], x: str | None) -> dict[str, Any]:
    """A row with names for people in place of labels, and numbers for doses."""
    found = dict(row)
    if "score" in found:
        found["score"] = NAMES.get(found["score"], found["score"])
    bare = _bare(found)
    if bare and "side" in found:
        found["side"] = "no demonstrations"
        found[bare] = found[bare] if bare == x else ""
    if "false_share" in found and found["false_share"] is None:
        found["false_share"] = 0.0 if found.get("labels") == "correct" else 1.0
    return found


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Names that have room in small axes."""
    return {"score": str(row["score"]).split(":")[0]} if "score" in row else {}


def note(averages: Averaged) -> str:
    """What bars or bands are, and over how much."""
    bases = sorted({averages.basis(cell) for cell in averages.cells})
    text = f"means over {' or '.join(bases)}, nested 95 % intervals"
    if any(cell.counts[dim] > 1 for cell in averages.cells for dim in averages.fixed):
        text += f" (of just these {' and '.join(map(plural, averages.fixed))})"
    if units := _units(averages):
        text += f"; small points: single {' or '.join(map(plural, units))}"
    return text


def _units(averages: Averaged) -> list[str]:
    """What small points are: the outermost dimension of means over few."""
    few = [cell for cell in averages.cells if 1 < len(cell.points) < FEW]
    return sorted({next(dim for dim, n in cell.counts.items() if n > 1) for cell in few})


def _title(averages: Averaged) -> str:
    minus = ", ".join(f"{dim} {own}" for dim, own in averages.minus.items())
    return averages.heading + (f", minus that of {minus}" if minus else "")


def _words(row: dict[str, Any], names: Sequence[str]) -> str:
    return ", ".join(_word(name, row[name]) for name in names if row[name] not in ("", None))


def _word(name: str, own: object) -> str:
    if isinstance(own, str):
        return own if own.startswith("S_") else own.replace("_", " ")
    return f"{name.replace('_', ' ')} {own:g}" if isinstance(own, int | float) else str(own)


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
            f"{len(heads)} panels are too many to be read (at most {MOST_PANELS}); average over more "
            "dimensions, or select a part of the sweep."
        )
    places = sorted({float(row[x]) for row in table})
    found: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for row in table:
        key = (_words(row, axes), _words(row, names) or averages.name)
        found.setdefault(key, {})[float(row[x])] = row
    blank: dict[str, Any] = {"value": math.nan, "low": math.nan, "high": math.nan}
    ends = [
        torch.tensor([[own.get(at, blank)[end] for at in places] for own in found.values()])
        for end in ("value", "low", "high")
    ]
    curve_names = [name for _, name in found]
    spread = _spread(list(found.values()), places)
    parts = _panels([head for head, _ in found], ends, spread, _word("model", apart))
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
        apart=_apart(places, max(len(part.curves) for part in parts)),
        panels=parts if axes else (),
        columns=2 if len(heads) in (1, 2, 4) else 3,
        spread=spread,
    )


def _panels(
    heads: Sequence[str], ends: Sequence[Tensor], spread: Spread, apart: str
) -> tuple[Panel, ...]:
    """One for each head; they share an axis from 0 to the ends of all intervals, but for differences."""
    shared = [i for i, head in enumerate(heads) if not apart or not head.startswith(apart)]
    found = [v for end in ends for v in end[shared].flatten().tolist() if math.isfinite(v)]
    found += [v for i, own in spread if i in shared for v in own if math.isfinite(v)]
    low, high = min([0.0, *found]), max([0.0, *found])
    reach = (low - 0.05 * (high - low), high + 0.08 * (high - low)) if high > low else None
    panels = []
    for head in dict.fromkeys(heads):
        curves = tuple(i for i, own in enumerate(heads) if own == head)
        alike = Panel(head, curves, y_range=reach)
        zero = Panel(head, curves, "difference", ((0.0, ""),))
        panels.append(alike if curves[0] in shared else zero)
    return tuple(panels)


def _spread(rows: Sequence[Mapping[float, dict[str, Any]]], places: Sequence[float]) -> Spread:
    """One line for each unit of each curve that has several."""
    found: list[tuple[int, tuple[float, ...]]] = []
    for place, own in enumerate(rows):
        units = max((len(row.get("points", ())) for row in own.values()), default=0)
        if units > 1:
            found += [
                (place, tuple(_point(own.get(at), unit) for at in places)) for unit in range(units)
            ]
    return tuple(found)


def _looks(names: Sequence[str]) -> tuple[Meaning, ...]:
    """One look for curves of one name in all panels."""
    order = list(dict.fromkeys(names))
    known = [MEANINGS[last] for name in order if (last := name.split(", ")[-1]) in MEANINGS]
    if len(known) < len(order):
        known = [USUAL[i % len(USUAL)] for i in range(len(order))]
    looks = dict(zip(order, known, strict=True))
    return tuple(looks[name] for name in names)


def _apart(places: Sequence[float], curves: int) -> float:
    """How far points of curves are set apart, so that their bars do not hide each other."""
    if len(places) < 2 or curves < 2 or len(places) > SPARSE:
        return 0.0
    return 0.025 * min(b - a for a, b in pairwise(places))


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

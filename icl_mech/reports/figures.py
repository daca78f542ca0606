"""Plotly figures as a page draws them: without title, in few digits, with a text alternative."""

import base64
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from icl_mech.plots.style import untitled
from icl_mech.reports.tables import written
from icl_mech.shapes import Shape

if TYPE_CHECKING:
    import plotly.graph_objects as go

DIGITS = 6
"""Significant digits of numbers in a figure."""

SPOKEN = 8
"""Maximum number of curves or bars that the text alternative of a figure describes."""


def drawn(figure: "go.Figure | Shape") -> dict[str, Any]:
    """The figure as JSON: `wide`, and `narrow` where panels are stacked on a phone."""
    import plotly.graph_objects as go

    if isinstance(figure, go.Figure):
        return {"wide": _prepared(figure)}
    from icl_mech.plots import figure as plotted
    from icl_mech.plots import narrow_figure

    forms = {"wide": _prepared(plotted(figure))}
    narrow = narrow_figure(figure)
    if narrow is not None:
        forms["narrow"] = _prepared(narrow)
    return forms


def _prepared(figure: "go.Figure") -> dict[str, Any]:
    """Data and layout, without the title, which the page shows itself."""
    plain = untitled(figure)
    return {"data": [_short(trace) for trace in plain["data"]], "layout": _short(plain["layout"])}


def _short(value: object) -> Any:
    """The value with its numbers rounded to `DIGITS`; arrays packed by plotly become lists."""
    if isinstance(value, dict):
        if "bdata" in value and "dtype" in value:
            return _short(_unpacked(value))
        return {key: _short(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_short(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def _unpacked(packed: dict[str, Any]) -> Any:
    array = np.frombuffer(base64.b64decode(packed["bdata"]), dtype=packed["dtype"])
    shape = packed.get("shape")
    if shape is not None:
        array = array.reshape([int(size) for size in str(shape).split(",")])
    return array.tolist()


def spoken(figure: dict[str, Any]) -> str:
    """The main numbers of a figure in a sentence, for screen readers."""
    parts = []
    for trace in figure["data"]:
        summary = (
            _curve(trace) if trace.get("type", "scatter") in ("scatter", "bar") else _map(trace)
        )
        if summary:
            parts.append(summary)
    more = len(parts) - SPOKEN
    text = ". ".join(parts[:SPOKEN]) + (f". And {more} more" if more > 0 else "")
    axes = [
        (axis.get("title") or {}).get("text")
        for key, axis in figure["layout"].items()
        if key.startswith(("xaxis", "yaxis")) and isinstance(axis, dict)
    ]
    named = " against ".join(dict.fromkeys(str(text) for text in reversed(axes) if text))
    return ". ".join(part for part in (f"Figure: {named}" if named else "Figure", text) if part)


def _curve(trace: dict[str, Any]) -> str:
    """First, lowest, highest and last value of a named curve or set of bars."""
    xs, ys = trace.get("x"), trace.get("y")
    name = trace.get("name")
    if not name or not isinstance(xs, list) or not isinstance(ys, list):
        return ""
    points = [(x, y) for x, y in zip(xs, ys, strict=False) if isinstance(y, int | float)]
    if not points:
        return ""
    if len(points) <= 4 or isinstance(points[0][0], str):
        return f"{name}: " + ", ".join(f"{_at(x)} {written(float(y))}" for x, y in points[:12])
    low, high = min(points, key=lambda p: p[1]), max(points, key=lambda p: p[1])
    marks = {"first": points[0], "lowest": low, "highest": high, "last": points[-1]}
    phrases = [f"{what} {written(float(y))} at {_at(x)}" for what, (x, y) in marks.items()]
    return f"{name}: " + ", ".join(phrases)


def _map(trace: dict[str, Any]) -> str:
    """Highest and lowest cell of a heatmap."""
    cells = [
        (float(value), i, j)
        for i, row in enumerate(trace.get("z") or [])
        for j, value in enumerate(row)
        if isinstance(value, int | float)
    ]
    if not cells:
        return ""
    xs, ys = trace.get("x") or [], trace.get("y") or []

    def place(cell: tuple[float, int, int]) -> str:
        _, i, j = cell
        at = (ys[i] if i < len(ys) else i, xs[j] if j < len(xs) else j)
        return f"{written(cell[0])} in row {_at(at[0])}, column {_at(at[1])}"

    return f"{len(cells)} cells, highest {place(max(cells))}, lowest {place(min(cells))}"


def _at(value: object) -> str:
    text = written(round(value)) if isinstance(value, float) and value == round(value) else ""
    return text or written(value)

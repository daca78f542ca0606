"""The axes of curves: sizes in pixels, ranges, levels, contents and names of each panel."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from icl_mech.plots.labels import pushed_apart, size, wrapped
from icl_mech.plots.style import LOOKS, QUIET, look
from icl_mech.plots.traces import Curve
from icl_mech.shapes import LayerCurves, Panel

USUAL = 860
"""Width of the figure, in pixels, for which panels are arranged."""

LEFT, RIGHT, BELOW = 66, 24, 56
"""Pixels around the axes."""

ONE, ROW = 330, 220
"""Height of an axis in pixels: of a single row of panels, and of each of several rows."""

NARROWEST = 220
"""Minimum width of a panel in pixels; if names at the ends of lines leave less, a row has fewer panels."""

LONGEST, SHORTEST = 30, 14
"""Maximum characters of a line of a name: beside one panel across the page, and beside narrower ones."""

LEAD = 12
"""Pixels from the frame to the names at its right."""

SMALL = 11
"""Font size of levels, marks and stretches, in pixels; names use 12."""

AMONG = 0.5
"""Fraction of a column over which the points of a category are spread."""


class Name(NamedTuple):
    """What is written at the end of a line: of a `curve` or another one, its text and look, and that end."""

    of: Literal["curve", "end"]
    lines: list[str]
    colour: str
    size: int
    x: float
    y: float


@dataclass
class Axes:
    """One panel with its contents.

    Attributes:
        panel: The panel of the shape.
        number: Its index.
        row: Its row, counted from 1.
        column: Its column, counted from 1.
        curves: Its curves, as drawn.
        x: Range of the horizontal axis.
        y: Range of the vertical axis.
        names: Names at the ends of its lines.
    """

    panel: Panel
    number: int
    row: int
    column: int
    curves: list[Curve]
    x: tuple[float, float]
    y: tuple[float, float]
    names: list[Name]

    @property
    def place(self) -> dict[str, int]:
        """Row and column, as keyword arguments of plotly."""
        return {"row": self.row, "col": self.column}

    @property
    def ref(self) -> str:
        """Suffix of the plotly names of its axes."""
        return str(self.number + 1) if self.number else ""

    @property
    def tall(self) -> float:
        """Height of its names, in pixels."""
        return sum((size(name.lines)[1] for name in self.names), 0.0)

    def heights(self, pixels: float) -> list[float]:
        """Heights of the names on the vertical axis, of this many pixels, so that none covers another."""
        (low, high), tall = self.y, [size(name.lines)[1] for name in self.names]
        wanted = [(name.y - low) / (high - low) * pixels for name in self.names]
        return [low + at / pixels * (high - low) for at in pushed_apart(wanted, tall, pixels)]


def axes_of(shape: LayerCurves, columns: int, across: int) -> list[Axes]:
    """The panels of a figure with this many in a row."""
    panels = shape.panels or (Panel("", tuple(range(len(shape.names)))),)
    longest = LONGEST if columns == 1 and across == USUAL else SHORTEST
    every = []
    for i, panel in enumerate(panels):
        curves, x, y = curves_of(shape, panel), x_range(shape), y_range(shape, panel, i)
        names = list(_names(shape, panel, i, curves, (x, y), longest))
        every.append(Axes(panel, i, i // columns + 1, i % columns + 1, curves, x, y, names))
    return every


def _names(
    shape: LayerCurves,
    panel: Panel,
    number: int,
    curves: list[Curve],
    ranges: tuple[tuple[float, float], tuple[float, float]],
    width: int,
) -> Iterator[Name]:
    """Names of curves, controls, published curves and levels; none if the axis already has the only one."""
    (_, right), (low, high) = ranges
    quiet = QUIET.light
    if [curve.name for curve in curves] != [panel.y_title or shape.y_title]:
        for curve in curves:
            # The grey of published curves and references is too faint for text.
            colour = quiet if curve.look == LOOKS["reference"] else curve.look.light
            if curve.defined:
                yield Name("curve", wrapped(curve.name, width), colour, 12, *curve.end)
            else:
                lines = wrapped(f"{curve.name}: not defined", width)
                yield Name("curve", lines, colour, 12, right, (low + high) / 2)
    for area in shape.behind:
        if area.curve in panel.curves:
            ends = zip(places(shape), area.low, area.high, strict=True)
            known = [end for end in ends if all(map(math.isfinite, end))]
            colour = curves[panel.curves.index(area.curve)].look.light
            for x, *edges in known[-1:]:
                yield Name("end", wrapped(area.name, width), colour, SMALL, x, sum(edges) / 2)
    for line in shape.published:
        if line.panel == number:
            yield Name("end", wrapped(line.name, width), quiet, SMALL, line.x[-1], line.y[-1])
    for height, text in levels_of(shape, panel):
        if text:
            yield Name("end", wrapped(text, width), quiet, SMALL, right, height)


def pixels_above(shape: LayerCurves) -> int:
    """Pixels above the axes of a row."""
    rows = 1 + max(stretch_rows(shape), default=-1) + bool(shape.marks)
    return 12 + 22 * any(panel.title for panel in shape.panels) + 20 * rows


def pixels_across(ends: float, across: int) -> float:
    """Width in pixels of all panels of a row and the gaps between them."""
    return across - LEFT - RIGHT - ends


def width_of(shape: LayerCurves, columns: int, ends: float, across: int) -> float:
    """Width of a panel in pixels."""
    return (pixels_across(ends, across) - (columns - 1) * gap(shape, ends, across)) / columns


def gap(shape: LayerCurves, ends: float, across: int) -> float:
    """Pixels between the panels of a row."""
    units = {panel.y_title or shape.y_title for panel in shape.panels}
    return min((96 if len(units) > 1 else 60) + ends, 0.4 * pixels_across(ends, across))


def x_range(shape: LayerCurves) -> tuple[float, float]:
    """Ends of the horizontal axis."""
    x = places(shape)
    spread = x[-1] - x[0] if len(x) > 1 else 0
    margin = 0.5 if shape.x is None or shape.x_names or not spread else 0.06 * spread
    return min(x) - margin, max(x) + margin


def y_range(shape: LayerCurves, panel: Panel, number: int) -> tuple[float, float]:
    """Ends of the vertical axis."""
    given = panel.y_range or shape.y_range
    if given:
        return given
    ends, drawn = (shape.values, shape.low, shape.high), list(panel.curves)
    values = [v for end in ends for v in end[drawn].flatten().tolist()]
    values += [height for height, _ in levels_of(shape, panel)]
    values += [v for line in shape.published if line.panel == number for v in line.y]
    values += [v for place, points in shape.spread if place in panel.curves for v in points]
    values += [
        v for area in shape.behind if area.curve in panel.curves for v in (*area.low, *area.high)
    ]
    values = [v for v in values if math.isfinite(v)]
    lowest, highest = min([0.0, *values]), max([0.0, *values])
    spread = highest - lowest or 1.0
    return lowest - (0.05 if lowest == 0 else 0.08) * spread, highest + 0.08 * spread


def places(shape: LayerCurves) -> list[float]:
    """Positions of the columns on the horizontal axis."""
    return list(shape.x) if shape.x is not None else list(map(float, range(shape.values.shape[1])))


def curves_of(shape: LayerCurves, panel: Panel) -> list[Curve]:
    """The curves of a panel; points of a category are side by side."""
    curves, count = [], len(panel.curves)
    for order, i in enumerate(panel.curves):
        aside = AMONG * ((order + 0.5) / count - 0.5) if shape.x_names else 0.0
        curves.append(
            Curve(
                shape.names[i],
                look(shape.meanings[i] if shape.meanings else "", i),
                [where + aside for where in places(shape)],
                shape.values[i].tolist(),
                shape.low[i].tolist(),
                shape.high[i].tolist(),
                null=i in shape.nulls,
                joined=not shape.x_names,
                weak=shape.weak,
            )
        )
    return curves


def levels_of(shape: LayerCurves, panel: Panel) -> list[tuple[float, str]]:
    """Levels of a panel; levels at the same height share one label."""
    texts: dict[float, list[str]] = {}
    for height, text in dict.fromkeys((*shape.levels, *panel.levels)):
        texts.setdefault(round(height, 6), []).append(text)
    return [(height, ", ".join(dict.fromkeys(labels))) for height, labels in texts.items()]


def stretch_rows(shape: LayerCurves) -> Sequence[int]:
    """The row above the axes of each stretch; overlapping stretches are stacked."""
    rows: list[int] = []
    for i, (start, stop, _) in enumerate(shape.stretches):
        earlier = zip(shape.stretches[:i], rows, strict=True)
        met = {row for (a, b, _), row in earlier if a <= stop and start <= b}
        rows.append(next(row for row in range(i + 1) if row not in met))
    return rows

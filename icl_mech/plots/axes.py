"""The axes of curves: sizes in pixels, ranges, levels and contents of each panel."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from icl_mech.plots.labels import Box, Room
from icl_mech.plots.style import look
from icl_mech.plots.traces import FEW, Curve
from icl_mech.shapes import LayerCurves, Panel

USUAL = 860
"""Width of the figure, in pixels, for which names are placed."""

LEFT, RIGHT, BELOW = 66, 24, 56
"""Pixels around the axes."""

ONE, ROW = 330, 220
"""Height of an axis in pixels: of a single row of panels, and of each of several rows."""

NARROWEST = 220
"""Minimum width of a panel in pixels; if names at the ends of curves leave less, a row has fewer panels."""

SMALL = 11
"""Font size of levels, marks and stretches, in pixels; names use 12."""


@dataclass
class Axes:
    """One panel with its contents.

    Attributes:
        panel: The panel of the shape.
        number: Its index.
        row: Its row, counted from 1.
        column: Its column, counted from 1.
        curves: Its curves, as drawn.
        room: Its plot area in pixels.
        names: Positions of the names next to their curves; None: names are at the line ends.
    """

    panel: Panel
    number: int
    row: int
    column: int
    curves: list[Curve]
    room: Room = field(default_factory=lambda: Room((0.0, 1.0), (0.0, 1.0), 1.0, 1.0))
    names: list[Box] | None = None

    @property
    def place(self) -> dict[str, int]:
        """Row and column, as keyword arguments of plotly."""
        return {"row": self.row, "col": self.column}

    @property
    def ref(self) -> str:
        """Suffix of the plotly names of its axes."""
        return str(self.number + 1) if self.number else ""


def pixels_above(shape: LayerCurves) -> int:
    """Pixels above the axes of a row."""
    rows = 1 + max(stretch_rows(shape), default=-1)
    return 12 + 22 * any(panel.title for panel in shape.panels) + 20 * rows


def pixels_across(ends: float) -> float:
    """Width in pixels of all panels of a row and the gaps between them."""
    return USUAL - LEFT - RIGHT - ends


def width_of(shape: LayerCurves, columns: int, ends: float) -> float:
    """Width of a panel in pixels."""
    return (pixels_across(ends) - (columns - 1) * gap(shape, ends)) / columns


def gap(shape: LayerCurves, ends: float) -> float:
    """Pixels between the panels of a row."""
    units = {panel.y_title or shape.y_title for panel in shape.panels}
    return min((70 if len(units) > 1 else 44) + ends, 0.4 * pixels_across(ends))


def room_of(shape: LayerCurves, own: Axes, columns: int, height: float, ends: float) -> Room:
    """The plot area of a panel, with everything drawn in it."""
    room = Room(_x_range(shape), _y_range(shape, own), width_of(shape, columns, ends), height)
    for curve in own.curves:
        bars = curve.bars if len(curve.x) <= FEW else []
        room.draw(curve.x, curve.y, bars)
    for published in shape.published:
        if published.panel == own.number:
            room.draw(published.x, published.y)
    room.across = [
        float(y)
        for _, y in room.pixels(
            [0.0] * len(levels_of(shape, own)), [height for height, _ in levels_of(shape, own)]
        )
    ]
    room.upright = [float(room.pixels([where], [0.0])[0, 0]) for where, _ in shape.marks]
    return room


def _x_range(shape: LayerCurves) -> tuple[float, float]:
    x = places(shape)
    spread = x[-1] - x[0] if len(x) > 1 else 0
    margin = (0.5 if shape.x is None or not spread else 0.06 * spread) + shape.apart
    return min(x) - margin, max(x) + margin


def _y_range(shape: LayerCurves, axes: Axes) -> tuple[float, float]:
    given = axes.panel.y_range or shape.y_range
    if given:
        return given
    values = [v for curve in axes.curves for v in (*curve.y, *curve.low, *curve.high)]
    values += [height for height, _ in levels_of(shape, axes)]
    values += [v for line in shape.published if line.panel == axes.number for v in line.y]
    values += [v for place, points in shape.spread if place in axes.panel.curves for v in points]
    values += [
        v
        for area in shape.behind
        if area.curve in axes.panel.curves
        for v in (*area.low, *area.high)
    ]
    values = [v for v in values if math.isfinite(v)]
    lowest, highest = min([0.0, *values]), max([0.0, *values])
    spread = highest - lowest or 1.0
    return lowest - (0.05 if lowest == 0 else 0.08) * spread, highest + 0.08 * spread


def places(shape: LayerCurves) -> list[float]:
    """Positions of the columns on the horizontal axis."""
    return list(shape.x) if shape.x is not None else list(map(float, range(shape.values.shape[1])))


def curves_of(shape: LayerCurves, panel: Panel) -> list[Curve]:
    """The curves of a panel, offset horizontally from each other if `shape.apart` is set."""
    curves = []
    for order, i in enumerate(panel.curves):
        aside = (order - (len(panel.curves) - 1) / 2) * 2 * shape.apart
        curves.append(
            Curve(
                shape.names[i],
                look(shape.meanings[i] if shape.meanings else "", i),
                [where + aside for where in places(shape)],
                *(end[i].tolist() for end in (shape.values, shape.low, shape.high)),
            )
        )
    return curves


def levels_of(shape: LayerCurves, own: Axes) -> list[tuple[float, str]]:
    """Levels of a panel; levels at the same height share one label."""
    given = own.panel.levels if not shape.panels else (*shape.levels, *own.panel.levels)
    texts: dict[float, list[str]] = {}
    for height, text in given:
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

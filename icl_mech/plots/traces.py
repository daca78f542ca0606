"""Traces of a curve: its line, and its intervals as a band, an outline or thin bars."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import plotly.graph_objects as go

from icl_mech.plots.style import BAND, LOOKS, Look, shown
from icl_mech.shapes import Behind, Published

FEW = 12
"""Maximum number of columns for which every tick is labelled."""

DENSE = 60
"""Maximum number of points for which every point has a marker."""

OUTLINE = 0.7
"""Opacity of the outline of a baseline."""

PALE = 0.3
"""Opacity of lines and points where their values say little."""

DIGITS = 5
"""Significant digits of drawn values."""


@dataclass(frozen=True)
class Curve:
    """One curve as drawn; NaN where it has no value.

    A `null` is the baseline of another curve; the points of categories are not `joined`; `weak` points are pale.
    """

    name: str
    look: Look
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]
    null: bool = False
    joined: bool = True
    weak: tuple[bool, ...] = ()

    @property
    def defined(self) -> bool:
        """True if the curve has a value."""
        return any(map(math.isfinite, self.y))

    @property
    def end(self) -> tuple[float, float]:
        """The last defined point of the curve."""
        return next(
            (x, y) for x, y in zip(self.x[::-1], self.y[::-1], strict=True) if math.isfinite(y)
        )

    @property
    def bounded(self) -> bool:
        """True if the curve has an interval of nonzero width."""
        every = zip(self.y, self.low, self.high, strict=True)
        return any(high > low for y, low, high in every if _known([y, low, high]))


def _known(values: list[float]) -> bool:
    return all(map(math.isfinite, values))


def _rounded(values: list[float]) -> list[float | None]:
    return [float(f"{v:.{DIGITS}g}") if math.isfinite(v) else None for v in values]


def number_format(values: list[float], *, percent: bool = False) -> str:
    """The d3 format of numbers of this size in hover texts."""
    if percent:
        return ".1%"
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    return ".3f" if 0.05 <= largest < 1000 or largest == 0 else ".3~g"


def curve_traces(
    curve: Curve, x: Sequence[float | str], where: str, percent: bool
) -> list[go.Scatter]:
    """The interval and the line of a curve.

    Args:
        curve: The curve; its points may be offset horizontally.
        x: Positions of the points without the offset, or their names.
        where: What a column is, such as `layer …`.
        percent: Values are fractions, shown as percentages.
    """
    colour, thin = curve.look.light, curve.null
    traces = _bands(curve) if curve.joined and curve.bounded else []
    many = sum(map(math.isfinite, curve.y)) > DENSE
    # Isolated points have no line, so they keep their markers.
    alone = not any(
        math.isfinite(a) and math.isfinite(b) for a, b in zip(curve.y, curve.y[1:], strict=False)
    )
    form = number_format([*curve.y, *curve.low, *curve.high], percent=percent)
    value = f"%{{y:{form}}}"
    ends = f" [%{{customdata[0]:{form}}}, %{{customdata[1]:{form}}}]" if curve.bounded else ""
    column = shown(where).replace("…", "%{customdata[2]}")
    line = {"color": colour, "width": 1 if thin else 2, "dash": "dot" if thin else curve.look.dash}
    points = go.Scatter(
        x=_rounded(curve.x),
        y=_rounded(curve.y),
        name=curve.name,
        legendgroup=curve.name,
        mode="lines+markers" if curve.joined else "markers",
        line=line,
        marker={
            "size": 6 if thin else 7,
            "symbol": f"{curve.look.marker.removesuffix('-open')}{'-open' * thin}",
            "color": colour,
            "maxdisplayed": 30 if many and not alone else 0,
        },
        error_y=_bars(curve) if not curve.joined and curve.bounded else None,
        customdata=list(zip(_rounded(curve.low), _rounded(curve.high), x, strict=True)),
        hovertemplate=f"<b>{shown(curve.name)}</b><br>{column}: {value}{ends}<extra></extra>",
    )
    return [*traces, *(_faded(points, curve.weak) if any(curve.weak) else [points])]


def _faded(points: go.Scatter, weak: Sequence[bool]) -> list[go.Scatter]:
    """A line whose weak points are pale, and the lines to them."""
    pale = go.Scatter(points)
    pale.update(opacity=PALE, y=[y if own else None for y, own in zip(points.y, weak, strict=True)])
    steps = [
        place
        for (i, own), (j, after) in pairwise(enumerate(weak))
        if own != after
        for place in (i, j, None)
    ]
    joints = go.Scatter(
        x=[None if i is None else points.x[i] for i in steps],
        y=[None if i is None else points.y[i] for i in steps],
        legendgroup=points.legendgroup,
        mode="lines",
        line=points.line,
        opacity=PALE,
        hoverinfo="skip",
    )
    points.update(y=[None if own else y for y, own in zip(points.y, weak, strict=True)])
    return [pale, *([joints] if steps else []), points]


def _bars(curve: Curve) -> dict[str, object]:
    every = list(zip(curve.y, curve.low, curve.high, strict=True))
    return {
        "type": "data",
        "symmetric": False,
        "array": _rounded([high - y for y, _, high in every]),
        "arrayminus": _rounded([y - low for y, low, _ in every]),
        "width": 0,
        "thickness": 1.5,
        "color": curve.look.light,
    }


def spread_trace(curve: Curve, values: tuple[float, ...]) -> go.Scatter:
    """One set of values behind a curve, such as a seed, as small hollow points."""
    return go.Scatter(
        x=_rounded(curve.x),
        y=_rounded(list(values)),
        mode="markers",
        legendgroup=curve.name,
        marker={"size": 4, "symbol": "circle-open", "color": curve.look.light},
        opacity=0.7,
        hoverinfo="skip",
        showlegend=False,
    )


def level_trace(height: float, text: str, ends: tuple[float, float]) -> go.Scatter:
    """A horizontal dashed line from end to end, with its name for hover texts and legends."""
    return go.Scatter(
        x=list(ends),
        y=[height] * 2,
        name=text,
        mode="lines",
        line={"color": LOOKS["reference"].light, "dash": "dash", "width": 1},
        hovertemplate=f"{shown(text)}<extra></extra>" if text else None,
        hoverinfo=None if text else "skip",
        showlegend=False,
    )


def _bands(curve: Curve) -> list[go.Scatter]:
    """The interval of a curve; pale where its points are weak."""
    points = list(zip(curve.x, curve.low, curve.high, strict=True))
    if not any(curve.weak):
        return [_band(curve, points)]
    clear = [
        (x, math.nan, math.nan) if weak else (x, low, high)
        for (x, low, high), weak in zip(points, curve.weak, strict=True)
    ]
    pale = _band(curve, points)
    return [pale.update(opacity=PALE * pale.opacity), _band(curve, clear)]


def _band(curve: Curve, points: list[tuple[float, float, float]]) -> go.Scatter:
    """An interval as a band; that of a baseline as an outline."""
    if curve.null:
        line = {"color": curve.look.light, "width": 1, "dash": "dot"}
        return _area(points, curve.name, line=line, opacity=OUTLINE, hoverinfo="skip")
    area = {"fill": "toself", "fillcolor": curve.look.light, "opacity": BAND, "line": {"width": 0}}
    return _area(points, curve.name, **area, hoverinfo="skip")


def behind_trace(own: Behind, of: Look, x: list[float], form: str) -> go.Scatter:
    """The outline of a control in the colour of its curve."""
    points = list(zip(x, own.low, own.high, strict=True))
    return _area(
        points,
        own.name,
        name=own.name,
        line={"color": of.light, "width": 1},
        opacity=OUTLINE,
        hovertemplate=f"<b>{shown(own.name)}</b>, end of the range: %{{y:{form}}}<extra></extra>",
        showlegend=False,
    )


def _area(points: list[tuple[float, float, float]], group_name: str, **style: object) -> go.Scatter:
    """The area between lower and upper ends, split at gaps; an isolated point gets a narrow area."""
    x: list[float] = []
    y: list[float] = []
    for known, group in groupby(points, key=lambda point: _known(list(point))):
        run = list(group)
        if not known:
            continue
        if len(run) == 1:
            where, low, high = run[0]
            run = [(where - 0.12, low, high), (where + 0.12, low, high)]
        gap = [math.nan] if x else []
        x += gap + [p for p, _, _ in run] + [p for p, _, _ in run[::-1]] + [run[0][0]]
        y += gap + [high for _, _, high in run] + [low for _, low, _ in run[::-1]] + [run[0][2]]
    return go.Scatter(x=_rounded(x), y=_rounded(y), mode="lines", legendgroup=group_name, **style)


def published_trace(line: Published, where: str, percent: bool) -> go.Scatter:
    """A published curve as a thin grey line, or as hollow triangles if it has few points."""
    grey = LOOKS["reference"]
    form = number_format(list(line.y), percent=percent)
    return go.Scatter(
        x=_rounded(list(line.x)),
        y=_rounded(list(line.y)),
        name=line.name,
        mode="markers" if len(line.x) <= FEW else "lines",
        line={"color": grey.light, "width": 1},
        marker={"symbol": grey.marker, "size": 9, "color": grey.light},
        hovertemplate=f"<b>{shown(line.name)}</b><br>"
        f"{shown(where).replace('…', '%{x:.3~g}')}: %{{y:{form}}}<extra></extra>",
    )

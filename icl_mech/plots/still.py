"""A figure as a static SVG, for viewers that cannot render plotly's data.

It supports the elements of this package's figures: curves, bands, intervals, points, heatmaps, tables, and their axes,
names and lines. Interactive elements and the gaps between cells are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.basedatatypes import BasePlotlyType as Part

from icl_mech.plots.style import FONT, INK, PAGE, QUIET, RULE
from icl_mech.plots.svg import LETTER, LINE, Number, coloured, dashed, image, path, plain, words

ELSEWHERE = (
    "A static picture: for an interactive one, install plotly in the environment of JupyterLab "
    "and reload the page."
)

ON_CELLS = "#111111", "#ffffff"
"""Text on bright and on dark cells; no colours of a theme, for they follow the cell."""

ACROSS, HIGH = 860, 450
"""Default width and height of a figure, in pixels."""

MARKS = {
    "circle": "M-1,0A1,1 0 1 0 1,0A1,1 0 1 0-1,0Z",
    "square": "M-.9-.9H.9V.9H-.9Z",
    "diamond": "M0-1.2L1.2,0 0,1.2-1.2,0Z",
    "triangle-up": "M0-1.1L1.1,.8H-1.1Z",
    "star": "M0-1.4L.4-.4 1.3-.4 .6,.2 .9,1.2 0,.6-.9,1.2-.6,.2-1.3-.4-.4-.4Z",
}
"""SVG outlines of markers centred on 0, with a radius of about 1."""


@dataclass(frozen=True)
class Scale:
    """The map from values of an axis to pixels; names are counted from 0."""

    start: Number
    stop: Number
    low: Number = 0.0
    high: Number = 1.0
    names: tuple[str, ...] = ()

    def __call__(self, value: Number | str | None) -> float:
        """Pixels from the left or the top; NaN if there is no value."""
        number = self.names.index(value) if isinstance(value, str) else value
        share = (float("nan" if number is None else number) - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


def still(figure: go.Figure, note: str = ELSEWHERE) -> str:
    """The figure as SVG, with a note below it on how to get the interactive one."""
    return _Still(figure).picture(note)


class _Still:
    """A figure, its layout and its scales, keyed by plotly references such as `x2`, `x2 domain`, `xpaper`."""

    def __init__(self, figure: go.Figure) -> None:
        self.layout = layout = figure.layout
        self.traces = [trace for trace in figure.data if trace.visible in (None, True)]
        self.width, self.height = layout.width or ACROSS, layout.height or HIGH
        room = {
            side: 80.0 if layout.margin[side] is None else float(layout.margin[side])
            for side in "lrtb"
        }
        for side, axis in (("l", layout.yaxis), ("b", layout.xaxis)):
            longest = max((len(plain(text)) for text in axis.ticktext or ()), default=0)
            if axis.automargin:
                room[side] = max(room[side], 24 + 22 * bool(axis.title.text) + LETTER * longest)
        maps = [
            trace
            for trace in self.traces
            if trace.type == "heatmap" and trace.showscale is not False
        ]
        room["r"] += 80 * any(trace.colorbar.x is None for trace in maps)
        self.x = Scale(room["l"], self.width - room["r"])
        self.y = Scale(self.height - room["b"], room["t"])
        self.scales = {"xpaper": self.x, "ypaper": self.y}
        axes = layout.to_plotly_json() if self.traces[0].type != "table" else {}
        self.axes = {key.replace("axis", ""): layout[key] for key in axes if key[1:5] == "axis"}
        for name, axis in self.axes.items():
            self.scales[name] = self._scale(name, axis)
        for name, axis in self.axes.items():
            if axis.scaleanchor:
                self._square(name, axis.scaleanchor)
        for name in self.axes:
            scale = self.scales[name]
            self.scales[f"{name} domain"] = Scale(scale.start, scale.stop)

    def picture(self, note: str) -> str:
        """The SVG of the figure, with heatmaps at the bottom and text on top."""
        layout, high = self.layout, self.height + 24
        maps = [trace for trace in self.traces if trace.type == "heatmap"]
        points = [trace for trace in self.traces if trace.type == "scatter"]
        below = [shape for shape in layout.shapes if shape.layer == "below"]
        above = [shape for shape in layout.shapes if shape.layer != "below"]
        title, below_title = layout.title.text or "", layout.title.subtitle.text or ""
        chosen = [
            (slider.currentvalue.prefix or "") + slider.steps[slider.active].label
            for slider in layout.sliders
        ]
        parts = [
            *map(self._table, (trace for trace in self.traces if trace.type == "table")),
            *map(self._map, maps),
            *map(self._axis, self.axes),
            *map(self._shape, below),
            *map(self._points, points),
            *map(self._shape, above),
            *map(self._note, layout.annotations),
            self._legend(),
            words(title, 12, 30, size=17),
            words(below_title, 12, 51, colour=QUIET.light),
            *(words(text, self.x.start, self.height - 14, colour=QUIET.light) for text in chosen),
            words(note, 12, high - 10, size=11, colour=QUIET.light),
        ]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{high:g}" '
            f'viewBox="0 0 {self.width} {high:g}" font-family="{FONT}" fill="{INK.light}" role="img" '
            f'style="max-width:100%;height:auto" '
            f'aria-label="{escape(plain(title))}"><rect width="100%" height="100%" '
            f'fill="{PAGE.light}"/>{"".join(parts)}</svg>'
        )

    # --- axes ---

    def _scale(self, name: str, axis: Part) -> Scale:
        whole = self.scales[f"{name[0]}paper"]
        start, stop = map(whole, axis.domain or (0, 1))
        traces = [trace for trace in self.traces if trace.type != "table"]
        traces = [trace for trace in traces if (trace[f"{name[0]}axis"] or name[0]) == name]
        values = [value for trace in traces for value in _reaching(trace, name[0])]
        names = tuple(dict.fromkeys(value for value in values if isinstance(value, str)))
        known = [float(v) for v in values if v is not None and not isinstance(v, str) and v == v]
        low, high = min(known, default=0.0), max(known, default=1.0)
        aside = 0.06 * (high - low) or 0.5
        low, high = axis.range or (low - aside, high + aside)
        return Scale(start, stop, low, high, names)

    def _square(self, name: str, anchor: str) -> None:
        """Rescale two axes so that a unit has the same length on both."""
        both = {key: self.scales[key] for key in (name, anchor)}
        step = min(
            abs((scale.stop - scale.start) / (scale.high - scale.low)) for scale in both.values()
        )
        for key, scale in both.items():
            whole = scale.stop - scale.start
            length = float(np.sign(whole)) * step * abs(scale.high - scale.low)
            aside = {"left": 0.0, "top": 1.0}.get(self.axes[key].constraintoward or "", 0.5)
            start = scale.start + aside * (whole - length)
            self.scales[key] = Scale(start, start + length, scale.low, scale.high, scale.names)

    def _axis(self, name: str) -> str:
        """Line, grid, ticks and title of an axis."""
        axis, scale, across = self.axes[name], self.scales[name], name[0] == "x"
        if axis.visible is False:
            return ""
        cross = self.scales[axis.anchor or ("y" if across else "x")]
        at, far = (cross.stop, cross.start) if axis.side == "top" else (cross.start, cross.stop)
        away = 1 if across and axis.side != "top" else -1
        ticks = _ticks(axis, scale, 80 if across else 40)
        size, svg, room = axis.tickfont.size or 13, "", 0.0

        def line(where: float, start: float, stop: float, colour: str) -> str:
            ends = (where, start, where, stop) if across else (start, where, stop, where)
            return path([ends[:2], ends[2:]], colour, 1)

        for where, text in ticks:
            if axis.showgrid is not False:
                svg += line(where, at, far, axis.gridcolor or RULE.light)
            if axis.ticks == "outside":
                svg += line(where, at, at + 5 * away, axis.tickcolor or RULE.light)
            if axis.showticklabels is False:
                continue
            room = max(room, LETTER * len(plain(text)))
            put: dict[str, Any] = {"size": size, "colour": axis.tickfont.color or INK.light}
            edge = at + away * (8 + (axis.ticklabelstandoff or 0))
            if not across:
                svg += words(text, edge, where + 4.5, anchor="end", **put)
            elif axis.tickangle:
                svg += words(text, where + 4, edge, anchor="end", angle=axis.tickangle, **put)
            else:
                lift = 11 if away > 0 else -LINE * text.count("<br>")
                svg += words(text, where, edge + lift, anchor="middle", **put)
        if axis.showline:
            ends = [(scale.start, at), (scale.stop, at)]
            svg += path(ends if across else [point[::-1] for point in ends], axis.linecolor, 1)
        if axis.zeroline and min(scale.low, scale.high) < 0 < max(scale.low, scale.high):
            svg += line(scale(0), at, far, axis.zerolinecolor or RULE.light)
        middle, text = (scale.start + scale.stop) / 2, axis.title.text or ""
        if across:
            return svg + words(text, middle, at + 44 * away, anchor="middle")
        lines = text.count("<br>")
        left = at - room - 22 - LINE * lines
        return svg + words(text, max(left, 14), middle, anchor="middle", angle=-90)

    # --- what is drawn ---

    def _points(self, trace: Part) -> str:
        """Areas, lines, intervals, markers and text of a trace."""
        x, y = (self.scales[trace[f"{axis}axis"] or axis] for axis in "xy")
        points = [(x(a), y(b)) for a, b in zip(trace.x, trace.y, strict=False)]
        mode, mark, opacity = trace.mode or "", trace.marker, trace.opacity or 1
        runs = [list(run) for known, run in groupby(points, key=_known) if known]
        svg = ""
        if trace.fill == "toself":
            svg += "".join(path(run, "none", 0, f'fill="{trace.fillcolor}"') for run in runs)
        elif "lines" in mode:
            line = trace.line
            svg += "".join(path(run, line.color, line.width, dashed(line.dash)) for run in runs)
        for errors, scale, values in ((trace.error_x, x, trace.x), (trace.error_y, y, trace.y)):
            for at, value, up, down in zip(
                points, values, errors.array or (), errors.arrayminus or (), strict=False
            ):
                if up is not None and down is not None and value is not None:
                    ends = [scale(value - down), scale(value + up)]
                    bar = [(e, at[1]) if scale is x else (at[0], e) for e in ends]
                    svg += path(bar, errors.color or mark.color, errors.thickness) * _known(
                        sum(bar, ())
                    )
        if "markers" in mode:
            svg += self._marks([p for p in points if _known(p)], mark)
        if "text" in mode:
            for i, (at, text) in enumerate(zip(points, trace.text, strict=True)):
                place = _each(trace.textposition, i) or "middle center"
                side = ("right" in place) - ("left" in place)
                up = ("bottom" in place) - ("top" in place)
                font, anchor = trace.textfont, {1: "start", 0: "middle", -1: "end"}[side]
                look = {"size": font.size, "colour": _each(font.color, i), "family": font.family}
                if text and _known(at):
                    where = at[0] + 9 * side, at[1] + 4.5 + 14 * up
                    svg += words(text, *where, anchor=anchor, **look)
        return f'<g opacity="{opacity * (mark.opacity or 1):g}">{svg}</g>'

    def _marks(self, points: Sequence[tuple[float, float]], mark: Part) -> str:
        shape, size = mark.symbol or "circle", (mark.size or 6) / 2
        hollow = shape.endswith("-open")
        colour = mark.color if isinstance(mark.color, str) else INK.light
        step = -(-len(points) // mark.maxdisplayed) if mark.maxdisplayed else 1
        paint = f'fill="none" stroke="{colour}" stroke-width="{1.2 / size:.2f}"'
        paint = paint if hollow else f'fill="{colour}"'
        outline = MARKS.get(shape.removesuffix("-open"), MARKS["circle"])
        return "".join(
            f'<path d="{outline}" transform="translate({x:.1f},{y:.1f}) scale({size:g})" {paint}/>'
            for x, y in points[::step]
        )

    def _map(self, trace: Part) -> str:
        """Cells of a heatmap as one small image, their text, and the colour bar."""
        z = np.array([[np.nan if v is None else v for v in row] for row in trace.z], dtype=float)
        x, y = (self.scales[trace[f"{axis}axis"] or axis] for axis in "xy")
        xs, ys = _along(trace, "x"), _along(trace, "y")
        if len(xs) > z.shape[1]:  # edges of cells whose widths are integers
            z, xs = np.repeat(z, np.diff(xs).astype(int), axis=1), [*np.arange(xs[0] + 0.5, xs[-1])]
        places = [[s(v) for v in values] for s, values in ((x, xs), (y, ys))]
        low = np.nanmin(z) if trace.zmin is None else trace.zmin
        high = np.nanmax(z) if trace.zmax is None else trace.zmax
        paint = [(float(at), colour) for at, colour in trace.colorscale]
        paint = [(1 - at, colour) for at, colour in paint[::-1]] if trace.reversescale else paint
        cells = coloured((z - low) / ((high - low) or 1.0), paint)
        halves = [abs(s(1) - s(0)) / 2 for s in (x, y)]
        ends = [
            (min(centres) - h, max(centres) + h) for centres, h in zip(places, halves, strict=True)
        ]
        turned = cells[:: 1 if places[1][0] <= places[1][-1] else -1]
        svg = image(turned, *ends)
        if trace.texttemplate and trace.text is not None:
            size = trace.textfont.size or 12
            for i, j in np.ndindex(z.shape):
                colour = ON_CELLS[int(cells[i, j, :3].mean() < 130)]
                where = places[0][j], places[1][i] + size / 3
                text = str(trace.text[i][j] or "")
                svg += words(text, *where, size=size, colour=colour, anchor="middle")
        return svg + (self._bar(trace, low, high, paint) if trace.showscale is not False else "")

    def _bar(self, trace: Part, low: Number, high: Number, paint: list[tuple[float, str]]) -> str:
        bar, flat = trace.colorbar, trace.colorbar.orientation == "h"
        along, over = (self.x, self.y) if flat else (self.y, self.x)
        middle = (bar.x if flat else bar.y) if (bar.x if flat else bar.y) is not None else 0.5
        if flat and bar.xanchor == "right":
            middle -= (bar.len or 1) / 2
        half = (bar.len or 1) / 2
        scale = Scale(along(middle - half), along(middle + half), low, high)
        across = bar.y if flat else bar.x
        at = over(1.02 if across is None else across)
        ends = sorted((scale.start, scale.stop)), (at, at + (bar.thickness or 30))
        steps = np.linspace(0, 1, 32)[None] if flat else np.linspace(1, 0, 32)[:, None]
        svg = image(coloured(steps, paint), *(ends if flat else ends[::-1]))
        text, edge = bar.title.text or "", ends[1][1]
        for where, tick in _ticks(bar, scale):
            put = (where, edge + 13) if flat else (edge + 5, where + 4)
            svg += words(
                tick, *put, size=11, colour=QUIET.light, anchor="middle" if flat else "start"
            )
        if flat:
            return svg + words(text, sum(ends[0]) / 2, edge + 30, size=11, anchor="middle")
        if bar.title.side == "top":
            return svg + words(text.removesuffix("<br>"), at, ends[0][0] - 12, size=11)
        return svg + words(text, edge + 44, sum(ends[0]) / 2, size=11, anchor="middle", angle=90)

    def _table(self, trace: Part) -> str:
        shares = np.array(trace.columnwidth or [1] * len(trace.header.values), dtype=float)
        widths = shares / shares.sum() * (self.x.stop - self.x.start)
        heads = [[head] for head in trace.header.values]
        columns = [[*head, *cells] for head, cells in zip(heads, trace.cells.values, strict=True)]
        top, svg = self.y.stop, ""
        for row in zip(*columns, strict=True):
            texts = [
                "<br>".join(wrap(str(text), int(w / LETTER), break_long_words=False))
                for text, w in zip(row, widths, strict=True)
            ]
            tall = 12 + LINE * (1 + max(text.count("<br>") for text in texts))
            for left, text in zip(self.x.start + np.cumsum([0, *widths]), texts, strict=False):
                svg += words(text, left + 6, top + 18)
            top += tall
            svg += path([(self.x.start, top), (self.x.stop, top)], RULE.light, 1)
        return svg

    # --- what is shown next to it ---

    def _shape(self, shape: Part) -> str:
        x, y = (self._at(shape, side) for side in "xy")
        corners = [(x(shape.x0), y(shape.y0)), (x(shape.x1), y(shape.y1))]
        if shape.type == "rect":
            (a, b), (c, d) = corners
            corners = [(a, b), (c, b), (c, d), (a, d), (a, b)]
        width = 2 if shape.line.width is None else shape.line.width
        more = f'fill="{shape.fillcolor or "none"}" opacity="{shape.opacity or 1:g}" '
        return path(corners, shape.line.color or INK.light, width, more + dashed(shape.line.dash))

    def _at(self, part: Part, side: str) -> Scale:
        """The scale that a shape or annotation refers to."""
        ref = part[f"{side}ref"] or side
        return self.scales[f"{side}paper" if ref == "paper" else ref]

    def _note(self, annotation: Part) -> str:
        x = self._at(annotation, "x")(annotation.x) + (annotation.xshift or 0)
        y = self._at(annotation, "y")(annotation.y) - (annotation.yshift or 0)
        svg, text = "", annotation.text or ""
        if annotation.showarrow is not False and annotation.ax is not None:
            end = self._tail(annotation, x, y)
            svg = path([(x, y), (end[0] - 4, end[1])], annotation.arrowcolor or INK.light, 1)
            x, y = end
        high = LINE * (1 + text.count("<br>"))
        lift = {"bottom": 12 - high, "top": 12}.get(annotation.yanchor or "", 12 - high / 2)
        anchor = {"left": "start", "right": "end"}.get(annotation.xanchor or "", "middle")
        text = f"<b>{text}</b>" if (annotation.font.weight or 400) > 500 else text
        look = {
            "size": annotation.font.size or 13,
            "colour": annotation.font.color,
            "angle": annotation.textangle or 0,
        }
        return svg + words(text, x, y + lift, anchor=anchor, **look)

    def _tail(self, annotation: Part, x: float, y: float) -> tuple[float, float]:
        """End of an annotation's arrow at its text: pixels from its point, or a point of the axes."""
        if annotation.axref in (None, "pixel"):
            return x + annotation.ax, y + annotation.ay
        return self.scales[annotation.axref](annotation.ax), self.scales[annotation.ayref](
            annotation.ay
        )

    def _legend(self) -> str:
        if not self.layout.showlegend:
            return ""
        place, svg = self.layout.legend, ""
        left, y = self.x(place.x or 0) + 8, self.y(1 if place.y is None else place.y) - 12
        named = {
            trace.legendgroup or trace.name: trace for trace in self.traces if trace.showlegend
        }
        for trace in list(named.values())[:: -1 if place.traceorder == "reversed" else 1]:
            svg += self._marks([(left, y)], trace.marker) + words(trace.name, left + 12, y + 4.5)
            left += 40 + LETTER * len(trace.name)
        return svg


# --- what traces and axes hold ---


def _known(values: Sequence[float]) -> bool:
    return bool(np.isfinite(values).all())


def _each(value: object, place: int) -> Any:
    return value[place] if isinstance(value, tuple | list | np.ndarray) else value


def _along(trace: Part, side: str) -> list[Any]:
    """Positions of a trace along an axis; heatmaps without positions count from 0."""
    given = trace[side]
    if given is None and trace.type == "heatmap":
        return list(range(len(trace.z) if side == "y" else len(trace.z[0])))
    return [] if given is None else list(given)


def _reaching(trace: Part, side: str) -> list[Any]:
    """Positions of a trace along an axis, with the ends of intervals."""
    values = _along(trace, side)
    errors = trace[f"error_{side}"] if trace.type == "scatter" else None
    if errors is None or errors.array is None:
        return values
    every = list(zip(values, errors.array, errors.arrayminus, strict=True))
    ends = [(v + up, v - down) for v, up, down in every if None not in (v, up, down)]
    return [*values, *sum(ends, ())]


def _ticks(axis: Part, scale: Scale, least: int = 40) -> list[tuple[float, str]]:
    """Position in pixels and text of each tick, which are about this far apart at least."""
    if axis.tickvals is not None:
        values = list(axis.tickvals)
    else:
        # As plotly chooses them: by the length of the axis.
        low, high = sorted((scale.low, scale.high))
        rough = (high - low) / (np.clip(abs(scale.stop - scale.start) / least, 4, 9) + 1)
        size = 10.0 ** np.floor(np.log10(rough))
        step = next(factor * size for factor in (2, 5, 10) if factor * size >= rough)
        values = [step * i for i in range(int(np.ceil(low / step)), int(high / step + 1e-9) + 1)]
    form = ".0%" if "%" in (axis.tickformat or "") else ".4g"
    texts = axis.ticktext or [f"{v + 0.0:{form}}".replace("-", "\N{MINUS SIGN}") for v in values]
    return [(scale(v), str(text)) for v, text in zip(values, texts, strict=False)]

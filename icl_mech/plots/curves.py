"""Curves over layers or another number, in one or several panels, labelled at their ends."""

import math
import re
from dataclasses import replace

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from icl_mech.plots.axes import (
    BELOW,
    LEAD,
    LEFT,
    NARROWEST,
    ONE,
    RIGHT,
    ROW,
    SMALL,
    USUAL,
    Axes,
    axes_of,
    gap,
    levels_of,
    pixels_above,
    pixels_across,
    places,
    stretch_rows,
    width_of,
)
from icl_mech.plots.labels import CHARACTER, size, wrapped
from icl_mech.plots.style import (
    INK,
    LOOKS,
    QUIET,
    axis,
    axis_title,
    heading,
    layer_ticks,
    layout,
    shown,
)
from icl_mech.plots.traces import (
    FEW,
    behind_trace,
    curve_traces,
    level_trace,
    number_format,
    published_trace,
    spread_trace,
)
from icl_mech.shapes import LayerCurves


def layer_curves(shape: LayerCurves, across: int = USUAL) -> go.Figure:
    """Curves with bands of the same colour, their baselines as outlines, named at the ends of the lines.

    Annotations that name curves have `name="curve"`, those of other lines `name="end"`; a page that is too
    narrow for them shows a legend instead. `layout.meta["above"]` is the number of pixels used above the axes.

    Args:
        shape: The curves.
        across: Width of the figure for which names are wrapped and panels arranged, in pixels.
    """
    columns = min(len(shape.panels) or 1, shape.columns)
    axes = axes_of(shape, columns, across)
    rows = math.ceil(len(axes) / columns)
    texts = [size(name.lines)[0] for ax in axes for name in ax.names]
    ends = max(texts) + LEAD - RIGHT / 2 if texts else 0.0
    if columns > 1 and width_of(shape, columns, ends, across) < NARROWEST:
        return layer_curves(replace(shape, columns=columns - 1), across)
    height = max(float(ONE if rows == 1 else ROW), *(ax.tall + 10 for ax in axes))
    above, between = pixels_above(shape), pixels_above(shape) + BELOW
    total = rows * height + (rows - 1) * between
    fig = make_subplots(
        rows=rows,
        cols=columns,
        specs=_specs(len(axes), rows, columns),
        horizontal_spacing=gap(shape, ends, across) / pixels_across(ends, across)
        if columns > 1
        else 0,
        vertical_spacing=between / total if rows > 1 else 0,
    )
    for ax in axes:
        _draw(fig, shape, ax, height)
        _name(fig, ax, width_of(shape, columns, ends, across), height)
    units = [ax.panel.y_title or shape.y_title for ax in axes]
    lines = max(len(wrapped(unit, int(height / CHARACTER))) for unit in units)
    note = _note(shape)
    base = layout(shape.title, note)
    top = heading(note) + above
    fig.update_layout(**base)
    fig.update_layout(
        height=total + top + BELOW,
        margin={"l": LEFT + 16 * (lines - 1), "r": RIGHT + ends, "t": top, "b": BELOW},
        meta={"above": above},
    )
    return fig


def _specs(count: int, rows: int, columns: int) -> list[list[dict[str, str] | None]]:
    """Subplot specs of plotly: axes for each panel, None after the last one."""
    return [
        [{} if row * columns + i < count else None for i in range(columns)] for row in range(rows)
    ]


def _note(shape: LayerCurves) -> str:
    """The note; with bands over several points, it adds that intervals are pointwise."""
    banded = bool((shape.high > shape.low).any()) and shape.values.shape[1] > 1
    return f"{shape.note}; pointwise intervals" if banded and shape.note else shape.note


def _name(fig: go.Figure, axes: Axes, width: float, height: float) -> None:
    """Write every name at the right of the frame, with a thin line to it from the end of its line."""
    right = axes.x[1]
    tail = right + LEAD / width * (right - axes.x[0])
    for name, at in zip(axes.names, axes.heights(height), strict=True):
        fig.add_annotation(
            name=name.of,
            x=name.x,
            y=name.y,
            ax=tail,
            ay=at,
            axref=f"x{axes.ref}",
            ayref=f"y{axes.ref}",
            text="<br>".join(map(shown, name.lines)),
            font={"size": name.size, "color": name.colour},
            showarrow=True,
            arrowhead=0,
            arrowwidth=1,
            arrowcolor=name.colour,
            standoff=4 * (name.x < right),
            borderpad=2,
            xanchor="left",
            align="left",
            **axes.place,
        )


# --- drawing ---


def _draw(fig: go.Figure, shape: LayerCurves, axes: Axes, height: float) -> None:
    for area in shape.behind:
        if area.curve in axes.panel.curves:
            own = axes.curves[axes.panel.curves.index(area.curve)]
            form = number_format([*area.low, *area.high], percent=shape.percent)
            fig.add_trace(behind_trace(area, own.look, places(shape), form), **axes.place)
    for place, values in shape.spread:
        if place in axes.panel.curves:
            curve = axes.curves[axes.panel.curves.index(place)]
            fig.add_trace(spread_trace(curve, values), **axes.place)
    columns = shape.x_names or places(shape)
    for curve in axes.curves:
        for trace in curve_traces(curve, columns, _where(shape.x_title), shape.percent):
            fig.add_trace(trace, **axes.place)
    for line in shape.published:
        if line.panel == axes.number:
            trace = published_trace(line, _where(shape.x_title), shape.percent)
            fig.add_trace(trace, **axes.place)
    for level, text in levels_of(shape, axes.panel):
        fig.add_trace(level_trace(level, text, axes.x), **axes.place)
    _headings(fig, shape, axes, height)
    x, y = axis("", range=list(axes.x), showgrid=False), axis("", range=list(axes.y))
    ticks = _ticks(shape)
    if shape.x_names:
        x |= {"tickvals": places(shape), "ticktext": [*map(shown, shape.x_names)]}
    elif ticks is not None:
        x["tickvals"] = ticks
    below = axes.number + shape.columns >= len(shape.panels or (1,))
    if below:
        x["title"] = axis_title(shown(shape.x_title))
    unit = axes.panel.y_title or shape.y_title
    before = shape.panels[axes.number - 1].y_title or shape.y_title if axes.number else ""
    if axes.column == 1 or unit != before:
        y["title"] = axis_title("<br>".join(map(shown, wrapped(unit, int(height / CHARACTER)))))
    fig.update_xaxes(**x, **axes.place)
    fig.update_yaxes(**y, tickformat=".0%" if shape.percent else None, **axes.place)


def _ticks(shape: LayerCurves) -> list[float] | None:
    x = places(shape)
    if len(x) <= FEW:
        return x
    return list(map(float, layer_ticks(len(x)))) if x == list(map(float, range(len(x)))) else None


def _where(x_title: str) -> str:
    """The column in a hover text: `layer 3`, `read after layer 3`."""
    plain = re.sub(r"\s*\([^)]*\)", "", x_title)
    return plain if "…" in plain else f"{plain} …"


def _small(**more: object) -> dict[str, object]:
    return {"font": {"size": SMALL, "color": QUIET.light}, "showarrow": False, **more}


def _headings(fig: go.Figure, shape: LayerCurves, axes: Axes, height: float) -> None:
    """Draw stretches and the names of marks above the axes, and the title of the panel above them."""
    x, y = f"x{axes.ref}", f"y{axes.ref} domain"
    rows = stretch_rows(shape)
    top = 20 * (1 + max(rows, default=-1))
    for where, text in shape.marks:
        fig.add_vline(x=where, line={"color": INK.light, "dash": "dot", "width": 1}, **axes.place)
        # Anchored at the end nearer to a side, so that the text stays inside a narrower figure.
        third = min(int(3 * (where - axes.x[0]) / (axes.x[1] - axes.x[0])), 2)
        fig.add_annotation(
            x=where,
            y=1,
            xref=x,
            yref=y,
            text=shown(text),
            xanchor=("left", "center", "right")[third],
            yanchor="bottom",
            yshift=top,
            **_small(),
        )
    for (start, stop, text), row in zip(shape.stretches, rows, strict=True):
        at = 1 + (6 + 20 * row) / height
        fig.add_shape(
            type="line",
            x0=start - 0.4,
            x1=stop + 0.4,
            y0=at,
            y1=at,
            xref=x,
            yref=y,
            line={"color": LOOKS["reference"].light, "width": 4},
        )
        fig.add_annotation(
            x=(start + stop) / 2,
            y=at,
            xref=x,
            yref=y,
            text=shown(text),
            yanchor="bottom",
            **_small(),
        )
    if axes.panel.title:
        fig.add_annotation(
            x=0,
            y=1,
            xref=f"x{axes.ref} domain",
            yref=y,
            text=shown(axes.panel.title),
            xanchor="left",
            yanchor="bottom",
            yshift=6 + top + 20 * bool(shape.marks),
            showarrow=False,
            font={"size": 13, "weight": 600},
        )

"""Curves over layers or another number, in one or several panels, labelled directly."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from icl_mech.plots.axes import (
    BELOW,
    LEFT,
    NARROWEST,
    ONE,
    RIGHT,
    ROW,
    SMALL,
    Axes,
    curves_of,
    gap,
    levels_of,
    pixels_above,
    pixels_across,
    places,
    room_of,
    stretch_rows,
    width_of,
)
from icl_mech.plots.labels import Box, pushed_apart, size, wrapped
from icl_mech.plots.style import (
    INK,
    LOOKS,
    QUIET,
    Look,
    axis,
    axis_title,
    heading,
    layer_ticks,
    layout,
    shown,
)
from icl_mech.plots.traces import (
    FEW,
    behind_traces,
    curve_traces,
    number_format,
    published_trace,
    spread_trace,
)
from icl_mech.shapes import Behind, LayerCurves, Panel


def layer_curves(shape: LayerCurves) -> go.Figure:
    """Curves with bands or bars of the same colour, labelled directly.

    Annotations that name curves have `name="curve"`; a page that is too narrow for them shows a
    legend instead. `layout.meta["above"]` is the number of pixels used above the axes.
    """
    panels = shape.panels or (Panel("", tuple(range(len(shape.names)))),)
    if not shape.panels and shape.levels:
        panels = (replace(panels[0], levels=shape.levels),)
    columns = min(len(panels), shape.columns)
    rows = math.ceil(len(panels) / columns)
    axes = [
        Axes(panel, i, i // columns + 1, i % columns + 1, curves_of(shape, panel))
        for i, panel in enumerate(panels)
    ]
    ends, height = 0.0, float(ONE if rows == 1 else ROW)
    placed = [
        _beside(shape, ax, columns, height) for ax in axes
    ]  # all of them, for the space they take
    if not all(placed):
        texts = [size(curve.lines) for ax in axes for curve in ax.curves]
        ends = max(width for width, _ in texts) + 40
        if columns > 1 and width_of(shape, columns, ends) < NARROWEST:
            return layer_curves(replace(shape, columns=columns - 1))
        most = max(sum(size(curve.lines)[1] for curve in ax.curves) for ax in axes)
        height = max(height, most + 30)
        for ax in axes:
            ax.room, ax.names = room_of(shape, ax, columns, height, ends), None
    above, between = pixels_above(shape), pixels_above(shape) + BELOW
    total = rows * height + (rows - 1) * between
    fig = make_subplots(
        rows=rows,
        cols=columns,
        specs=_specs(len(panels), rows, columns),
        horizontal_spacing=gap(shape, ends) / pixels_across(ends) if columns > 1 else 0,
        vertical_spacing=between / total if rows > 1 else 0,
    )
    for ax in axes:
        _draw(fig, shape, ax)
    note = _note(shape)
    base = layout(shape.title, note)
    top = heading(note) + above
    fig.update_layout(**base)
    fig.update_layout(
        height=total + top + BELOW,
        margin={"l": LEFT, "r": RIGHT + ends, "t": top, "b": BELOW},
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


# --- names ---


def _beside(shape: LayerCurves, axes: Axes, columns: int, height: float) -> bool:
    """Place a name next to every curve; False if one of them has no room."""
    axes.room = room_of(shape, axes, columns, height, 0.0)
    axes.names = []
    for i, curve in enumerate(axes.curves):
        if not curve.defined:
            axes.names.append(Box(0.0, 0.0, 0.0, 0.0))
            continue
        box = axes.room.beside(i, *size(curve.lines))
        if box is None:
            return False
        axes.names.append(box)
        axes.room.taken.append(box)
    return True


def _name(fig: go.Figure, axes: Axes) -> None:
    common = {"name": "curve", "showarrow": False, "align": "left"}
    curves = [curve for curve in axes.curves if curve.defined]
    if axes.names is not None:
        for curve, box in zip(axes.curves, axes.names, strict=True):
            if curve.defined:
                x, y = axes.room.data(*box.middle)
                fig.add_annotation(
                    x=x, y=y, text=curve.label, font=_font(curve.look), **common, **axes.place
                )
        return
    room = axes.room
    ends = [room.pixels([x], [y])[0] for x, y in (curve.end for curve in curves)]
    wanted = [float(y) for _, y in ends]
    middles = pushed_apart(wanted, [size(curve.lines)[1] for curve in curves], room.height)
    for curve, (x, y), place in zip(curves, ends, middles, strict=True):
        to_frame = room.width - float(x)
        # A thin line leads from the curve's end to its name where the two are apart.
        leads = to_frame + 20 < room.width / 3
        fig.add_annotation(
            x=curve.end[0],
            y=curve.end[1],
            text=curve.label,
            font=_font(curve.look),
            **{**common, "showarrow": leads},
            xanchor="left",
            **(
                {
                    "ax": to_frame + 20,
                    "ay": float(y) - place,
                    "axref": "pixel",
                    "ayref": "pixel",
                    "arrowhead": 0,
                    "arrowwidth": 1,
                    "arrowcolor": curve.look.light,
                    "standoff": 6,
                }
                if leads
                else {"xshift": 6, "yshift": 10}
            ),
            **axes.place,
        )


def _font(look: Look) -> dict[str, object]:
    # Names of published curves use the quiet text colour: the grey of their lines is too faint.
    return {"size": 12, "color": QUIET.light if look == LOOKS["reference"] else look.light}


# --- drawing ---


def _draw(fig: go.Figure, shape: LayerCurves, axes: Axes) -> None:
    for area in _behind(shape, axes):
        form = number_format([*area.low, *area.high], percent=shape.percent)
        for trace in behind_traces(area, places(shape), form):
            fig.add_trace(trace, **axes.place)
    for place, values in shape.spread:
        if place in axes.panel.curves:
            curve = axes.curves[axes.panel.curves.index(place)]
            fig.add_trace(spread_trace(curve, values), **axes.place)
    columns = shape.x_names or places(shape)
    for curve in axes.curves:
        for trace in curve_traces(curve, columns, _where(shape.x_title), shape.percent):
            fig.add_trace(trace, **axes.place)
    if [curve.name for curve in axes.curves] != [axes.panel.y_title or shape.y_title]:
        _name(fig, axes)
    _marks(fig, shape, axes)
    _areas(fig, shape, axes)
    _lines(fig, shape, axes)
    _published(fig, shape, axes)
    _headings(fig, shape, axes)
    _remark(fig, axes)
    x, y = axis("", range=list(axes.room.x), showgrid=False), axis("", range=list(axes.room.y))
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
        y["title"] = axis_title("<br>".join(map(shown, wrapped(unit, 44))))
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


def _write(fig: go.Figure, axes: Axes, text: str, spots: Iterator[tuple[float, float]]) -> None:
    """Write a small text at whichever spot, in pixels, it covers least."""
    width, height = size([text])
    box = axes.room.least_covering([Box.around(*spot, 0.92 * width, height) for spot in spots])
    middle, up = box.middle
    # Anchored at the end nearer to a side, so that the text stays inside a narrower figure.
    third = min(max(int(3 * middle / axes.room.width), 0), 2)
    x, y = axes.room.data((box.left, middle, box.right)[third], up)
    anchor = ("left", "center", "right")[third]
    fig.add_annotation(x=x, y=y, text=shown(text), xanchor=anchor, **_small(), **axes.place)


def _marks(fig: go.Figure, shape: LayerCurves, axes: Axes) -> None:
    for (where, text), at in zip(shape.marks, axes.room.upright, strict=True):
        fig.add_vline(x=where, line={"color": INK.light, "dash": "dot", "width": 1}, **axes.place)
        aside = size([text])[0] * 0.46 + 5
        _write(
            fig,
            axes,
            text,
            (
                (at + side * aside, axes.room.height * part)
                for part in (0.97, 0.88, 0.79, 0.7, 0.5, 0.3, 0.1)
                for side in (1, -1)
            ),
        )


def _behind(shape: LayerCurves, axes: Axes) -> list[Behind]:
    return [area for area in shape.behind if area.curve in axes.panel.curves]


def _areas(fig: go.Figure, shape: LayerCurves, axes: Axes) -> None:
    """Name the grey areas once, in or near the widest place of one."""
    spots = [
        (high - low, x, (low + high) / 2, area.name)
        for area in _behind(shape, axes)
        for x, low, high in zip(places(shape), area.low, area.high, strict=True)
        if math.isfinite(high - low)
    ]
    for _, x, y, name in sorted(spots)[-1:]:
        ((across, up),) = axes.room.pixels([x], [y])
        aside = size([name])[0] * 0.46 + 8
        _write(
            fig,
            axes,
            f"{name} (grey)",
            (
                (float(across) + side * aside, float(up) + lift)
                for lift in (0, 12, -12, 24, -24)
                for side in (1, -1)
            ),
        )


def _lines(fig: go.Figure, shape: LayerCurves, axes: Axes) -> None:
    room = axes.room
    for (height, text), at in zip(levels_of(shape, axes), room.across, strict=True):
        fig.add_hline(
            y=height,
            line={"color": LOOKS["reference"].light, "dash": "dash", "width": 1},
            **axes.place,
        )
        if not text:
            continue
        half = size([text])[0] * 0.46 + 4
        middles = [room.width - half, half, *(room.width * part / 8 for part in range(7, 0, -1))]
        _write(fig, axes, text, ((x, at + side * 9) for x in middles for side in (-1, 1)))


def _published(fig: go.Figure, shape: LayerCurves, axes: Axes) -> None:
    for line in shape.published:
        if line.panel != axes.number:
            continue
        fig.add_trace(published_trace(line, _where(shape.x_title), shape.percent), **axes.place)
        points = axes.room.pixels(line.x, line.y)
        _write(
            fig,
            axes,
            line.name,
            ((float(x), float(y) + side * 12) for x, y in points[::-1] for side in (1, -1)),
        )


def _headings(fig: go.Figure, shape: LayerCurves, axes: Axes) -> None:
    """Draw stretches above the axes, and the title of the panel above them."""
    x, y = f"x{axes.ref}", f"y{axes.ref} domain"
    pixel = 1 / axes.room.height
    rows = stretch_rows(shape)
    for (start, stop, text), row in zip(shape.stretches, rows, strict=True):
        at = 1 + (6 + 20 * row) * pixel
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
            yshift=6 + 20 * (1 + max(rows, default=-1)),
            showarrow=False,
            font={"size": 13, "weight": 600},
        )


def _remark(fig: go.Figure, axes: Axes) -> None:
    missing = [f"{curve.name}: not defined" for curve in axes.curves if not curve.defined]
    room = axes.room
    for text in [*([axes.panel.remark] if axes.panel.remark else []), *missing]:
        spots = ((room.width / 2, room.height * part / 16) for part in (12, 13, 10, 8, 6, 4, 2))
        _write(fig, axes, text, spots)

"""Curves over layers or another number, in one or several panels, named where they run."""

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
    """Curves with bands or bars of the same colour, named directly.

    Annotations that name curves have `name="curve"`: where a page is too narrow for them, it
    shows a key instead. `layout.meta["above"]` are the pixels used above the axes.
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
        _beside(shape, own, columns, height) for own in axes
    ]  # all of them, for what they leave
    if not all(placed):
        texts = [size(curve.lines) for own in axes for curve in own.curves]
        ends = max(width for width, _ in texts) + 40
        if columns > 1 and width_of(shape, columns, ends) < NARROWEST:
            return layer_curves(replace(shape, columns=columns - 1))
        most = max(sum(size(curve.lines)[1] for curve in own.curves) for own in axes)
        height = max(height, most + 30)
        for own in axes:
            own.room, own.names = room_of(shape, own, columns, height, ends), None
    above, between = pixels_above(shape), pixels_above(shape) + BELOW
    total = rows * height + (rows - 1) * between
    fig = make_subplots(
        rows=rows,
        cols=columns,
        specs=_specs(len(panels), rows, columns),
        horizontal_spacing=gap(shape, ends) / pixels_across(ends) if columns > 1 else 0,
        vertical_spacing=between / total if rows > 1 else 0,
    )
    for own in axes:
        _draw(fig, shape, own)
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
    """Axes for each panel, none after the last one."""
    return [
        [{} if row * columns + i < count else None for i in range(columns)] for row in range(rows)
    ]


def _note(shape: LayerCurves) -> str:
    """With what bands over several points do not say: that all of them hold together."""
    banded = bool((shape.high > shape.low).any()) and shape.values.shape[1] > 1
    return f"{shape.note}; each point for itself" if banded and shape.note else shape.note


# --- names ---


def _beside(shape: LayerCurves, own: Axes, columns: int, height: float) -> bool:
    """Find a place beside every curve; False if there is none for one of them."""
    own.room = room_of(shape, own, columns, height, 0.0)
    own.names = []
    for i, curve in enumerate(own.curves):
        if not curve.defined:
            own.names.append(Box(0.0, 0.0, 0.0, 0.0))
            continue
        box = own.room.beside(i, *size(curve.lines))
        if box is None:
            return False
        own.names.append(box)
        own.room.taken.append(box)
    return True


def _name(fig: go.Figure, own: Axes) -> None:
    common = {"name": "curve", "showarrow": False, "align": "left"}
    curves = [curve for curve in own.curves if curve.defined]
    if own.names is not None:
        for curve, box in zip(own.curves, own.names, strict=True):
            if curve.defined:
                x, y = own.room.data(*box.middle)
                fig.add_annotation(
                    x=x, y=y, text=curve.label, font=_font(curve.look), **common, **own.place
                )
        return
    room = own.room
    ends = [room.pixels([x], [y])[0] for x, y in (curve.end for curve in curves)]
    wanted = [float(y) for _, y in ends]
    found = pushed_apart(wanted, [size(curve.lines)[1] for curve in curves], room.height)
    for curve, (x, y), place in zip(curves, ends, found, strict=True):
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
            **own.place,
        )


def _font(own: Look) -> dict[str, object]:
    # Names of curves that stand for published values are quiet text: grey lines are too faint.
    return {"size": 12, "color": QUIET.light if own == LOOKS["reference"] else own.light}


# --- drawing ---


def _draw(fig: go.Figure, shape: LayerCurves, own: Axes) -> None:
    for area in _behind(shape, own):
        form = number_format([*area.low, *area.high], percent=shape.percent)
        for trace in behind_traces(area, places(shape), form):
            fig.add_trace(trace, **own.place)
    for place, values in shape.spread:
        if place in own.panel.curves:
            curve = own.curves[own.panel.curves.index(place)]
            fig.add_trace(spread_trace(curve, values), **own.place)
    for curve in own.curves:
        for trace in curve_traces(curve, places(shape), _where(shape.x_title), shape.percent):
            fig.add_trace(trace, **own.place)
    if [curve.name for curve in own.curves] != [own.panel.y_title or shape.y_title]:
        _name(fig, own)
    _marks(fig, shape, own)
    _areas(fig, shape, own)
    _lines(fig, shape, own)
    _published(fig, shape, own)
    _headings(fig, shape, own)
    _remark(fig, own)
    x, y = axis("", range=list(own.room.x), showgrid=False), axis("", range=list(own.room.y))
    ticks = _ticks(shape)
    if ticks is not None:
        x["tickvals"] = ticks
    below = own.number + shape.columns >= len(shape.panels or (1,))
    if below:
        x["title"] = axis_title(shown(shape.x_title))
    unit = own.panel.y_title or shape.y_title
    before = shape.panels[own.number - 1].y_title or shape.y_title if own.number else ""
    if own.column == 1 or unit != before:
        y["title"] = axis_title("<br>".join(map(shown, wrapped(unit, 44))))
    fig.update_xaxes(**x, **own.place)
    fig.update_yaxes(**y, tickformat=".0%" if shape.percent else None, **own.place)


def _ticks(shape: LayerCurves) -> list[float] | None:
    x = places(shape)
    if len(x) <= FEW:
        return x
    return list(map(float, layer_ticks(len(x)))) if x == list(map(float, range(len(x)))) else None


def _where(x_title: str) -> str:
    """What a hover text says of the column: `layer 3`, `read after layer 3`."""
    plain = re.sub(r"\s*\([^)]*\)", "", x_title)
    return plain if "…" in plain else f"{plain} …"


def _small(**more: object) -> dict[str, object]:
    return {"font": {"size": SMALL, "color": QUIET.light}, "showarrow": False, **more}


def _write(fig: go.Figure, own: Axes, text: str, spots: Iterator[tuple[float, float]]) -> None:
    """A small text at the place, of these in pixels, where it covers least."""
    width, height = size([text])
    box = own.room.least_covering([Box.around(*spot, 0.92 * width, height) for spot in spots])
    middle, up = box.middle
    # Held at the end that is nearer to a side: in a narrower figure the text stays inside.
    third = min(max(int(3 * middle / own.room.width), 0), 2)
    x, y = own.room.data((box.left, middle, box.right)[third], up)
    anchor = ("left", "center", "right")[third]
    fig.add_annotation(x=x, y=y, text=shown(text), xanchor=anchor, **_small(), **own.place)


def _marks(fig: go.Figure, shape: LayerCurves, own: Axes) -> None:
    for (where, text), at in zip(shape.marks, own.room.upright, strict=True):
        fig.add_vline(x=where, line={"color": INK.light, "dash": "dot", "width": 1}, **own.place)
        aside = size([text])[0] * 0.46 + 5
        _write(
            fig,
            own,
            text,
            (
                (at + side * aside, own.room.height * part)
                for part in (0.97, 0.88, 0.79, 0.7, 0.5, 0.3, 0.1)
                for side in (1, -1)
            ),
        )


def _behind(shape: LayerCurves, own: Axes) -> list[Behind]:
    return [area for area in shape.behind if area.curve in own.panel.curves]


def _areas(fig: go.Figure, shape: LayerCurves, own: Axes) -> None:
    """The name of grey areas, once, in or near the widest place of one."""
    found = [
        (high - low, x, (low + high) / 2, area.name)
        for area in _behind(shape, own)
        for x, low, high in zip(places(shape), area.low, area.high, strict=True)
        if math.isfinite(high - low)
    ]
    for _, x, y, name in sorted(found)[-1:]:
        ((across, up),) = own.room.pixels([x], [y])
        aside = size([name])[0] * 0.46 + 8
        _write(
            fig,
            own,
            f"{name} (grey)",
            (
                (float(across) + side * aside, float(up) + lift)
                for lift in (0, 12, -12, 24, -24)
                for side in (1, -1)
            ),
        )


def _lines(fig: go.Figure, shape: LayerCurves, own: Axes) -> None:
    room = own.room
    for (height, text), at in zip(levels_of(shape, own), room.across, strict=True):
        fig.add_hline(
            y=height,
            line={"color": LOOKS["reference"].light, "dash": "dash", "width": 1},
            **own.place,
        )
        if not text:
            continue
        half = size([text])[0] * 0.46 + 4
        middles = [room.width - half, half, *(room.width * part / 8 for part in range(7, 0, -1))]
        _write(fig, own, text, ((x, at + side * 9) for x in middles for side in (-1, 1)))


def _published(fig: go.Figure, shape: LayerCurves, own: Axes) -> None:
    for line in shape.published:
        if line.panel != own.number:
            continue
        fig.add_trace(published_trace(line, _where(shape.x_title), shape.percent), **own.place)
        points = own.room.pixels(line.x, line.y)
        _write(
            fig,
            own,
            line.name,
            ((float(x), float(y) + side * 12) for x, y in points[::-1] for side in (1, -1)),
        )


def _headings(fig: go.Figure, shape: LayerCurves, own: Axes) -> None:
    """Stretches above the axes, and the title of the panel above them."""
    x, y = f"x{own.ref}", f"y{own.ref} domain"
    pixel = 1 / own.room.height
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
    if own.panel.title:
        fig.add_annotation(
            x=0,
            y=1,
            xref=f"x{own.ref} domain",
            yref=y,
            text=shown(own.panel.title),
            xanchor="left",
            yanchor="bottom",
            yshift=6 + 20 * (1 + max(rows, default=-1)),
            showarrow=False,
            font={"size": 13, "weight": 600},
        )


def _remark(fig: go.Figure, own: Axes) -> None:
    missing = [f"{curve.name}: not defined" for curve in own.curves if not curve.defined]
    room = own.room
    for text in [*([own.panel.remark] if own.panel.remark else []), *missing]:
        spots = ((room.width / 2, room.height * part / 16) for part in (12, 13, 10, 8, 6, 4, 2))
        _write(fig, own, text, spots)

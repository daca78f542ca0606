"""Values of windows of layers: a bar from the first to the last layer, at the height of the value."""

import math
from itertools import pairwise

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from icl_mech.plots.style import (
    BAND,
    LOOKS,
    QUIET,
    Look,
    axis,
    heading,
    layer_ticks,
    layout,
    look,
    number,
    shown,
)
from icl_mech.shapes import Windows

ROW = 250
"""Height of a row of axes, in pixels."""

ABOVE = 16
"""Height of the names of levels above the axes, in pixels."""

INSET = 0.42
"""Extension of a bar beyond the centres of its first and last layer."""


def windows(shape: Windows) -> go.Figure:
    """A figure with one row of axes per width and one column per measure; one column on a phone."""
    widths = sorted({stop - start + 1 for start, stop in zip(shape.first, shape.last, strict=True)})
    headings = [
        f"{name}, {width} layers at a time" if width > 1 else f"{name}, one layer at a time"
        for width in widths
        for name in shape.names
    ]
    columns = min(shape.columns, len(shape.names))
    rows = -(-len(headings) // columns)
    above = ABOVE * any(shape.levels)
    fig = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[text[:1].upper() + text[1:] for text in map(shown, headings)],
        horizontal_spacing=0.09,
        vertical_spacing=((0.32 if columns == len(shape.names) else 0.44) + above / ROW) / rows,
    )
    for number_, name in enumerate(fig.layout.annotations):
        left = fig.layout[f"xaxis{number_ + 1 if number_ else ''}"].domain[0]
        name.update(x=left, xanchor="left", yshift=4 + above, font={"size": 13, "weight": 600})
    for place in range(len(headings)):
        width, measure = widths[place // len(shape.names)], place % len(shape.names)
        cell = {"row": place // columns + 1, "col": place % columns + 1}
        _axes(fig, shape, width, measure, cell)
    fig.update_layout(**layout(shape.title, shape.note, height=150 + (above + ROW) * rows))
    fig.update_layout(margin={"l": 60, "r": 30, "b": 60, "t": heading(shape.note) + 30 + above})
    return fig


def _axes(fig: go.Figure, shape: Windows, width: int, measure: int, place: dict[str, int]) -> None:
    measure_look = look(shape.meanings[measure] if shape.meanings else "", measure)
    inside = [
        i
        for i, (start, stop) in enumerate(zip(shape.first, shape.last, strict=True))
        if stop - start + 1 == width and math.isfinite(float(shape.values[measure, i]))
    ]
    starts = sorted(shape.first[i] for i in inside)
    apart = all(b - a >= width for a, b in pairwise(starts))
    bottom, top = _range(shape, measure)
    levels = shape.levels[measure] if shape.levels else ()
    for i in inside:
        _bar(fig, shape, measure, i, measure_look, place, band=apart)
    fig.add_scatter(
        x=[(shape.first[i] + shape.last[i]) / 2 for i in inside],
        y=[float(shape.values[measure, i]) for i in inside],
        name=shape.names[measure],
        mode="markers",
        marker={
            "size": 7 if apart else 5,
            "symbol": measure_look.marker,
            "color": measure_look.light,
        },
        error_y=None if apart else _errors(shape, measure, inside),
        customdata=[_hover(shape, measure, i) for i in inside],
        hovertemplate="%{customdata}<extra></extra>",
        **place,
    )
    # Plotly omits lines from axes on which nothing is drawn yet.
    for height, _ in levels:
        _level(fig, height, place)
    if levels:
        # Above the axes: inside, bars of any height may be there.
        fig.add_annotation(
            x=0,
            y=1,
            xref="x domain",
            yref="y domain",
            text="dashed: " + ", ".join(shown(text) for _, text in levels),
            font={"size": 11, "color": QUIET.light},
            xanchor="left",
            yanchor="bottom",
            showarrow=False,
            **place,
        )
    ticks = layer_ticks(shape.n_layers)
    if apart and 1 < len(starts) <= 12:
        ticks = [*starts, max(shape.last[i] for i in inside)]
    fig.update_xaxes(
        **axis(shape.x_title, range=[-0.7, shape.n_layers - 0.3], showgrid=False, tickvals=ticks),
        **place,
    )
    fig.update_yaxes(**axis("", range=[bottom, top]), **place)


def _bar(
    fig: go.Figure,
    shape: Windows,
    measure: int,
    i: int,
    measure_look: Look,
    place: dict[str, int],
    *,
    band: bool,
) -> None:
    left, right = shape.first[i] - INSET, shape.last[i] + INSET
    low, high = float(shape.low[measure, i]), float(shape.high[measure, i])
    if band and math.isfinite(low) and math.isfinite(high):
        fig.add_shape(
            type="rect",
            x0=left,
            x1=right,
            y0=low,
            y1=high,
            fillcolor=measure_look.light,
            opacity=BAND,
            line={"width": 0},
            layer="below",
            **place,
        )
    value = float(shape.values[measure, i])
    fig.add_shape(
        type="line",
        x0=left,
        x1=right,
        y0=value,
        y1=value,
        line={"color": measure_look.light, "width": 3 if band else 1.5},
        **place,
    )


def _errors(shape: Windows, measure: int, inside: list[int]) -> dict[str, object]:
    values, low, high = (
        [float(table[measure, i]) for i in inside]
        for table in (shape.values, shape.low, shape.high)
    )
    return {
        "type": "data",
        "symmetric": False,
        "array": [b - a for a, b in zip(values, high, strict=True)],
        "arrayminus": [a - b for a, b in zip(values, low, strict=True)],
        "width": 0,
        "thickness": 1,
    }


def _hover(shape: Windows, measure: int, i: int) -> str:
    start, stop = shape.first[i], shape.last[i]
    where = f"layer {start}" if start == stop else f"layers {start}–{stop}"
    low, high = float(shape.low[measure, i]), float(shape.high[measure, i])
    ends = f" [{number(low)}, {number(high)}]" if math.isfinite(low) else ""
    value = number(float(shape.values[measure, i]))
    return f"<b>{where}</b><br>{shown(shape.names[measure])} {value}{ends}"


def _level(fig: go.Figure, height: float, place: dict[str, int]) -> None:
    fig.add_hline(
        y=height, line={"color": LOOKS["reference"].light, "dash": "dash", "width": 1}, **place
    )


def _range(shape: Windows, measure: int) -> tuple[float, float]:
    if shape.y_range:
        return shape.y_range
    values = [
        float(v)
        for table in (shape.values, shape.low, shape.high)
        for v in table[measure]
        if math.isfinite(float(v))
    ]
    values += [height for height, _ in (shape.levels[measure] if shape.levels else ())]
    lowest, highest = min([0.0, *values]), max([0.0, *values])
    spread = highest - lowest or 1.0
    return lowest - 0.06 * spread, highest + 0.08 * spread

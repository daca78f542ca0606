"""Maps over two numbers, such as layer x head: square cells, chosen ones framed and named."""

from collections import defaultdict

import numpy as np
import plotly.graph_objects as go

from icl_mech.plots.style import (
    PANEL,
    QUIET,
    SCALE,
    SIGNED_SCALE,
    axis,
    layer_ticks,
    layout,
    number,
    shown,
    steps,
)
from icl_mech.shapes import Grid, Grids

WIDTH = 760
"""Pixels across which the columns of a page's figure lie."""

CELL = (6.0, 40.0)
"""Pixels of a cell at least and at most."""

HEADING = 62
"""Pixels above a map with framed cells: their names, and the map's title over these."""

LIFT = 28

BOTTOM = 62
"""Pixels below the last map."""


def grid(shape: Grid, width: int = WIDTH) -> go.Figure:
    """One map, its columns across so many pixels at most."""
    return _figure((shape,), shape.title, shape.note, width, headed=False)


def grids(shape: Grids, width: int = WIDTH) -> go.Figure:
    """Maps one above the other; the columns are numbered once."""
    return _figure(shape.grids, shape.title, shape.note, width, headed=True)


def _figure(
    maps: tuple[Grid, ...], title: str, note: str, width: int, *, headed: bool
) -> go.Figure:
    n_rows, n_columns = (max(grid.values.shape[i] for grid in maps) for i in (0, 1))
    cell = min(max(width / max(n_columns, 1), CELL[0]), CELL[1])
    # In narrow maps names lean over the title, which stands higher.
    lift = LIFT * (width < WIDTH)
    above = [HEADING + lift if own.names else 30 if headed else 0 for own in maps]
    tall = cell * n_rows
    whole = tall * len(maps) + sum(above)
    share = min(1.0, cell * n_columns / width)
    fig = go.Figure()
    settings = layout(title, note)
    top = settings["margin"]["t"]  # type: ignore[index]
    fig.update_layout(**settings, height=round(whole + top + BOTTOM))
    fig.update_layout(margin={"l": 60, "r": 90, "b": BOTTOM})
    end = 1.0
    for place, own in enumerate(maps):
        end -= above[place] / whole
        start = max(0.0, end - tall / whole)
        last = place == len(maps) - 1
        _map(fig, own, place, (start, end), share, lift=lift, headed=headed, last=last)
        end = start
    return fig


def _map(
    fig: go.Figure,
    shape: Grid,
    place: int,
    span: tuple[float, float],
    share: float,
    *,
    lift: int,
    headed: bool,
    last: bool,
) -> None:
    """One map between two heights of the figure."""
    suffix = str(place + 1) if place else ""
    values = shape.values.double().numpy()
    rows = list(shape.rows) if shape.rows is not None else list(range(values.shape[0]))
    columns = list(shape.columns) if shape.columns is not None else list(range(values.shape[1]))
    finite = values[np.isfinite(values)]
    most = float(np.abs(finite).max()) if shape.signed and finite.size else 0.0
    most = most or (float(finite.max()) if finite.size else 0.0)
    ends, interval = None, ""
    if shape.low is not None and shape.high is not None:
        ends = np.round(np.stack([shape.low.double().numpy(), shape.high.double().numpy()], -1), 5)
        interval = " [%{customdata[0]:.3f}, %{customdata[1]:.3f}]"
    fig.add_heatmap(
        # Five decimals: what a reader or a table can use, at half the size.
        z=np.round(values, 5),
        x=columns,
        y=rows,
        xaxis=f"x{suffix}",
        yaxis=f"y{suffix}",
        colorscale=steps(SIGNED_SCALE if shape.signed else SCALE),
        reversescale=shape.dark_low,
        zmin=-(most or 1.0) if shape.signed else 0.0,
        zmax=most if most > 0 else 1.0,
        xgap=1 if len(columns) <= 60 else 0,
        ygap=1 if len(rows) <= 60 else 0,
        customdata=ends,
        hoverongaps=False,
        colorbar={
            "title": {"text": f"{shape.quantity}<br>", "side": "top", "font": {"size": 11}},
            "x": share + 0.01,
            "xanchor": "left",
            "y": (span[0] + span[1]) / 2,
            "len": span[1] - span[0],
            "thickness": 12,
            "outlinewidth": 0,
            "nticks": 5,
            "tickfont": {"color": QUIET.light, "size": 11},
        },
        hovertemplate=f"<b>{shape.column_title} %{{x}}, {shape.row_title} %{{y}}</b>"
        f"<br>{shape.quantity} %{{z:.3f}}{interval}<extra></extra>",
    )
    plain = {"showgrid": False, "showline": False}
    fig.update_layout(
        {
            f"xaxis{suffix}": axis(
                shape.column_title if last else "",
                domain=[0, share],
                anchor=f"y{suffix}",
                range=[columns[0] - 0.5, columns[-1] + 0.5],
                tickvals=_ticks(columns),
                showticklabels=last,
                constrain="domain",
                constraintoward="left",
                **plain,
            ),
            f"yaxis{suffix}": axis(
                shape.row_title,
                domain=list(span),
                anchor=f"x{suffix}",
                range=[rows[-1] + 0.5, rows[0] - 0.5],
                tickvals=_ticks(rows),
                scaleanchor=f"x{suffix}",
                constrain="domain",
                constraintoward="top",
                **plain,
            ),
        }
    )
    if not np.isfinite(values).all():
        fig.update_layout(plot_bgcolor=PANEL.light)
    if headed:
        fig.add_annotation(
            x=0, y=1, xref=f"x{suffix} domain", yref=f"y{suffix} domain", text=f"<b>{shown(shape.title)}</b>",
            showarrow=False, xanchor="left", yanchor="bottom", yshift=38 + lift if shape.names else 6,
        )  # fmt: skip
    _frames(fig, shape, rows, columns, suffix)


def _ticks(numbers: list[int]) -> list[int]:
    """Numbers along an axis: all of a few, else every fifth or tenth, and the last."""
    return [numbers[place] for place in layer_ticks(len(numbers))]


def _frames(fig: go.Figure, shape: Grid, rows: list[int], columns: list[int], suffix: str) -> None:
    """White under black: seen on any cell, in the light and in the dark."""
    for row, column in shape.marked:
        for colour, width in (("white", 4), ("black", 2)):
            fig.add_shape(
                type="rect", x0=columns[column] - 0.5, x1=columns[column] + 0.5,
                y0=rows[row] - 0.5, y1=rows[row] + 0.5, xref=f"x{suffix}", yref=f"y{suffix}",
                line={"color": colour, "width": width},
            )  # fmt: skip
    by_column: dict[int, list[str]] = defaultdict(list)
    for (_, column), name in zip(shape.marked, shape.names, strict=False):
        by_column[columns[column]].append(name)
    for column, names in sorted(by_column.items()):
        fig.add_annotation(
            x=column, y=1, xref=f"x{suffix}", yref=f"y{suffix} domain", text=", ".join(names),
            showarrow=False, xanchor="left", yanchor="bottom", textangle=-40, xshift=-4,
            font={"size": 11, "weight": 600},
        )  # fmt: skip


def below_zero(shape: Grid) -> str:
    """What is said of values below 0 on a scale from 0; nothing where there are none."""
    values = shape.values.double()
    values = values[values.isfinite()]
    if shape.signed or not values.numel() or float(values.min()) >= 0:
        return ""
    return f"values below 0 (lowest {number(float(values.min()))}) are drawn as 0"

"""Heatmaps: over two numbers such as layer x head, and small ones over named rows and columns."""

import math
from collections import defaultdict

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

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
from icl_mech.shapes import Grid, Grids, LabelMatrices, LabelMatrix, shortened

WIDTH = 760
"""Maximum width of all columns of a figure, in pixels."""

CELL = (6.0, 40.0)
"""Minimum and maximum size of a cell, in pixels."""

HEADING = 62
"""Pixels above a map with framed cells: their names, and the map's title above these."""

LIFT = 28

BOTTOM = 62
"""Pixels below the last map."""


def grid(shape: Grid, width: int = WIDTH) -> go.Figure:
    """One heatmap, at most `width` pixels wide."""
    return _figure((shape,), shape.title, shape.note, width, headed=False)


def grids(shape: Grids, width: int = WIDTH) -> go.Figure:
    """Heatmaps one above the other; the columns are numbered once."""
    return _figure(shape.grids, shape.title, shape.note, width, headed=True)


def _figure(
    maps: tuple[Grid, ...], title: str, note: str, width: int, *, headed: bool
) -> go.Figure:
    n_rows, n_columns = (max(grid.values.shape[i] for grid in maps) for i in (0, 1))
    cell = min(max(width / max(n_columns, 1), CELL[0]), CELL[1])
    # In narrow maps names would overlap the title, which is moved up.
    lift = LIFT * (width < WIDTH)
    above = [HEADING + lift if heatmap.names else 30 if headed else 0 for heatmap in maps]
    tall = cell * n_rows
    whole = tall * len(maps) + sum(above)
    share = min(1.0, cell * n_columns / width)
    fig = go.Figure()
    settings = layout(title, note)
    top = settings["margin"]["t"]
    fig.update_layout(**settings, height=round(whole + top + BOTTOM))
    fig.update_layout(margin={"l": 60, "r": 90, "b": BOTTOM})
    end = 1.0
    for place, heatmap in enumerate(maps):
        end -= above[place] / whole
        start = max(0.0, end - tall / whole)
        last = place == len(maps) - 1
        _map(fig, heatmap, place, (start, end), share, lift=lift, headed=headed, last=last)
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
    """Draw one heatmap between two heights of the figure."""
    suffix = str(place + 1) if place else ""
    values = shape.values.double().numpy()
    rows = list(shape.rows) if shape.rows is not None else list(range(values.shape[0]))
    columns = list(shape.columns) if shape.columns is not None else list(range(values.shape[1]))
    cells = _cells(shape, values, rows, columns)
    cells.update(
        xaxis=f"x{suffix}", yaxis=f"y{suffix}", colorbar=_colour_bar(shape.quantity, share, span)
    )
    fig.add_trace(cells)
    plain = {"showgrid": False, "showline": False, "constrain": "domain"}
    across = axis(
        shape.column_title if last else "",
        domain=[0, share],
        anchor=f"y{suffix}",
        range=[columns[0] - 0.5, columns[-1] + 0.5],
        tickvals=_ticks(columns),
        showticklabels=last,
        constraintoward="left",
        **plain,
    )
    down = axis(
        shape.row_title,
        domain=list(span),
        anchor=f"x{suffix}",
        range=[rows[-1] + 0.5, rows[0] - 0.5],
        tickvals=_ticks(rows),
        scaleanchor=f"x{suffix}",
        constraintoward="top",
        **plain,
    )
    fig.update_layout({f"xaxis{suffix}": across, f"yaxis{suffix}": down})
    if not np.isfinite(values).all():
        fig.update_layout(plot_bgcolor=PANEL.light)
    if headed:
        _head(fig, shape, suffix, lift)
    _frames(fig, shape, rows, columns, suffix)


def _head(fig: go.Figure, shape: Grid, suffix: str, lift: int) -> None:
    place = {"xref": f"x{suffix} domain", "yref": f"y{suffix} domain", "x": 0, "y": 1}
    anchors = {"xanchor": "left", "yanchor": "bottom", "showarrow": False}
    above = 38 + lift if shape.names else 6
    fig.add_annotation(text=f"<b>{shown(shape.title)}</b>", yshift=above, **place, **anchors)


def _colour_bar(quantity: str, share: float, span: tuple[float, float]) -> dict[str, object]:
    """The colour bar at the right of a heatmap, of the same height."""
    return {
        "title": {"text": f"{quantity}<br>", "side": "top", "font": {"size": 11}},
        "x": share + 0.01,
        "xanchor": "left",
        "y": (span[0] + span[1]) / 2,
        "len": span[1] - span[0],
        "thickness": 12,
        "outlinewidth": 0,
        "nticks": 5,
        "tickfont": {"color": QUIET.light, "size": 11},
    }


def _cells(
    shape: Grid, values: npt.NDArray[np.float64], rows: list[int], columns: list[int]
) -> go.Heatmap:
    """The coloured cells with their hover texts."""
    finite = values[np.isfinite(values)]
    most = float(np.abs(finite).max()) if shape.signed and finite.size else 0.0
    most = most or (float(finite.max()) if finite.size else 0.0)
    ends, interval = None, ""
    if shape.low is not None and shape.high is not None:
        ends = np.round(np.stack([shape.low.double().numpy(), shape.high.double().numpy()], -1), 5)
        interval = " [%{customdata[0]:.3f}, %{customdata[1]:.3f}]"
    return go.Heatmap(
        # Five decimals are enough for a reader or a table, at half the size.
        z=np.round(values, 5),
        x=columns,
        y=rows,
        colorscale=steps(SIGNED_SCALE if shape.signed else SCALE),
        reversescale=shape.dark_low,
        zmin=-(most or 1.0) if shape.signed else 0.0,
        zmax=most if most > 0 else 1.0,
        xgap=1 if len(columns) <= 60 else 0,
        ygap=1 if len(rows) <= 60 else 0,
        customdata=ends,
        hoverongaps=False,
        hovertemplate=f"<b>{shape.column_title} %{{x}}, {shape.row_title} %{{y}}</b>"
        f"<br>{shape.quantity} %{{z:.3f}}{interval}<extra></extra>",
    )


def _ticks(numbers: list[int]) -> list[int]:
    """Ticks along an axis: every number if they are few, else every fifth or tenth, and the last."""
    return [numbers[place] for place in layer_ticks(len(numbers))]


def _frames(fig: go.Figure, shape: Grid, rows: list[int], columns: list[int], suffix: str) -> None:
    """Frame the marked cells in black over white, visible on any cell in both themes, and name them."""
    for row, column in shape.marked:
        for colour, width in (("white", 4), ("black", 2)):
            fig.add_shape(
                type="rect",
                x0=columns[column] - 0.5,
                x1=columns[column] + 0.5,
                y0=rows[row] - 0.5,
                y1=rows[row] + 0.5,
                xref=f"x{suffix}",
                yref=f"y{suffix}",
                line={"color": colour, "width": width},
            )
    by_column: dict[int, list[str]] = defaultdict(list)
    for (_, column), name in zip(shape.marked, shape.names, strict=False):
        by_column[columns[column]].append(name)
    for column, names in sorted(by_column.items()):
        fig.add_annotation(
            x=column,
            y=1,
            xref=f"x{suffix}",
            yref=f"y{suffix} domain",
            text=", ".join(names),
            showarrow=False,
            xanchor="left",
            yanchor="bottom",
            textangle=-40,
            xshift=-4,
            font={"size": 11, "weight": 600},
        )


WRITTEN = 14
"""Maximum rows and columns for which numbers are written in the cells; else a colour bar is shown."""

WRITTEN_CELL, NAMED_CELL, SMALL_CELL = 42, 22, 15
"""Pixels of a row with numbers, of a row without, and of a row if there are many."""


LONGEST = 24
"""Maximum characters of a name; longer ones are cut and shown in full on hover."""


def label_matrix(shape: LabelMatrix) -> go.Figure:
    """A small heatmap with its numbers written in the cells."""
    fig = make_subplots(rows=1, cols=1)
    _draw(fig, shape, 1)
    return _finished(fig, (shape,), shape.title, shape.note)


def label_matrices(shape: LabelMatrices) -> go.Figure:
    """Small heatmaps side by side, each with its own colours; equal rows are named once."""
    alike = all(matrix.rows == shape.matrices[0].rows for matrix in shape.matrices)
    fig = make_subplots(
        rows=1,
        cols=len(shape.matrices),
        subplot_titles=[shown(matrix.title) for matrix in shape.matrices],
        horizontal_spacing=0.06 if alike else 0.2,
    )
    for column, matrix in enumerate(shape.matrices, start=1):
        _draw(fig, matrix, column, named=column == 1 or not alike)
    for column, heading in enumerate(fig.layout.annotations, start=1):
        left = fig.layout[f"xaxis{column if column > 1 else ''}"].domain[0]
        heading.update(x=left, xanchor="left", font={"size": 13, "weight": 600})
    return _finished(fig, shape.matrices, shape.title, shape.note)


def _draw(fig: go.Figure, shape: LabelMatrix, column: int, *, named: bool = True) -> None:
    values = shape.values.double().numpy()
    written = max(values.shape) <= WRITTEN
    low, high = shape.ends or (0.0, _largest(values))
    # A scale from dark to light is the same one reversed.
    backwards = low > high
    fig.add_trace(
        go.Heatmap(
            z=values,
            text=[[_text(value, counts=shape.counts) for value in row] for row in values.tolist()],
            texttemplate="%{text}" if written else None,
            customdata=_hovers(shape, values),
            hovertemplate="%{customdata}<extra></extra>",
            hoverongaps=False,
            colorscale=steps(SCALE),
            reversescale=backwards,
            zmin=min(low, high),
            zmax=max(low, high),
            xgap=2 if written else 0.5,
            ygap=2 if written else 0.5,
            showscale=not written,
            colorbar={"title": {"text": shape.quantity, "side": "right"}, "outlinewidth": 0},
        ),
        row=1,
        col=column,
    )
    if shape.diagonal:
        _frame_diagonal(fig, min(values.shape), column)
    fig.update_xaxes(
        **_named_axis(shape.column_title, shape.columns, values.shape[1]), row=1, col=column
    )
    rows = _named_axis(shape.row_title if named else "", shape.rows, values.shape[0])
    if not named:
        rows["showticklabels"] = False
    # The first row is at the top.
    rows["range"] = [values.shape[0] - 0.5, -0.5]
    fig.update_yaxes(**rows, row=1, col=column)


def _frame_diagonal(fig: go.Figure, count: int, column: int) -> None:
    for place in range(count):
        low, high = place - 0.47, place + 0.47
        for colour, width in (("white", 4), ("black", 2)):
            line = {"color": colour, "width": width}
            ends = {"x0": low, "x1": high, "y0": low, "y1": high}
            fig.add_shape(type="rect", line=line, row=1, col=column, **ends)


def _named_axis(title: str, names: tuple[str, ...], count: int) -> dict[str, object]:
    # Positions with names as tick labels: names alone may repeat, or look like numbers.
    return axis(
        shown(title),
        range=[-0.5, count - 0.5],
        tickvals=list(range(count)),
        ticktext=[_cut(name) for name in names],
        ticks="",
        showline=False,
        showgrid=False,
        automargin=True,
    )


def _hovers(shape: LabelMatrix, values: npt.NDArray[np.float64]) -> list[list[str]]:
    row_title, column_title = (f"{t} " if t else "" for t in (shape.row_title, shape.column_title))
    texts: list[list[str]] = []
    for i, row in enumerate(values.tolist()):
        texts.append([])
        for j, value in enumerate(row):
            interval = ""
            if shape.low is not None and shape.high is not None:
                ends = float(shape.low[i, j]), float(shape.high[i, j])
                if all(map(math.isfinite, ends)):
                    interval = f" [{number(ends[0])}, {number(ends[1])}]"
            names = f"{row_title}{shape.rows[i]}, {column_title}{shape.columns[j]}"
            text = _text(value, counts=shape.counts)
            texts[-1].append(f"<b>{shown(names)}</b><br>{shown(shape.quantity)} {text}{interval}")
    return texts


def _text(value: float, *, counts: bool) -> str:
    if not math.isfinite(value):
        return ""
    if counts:
        return f"{value:.0f}" if value == round(value) else f"{value:.1f}"
    return number(value)


def _largest(values: npt.NDArray[np.float64]) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0


def _cut(name: str) -> str:
    return shown(shortened(name, LONGEST))


def _finished(fig: go.Figure, shapes: tuple[LabelMatrix, ...], title: str, note: str) -> go.Figure:
    rows = max(len(shape.rows) for shape in shapes)
    cell = SMALL_CELL if rows > WRITTEN else NAMED_CELL
    if max(rows, *(len(shape.columns) for shape in shapes)) <= WRITTEN:
        cell = WRITTEN_CELL
    top = layout(title, note)["margin"]
    height = rows * cell + 90 + (top["t"] if isinstance(top, dict) else 100)
    fig.update_layout(**layout(title, note, height=height))
    fig.update_layout(margin={"l": 60, "r": 30, "b": 60})
    if any(bool(shape.values.isnan().any()) for shape in shapes):
        fig.update_layout(plot_bgcolor=PANEL.light)
    return fig

"""Small matrices over named rows and columns, with their numbers written in the cells."""

import math

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from icl_mech.plots.style import PANEL, SCALE, axis, layout, number, shown, steps
from icl_mech.shapes import LabelMatrices, LabelMatrix

WRITTEN = 14
"""Up to this many rows and columns numbers are written in the cells; else a colour bar says them."""

CELL, SMALL_CELL = 42, 15
"""Pixels of a row with numbers, and without."""


LONGEST = 24
"""Letters of a name; longer ones are cut and shown whole on hovering."""


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
    # Scales from dark to light are the same one turned round.
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
        for place in range(min(values.shape)):
            for colour, width in (("white", 4), ("black", 2)):
                fig.add_shape(
                    type="rect", x0=place - 0.47, x1=place + 0.47, y0=place - 0.47,
                    y1=place + 0.47, line={"color": colour, "width": width}, row=1, col=column,
                )  # fmt: skip
    fig.update_xaxes(
        **_named_axis(shape.column_title, shape.columns, values.shape[1]), row=1, col=column
    )
    rows = _named_axis(shape.row_title if named else "", shape.rows, values.shape[0])
    if not named:
        rows["showticklabels"] = False
    # The first row stands on top.
    rows["range"] = [values.shape[0] - 0.5, -0.5]
    fig.update_yaxes(**rows, row=1, col=column)


def _named_axis(title: str, names: tuple[str, ...], count: int) -> dict[str, object]:
    # Numbers with names written beside them: names alone may repeat, or look like numbers.
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
    found: list[list[str]] = []
    for i, row in enumerate(values.tolist()):
        found.append([])
        for j, value in enumerate(row):
            interval = ""
            if shape.low is not None and shape.high is not None:
                ends = float(shape.low[i, j]), float(shape.high[i, j])
                if all(map(math.isfinite, ends)):
                    interval = f" [{number(ends[0])}, {number(ends[1])}]"
            names = f"{row_title}{shape.rows[i]}, {column_title}{shape.columns[j]}"
            text = _text(value, counts=shape.counts)
            found[-1].append(f"<b>{shown(names)}</b><br>{shown(shape.quantity)} {text}{interval}")
    return found


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
    return shown(name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…")


def _finished(fig: go.Figure, shapes: tuple[LabelMatrix, ...], title: str, note: str) -> go.Figure:
    rows = max(len(shape.rows) for shape in shapes)
    cell = CELL if max(rows, *(len(shape.columns) for shape in shapes)) <= WRITTEN else SMALL_CELL
    top = layout(title, note)["margin"]
    height = rows * cell + 90 + (top["t"] if isinstance(top, dict) else 100)
    fig.update_layout(**layout(title, note, height=height))
    fig.update_layout(margin={"l": 60, "r": 30, "b": 60})
    if any(bool(shape.values.isnan().any()) for shape in shapes):
        fig.update_layout(plot_bgcolor=PANEL.light)
    return fig

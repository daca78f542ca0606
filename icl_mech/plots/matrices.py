"""Heatmaps of small matrices and of grids such as layer x head."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from icl_mech.plots.style import BLANK, SCALE, SIGNED_SCALE, TEMPLATE, title, top_margin
from icl_mech.shapes import Grid, LabelMatrices, LabelMatrix


def label_matrix(shape: LabelMatrix) -> go.Figure:
    """A small heatmap with its numbers written in the cells."""
    fig = go.Figure(_cells(shape))
    fig.update_layout(
        template=TEMPLATE,
        title={"text": shape.title},
        xaxis={"title": shape.column_title},
        yaxis={"title": shape.row_title, "autorange": "reversed"},
        height=170 + 60 * len(shape.rows),
    )
    return fig


def label_matrices(shape: LabelMatrices) -> go.Figure:
    """Small heatmaps side by side, with one colour range; equal rows are named once."""
    count = len(shape.matrices)
    alike = all(matrix.rows == shape.matrices[0].rows for matrix in shape.matrices)
    fig = make_subplots(
        cols=count,
        subplot_titles=[m.title for m in shape.matrices],
        horizontal_spacing=0.05 if alike else 0.2,
        shared_yaxes=alike,
    )
    for column, matrix in enumerate(shape.matrices, start=1):
        fig.add_trace(_cells(matrix, coloraxis="coloraxis"), row=1, col=column)
        fig.update_xaxes(title=matrix.column_title, row=1, col=column)
        named = column == 1 or not alike
        fig.update_yaxes(
            title=matrix.row_title if named else None, autorange="reversed", row=1, col=column
        )
    finite = np.concatenate([matrix.values.double().numpy().ravel() for matrix in shape.matrices])
    fig.update_layout(
        template=TEMPLATE,
        title=title(shape.title, shape.note),
        coloraxis={
            "colorscale": SCALE,
            "cmin": min(0.0, float(np.nanmin(finite))),
            "cmax": float(np.nanmax(finite)),
        },
        margin={"t": 120},
        height=260 + 60 * max(len(matrix.rows) for matrix in shape.matrices),
    )
    return fig


def grid(shape: Grid) -> go.Figure:
    """A heatmap over two numbers, with marked cells."""
    values = shape.values.double().numpy()
    rows = list(shape.rows) if shape.rows is not None else list(range(values.shape[0]))
    columns = list(shape.columns) if shape.columns is not None else list(range(values.shape[1]))
    largest = float(np.nanmax(np.abs(values))) if np.isfinite(values).any() else 1.0
    ends, interval = None, ""
    if shape.low is not None and shape.high is not None:
        ends = np.stack([shape.low.double().numpy(), shape.high.double().numpy()], axis=-1)
        interval = " [%{customdata[0]:.3g}, %{customdata[1]:.3g}]"
    fig = go.Figure(
        go.Heatmap(
            z=values,
            x=columns,
            y=rows,
            colorscale=SIGNED_SCALE if shape.signed else SCALE,
            reversescale=shape.signed or shape.dark_low,
            zmin=-largest if shape.signed else None,
            zmax=largest if shape.signed else None,
            customdata=ends,
            hoverongaps=False,
            colorbar={"title": {"text": shape.quantity, "side": "right"}},
            hovertemplate=f"{shape.row_title} %{{y}}, {shape.column_title} %{{x}}"
            f"<br>{shape.quantity} %{{z:.3g}}{interval}<extra></extra>",
        )
    )
    if shape.marked:
        fig.add_scatter(
            x=[columns[column] for _, column in shape.marked],
            y=[rows[row] for row, _ in shape.marked],
            mode="markers",
            marker={"symbol": "square-open", "size": 13, "color": "#d62728", "line": {"width": 2}},
            hoverinfo="skip",
            showlegend=False,
        )
    fig.update_layout(
        template=TEMPLATE,
        title=title(shape.title, shape.note),
        margin=top_margin(shape.note),
        xaxis={"title": shape.column_title, "dtick": 1 if len(columns) < 30 else None},
        yaxis={"title": shape.row_title, "autorange": "reversed"},
        height=max(380, min(900, 16 * len(rows) + 220)),
    )
    if shape.rows is not None and len(rows) < 30:
        fig.update_yaxes(tickvals=rows)
    if np.isnan(values).any():
        fig.update_layout(plot_bgcolor=BLANK, xaxis_showgrid=False, yaxis_showgrid=False)
    return fig


def _cells(shape: LabelMatrix, **options: object) -> go.Heatmap:
    if not options:
        options = {"colorscale": SCALE, "colorbar": {"title": {"text": shape.quantity}}}
    return go.Heatmap(
        z=shape.values.numpy(),
        x=list(shape.columns),
        y=list(shape.rows),
        texttemplate="%{z:.3g}",
        hovertemplate=f"{shape.row_title} %{{y}}<br>{shape.column_title} %{{x}}"
        f"<br>{shape.quantity} %{{z:.3g}}<extra></extra>",
        **options,
    )

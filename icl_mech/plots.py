"""Figures: one function per shape, each returns a plotly figure and shows nothing."""

from html import escape

import numpy as np
import plotly.graph_objects as go

from icl_mech.results import LabelMatrix, LayerCurves, Shape, TokenMatrix

PALETTE = ("#1f77b4", "#d62728", "#7f7f7f", "#2ca02c", "#9467bd", "#8c564b")
"""Curve colours, by place."""

SCALE = "Blues"
"""Colour scale of all heatmaps."""


def figure(shape: Shape) -> go.Figure:
    """The figure of any shape."""
    if isinstance(shape, LayerCurves):
        return layer_curves(shape)
    if isinstance(shape, TokenMatrix):
        return token_matrix(shape)
    return label_matrix(shape)


def to_notebook(fig: go.Figure) -> str:
    """HTML of a figure for a notebook cell; the plotly script is loaded from its CDN."""
    html: str = fig.to_html(full_html=False, include_plotlyjs="cdn")
    return html


def layer_curves(shape: LayerCurves) -> go.Figure:
    """Curves over layers with interval bands of the same colour."""
    fig = go.Figure()
    layers = list(range(shape.values.shape[1]))
    for i, name in enumerate(shape.names):
        colour = PALETTE[i % len(PALETTE)]
        low, high = shape.low[i].tolist(), shape.high[i].tolist()
        fig.add_scatter(
            x=layers + layers[::-1],
            y=high + low[::-1],
            fill="toself",
            fillcolor=colour,
            opacity=0.2,
            line={"width": 0},
            hoverinfo="skip",
            legendgroup=name,
            showlegend=False,
        )
        fig.add_scatter(
            x=layers,
            y=shape.values[i].tolist(),
            name=name,
            legendgroup=name,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"size": 5},
            customdata=list(zip(low, high, strict=True)),
            hovertemplate="layer %{x}: %{y:.3f} [%{customdata[0]:.3f}, %{customdata[1]:.3f}]",
        )
    fig.update_layout(
        template="plotly_white",
        title={"text": shape.title, "subtitle": {"text": shape.note}},
        xaxis={"title": "layer", "range": [-0.5, len(layers) - 0.5]},
        yaxis={"title": shape.y_title, "rangemode": "tozero"},
        legend={"orientation": "h", "y": -0.2},
        height=460,
    )
    return fig


def token_matrix(shape: TokenMatrix) -> go.Figure:
    """Heatmap over the tokens of a prompt with a slider over layers.

    The diagonal and everything above it are left blank. Every layer has its own colour
    range, up to its 99.8th percentile; hovering tells token, position, role and value.
    """
    n = len(shape.tokens)
    names = [
        f"{i}: {_text(repr(token))} ({role.replace('_', ' ')})"
        for i, (token, role) in enumerate(zip(shape.tokens, shape.roles, strict=True))
    ]
    below = np.tri(n, k=-1, dtype=bool)
    fig = go.Figure()
    for layer, values in enumerate(shape.values.float().numpy()):
        fig.add_heatmap(
            z=np.where(below, values, np.nan),
            x=names,
            y=names,
            colorscale=SCALE,
            zmin=0,
            zmax=float(np.quantile(values[below], 0.998)) if n > 1 else 1.0,
            visible=layer == shape.layer,
            hoverongaps=False,
            colorbar={"title": {"text": shape.quantity}},
            hovertemplate=f"to %{{y}}<br>from %{{x}}<br>{shape.quantity} %{{z:.3g}}"
            f"<extra>layer {layer}</extra>",
        )
    steps = [
        {
            "method": "update",
            "label": str(layer),
            "args": [{"visible": [other == layer for other in range(len(shape.values))]}],
        }
        for layer in range(len(shape.values))
    ]
    ticks = {
        "tickmode": "array",
        "tickvals": names,
        "ticktext": [_text(token.replace("\n", "↵")) for token in shape.tokens],
        "tickfont": {"size": max(6, min(10, 900 // n))},
        "showgrid": False,
    }
    fig.update_layout(
        template="plotly_white",
        title={"text": shape.title},
        xaxis={"title": "source token", "tickangle": -90, **ticks},
        yaxis={"title": "destination token", "autorange": "reversed", **ticks},
        sliders=[
            {
                "active": shape.layer,
                "currentvalue": {"prefix": "layer "},
                "steps": steps,
                "pad": {"t": 110},
            }
        ],
        height=max(560, min(1400, 12 * n + 320)),
    )
    return fig


def _text(token: str) -> str:
    """As plotly shows it: it reads tags in labels, and `<s>` is a common token."""
    return escape(token, quote=False)


def label_matrix(shape: LabelMatrix) -> go.Figure:
    """A small heatmap with its numbers written in the cells."""
    fig = go.Figure(
        go.Heatmap(
            z=shape.values.numpy(),
            x=list(shape.columns),
            y=list(shape.rows),
            colorscale=SCALE,
            texttemplate="%{z:.3g}",
            colorbar={"title": {"text": shape.quantity}},
            hovertemplate=f"{shape.row_title} %{{y}}<br>{shape.column_title} %{{x}}"
            f"<br>{shape.quantity} %{{z:.3g}}<extra></extra>",
        )
    )
    fig.update_layout(
        template="plotly_white",
        title={"text": shape.title},
        xaxis={"title": shape.column_title},
        yaxis={"title": shape.row_title, "autorange": "reversed"},
        height=170 + 60 * len(shape.rows),
    )
    return fig

"""Curves, points and bars."""

import plotly.graph_objects as go

from icl_mech.plots.style import TEMPLATE, colour, title, top_margin
from icl_mech.shapes import Bars, LayerCurves, Scatter

FEW = 12
"""Given places of columns are all written on the axis up to this number."""


def layer_curves(shape: LayerCurves) -> go.Figure:
    """Curves with interval bands of the same colour."""
    fig = go.Figure()
    x = list(shape.x) if shape.x is not None else list(range(shape.values.shape[1]))
    for i, name in enumerate(shape.names):
        axis = {"yaxis": "y2"} if name in shape.right else {}
        low, high = shape.low[i].tolist(), shape.high[i].tolist()
        fig.add_scatter(
            x=x + x[::-1],
            y=high + low[::-1],
            fill="toself",
            mode="lines",
            fillcolor=colour(i),
            opacity=0.2,
            line={"width": 0},
            hoverinfo="skip",
            legendgroup=name,
            showlegend=False,
            **axis,
        )
        fig.add_scatter(
            x=x,
            y=shape.values[i].tolist(),
            name=name,
            legendgroup=name,
            mode="lines+markers",
            line={"color": colour(i), "width": 2, "dash": "dot" if axis else "solid"},
            marker={"size": 5},
            customdata=list(zip(low, high, strict=True)),
            hovertemplate=f"{shape.x_title} %{{x}}: %{{y:.3f}} "
            "[%{customdata[0]:.3f}, %{customdata[1]:.3f}]",
            **axis,
        )
    for where, text in shape.marks:
        fig.add_vline(x=where, line={"color": "#444", "dash": "dash"}, annotation_text=text)
    for height, text in shape.levels:
        fig.add_hline(y=height, line={"color": "#999", "dash": "dot"}, annotation_text=text)
    margin = 0.5 if shape.x is None else 0.04 * (max(x) - min(x) or 1)
    fig.update_layout(
        template=TEMPLATE,
        title=title(shape.title, shape.note),
        margin=top_margin(shape.note),
        xaxis={"title": shape.x_title, "range": [min(x) - margin, max(x) + margin]},
        yaxis={"title": shape.y_title, "rangemode": "tozero"},
        legend={"orientation": "h", "y": -0.2},
        height=460,
    )
    if shape.x is not None and len(x) <= FEW:
        fig.update_xaxes(tickvals=x)
    if shape.right:
        fig.update_layout(
            yaxis2={
                "title": shape.right_title,
                "overlaying": "y",
                "side": "right",
                "rangemode": "tozero",
                "tickmode": "auto",
                "showgrid": False,
                "zeroline": False,
            }
        )
    return fig


def scatter(shape: Scatter) -> go.Figure:
    """Points in the colour of their group, named on hovering."""
    fig = go.Figure()
    x, y = shape.x.tolist(), shape.y.tolist()
    for place, group in enumerate(dict.fromkeys(shape.groups)):
        inside = [i for i, own in enumerate(shape.groups) if own == group]
        fig.add_scatter(
            x=[x[i] for i in inside],
            y=[y[i] for i in inside],
            text=[shape.names[i] for i in inside],
            name=group,
            mode="markers",
            marker={"color": colour(place), "size": 8, "opacity": 0.75},
            hovertemplate=f"%{{text}}<br>{shape.x_title} %{{x:.3f}}"
            f"<br>{shape.y_title} %{{y:.3f}}<extra>{group}</extra>",
        )
    fig.update_layout(
        template=TEMPLATE,
        title=title(shape.title, shape.note),
        xaxis={"title": shape.x_title},
        yaxis={"title": shape.y_title},
        legend={"orientation": "h", "y": -0.2},
        height=520,
    )
    return fig


def bars(shape: Bars) -> go.Figure:
    """Bars side by side within their group, with interval ends."""
    fig = go.Figure()
    for i, name in enumerate(shape.names):
        values = shape.values[:, i]
        fig.add_bar(
            x=list(shape.groups),
            y=values.tolist(),
            name=name,
            marker={"color": colour(i)},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": (shape.high[:, i] - values).tolist(),
                "arrayminus": (values - shape.low[:, i]).tolist(),
            },
            customdata=list(zip(shape.low[:, i].tolist(), shape.high[:, i].tolist(), strict=True)),
            hovertemplate="%{x}: %{y:.3f} [%{customdata[0]:.3f}, %{customdata[1]:.3f}]",
        )
    fig.update_layout(
        template=TEMPLATE,
        title=title(shape.title, shape.note),
        yaxis={"title": shape.y_title},
        barmode="group",
        legend={"orientation": "h", "y": -0.2},
        height=460,
    )
    return fig

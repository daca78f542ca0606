"""Heatmaps over the tokens of a prompt."""

import numpy as np
import plotly.graph_objects as go

from icl_mech.plots.style import SCALE, TEMPLATE, shown
from icl_mech.results import TokenMatrix


def token_matrix(shape: TokenMatrix) -> go.Figure:
    """Heatmap over the tokens of a prompt with a slider over layers.

    The diagonal and everything above it are left blank. Every layer has its own colour
    range, up to its 99.8th percentile; hovering tells token, position, role and value.
    """
    n = len(shape.tokens)
    names = [
        f"{i}: {shown(repr(token))} ({role.replace('_', ' ')})"
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
        "ticktext": [shown(token.replace("\n", "↵")) for token in shape.tokens],
        "tickfont": {"size": max(6, min(10, 900 // n))},
        "showgrid": False,
    }
    fig.update_layout(
        template=TEMPLATE,
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

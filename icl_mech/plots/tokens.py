"""Matrices between the tokens of a prompt: by segment for all layers, or all tokens of one layer."""

import math
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from icl_mech._typing import Float, Tensor
from icl_mech.plots.style import LOOKS, PAGE, QUIET, SCALE, layout, of_role, shown, steps
from icl_mech.shapes import TokenMatrix, shortened

SIDE = 640
"""Side of the matrix, in pixels."""

NAMES = 140
"""Space for the names of rows and columns, in pixels."""

DECADES = 4
"""Number of decades in the colour range."""

MARKED = ("label_word", "target")
"""Roles whose names are bold."""

READABLE = 50
"""If there are more tokens than this, only the marked ones are named."""


@dataclass(frozen=True)
class Cells:
    """Labels along both axes.

    Attributes:
        names: Names written at the axes.
        told: Hover texts; no two are equal.
        roles: Role of each row and column.
    """

    names: list[str]
    told: list[str]
    roles: list[str]


def token_matrix(shape: TokenMatrix) -> go.Figure:
    """A matrix with destinations as rows and sources as columns; all layers share one logarithmic colour range.

    By segment, a slider selects the layer, and buttons the layers worth looking at. Without means by
    segment, one layer of all tokens is shown. Colours span four decades, up to the power of ten at or
    above the largest value of any token in any layer; smaller values have the lowest colour, as the
    colour bar says, and are shown on hover.
    """
    layers, n = range(len(shape.values)), len(shape.tokens)
    if shape.means is None:
        cells, layers = _tokens(shape), range(shape.layer, shape.layer + 1)
        drawn = shape.values.double().masked_fill(~_below(shape.values), math.nan)
    else:
        cells, drawn = _segments(shape), shape.means.double()
    top, n = highest(shape.values), len(cells.names)
    fig = go.Figure([_heatmap(shape, drawn[layer], cells, layer, top) for layer in layers])
    heading = shape.title if len(layers) > 1 else f"{shape.title}, layer {layers[0]}"
    above = 44 if shape.telling and len(layers) > 1 else 12
    margin = {"l": NAMES + 14, "r": 24, "t": 70 + above, "b": NAMES + 84 * (len(layers) > 1)}
    fig.update_layout(**layout(heading, shape.note))
    side = {
        "type": "category",
        "tickvals": list(range(n)),
        "ticktext": _tick_texts(cells),
        "ticks": "",
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "constrain": "domain",
        "ticklabelstandoff": 10,
        "tickfont": {"size": 12 if n <= 30 else 10},
    }
    fig.update_layout(
        margin=margin,
        width=SIDE + margin["l"] + margin["r"],
        height=SIDE + margin["t"] + margin["b"],
        meta={"above": above},
        xaxis={**side, "tickangle": -90, "range": [-0.5, n - 0.5]},
        yaxis={**side, "range": [n - 0.5, -0.5], "scaleanchor": "x"},
    )
    if len(layers) > 1:
        fig.update_layout(sliders=[_slider(shape)], updatemenus=_buttons(shape))
    _bands(fig, cells)
    _explain(fig)
    return fig


def _explain(fig: go.Figure) -> None:
    """Explain in the empty triangle how to read the matrix."""
    fig.add_annotation(
        x=0.98,
        y=0.78,
        xref="x domain",
        yref="y domain",
        showarrow=False,
        xanchor="right",
        yanchor="top",
        align="right",
        font={"size": 12, "color": QUIET.light},
        text="Each row reads from the columns to its left.<br>"
        "Bars along the axes: roles of the tokens.",
    )


def _below(values: Float[Tensor, "layer dest src"]) -> Tensor:
    """A mask that is True below the diagonal."""
    return values.new_ones(values.shape[1:]).bool().tril(-1)


def highest(values: Float[Tensor, "layer dest src"]) -> int:
    """The exponent of the power of ten at or above the largest value of all layers, without the diagonal."""
    below = values.double().tril(-1)
    largest = float(below[below.isfinite()].max()) if below.numel() else 0.0
    return math.ceil(math.log10(largest) - 1e-9) if largest > 0 else 0


def _heatmap(
    shape: TokenMatrix, values: Float[Tensor, "dest src"], cells: Cells, layer: int, top: int
) -> go.Heatmap:
    lowest = top - DECADES
    rows = values.numpy()
    z = np.log10(np.maximum(rows, 10.0**lowest))
    ticks = [f"{10.0**power:g}" for power in range(lowest, top + 1)]
    gap = 1 if len(rows) <= READABLE else 0
    return go.Heatmap(
        z=[[None if v != v else round(float(v), 2) for v in row] for row in z],
        customdata=[[None if v != v else float(f"{v:.2g}") for v in row] for row in rows],
        x=cells.told,
        y=cells.told,
        colorscale=steps(SCALE),
        zmin=lowest,
        zmax=top,
        xgap=gap,
        ygap=gap,
        visible=layer == shape.layer,
        hoverongaps=False,
        colorbar={
            "orientation": "h",
            "x": 0.98,
            "xanchor": "right",
            "y": 0.92,
            "yanchor": "middle",
            "len": 0.42,
            "thickness": 12,
            "outlinewidth": 0,
            "ticks": "",
            "tickvals": list(range(lowest, top + 1)),
            "ticktext": [f"≤ {ticks[0]}", *ticks[1:]],
            "tickfont": {"size": 11, "color": QUIET.light},
            "title": {
                "text": f"{shape.quantity} per edge (log scale, same for all layers)",
                "side": "bottom",
                "font": {"size": 12, "color": QUIET.light},
            },
        },
        hovertemplate="%{x} → %{y}<br>"
        f"layer {layer}: {shape.quantity} %{{customdata:.2~g}}<extra></extra>",
    )


def _segments(shape: TokenMatrix) -> Cells:
    hovers = [
        f"“{shown(segment.name)}” ({segment.start}–{segment.stop - 1})"
        if segment.stop - segment.start > 1
        else f"“{shown(segment.name)}” ({segment.start})"
        for segment in shape.segments
    ]
    names = [shortened(segment.name) for segment in shape.segments]
    return Cells(names, hovers, [segment.role for segment in shape.segments])


def _tokens(shape: TokenMatrix) -> Cells:
    written = [token.replace("\n", "↵").strip(" ") or "␣" for token in shape.tokens]
    hovers = [f"“{shown(text)}” ({i})" for i, text in enumerate(written)]
    if len(written) > READABLE:
        written = [
            text if role in MARKED else "" for text, role in zip(written, shape.roles, strict=True)
        ]
    return Cells(list(map(shortened, written)), hovers, list(shape.roles))


def _tick_texts(cells: Cells) -> list[str]:
    """Names in the colours of their roles; label words and the target are bold."""
    texts = []
    for name, role in zip(cells.names, cells.roles, strict=True):
        text = f'<span style="color:{of_role(role).light}">{shown(name)}</span>'
        texts.append(f"<b>{text}</b>" if role in MARKED else text)
    return texts


def _bands(fig: go.Figure, cells: Cells) -> None:
    """Draw bars along both axes in the colours of the roles, one per run of tokens with the same role."""
    start = 0
    for stop in range(1, len(cells.roles) + 1):
        if stop < len(cells.roles) and cells.roles[stop] == cells.roles[start]:
            continue
        ends = start - 0.5, stop - 0.5
        style = {
            "type": "rect",
            "fillcolor": of_role(cells.roles[start]).light,
            "line": {"width": 0},
        }
        fig.add_shape(
            x0=ends[0], x1=ends[1], y0=-0.013, y1=-0.003, xref="x", yref="y domain", **style
        )
        fig.add_shape(
            x0=-0.013, x1=-0.003, y0=ends[0], y1=ends[1], xref="x domain", yref="y", **style
        )
        start = stop


def _shows(shape: TokenMatrix, layer: int) -> dict[str, object]:
    return {"visible": [index == layer for index in range(len(shape.values))]}


def _slider(shape: TokenMatrix) -> dict[str, object]:
    return {
        "active": shape.layer,
        "currentvalue": {"prefix": "layer "},
        "pad": {"t": NAMES - 20},
        "minorticklen": 0,
        "font": {"color": QUIET.light, "size": 11},
        "steps": [
            {"method": "restyle", "label": str(layer), "args": [_shows(shape, layer)]}
            for layer in range(len(shape.values))
        ],
    }


def _buttons(shape: TokenMatrix) -> list[dict[str, object]]:
    """Buttons for the layers worth looking at, which also move the slider."""
    if not shape.telling:
        return []
    active = [layer for layer, _ in shape.telling]
    return [
        {
            "type": "buttons",
            "direction": "right",
            "x": 0,
            "y": 1,
            "xanchor": "left",
            "yanchor": "bottom",
            "pad": {"b": 8},
            "showactive": False,
            "active": active.index(shape.layer) if shape.layer in active else -1,
            "bgcolor": PAGE.light,
            "bordercolor": LOOKS["reference"].light,
            "font": {"size": 12},
            "buttons": [
                {
                    "method": "update",
                    "label": f"{layer}: {shown(words)}",
                    "args": [_shows(shape, layer), {"sliders[0].active": layer}],
                }
                for layer, words in shape.telling
            ],
        }
    ]

"""Heatmaps over the tokens of a prompt."""

import numpy as np
import plotly.graph_objects as go

from icl_mech.plots.style import MARKS, SCALE, TEMPLATE, shown, title
from icl_mech.shapes import TokenMatrix, TokenStrips

TOKENS_PER_LINE = 16
"""At most."""

NARROWEST = 8
"""Tokens that always fit side by side, so that short lines do not have huge cells."""


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
                **_slider([str(layer) for layer in range(len(shape.values))], shape.layer),
                "currentvalue": {"prefix": "layer "},
                "pad": {"t": 110},
            }
        ],
        height=max(560, min(1400, 12 * n + 320)),
    )
    return fig


def token_strips(shape: TokenStrips) -> go.Figure:
    """The prompt as lines of tokens, coloured by value, marked tokens framed.

    A slider picks the row; all rows share one colour range. Line breaks end a line.
    """
    places = _lines(shape.tokens)
    n_lines = places[-1][0] + 1
    width = max(NARROWEST, *(place + 1 for _, place in places))
    fig = go.Figure()
    largest = float(shape.values.max())
    texts = [[""] * width for _ in range(n_lines)]
    hover = [[""] * width for _ in range(n_lines)]
    for number, (line, place) in enumerate(places):
        token, mark = shape.tokens[number], shape.marks[number]
        texts[line][place] = shown(_short(token))
        hover[line][place] = f"{number}: {shown(repr(token))}" + (f"<br>{mark}" if mark else "")
    rows = zip(shape.names, shape.values.double().numpy(), strict=True)
    for row, (name, values) in enumerate(rows):
        cells = np.full((n_lines, width), np.nan)
        for value, (line, place) in zip(values, places, strict=True):
            cells[line, place] = value
        fig.add_heatmap(
            z=cells,
            text=texts,
            texttemplate="%{text}",
            textfont={"size": 10},
            customdata=hover,
            colorscale=SCALE,
            zmin=0,
            zmax=largest or 1.0,
            xgap=2,
            ygap=2,
            hoverongaps=False,
            visible=row == shape.first,
            colorbar={"title": {"text": shape.quantity, "side": "right"}},
            hovertemplate=f"%{{customdata}}<br>{shape.quantity} %{{z:.3g}}<extra>{name}</extra>",
        )
    kinds = sorted({mark for mark in shape.marks if mark})
    for number, kind in enumerate(kinds):
        colour = MARKS[number % len(MARKS)]
        _frame(fig, [p for p, m in zip(places, shape.marks, strict=True) if m == kind], colour)
        fig.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            name=kind,
            showlegend=True,
            marker={"symbol": "square-open", "size": 13, "color": colour, "line": {"width": 2}},
        )
    hidden = {"visible": False, "showgrid": False}
    # A slider with one step is not drawn.
    heading = shape.title if len(shape.names) > 1 else f"{shape.title}: {shape.names[0]}"
    fig.update_layout(
        template=TEMPLATE,
        title=title(heading, shape.note),
        xaxis=hidden,
        yaxis={**hidden, "autorange": "reversed"},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom"},
        margin={"t": 130, "l": 50},
        sliders=[
            {
                **_slider(list(shape.names), shape.first, always=len(kinds)),
                "pad": {"t": 20},
            }
        ],
        height=260 + 26 * n_lines,
    )
    return fig


def _slider(names: list[str], active: int, always: int = 0) -> dict[str, object]:
    """A slider that shows one of the first traces; `always` more stay as they are."""
    return {
        "active": active,
        "steps": [
            {
                "method": "update",
                "label": name,
                "args": [
                    {"visible": [other == place for other in range(len(names))] + [True] * always}
                ],
            }
            for place, name in enumerate(names)
        ],
    }


def _lines(tokens: tuple[str, ...]) -> list[tuple[int, int]]:
    """(line, place in it) of each token."""
    places, line, place = [], 0, 0
    ended = False
    for token in tokens:
        # Several line breaks in a row stay together.
        if place == TOKENS_PER_LINE or (ended and token.strip("\n")):
            line, place = line + 1, 0
        places.append((line, place))
        place, ended = place + 1, "\n" in token
    return places


def _short(token: str) -> str:
    """A token as it fits into a cell."""
    text = token.replace("\n", "↵").strip(" ") or "␣"
    return text if len(text) <= 9 else text[:8] + "…"


def _frame(fig: go.Figure, places: list[tuple[int, int]], colour: str) -> None:
    for line, place in places:
        fig.add_shape(
            type="rect",
            x0=place - 0.48,
            x1=place + 0.48,
            y0=line - 0.46,
            y1=line + 0.46,
            line={"color": colour, "width": 2},
        )

"""The likeliest word after each layer, as a table coloured by its probability."""

import plotly.graph_objects as go

from icl_mech.plots.style import SCALE, axis, layout, shown, steps
from icl_mech.shapes import LensTable

COLUMN = 190
"""Pixels of a column at most."""

WIDTH = 780
"""Pixels across which the columns of a page's figure lie."""

LONGEST = 18
"""Characters of a word that a wide cell holds."""


def lens_table(shape: LensTable) -> go.Figure:
    """Layers down, what was read across; each cell the likeliest word, bold if it is a label."""
    n_columns, n_layers = shape.probs.shape[:2]
    across = min(COLUMN, WIDTH / n_columns)
    longest = max(4, round(LONGEST * across / COLUMN))
    bold = {word.strip() for word in shape.bold}
    text, hover = [], []
    for layer in range(n_layers):
        text.append([_cell(column[layer], longest, bold) for column in shape.words])
        hover.append(
            [
                _hover(column[layer], shape.probs[i, layer].tolist())
                for i, column in enumerate(shape.words)
            ]
        )
    # A row each, so that equal headings stay apart.
    places = list(range(n_columns))
    tall = 22 if n_layers <= 50 else 16
    fig = go.Figure(
        go.Heatmap(
            z=[[round(float(shape.probs[i, layer, 0]), 4) for i in places] for layer in range(n_layers)],
            x=places,
            y=list(range(n_layers)),
            text=text,
            texttemplate="%{text}",
            textfont={"size": 12 if tall == 22 else 10},
            customdata=[
                [[shown(shape.columns[i]), line] for i, line in enumerate(row)] for row in hover
            ],
            colorscale=steps(SCALE),
            zmin=0,
            zmax=1,
            xgap=2,
            ygap=1,
            colorbar={
                "title": {"text": shape.quantity, "side": "right", "font": {"size": 11}},
                "x": min(1.0, across * n_columns / WIDTH) + 0.01,
                "xanchor": "left",
                "thickness": 12,
                "outlinewidth": 0,
                "tickvals": [0, 0.25, 0.5, 0.75, 1],
            },
            hovertemplate="<b>after layer %{y}, %{customdata[0]}</b><br>%{customdata[1]}"
            "<extra></extra>",
        )
    )  # fmt: skip
    settings = layout(shape.title, shape.note)
    top = settings["margin"]["t"] + 20  # type: ignore[index]
    fig.update_layout(**settings, height=round(tall * n_layers + top + 40))
    fig.update_layout(
        margin={"l": 70, "r": 90, "t": top, "b": 40},
        xaxis=axis(
            domain=[0, min(1.0, across * n_columns / WIDTH)], side="top", tickvals=places,
            ticktext=[_heading(name, longest) for name in shape.columns], ticks="",
            showgrid=False, showline=False, range=[-0.5, n_columns - 0.5],
        ),
        yaxis=axis(
            "read after layer (0: the embedding)", range=[n_layers - 0.5, -0.5],
            tickvals=list(range(n_layers)) if n_layers <= 50 else None, showgrid=False,
            showline=False,
        ),
    )  # fmt: skip
    return fig


def _heading(name: str, longest: int) -> str:
    """A column's heading on two lines at most."""
    first, _, rest = name.partition(" ")
    if len(name) > longest and rest:
        return f"{shown(first)}<br>{shown(rest)}"
    return shown(name)


def _cell(words: tuple[str, ...], longest: int, bold: set[str]) -> str:
    word = words[0] if words else ""
    text = _visible(word)
    text = shown(text if len(text) <= longest else text[: longest - 1] + "…")
    return f"<b>{text}</b>" if word.strip() in bold and word.strip() else text


def _hover(words: tuple[str, ...], probs: list[float]) -> str:
    return "<br>".join(
        f"“{shown(_visible(word))}” {prob:.3f}" for word, prob in zip(words, probs, strict=False)
    )


def _visible(word: str) -> str:
    """A token as it can be seen: blanks and line breaks get signs."""
    return word.replace("\n", "↵").replace("\t", "⇥").strip(" ") or "␣"

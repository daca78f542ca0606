"""Tables of results as in papers, and tables of the top word after each layer."""

import plotly.graph_objects as go

from icl_mech.plots.pieces import alone, quoted, visible
from icl_mech.plots.style import INK, PAGE, PANEL, RULE, SCALE, axis, layout, shown, steps
from icl_mech.shapes import LensTable, Table

ROW = 28
"""Height of a row of one line, in pixels."""

LINE = 44
"""Approximate characters of a line in a cell; longer text is wrapped."""


def table(shape: Table) -> go.Figure:
    """A table with a header row; columns of numbers are aligned right."""
    columns = [[row[i] for row in shape.rows] for i in range(len(shape.columns))]
    aligned = [
        "left",
        *("right" if all(map(_number, column)) else "left" for column in columns[1:]),
    ]
    longest = [
        max([len(head), *(len(text) for text in column)])
        for head, column in zip(shape.columns, columns, strict=True)
    ]
    cells = [
        [
            f"<b>{shown(text)}</b>" if i in shape.bold else shown(text)
            for i, text in enumerate(column)
        ]
        for column in columns
    ]
    fill = [PANEL.light if i in shape.bold else PAGE.light for i in range(len(shape.rows))]
    common = {"align": aligned[: len(columns)], "line": {"color": RULE.light, "width": 1}}
    fig = go.Figure(
        go.Table(
            columnwidth=[min(max(length, 5), LINE) for length in longest],
            header={
                "values": [f"<b>{shown(head)}</b>" for head in shape.columns],
                "fill": {"color": PANEL.light},
                "font": {"color": INK.light, "size": 13},
                "height": ROW,
                **common,
            },
            cells={
                "values": cells,
                "fill": {"color": [fill]},
                "font": {"color": INK.light, "size": 13},
                "height": ROW,
                **common,
            },
        )
    )
    lines = sum(max((1, *(-(-len(text) // LINE) for text in row))) for row in shape.rows)
    fig.update_layout(**layout(shape.title, shape.note))
    top = fig.layout.margin.t or 100
    fig.update_layout(height=top + ROW * (1 + lines) + 24, margin={"l": 10, "r": 10, "b": 10})
    return fig


def _number(text: str) -> bool:
    """True for numbers, intervals, percentages and empty cells."""
    return not text.strip("0123456789.,+-−–[]%×ex ∞") or text == "undefined"


COLUMN = 190.0
"""Maximum width of a column, in pixels."""

WIDTH = 780
"""Width of all columns of a figure, in pixels."""

LONGEST = 18
"""Maximum characters of a word in the widest cell."""

PROBABILITIES = [0, 0.25, 0.5, 0.75, 1]
"""Ticks of the scale of probabilities."""

FEW = 10
"""Up to this number of layers, an axis has room for a short title and few ticks."""

NARROWEST = 64.0
"""Minimum width of a column, in pixels; a figure with many columns is wider than a page, and scrolls."""


def lens_table(shape: LensTable) -> go.Figure:
    """A table with layers as rows and readouts as columns; each cell has the top word, bold if it is a label."""
    n_columns, n_layers = shape.probs.shape[:2]
    across = max(NARROWEST, min(COLUMN, WIDTH / n_columns))
    wide = max(WIDTH, across * n_columns)
    longest = max(4, round(LONGEST * across / COLUMN))
    tall = 22 if n_layers <= 50 else 16
    share = across * n_columns / wide
    fig = go.Figure(_words(shape, longest, share, size=12 if tall == 22 else 10))
    settings = layout(shape.title, shape.note)
    top = settings["margin"]["t"] + 20
    fig.update_layout(**settings, height=round(tall * n_layers + top + 40))
    if across * n_columns >= WIDTH and n_columns > 6:  # such cells cannot shrink further
        fig.update_layout(width=round(wide) + 160)
    places = list(range(n_columns))
    fig.update_layout(
        margin={"l": 70, "r": 90, "t": top, "b": 40},
        xaxis=axis(
            domain=[0, min(1.0, share)],
            side="top",
            tickvals=places,
            ticktext=[_heading(name, longest) for name in shape.columns],
            ticks="",
            showgrid=False,
            showline=False,
            range=[-0.5, n_columns - 0.5],
        ),
        yaxis=axis(
            "read after layer (0: the embedding)" if n_layers > FEW else "layer",
            range=[n_layers - 0.5, -0.5],
            tickvals=list(range(n_layers)) if n_layers <= 50 else None,
            showgrid=False,
            showline=False,
        ),
    )
    return fig


def _words(shape: LensTable, longest: int, share: float, *, size: int) -> go.Heatmap:
    """The top words, coloured by their probability or by another number."""
    n_columns, n_layers = shape.probs.shape[:2]
    shades = shape.probs[..., 0] if shape.shades is None else shape.shades
    highest = 1.0 if shape.shades is None else float(shades.max()) or 1.0
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
    # Columns are numbered, so that equal headings stay separate.
    places = list(range(n_columns))
    return go.Heatmap(
        z=[[round(float(shades[i, layer]), 4) for i in places] for layer in range(n_layers)],
        x=places,
        y=list(range(n_layers)),
        text=text,
        texttemplate="%{text}",
        textfont={"size": size},
        customdata=[
            [[shown(shape.columns[i]), line] for i, line in enumerate(row)] for row in hover
        ],
        colorscale=steps(SCALE),
        zmin=0,
        zmax=highest,
        xgap=2,
        ygap=1,
        colorbar={
            "title": {"text": shape.quantity, "side": "right", "font": {"size": 11}},
            "x": min(1.0, share) + 0.01,
            "xanchor": "left",
            "thickness": 12,
            "outlinewidth": 0,
            "tickvals": PROBABILITIES[:: 1 if n_layers > FEW else 4]
            if shape.shades is None
            else None,
            "nticks": 0 if n_layers > FEW else 2,
        },
        hovertemplate="<b>after layer %{y}, %{customdata[0]}</b><br>%{customdata[1]}"
        + f"<br>{shape.quantity} %{{z}}" * (shape.shades is not None)
        + "<extra></extra>",
    )


def _heading(name: str, longest: int) -> str:
    """A column heading on at most two lines."""
    name = visible(name.strip(" ") or name)
    first, _, rest = name.partition(" ")
    if len(name) > longest and rest:
        return f"{shown(first)}<br>{shown(rest)}"
    return shown(name)


def _cell(words: tuple[str, ...], longest: int, bold: set[str]) -> str:
    word = words[0] if words else ""
    text = alone(word)
    text = shown(text if len(text) <= longest else text[: longest - 1] + "…")
    return f"<b>{text}</b>" if word.strip() in bold and word.strip() else text


def _hover(words: tuple[str, ...], probs: list[float]) -> str:
    return "<br>".join(
        f"{shown(quoted(word))} {prob:.3f}" for word, prob in zip(words, probs, strict=False)
    )

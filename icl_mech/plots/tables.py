"""Tables, as papers print their results."""

import plotly.graph_objects as go

from icl_mech.plots.style import INK, PAGE, PANEL, RULE, layout, shown
from icl_mech.shapes import Table

ROW = 28
"""Pixels of a row of one line."""

LINE = 44
"""About the letters of a line in a cell; longer texts are broken."""


def table(shape: Table) -> go.Figure:
    """A table with a head row; columns of numbers are set to the right."""
    columns = [[row[i] for row in shape.rows] for i in range(len(shape.columns))]
    aligned = ["left", *("right" if all(map(_number, own)) else "left" for own in columns[1:])]
    longest = [
        max([len(head), *(len(text) for text in own)])
        for head, own in zip(shape.columns, columns, strict=True)
    ]
    cells = [
        [f"<b>{shown(text)}</b>" if i in shape.bold else shown(text) for i, text in enumerate(own)]
        for own in columns
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
    """True for numbers, intervals, shares and empty cells."""
    return not text.strip("0123456789.,+-−–[]%×ex ∞") or text == "undefined"

"""The text of a prompt, coloured by a number of each token."""

import math
from dataclasses import dataclass

import plotly.graph_objects as go

from icl_mech.plots.style import INK, LOOKS, PAGE, QUIET, SCALE, layout, shown, steps
from icl_mech.shapes import TokenStrips

ACROSS = 88
"""Characters of a line."""

LINE = 25
"""Pixels of a line."""

FRAMES = ("label", "other", "text", "query")
"""Looks of the frames around marked tokens, by the order of what they mark."""

DARK = 0.5
"""Above this part of the range letters are light."""


@dataclass(frozen=True)
class Piece:
    """One token in the text.

    Attributes:
        text: As it is written.
        line: Its line.
        start: Its first place there.
    """

    text: str
    line: int
    start: int

    @property
    def stop(self) -> int:
        """Behind its last place."""
        return self.start + len(self.text)


def token_strips(shape: TokenStrips) -> go.Figure:
    """The prompt as lines of text, coloured by value, marked tokens framed.

    A slider picks the row; all rows share one colour range, from 0 to the largest value. Line
    breaks end a line.
    """
    pieces = _pieces(shape.tokens)
    count = pieces[-1].line + 1
    highest = float(shape.values.double().nan_to_num().max()) or 1.0
    fig = go.Figure()
    told = [
        f"“{shown(piece.text.strip())}” ({number})" + (f"<br>{shown(mark)}" if mark else "")
        for number, (piece, mark) in enumerate(zip(pieces, shape.marks, strict=True))
    ]
    rows = [row.tolist() for row in shape.values.double()]
    fig.add_heatmap(
        z=_laid(pieces, count, [_short(value) for value in rows[shape.first]]),
        customdata=_laid(pieces, count, told),
        x0=0,
        dx=1,
        colorscale=steps(SCALE),
        zmin=0,
        zmax=highest,
        ygap=4,
        hoverongaps=False,
        colorbar={
            "title": {"text": shape.quantity, "side": "right"}, "thickness": 12,
            "outlinewidth": 0, "ticks": "", "tickfont": {"color": QUIET.light, "size": 11},
        },
        hovertemplate=f"%{{customdata}}<br>{shown(shape.quantity)} %{{z:.3~g}}<extra></extra>",
    )  # fmt: skip
    fig.add_scatter(
        x=[(piece.start + piece.stop - 1) / 2 for piece in pieces],
        y=[piece.line for piece in pieces],
        text=[shown(piece.text.replace(" ", "\N{NO-BREAK SPACE}")) for piece in pieces],
        mode="text",
        textfont={
            "family": "ui-monospace, 'DejaVu Sans Mono', monospace", "size": 12,
            "color": _letters(rows[shape.first], highest),
        },
        hoverinfo="skip",
    )  # fmt: skip
    kinds = sorted({mark for mark in shape.marks if mark})
    for number, kind in enumerate(kinds):
        own = [p for p, mark in zip(pieces, shape.marks, strict=True) if mark == kind]
        _frames(fig, own, number)
    _key(fig, kinds)
    hidden = {"visible": False, "showgrid": False, "fixedrange": True}
    # A slider with one step is not drawn.
    heading = shape.title if len(shape.names) > 1 else f"{shape.title}: {shape.names[0]}"
    above = 30 if kinds else 8
    bottom = 80 if len(shape.names) > 1 else 12
    fig.update_layout(**layout(heading, shape.note))
    fig.update_layout(
        xaxis={**hidden, "range": [-0.8, ACROSS - 0.2]},
        yaxis={**hidden, "range": [count - 0.4, -0.6]},
        margin={"t": 78 + above, "l": 24, "r": 24, "b": bottom},
        height=78 + above + bottom + LINE * count,
        meta={"above": above},
    )
    if len(shape.names) > 1:
        fig.update_layout(sliders=[_slider(shape, pieces, rows, highest)])
    return fig


def _pieces(tokens: tuple[str, ...]) -> list[Piece]:
    """Where each token stands; long ones are cut to a line."""
    found: list[Piece] = []
    line = start = 0
    ended = False
    for token in tokens:
        text = token.replace("\n", "↵") or "␣"
        text = text if len(text) <= ACROSS else text[: ACROSS - 1] + "…"
        # Several line breaks in a row stay together.
        if start + len(text) > ACROSS or (ended and token.strip("\n")):
            line, start = line + 1, 0
        found.append(Piece(text, line, start))
        start, ended = start + len(text), "\n" in token
    return found


def _laid(pieces: list[Piece], count: int, values: list) -> list[list]:  # type: ignore[type-arg]
    """One value per place of the text."""
    cells: list[list] = [[None] * ACROSS for _ in range(count)]  # type: ignore[type-arg]
    for piece, value in zip(pieces, values, strict=True):
        cells[piece.line][piece.start : piece.stop] = [value] * len(piece.text)
    return cells


def _short(value: float) -> float | None:
    return float(f"{value:.3g}") if math.isfinite(value) else None


def _letters(values: list[float], highest: float) -> list[str]:
    """Letters that can be read on their cells."""
    return [PAGE.light if value > DARK * highest else INK.light for value in values]


def _slider(
    shape: TokenStrips, pieces: list[Piece], rows: list[list[float]], highest: float
) -> dict[str, object]:
    count = pieces[-1].line + 1
    return {
        "active": shape.first,
        "pad": {"t": 16},
        "minorticklen": 0,
        "font": {"color": QUIET.light, "size": 11},
        "steps": [
            {
                "method": "restyle",
                "label": shown(name),
                "args": [
                    {
                        "z": [_laid(pieces, count, [_short(value) for value in row]), None],
                        "textfont.color": [None, _letters(row, highest)],
                    },
                    [0, 1],
                ],
            }
            for name, row in zip(shape.names, rows, strict=True)
        ],
    }


def _frames(fig: go.Figure, pieces: list[Piece], number: int) -> None:
    own = LOOKS[FRAMES[number % len(FRAMES)]]  # type: ignore[index]
    for piece in pieces:
        fig.add_shape(
            type="rect", x0=piece.start - 0.5, x1=piece.stop - 0.5, y0=piece.line - 0.45,
            y1=piece.line + 0.45, line={"color": own.light, "width": 2, "dash": own.dash},
        )  # fmt: skip


def _key(fig: go.Figure, kinds: list[str]) -> None:
    """What the frames mark, above the text."""
    if not kinds:
        return
    texts = []
    for number, kind in enumerate(kinds):
        own = LOOKS[FRAMES[number % len(FRAMES)]]  # type: ignore[index]
        line = {"solid": "solid", "dash": "dashed", "dot": "dotted", "dashdot": "dash-dot"}
        texts.append(
            f'<span style="color:{own.light}">▢ {line[own.dash]} frame: {shown(kind)}</span>'
        )
    fig.add_annotation(
        x=0, y=1, xref="paper", yref="paper", xanchor="left", yanchor="bottom", yshift=6,
        text="&nbsp;&nbsp;&nbsp;&nbsp;".join(texts), showarrow=False, font={"size": 12},
    )  # fmt: skip

"""The text of a prompt, coloured by one number per token."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from icl_mech.plots.labels import CHARACTER
from icl_mech.plots.pieces import NOTHING
from icl_mech.plots.style import INK, LOOKS, PAGE, QUIET, SCALE, layout, shown, steps
from icl_mech.shapes import Meaning, TokenStrips
from icl_mech.shapes.tokens import MANY

ACROSS = 88
"""Maximum characters of a line."""

MARGIN = 24
"""Pixels at the left and the right."""

LINE = 25
"""Height of a line, in pixels."""

Row = list[float | None]
"""One number per token."""

FRAMES: tuple[Meaning, ...] = ("label", "other", "text", "query")
"""Looks of the frames around marked tokens, in the sorted order of the marks."""

LIGHT = 4
"""Number of colours for heads, on a square-root scale; dark letters are legible on all of them."""

DARK = 0.5
"""Letters are light above this fraction of the range."""


@dataclass(frozen=True)
class Piece:
    """One token in the text.

    Attributes:
        text: Its displayed text.
        line: Index of its line.
        start: Index of its first character in the line.
    """

    text: str
    line: int
    start: int

    @property
    def stop(self) -> int:
        """Index after its last character in the line."""
        return self.start + len(self.text)


def token_strips(shape: TokenStrips) -> go.Figure:
    """The prompt as lines of text, coloured by value, marked tokens framed.

    A slider selects the row; for many heads, two sliders select the layer and the head. All rows
    share one colour range, from 0 to the largest value. Line breaks end a line.
    """
    pieces = _pieces(shape.tokens)
    count = pieces[-1].line + 1
    highest = float(shape.values.double().nan_to_num().max()) or 1.0
    rows = coarse(shape.values.double().tolist())
    fig = go.Figure(_ground(shape, pieces, rows[shape.first], highest))
    fig.add_scatter(
        x=[(piece.start + piece.stop - 1) / 2 for piece in pieces],
        y=[piece.line for piece in pieces],
        text=[shown(piece.text.replace(" ", "\N{NO-BREAK SPACE}")) for piece in pieces],
        mode="text",
        textfont={
            "family": "ui-monospace, 'DejaVu Sans Mono', monospace",
            "size": 12,
            "color": INK.light if shape.heads else _letters(rows[shape.first], highest),
        },
        hoverinfo="skip",
    )
    labels = sorted({mark for mark in shape.marks if mark})
    for number, label in enumerate(labels):
        marked = [p for p, mark in zip(pieces, shape.marks, strict=True) if mark == label]
        _frames(fig, marked, number)
    _key(fig, labels)
    hidden = {"visible": False, "showgrid": False, "fixedrange": True}
    # A slider with a single step is not drawn.
    heading = shape.title if len(shape.names) > 1 else f"{shape.title}: {shape.names[0]}"
    above = 30 if labels else 8
    bottom = 80 if len(shape.names) > 1 else 12
    fig.update_layout(**layout(heading, shape.note))
    fig.update_layout(
        xaxis={**hidden, "range": [-0.8, ACROSS - 0.2]},
        yaxis={**hidden, "range": [count - 0.4, -0.6]},
        margin={"t": 78 + above, "l": MARGIN, "r": MARGIN, "b": bottom},
        height=78 + above + bottom + LINE * count,
        meta={"above": above},
    )
    if len(shape.names) > 1:
        fig.update_layout(sliders=_Rows(shape, pieces, rows, highest).controls())
    return fig


def _ground(shape: TokenStrips, pieces: list[Piece], row: Row, highest: float) -> list[go.Heatmap]:
    """The colours behind the text: one heatmap per line, one cell per token."""
    colours = steps(SCALE)
    if shape.heads:
        colours = [(at**2, colour) for at, colour in steps(SCALE[:LIGHT])]
    hovers = [
        f"“{shown(piece.text.strip())}” ({number})" + (f"<br>{shown(mark)}" if mark else "")
        for number, (piece, mark) in enumerate(zip(pieces, shape.marks, strict=True))
    ]
    bar = {
        "title": {"text": shape.quantity, "side": "right"},
        "thickness": 12,
        "outlinewidth": 0,
        "ticks": "",
        # Beside a few lines of text there is room for the ends, beside a single one for one of them.
        "tickvals": [[highest], [0, highest], [0, highest]][pieces[-1].line]
        if pieces[-1].line < 3
        else None,
        "tickformat": ".2~g",
        "tickfont": {"color": QUIET.light, "size": 11},
    }
    laid = zip(_lines(pieces, pieces), _lines(pieces, row), _lines(pieces, hovers), strict=True)
    return [
        go.Heatmap(
            z=[values],
            customdata=[names],
            x=[line_pieces[0].start - 0.5, *(piece.stop - 0.5 for piece in line_pieces)],
            y=[line_pieces[0].line],
            colorscale=colours,
            zmin=0,
            zmax=highest,
            ygap=4,
            hoverongaps=False,
            showscale=line_pieces[0].line == 0,
            colorbar=bar,
            hovertemplate=f"%{{customdata}}<br>{shown(shape.quantity)} %{{z:.3~g}}<extra></extra>",
        )
        for line_pieces, values, names in laid
    ]


def _pieces(tokens: tuple[str, ...]) -> list[Piece]:
    """Position of each token; tokens longer than a line are cut."""
    pieces: list[Piece] = []
    line = start = 0
    ended = False
    for token in tokens:
        text = token.replace("\n", "↵") or NOTHING
        text = text if len(text) <= ACROSS else text[: ACROSS - 1] + "…"
        # Several line breaks in a row stay together.
        if start + len(text) > ACROSS or (ended and token.strip("\n")):
            line, start = line + 1, 0
        pieces.append(Piece(text, line, start))
        start, ended = start + len(text), "\n" in token
    return pieces


def _lines(pieces: list[Piece], values: Sequence[Any]) -> list[list[Any]]:
    """One value per token, line by line."""
    lines: list[list[Any]] = [[] for _ in range(pieces[-1].line + 1)]
    for piece, value in zip(pieces, values, strict=True):
        lines[piece.line].append(value)
    return lines


def coarse(rows: list[list[float]]) -> list[list[float | None]]:
    """Numbers rounded to four digits of the largest, enough for colours and hover texts; None: not finite."""
    largest = max(
        (abs(value) for row in rows for value in row if math.isfinite(value)), default=0.0
    )
    digits = 4 - math.ceil(math.log10(largest)) if largest else 0
    return [
        [round(value, digits) if math.isfinite(value) else None for value in row] for row in rows
    ]


def _letters(values: Row, highest: float) -> list[str]:
    """Letter colours that are legible on their cells."""
    return [PAGE.light if (value or 0.0) > DARK * highest else INK.light for value in values]


@dataclass(frozen=True)
class _Rows:
    """All rows of a text, and the sliders that switch between them."""

    shape: TokenStrips
    pieces: list[Piece]
    rows: list[Row]
    highest: float

    @property
    def traces(self) -> list[int]:
        """Indices of the traces that change: the heatmaps, and the letters if their colour depends on the row."""
        return list(range(self.pieces[-1].line + 1 + (not self.shape.heads)))

    def changed(self, i: int) -> dict[str, object]:
        """The update that shows a row: its colours, and the letter colours if these depend on the row."""
        maps = [[values] for values in _lines(self.pieces, self.rows[i])]
        if self.shape.heads:
            return {"z": maps}
        letters = _letters(self.rows[i], self.highest)
        return {"z": [*maps, None], "textfont.color": [None] * len(maps) + [letters]}

    def slider(
        self, names: Sequence[str], args: Sequence[Any], active: int, **more: Any
    ) -> dict[str, Any]:
        """A slider whose steps apply these updates."""
        steps = [
            {"method": "update", "label": shown(name), "args": step_args}
            for name, step_args in zip(names, args, strict=True)
        ]
        font = {"color": QUIET.light, "size": 11}
        # Labels are centred on the ends of the slider.
        half = max(0.0, CHARACTER * max(len(names[0]), len(names[-1])) / 2 - MARGIN)
        settings = {
            "active": active,
            "pad": {"t": 16, "l": half, "r": half},
            "minorticklen": 0,
            "font": font,
            "steps": steps,
        }
        return settings | more

    def controls(self) -> list[dict[str, Any]]:
        """A slider over rows; for many heads one over layers, which sets a second one over their heads."""
        shape, args = (
            self.shape,
            [[change, {}, self.traces] for change in map(self.changed, range(len(self.rows)))],
        )
        if len(args) <= MANY or not shape.heads:
            return [self.slider(shape.names, args, shape.first)]
        layers: dict[int, list[int]] = {}
        for i, (layer, _) in enumerate(shape.heads):
            layers.setdefault(layer, []).append(i)
        current, changes, heads = shape.heads[shape.first][0], [], {}
        for layer, rows in layers.items():
            names = [str(shape.heads[i][1]) for i in rows]
            active = rows.index(shape.first) if layer == current else 0
            more = {"currentvalue": {"prefix": f"layer {layer}, head "}, "x": 0.53, "len": 0.47}
            heads[layer] = self.slider(names, [args[i] for i in rows], active, **more)
            brought = {
                "steps": heads[layer]["steps"],
                "active": 0,
                "currentvalue": more["currentvalue"],
            }
            named = {f"sliders[1].{name}": value for name, value in brought.items()}
            changes.append([args[rows[0]][0], named, self.traces])
        more = {"currentvalue": {"prefix": "layer "}, "len": 0.47}
        by_layer = self.slider([*map(str, layers)], changes, list(layers).index(current), **more)
        return [by_layer, heads[current]]


def _frames(fig: go.Figure, pieces: list[Piece], number: int) -> None:
    look = LOOKS[FRAMES[number % len(FRAMES)]]
    for piece in pieces:
        fig.add_shape(
            type="rect",
            x0=piece.start - 0.5,
            x1=piece.stop - 0.5,
            y0=piece.line - 0.45,
            y1=piece.line + 0.45,
            line={"color": look.light, "width": 2, "dash": look.dash},
        )


def _key(fig: go.Figure, labels: list[str]) -> None:
    """Explain the frames above the text."""
    if not labels:
        return
    texts = []
    for number, label in enumerate(labels):
        look = LOOKS[FRAMES[number % len(FRAMES)]]
        line = {"solid": "solid", "dash": "dashed", "dot": "dotted", "dashdot": "dash-dot"}
        texts.append(
            f'<span style="color:{look.light}">▢ {line[look.dash]} frame: {shown(label)}</span>'
        )
    fig.add_annotation(
        x=0,
        y=1,
        xref="paper",
        yref="paper",
        xanchor="left",
        yanchor="bottom",
        yshift=6,
        text="&nbsp;&nbsp;&nbsp;&nbsp;".join(texts),
        showarrow=False,
        font={"size": 12},
    )

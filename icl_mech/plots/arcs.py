"""The strongest edges between tokens as arcs from source to destination.

Information flows from left to right: an arc leads from the attended token to the token that
attends to it, as in figure 1 of Wang et al. 2023, *Label Words are Anchors*. Width shows the weight;
colour and dash show the role of the source.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from icl_mech.errors import ResultError
from icl_mech.plots.pieces import visible
from icl_mech.plots.prompt_style import ROLE_NAMES, ROLE_STYLES, style
from icl_mech.plots.prompt_view import PromptLike, Text, View, number

STRONGEST = 30
"""Number of edges drawn by default."""

WIDTH, SIDE, TALLEST, BELOW = 900.0, 24.0, 240.0, 96.0
"""Pixels: width of the drawing and of its margins, height of the highest arc and of the words below."""

APART = 13.0
"""Minimum pixels between two words."""

THIN, THICK = 0.8, 7.0
"""Line width in pixels of the weakest possible and of the strongest arc."""

KINDS = ("text", "label", "template", "query", "target", "unknown")


@dataclass(frozen=True)
class Edges:
    """The strongest edges of a matrix.

    Attributes:
        drawn: (destination, source, weight), the strongest first.
        count: Number of edges with a nonzero weight.
        share: Fraction of the sum of all weights on the drawn edges.
    """

    drawn: tuple[tuple[int, int, float], ...]
    count: int
    share: float

    @classmethod
    def of(cls, matrix: object, count: int, top: int) -> "Edges":
        """The strongest edges of a matrix `[dest, src]`; self-edges are left out.

        Raises:
            ResultError: wrong shape, negative or undefined weights, edges from later tokens, or
                `top` below 1.
        """
        weights = np.asarray(matrix.detach().cpu() if hasattr(matrix, "detach") else matrix)
        if weights.shape != (count, count):
            raise ResultError(
                f"The matrix has the shape {list(weights.shape)}; expected [{count}, {count}], "
                "destination first, one row and column per token."
            )
        weights = weights.astype(np.float64)
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise ResultError(
                "The matrix contains negative or undefined weights; give non-negative ones, and 0 "
                "where there is no edge."
            )
        if np.triu(weights, 1).any():
            raise ResultError(
                "The matrix has edges from later tokens to earlier ones; the first axis is the "
                "destination, so put weights at [later, earlier]."
            )
        if top < 1:
            raise ResultError(f"top={top}; give at least 1.")
        below = np.tril(weights, -1)
        order = np.argsort(-below, axis=None, kind="stable")[:top]
        places = [divmod(int(place), count) for place in order]
        drawn = tuple((i, j, float(below[i, j])) for i, j in places if below[i, j] > 0)
        total = float(below.sum())
        share = sum(weight for _, _, weight in drawn) / total if total else 0.0
        return cls(drawn, int((below > 0).sum()), share)


def arcs_html(
    prompt: PromptLike | Text, matrix: object, *, name: str = "weight", top: int = STRONGEST
) -> str:
    """The drawing in HTML with a note on the omitted edges, without the style sheet.

    Args:
        prompt: The prompt.
        matrix: Weight of each edge, `[dest, src]`: saliency, attention, ...
        name: What the weights are.
        top: Maximum number of edges drawn.

    Raises:
        ResultError: as `Edges.of`.
    """
    text = Text.of(prompt)
    edges = Edges.of(matrix, len(text), top)
    places = [SIDE + (WIDTH - 2 * SIDE) * (i + 0.5) / len(text) for i in range(len(text))]
    reach = max((i - j for i, j, _ in edges.drawn), default=1)
    most = max((weight for _, _, weight in edges.drawn), default=1.0)
    arcs = [
        _arc(text, edge, places, TALLEST * (edge[0] - edge[1]) / reach, edge[2] / most, name)
        for edge in reversed(edges.drawn)  # the strongest on top
    ]
    height = TALLEST + 16 + BELOW
    label = escape(f"{len(edges.drawn)} arcs between tokens. {_said(edges, name)}")
    drawing = (
        f'<svg class="icl-arcs" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        f'aria-label="{label}">{"".join(_ticks(text, places))}{"".join(arcs)}'
        f"{''.join(_words(text, edges, places))}</svg>"
    )
    return (
        f'<div class="icl-prompt">{_key(text, edges)}<div class="icl-wide">{drawing}</div>'
        f'<p class="icl-note">{escape(_said(edges, name))}</p></div>'
    )


def arcs_view(prompt: PromptLike | Text, matrix: object, **options: Any) -> View:
    """`arcs_html` with its style sheet, for notebooks; `options` are those of `arcs_html`."""
    html = arcs_html(prompt, matrix, **options)
    name = options.get("name", "weight")
    return View(
        f"<style>{style(levels=False)}{arcs_style()}</style>{html}",
        f"<arcs between {len(Text.of(prompt))} tokens by {name}>",
    )


def arcs_style() -> str:
    """The style sheet of arcs, used together with that of prompts."""
    rules = (
        ".icl-wide{overflow-x:auto}\n"
        ".icl-arcs{display:block;width:100%;min-width:38em;max-width:60em;height:auto;"
        "font:11px/1 sans-serif}\n"
        ".icl-arcs text{fill:var(--icl-ink)}\n"
        ".icl-arcs path{fill:none;stroke-opacity:.72;stroke-linecap:butt}\n"
        ".icl-arcs path:hover{stroke-opacity:1;stroke:var(--icl-ink)}\n"
        ".icl-key{stroke-width:3px}\n"
    )
    tones = {"template": "other", "unknown": "quiet"}
    dashes = {"label": "7 3", "template": "2 3", "query": "9 3 2 3", "unknown": "2 3"}
    for kind in KINDS:
        dash = f";stroke-dasharray:{dashes[kind]}" if kind in dashes else ""
        tone = tones.get(kind, kind)
        rules += f".icl-arcs .icl-a-{kind}{{stroke:var(--icl-{tone}){dash}}}\n"
        rules += f".icl-arcs .icl-b-{kind}{{fill:var(--icl-{tone})}}\n"
    rules += (
        ".icl-arcs .icl-b-label{font-weight:700}\n.icl-arcs .icl-b-template{font-style:italic}\n"
    )
    rules += ".icl-arcs .icl-b-target{font-weight:700;text-decoration:overline}\n"
    return rules + ".icl-arcs .icl-b-query{text-decoration:underline}\n"


def _arc(
    text: Text,
    edge: tuple[int, int, float],
    places: Sequence[float],
    tall: float,
    part: float,
    name: str,
) -> str:
    dest, src, weight = edge
    left, right, base = places[src], places[dest], TALLEST + 8
    top = base - max(tall, 10.0) * 4 / 3  # a cubic curve reaches 3/4 of its control points
    said = escape(f"{text.name(src)} → {text.name(dest)}: {name} {number(weight)}")
    return (
        f'<path class="icl-a-{_kind(text, src)}" stroke-width="{THIN + (THICK - THIN) * part:.2f}" '
        f'd="M{left:.1f} {base:.0f}C{left:.1f} {top:.1f} {right:.1f} {top:.1f} {right:.1f} {base:.0f}">'
        f"<title>{said}</title></path>"
    )


def _ticks(text: Text, places: Sequence[float]) -> list[str]:
    """A row of the tokens' roles."""
    wide = max((WIDTH - 2 * SIDE) / len(text) - 0.4, 0.6)
    high = {"label": 8, "target": 8}
    return [
        f'<rect class="icl-b-{_kind(text, i)}" x="{x - wide / 2:.1f}" y="{TALLEST + 8:.0f}" '
        f'width="{wide:.1f}" height="{high.get(_kind(text, i), 4)}"/>'
        for i, x in enumerate(places)
    ]


def _words(text: Text, edges: Edges, places: Sequence[float]) -> list[str]:
    """Tokens at the ends of arcs; the most important ones take precedence if space is short."""
    held: dict[int, float] = {}
    for dest, src, weight in edges.drawn:
        for end in (dest, src):
            held[end] = held.get(end, 0.0) + weight
    marked = [i for i in range(len(text)) if _kind(text, i) in ("label", "target")]
    order = [*marked, *sorted(held, key=lambda i: -held[i])]
    written: list[int] = []
    for place in dict.fromkeys(order):
        if all(abs(places[place] - places[earlier]) >= APART for earlier in written):
            written.append(place)
    y = TALLEST + 22
    return [
        f'<text class="icl-b-{_kind(text, i)}" x="{places[i] + 3:.1f}" y="{y:.0f}" '
        f'transform="rotate(60 {places[i] + 3:.1f} {y:.0f})">{escape(visible(text.pieces[i].strip(" "))[:14])}</text>'
        for i in sorted(written)
    ]


def _key(text: Text, edges: Edges) -> str:
    """What the colours and dashes of the drawn arcs mean."""
    kinds = {_kind(text, src): text.roles[src] for _, src, _ in edges.drawn}
    samples = [
        f'<span><svg class="icl-arcs" style="display:inline;width:2.4em;min-width:0;height:.8em" '
        f'viewBox="0 0 30 8"><path class="icl-key icl-a-{kind}" d="M0 4H30"/></svg> from '
        f"{escape(_role_words(kind, kinds[kind]))}</span>"
        for kind in KINDS
        if kind in kinds
    ]
    return f'<div class="icl-legend">{" ".join(samples)}</div>'


def _role_words(kind: str, role: str) -> str:
    return {"template": "the template", "text": "demonstration text", "label": "label words"}.get(
        kind, ROLE_NAMES.get(role, role)
    )


def _said(edges: Edges, name: str) -> str:
    if not edges.drawn:
        return f"No token receives any {name} from another token."
    weakest, strongest = edges.drawn[-1][2], edges.drawn[0][2]
    few = f"the {len(edges.drawn)} strongest of {edges.count:,} edges are drawn"
    if len(edges.drawn) == edges.count:
        few = f"all {edges.count:,} edges are drawn"
    return (
        f"Arcs lead from the attended token to the token that attends to it, by {name}: {few}; they hold "
        f"{100 * edges.share:.0f} % of the sum (weights {number(weakest)} to {number(strongest)}, "
        "width by weight). Edges of a token to itself are omitted."
    )


def _kind(text: Text, position: int) -> str:
    return ROLE_STYLES.get(text.roles[position], "unknown")

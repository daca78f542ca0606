"""Draws `docs/images/nulls/*.svg`: what carries the answer in each null of `docs/claims.md`, and what only seems to.

python docs/make_null_pictures.py

A picture in a page has the colours of the site (`docs/_static/site.css`); opened alone, it has those of the light
theme.
"""

from math import hypot
from pathlib import Path
from typing import NamedTuple

PLACE = Path(__file__).parent / "images" / "nulls"

WIDTH, HEIGHT = 360, 120
LINE, ABOVE, BELOW = 88, 74, 112
"""Positions of the tokens, the ends of arrows, and the sentence."""

TEXT_1, LABEL_1, BREAK, TEXT_2, LABEL_2, QUERY, TARGET, ANSWER = (
    26,
    84,
    116,
    148,
    206,
    256,
    284,
    328,
)
COLONS = 55, 177
COLOURS = {
    "text": "#0072b2",
    "label": "#bd4c00",
    "template": "#68707b",
    "query": "#00805f",
    "plain": "#1b1d21",
    "note": "#59616d",
    "real": "#1b1d21",
    "seeming": "#59616d",
}
"""Colours by class, from the site's light theme."""


class Arrow(NamedTuple):
    """An arrow from a token to one that reads it.

    Attributes:
        start: Position of the token that is read.
        end: Position of the token that reads it.
        real: True if it carries the answer; else it only seems to.
        says: Text next to its top.
        high: Height above that of other arrows of its length.
    """

    start: int
    end: int
    real: bool = True
    says: str = ""
    high: int = 0


class Picture(NamedTuple):
    """A row of tokens with its arrows.

    Attributes:
        title: Alternative text.
        says: The sentence below.
        arrows: The arrows, in the order in which they are drawn.
        words: The two texts, their label words, and the answer.
        moved: True if label words precede their texts.
    """

    title: str
    says: str
    arrows: tuple[Arrow, ...]
    words: tuple[str, str, str, str, str] = ("owl", "oak", "bird", "tree", "tree")
    moved: bool = False


FROM_QUERY = Arrow(QUERY, TARGET)
LOOKED_AT = (Arrow(LABEL_1, TARGET, False), Arrow(LABEL_2, TARGET, False))
TRUE = ("owl", "oak", "bird", "tree", "tree")
FALSE = ("owl", "oak", "tree", "bird")

PICTURES = {
    "untrained": Picture(
        "An untrained network: arrows from everywhere to everywhere, none of which carries the answer",
        "all paths exist, none was learned",
        (
            Arrow(TEXT_1, LABEL_1, False),
            Arrow(TEXT_2, LABEL_2, False),
            *LOOKED_AT,
            Arrow(BREAK, TARGET, False),
            Arrow(QUERY, TARGET, False),
        ),
        (*TRUE[:4], "?"),
    ),
    "reads_query": Picture(
        "Reads the query: the answer comes from the query's own word; label words only receive attention",
        "the query's own word gives the answer",
        (FROM_QUERY, *LOOKED_AT),
    ),
    "prior": Picture(
        "Prior only: some words are known, everything else gets one answer, demonstrations do nothing",
        "known without demonstrations, or guessed",
        (FROM_QUERY, Arrow(LABEL_1, TARGET, False), Arrow(LABEL_2, TARGET, False, "adds nothing")),
    ),
    "decorative": Picture(
        "Decorative anchors: the fraction 1 − ε of the answer comes from the query, ε through label words",
        "1 − ε from the query, ε through label words",
        (FROM_QUERY, Arrow(LABEL_1, TARGET, False), Arrow(LABEL_2, TARGET, False, "ε")),
    ),
    "early": Picture(
        "Early: the target reads the matching label in block 1; edges of later blocks carry nothing",
        "read in block 1 of 8, output by the last but one",
        (Arrow(LABEL_2, TARGET, says="block 1"), Arrow(LABEL_2, TARGET, False, "later", 44)),
    ),
    "resting": Picture(
        "Resting: the answer comes from the query; label words and target attend to line breaks",
        "attention rests on line breaks",
        (FROM_QUERY, Arrow(BREAK, LABEL_2, False), Arrow(BREAK, TARGET, False, "rests", 20)),
    ),
    "copier": Picture(
        "Copier: late heads copy the label of the matching text, here a false one; early layers know nothing",
        "copied late, true or false; unknown before",
        (Arrow(LABEL_2, TARGET, says="late"), Arrow(QUERY, TARGET, False)),
        (*FALSE, "bird"),
    ),
    "alarm": Picture(
        "Alarm: a label that mismatches its text lowers the right answer; the query decides which wrong one wins",
        "a mismatch lowers “tree”; the query decides",
        (
            FROM_QUERY,
            Arrow(LABEL_1, TARGET, says="mismatch"),
            Arrow(LABEL_2, TARGET, False, "shown"),
        ),
        (*FALSE, "fish"),
    ),
    "shuffled": Picture(
        "Shuffled lessons: label words in random order carry no information about their texts",
        "label words still aggregate; they teach nothing",
        (FROM_QUERY, Arrow(TEXT_1, LABEL_1, False), Arrow(TEXT_2, LABEL_2, False), *LOOKED_AT),
        (*FALSE, "tree"),
    ),
    "nonsense": Picture(
        "Nonsense labels: made-up words can only be learned from demonstrations",
        "only demonstrations show what “seto” means",
        (Arrow(TEXT_2, LABEL_2), Arrow(LABEL_2, TARGET), Arrow(QUERY, TARGET, False)),
        ("owl", "oak", "buvi", "seto", "seto"),
    ),
    "moved": Picture(
        "Moved anchors: a label word that precedes its text cannot aggregate it",
        "no label word can read a text after it",
        (
            Arrow(TEXT_1, LABEL_1),
            Arrow(TEXT_2, LABEL_2),
            Arrow(LABEL_2, TARGET, says="aggregated"),
            Arrow(TEXT_2, TARGET, False, high=14),
        ),
        moved=True,
    ),
}
"""Pictures by name of the file."""


def written(x: float, y: float, role: str, text: str) -> str:
    """A word in the colour of its role; notes are drawn over arrows."""
    size, halo = 13, ""
    if role == "note":
        size, halo = 11, ' stroke="#fdfdfc" stroke-width="4" paint-order="stroke"'
    return (
        f'<text class="{role}" x="{x:g}" y="{y:g}" text-anchor="middle" font-size="{size}" '
        f'fill="{COLOURS[role]}"{halo}>{text}</text>'
    )


def rise_of(arrow: Arrow) -> float:
    """Height of the control point of its curve above its ends, twice its height."""
    return 14 + 0.36 * (arrow.end - arrow.start) + arrow.high


def drawn(arrow: Arrow) -> list[str]:
    """An arc with its arrowhead."""
    start, end, real = arrow[:3]
    middle, rise = (start + end) / 2, rise_of(arrow)
    role, line = ("real", "") if real else ("seeming", ' stroke-dasharray="4 3"')
    top = ABOVE - rise
    along, down = (end - middle), (ABOVE - top)
    length = hypot(along, down)
    x, y = along / length, down / length
    sides = [(end - 7 * x + s * 3.5 * y, ABOVE - 7 * y - s * 3.5 * x) for s in (1, -1)]
    corners = " ".join(f"L{a:.1f} {b:.1f}" for a, b in sides)
    return [
        f'<path class="{role}" d="M{start} {ABOVE}Q{middle:g} {top:g} {end} {ABOVE}" fill="none" '
        f'stroke="{COLOURS[role]}" stroke-width="{2 if real else 1.3:g}"{line}/>',
        f'<path class="{role} tip" d="M{end} {ABOVE}{corners}z" fill="{COLOURS[role]}"/>',
    ]


def said(arrow: Arrow) -> list[str]:
    """The text next to its top."""
    middle, top = (arrow.start + arrow.end) / 2, ABOVE - rise_of(arrow) / 2
    return [written(middle, top - 4, "note", arrow.says)] if arrow.says else []


def row(picture: Picture) -> list[str]:
    """The tokens."""
    first, second, label_1, label_2, answer = picture.words
    roles = ("label", "text") if picture.moved else ("text", "label")
    pairs = (
        ((label_1, first), (label_2, second))
        if picture.moved
        else ((first, label_1), (second, label_2))
    )
    found = []
    for places, words in zip(((TEXT_1, LABEL_1), (TEXT_2, LABEL_2)), pairs, strict=True):
        found += [
            written(x, LINE, role, word) for x, role, word in zip(places, roles, words, strict=True)
        ]
    found += [written(x, LINE, "template", ":") for x in COLONS]
    found += [written(x, LINE, "template", "⏎") for x in (BREAK, (LABEL_2 + QUERY) / 2)]
    return [
        *found,
        written(QUERY, LINE, "query", "elm"),
        written(TARGET, LINE, "plain", ":"),
        written(ANSWER, LINE, "plain", f"→ {answer}"),
        written(WIDTH / 2, BELOW, "note", picture.says),
    ]


def svg(picture: Picture) -> str:
    """The file."""
    arrows = sorted(picture.arrows, key=lambda arrow: arrow.real)
    parts = [
        f'<svg class="null-picture" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        'font-family="system-ui, sans-serif" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{picture.title}</title>",
        *(part for arrow in arrows for part in drawn(arrow)),
        *(part for arrow in arrows for part in said(arrow)),
        *row(picture),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Write every picture."""
    PLACE.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        (PLACE / f"{name}.svg").write_text(svg(picture), encoding="utf-8")
        print(PLACE / f"{name}.svg")


if __name__ == "__main__":
    main()

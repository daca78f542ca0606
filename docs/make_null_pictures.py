"""Draws `docs/images/nulls/*.svg`: what carries the answer in each null of `docs/claims.md`, and what only looks as if.

python docs/make_null_pictures.py

Colours are those of the site where a picture stands in a page (`docs/_static/site.css`), and those of its light theme
where it is opened alone.
"""

from math import hypot
from pathlib import Path
from typing import NamedTuple

PLACE = Path(__file__).parent / "images" / "nulls"

WIDTH, HEIGHT = 360, 120
LINE, ABOVE, BELOW = 88, 74, 112
"""Where tokens stand, arrows end, and the sentence stands."""

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
"""By class, those of the site's light theme."""


class Arrow(NamedTuple):
    """From a token to the one that reads it.

    Attributes:
        start: Where it begins.
        end: Where it ends.
        real: It carries the answer; else it only looks as if.
        says: Beside its top.
        high: How much higher than arrows of its length it goes.
    """

    start: int
    end: int
    real: bool = True
    says: str = ""
    high: int = 0


class Picture(NamedTuple):
    """A row of tokens with its arrows.

    Attributes:
        title: For those who do not see it.
        says: The sentence below.
        arrows: In which order they are drawn.
        words: The two texts, the two words beside them, and the answer.
        moved: Labels stand before their texts.
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
        "An untrained network: arrows from everywhere to everywhere, none of which carries an answer",
        "every path is there, none was learnt",
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
        "Reads the query: the answer comes from the query's own word, label words are only looked at",
        "the query's own word says it",
        (FROM_QUERY, *LOOKED_AT),
    ),
    "prior": Picture(
        "Prior only: some words are known, everything else gets one answer, demonstrations do nothing",
        "known before any demonstration, or guessed",
        (FROM_QUERY, Arrow(LABEL_1, TARGET, False), Arrow(LABEL_2, TARGET, False, "adds nothing")),
    ),
    "decorative": Picture(
        "Decorative anchors: the share 1 − ε of the answer comes from the query, ε through label words",
        "1 − ε from the query, ε through label words",
        (FROM_QUERY, Arrow(LABEL_1, TARGET, False), Arrow(LABEL_2, TARGET, False, "ε")),
    ),
    "early": Picture(
        "Early: the target reads the label that fits in block 1; edges of later blocks carry nothing",
        "read by block 1 of 8, said by the last but one",
        (Arrow(LABEL_2, TARGET, says="block 1"), Arrow(LABEL_2, TARGET, False, "later", 44)),
    ),
    "resting": Picture(
        "Resting: the answer comes from the query; label words and target rest on line breaks",
        "line breaks are a place to rest",
        (FROM_QUERY, Arrow(BREAK, LABEL_2, False), Arrow(BREAK, TARGET, False, "rests", 20)),
    ),
    "copier": Picture(
        "Copier: late heads copy the label beside the text that fits, here a false one; early nothing is known",
        "copied late, true or false; early nothing is known",
        (Arrow(LABEL_2, TARGET, says="late"), Arrow(QUERY, TARGET, False)),
        (*FALSE, "bird"),
    ),
    "alarm": Picture(
        "Alarm: a label that does not fit its text sinks the right answer; the query's word says which wrong one wins",
        "a misfit sinks “tree”; the query says what wins",
        (
            FROM_QUERY,
            Arrow(LABEL_1, TARGET, says="misfit"),
            Arrow(LABEL_2, TARGET, False, "taught"),
        ),
        (*FALSE, "fish"),
    ),
    "shuffled": Picture(
        "Shuffled lessons: label words in another order say nothing of their texts",
        "label words still collect; they teach nothing",
        (FROM_QUERY, Arrow(TEXT_1, LABEL_1, False), Arrow(TEXT_2, LABEL_2, False), *LOOKED_AT),
        (*FALSE, "tree"),
    ),
    "nonsense": Picture(
        "Nonsense labels: made-up words can be learnt from demonstrations only",
        "only demonstrations can say what “seto” means",
        (Arrow(TEXT_2, LABEL_2), Arrow(LABEL_2, TARGET), Arrow(QUERY, TARGET, False)),
        ("owl", "oak", "buvi", "seto", "seto"),
    ),
    "moved": Picture(
        "Moved anchors: a label word that stands before its text cannot collect it",
        "no label word can read a text that comes after it",
        (
            Arrow(TEXT_1, LABEL_1),
            Arrow(TEXT_2, LABEL_2),
            Arrow(LABEL_2, TARGET, says="collected"),
            Arrow(TEXT_2, TARGET, False, high=14),
        ),
        moved=True,
    ),
}
"""By name of the file."""


def written(x: float, y: float, role: str, text: str) -> str:
    """A word in the colour of its role; notes stand before the arrows that they meet."""
    size, halo = 13, ""
    if role == "note":
        size, halo = 11, ' stroke="#fdfdfc" stroke-width="4" paint-order="stroke"'
    return (
        f'<text class="{role}" x="{x:g}" y="{y:g}" text-anchor="middle" font-size="{size}" '
        f'fill="{COLOURS[role]}"{halo}>{text}</text>'
    )


def rise_of(arrow: Arrow) -> float:
    """How far above its ends the middle point of its curve lies, twice its height."""
    return 14 + 0.36 * (arrow.end - arrow.start) + arrow.high


def drawn(arrow: Arrow) -> list[str]:
    """An arc with its head."""
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
    """What stands beside its top."""
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

"""Visible text of tokens, with a symbol for every invisible character.

In running text a character that several tokens spell is shown once; a token that stands by itself shows the spaces
at its ends.
"""

import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

SIGNS = {"\n": "↵", "\r": "␍", "\t": "⇥"}
BLANK = "␣"
"""A space, in tokens that consist of spaces only and at the ends of tokens that stand by themselves."""

NOTHING = "⋯"
"""A token that adds no character to the text: a continuation of the previous one."""

_JOINER = "\N{ZERO WIDTH JOINER}"
_HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
_MARKS = {"Mc", "Me", "Mn"}


def visible(piece: str) -> str:
    """The text of a token with a symbol for every invisible character; not escaped.

    Line breaks are ↵, tabs ⇥, tokens of spaces ␣, empty tokens ⋯; zero-width and bidirectional
    control characters are shown as code points, such as ⟨U+200B⟩. A leading combining mark is
    placed on a dotted circle.
    """
    if not piece:
        return NOTHING
    if not piece.strip(" "):
        return BLANK * len(piece)
    ring = "◌" if unicodedata.category(piece[0]) in _MARKS else ""
    return ring + _continuing(piece)


class InText(NamedTuple):
    """A token in running text.

    Attributes:
        text: Its visible text; empty if it continues a character.
        name: The token as sentences name it; `“⋯服”` if it continues 服.
        about: The tokens that spell a character together; empty for a token that spells whole ones.
    """

    text: str
    name: str
    about: str = ""


def in_text(pieces: Sequence[str]) -> list[InText]:
    """Tokens in running text: a character that several of them spell is shown once, by the first.

    Args:
        pieces: Characters that each token adds to the text, as in `Prompt.pieces`: none for later
            tokens of a character.
    """
    shown: list[InText] = []
    starts = [i for i, piece in enumerate(pieces) if piece or not i]
    for start, stop in pairwise([*starts, len(pieces)]):
        piece = pieces[start]
        joined = start and piece and unicodedata.category(piece[0]) in _MARKS
        first = InText(_continuing(piece) if joined else visible(piece), quoted(piece))
        if piece and stop > start + 1:
            spelled = visible(piece[-1])
            to = "and" if stop == start + 2 else "to"
            first = first._replace(about=f"tokens {start} {to} {stop - 1} spell “{spelled}”")
            rest = InText("", f"“{NOTHING}{spelled}”", first.about)
        else:
            rest = first
        shown += [first, *[rest] * (stop - start - 1)]
    return shown


def alone(piece: str) -> str:
    """`visible`, of a token that stands by itself: spaces at its ends are ␣."""
    inner = piece.strip(" ")
    if not inner:
        return visible(piece)
    before, _, after = piece.partition(inner)
    return BLANK * len(before) + visible(inner) + BLANK * len(after)


def breaks(piece: str) -> int:
    """Number of line breaks in a token."""
    return piece.count("\n")


def quoted(piece: str) -> str:
    """A token as it is quoted in sentences; one that is read from the right leaves their direction as it is."""
    text = alone(piece)
    if any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text):
        text = f"\N{FIRST STRONG ISOLATE}{text}\N{POP DIRECTIONAL ISOLATE}"
    return f"“{text}”"


def _continuing(piece: str) -> str:
    """The text of a token that continues the text before it: a combining mark joins the letter it marks."""
    return "".join(_sign(piece, place) for place in range(len(piece)))


def _sign(piece: str, place: int) -> str:
    character = piece[place]
    if character in SIGNS:
        return SIGNS[character]
    joins = character == _JOINER and 0 < place < len(piece) - 1
    if joins and {unicodedata.category(piece[p]) for p in (place - 1, place + 1)} <= {"So", "Mn"}:
        return character
    category = unicodedata.category(character)
    if category in _HIDDEN or (category == "Zs" and character != " "):
        return f"⟨U+{ord(character):04X}⟩"
    return character

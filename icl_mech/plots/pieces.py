"""The text of tokens as it can be seen: escaped, and with a sign for what has no shape.

Text of prompts is never HTML: every character that HTML reads is escaped here, in one place.
"""

import unicodedata
from html import escape

SIGNS = {"\n": "↵", "\r": "␍", "\t": "⇥"}
BLANK = "␣"
"""A space, in tokens that are nothing else."""

NOTHING = "⋯"
"""A token that adds no character to the text: a further part of the one before."""

_JOINER = "\N{ZERO WIDTH JOINER}"
_HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
_MARKS = {"Mc", "Me", "Mn"}


def visible(piece: str) -> str:
    """The text of a token with a sign for everything without a shape; not escaped.

    Line breaks are ↵, tabs ⇥, tokens of spaces ␣, no character ⋯; characters of no width and
    those that turn the direction of writing are their numbers, such as ⟨U+200B⟩. A mark that would
    sit on the letter before it gets a ring of its own.
    """
    if not piece:
        return NOTHING
    if not piece.strip(" "):
        return BLANK * len(piece)
    shown = [_sign(piece, place) for place in range(len(piece))]
    ring = "◌" if unicodedata.category(piece[0]) in _MARKS else ""
    return ring + "".join(shown)


def html_of(piece: str) -> str:
    """`visible`, for HTML."""
    return escape(visible(piece), quote=True)


def breaks(piece: str) -> int:
    """How many lines end in a token."""
    return piece.count("\n")


def quoted(piece: str) -> str:
    """A token as sentences name it: in quotes, without the spaces around it."""
    return f"“{visible(piece.strip(' ') or piece)}”"


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

"""Visible text of tokens: escaped, with a symbol for every invisible character.

Prompt text is never treated as HTML: every special character is escaped here, in one place.
"""

import unicodedata
from html import escape

SIGNS = {"\n": "↵", "\r": "␍", "\t": "⇥"}
BLANK = "␣"
"""A space, in tokens that consist of spaces only."""

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
    shown = [_sign(piece, place) for place in range(len(piece))]
    ring = "◌" if unicodedata.category(piece[0]) in _MARKS else ""
    return ring + "".join(shown)


def html_of(piece: str) -> str:
    """`visible`, escaped for HTML."""
    return escape(visible(piece), quote=True)


def breaks(piece: str) -> int:
    """Number of line breaks in a token."""
    return piece.count("\n")


def quoted(piece: str) -> str:
    """A token as it is quoted in sentences: in quotation marks, without surrounding spaces."""
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

"""Rule-based splitting of texts into sentences, lines, paragraphs, reasoning steps, turns or list items.

Nothing is downloaded and no model is used, so the same text gives the same spans everywhere. The
rules cover abbreviations, initials, decimals, enumerations, quotes, ellipses and the full stops of
Chinese and Japanese. Ambiguous cases (an abbreviation that also ends a sentence before a
name) are not split. A line break belongs to the span that it ends, a space to the one that it begins.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, get_args

from icl_mech.errors import PromptError, near_matches

Unit = Literal["sentences", "lines", "paragraphs", "steps", "turns", "items"]

Interval = tuple[int, int]

_END = re.compile(r"(?P<cjk>[。！？｡]+)|(?P<stop>[.!?…‽]+)")
_CLOSERS = "\"'”’»›)]}」』】）*_"
_OPENERS = "\"'“‘«‹([{「『【（*_¿¡"

_FOLLOWED = """
mr mrs ms dr prof sr st mt rev hon gen col capt lt sgt gov sen rep pres fr e.g i.e cf viz vs v al
approx ca c fig figs eq eqs ref refs sec ch vol ed eds pp p no nos jan feb mar apr jun jul aug sep
sept oct nov dec mon tue tues wed thu thur thurs fri z.b bzw d.h u.a usw nr dept est tel ext
"""
"""Abbreviations that do not end a sentence."""

_LAST = "etc inc ltd co corp jr bros u.s u.k u.n e.u d.c a.m p.m ph.d m.d b.a m.a"
"""Abbreviations that end a sentence only before a word that often begins one."""

_BEGINNING = """
a an and another at but by for he her his how however i if in it its my no now on our she so some
that the their then there these they this those thus to we what when where who why you yet
"""

_NEVER, _SOMETIMES, _STARTERS = (
    frozenset(words.split()) for words in (_FOLLOWED, _LAST, _BEGINNING)
)

_BREAK = re.compile(r"\n[^\S\n]*\n\s*")
_LINE = re.compile(r"\n\s*")
_ITEM = re.compile(r"^[^\S\n]*(?:[-*+•–]|\(?(?:\d{1,3}|[A-Za-z])[.)])[^\S\n]+(?=\S)", re.MULTILINE)
_STEP = re.compile(
    r"^[^\S\n]*(?:(?:step|schritt|étape)\s*\d+|\(?\d{1,3}[.):])(?=[\s.:)])",
    re.MULTILINE | re.IGNORECASE,
)
_TURN = re.compile(
    r"^(?:<\|im_start\|>|<start_of_turn>|<\|start_header_id\|>|[^\W\d_][\w .'-]{0,24}:(?=\s|$))",
    re.MULTILINE,
)


def split_text(text: str, unit: Unit) -> list[Interval]:
    """Half-open character intervals of a text's spans.

    * `sentences`: see above; a single line break counts as a space, an empty line ends a sentence.
    * `lines`, `paragraphs`: end at a line break, at an empty line.
    * `steps`: begin with `Step 1`, `1.` or `1)` at the start of a line; in a text without any of
      these, every line is a step.
    * `turns`: begin with `Name:` or a chat template's mark at the start of a line.
    * `items`: list items, which begin with `-`, `*`, `1.` or `a)`; text before the first item, and
      text after an empty line that ends the list, is in no span.

    Raises:
        PromptError: unknown unit.
    """
    if unit not in get_args(Unit):
        raise PromptError(f"Unknown spans {unit!r}. {near_matches(unit, get_args(Unit))}")
    return _SPLITTERS[unit](text)


def _sentences(text: str) -> list[Interval]:
    return _between(text, sorted({*_sentence_ends(text), *_after(_BREAK, text)}))


def _sentence_ends(text: str) -> Iterator[int]:
    """Positions after sentence-final punctuation, closing quotes and line breaks included."""
    begun = 0
    for sign in _END.finditer(text):
        end = sign.end()
        while end < len(text) and text[end] in _CLOSERS and not _opens(text, end):
            end += 1
        if sign["cjk"] is None and not _ends(text, begun, sign, end):
            continue
        rest = re.compile(r"[^\S\n]*\n\s*").match(text, end)
        begun = rest.end() if rest else end
        yield begun


def _opens(text: str, place: int) -> bool:
    """True for an opening quote: white space before it."""
    return text[place - 1].isspace()


def _ends(text: str, begun: int, sign: re.Match[str], end: int) -> bool:
    """True if a full stop or similar punctuation, with closing quotes after it, ends the sentence."""
    after = text[end:]
    if not after.strip():
        return True
    if not after[0].isspace():  # decimals, addresses, file names
        return False
    following = after.lstrip()
    first = following.lstrip(_OPENERS)[:1] or following[0]
    if first.islower() or first in ",;:":
        return False
    if sign["stop"] != "." or end > sign.end():
        return True
    word = text[begun : sign.start()].split()[-1:] or [""]
    plain = word[0].lstrip(_OPENERS)
    known = plain.lower()
    alone = len(text[begun : sign.start()].split()) == 1
    if alone and re.fullmatch(r"\(?(\d{1,3}|[A-Za-z])", plain):  # "1. First"
        return False
    if known in _NEVER and not (known in ("no", "v", "p", "c") and first.isalpha()):
        return False
    initial = re.fullmatch(r"[^\W\d_]", plain) is not None and plain.isupper() and plain != "I"
    dotted = known in _SOMETIMES or re.fullmatch(r"(?:[^\W\d_]\.)+[^\W\d_]", plain) is not None
    if initial or dotted:
        starts = re.match(r"[\w’']+", following.lstrip(_OPENERS))
        return starts is not None and starts[0].lower() in _STARTERS and not initial
    return True


def _lines(text: str) -> list[Interval]:
    return _between(text, _after(_LINE, text))


def _paragraphs(text: str) -> list[Interval]:
    return _between(text, _after(_BREAK, text))


def _steps(text: str) -> list[Interval]:
    marked = [match.start() for match in _STEP.finditer(text)]
    return _between(text, marked) if marked else _lines(text)


def _turns(text: str) -> list[Interval]:
    return _between(text, [match.start() for match in _TURN.finditer(text)])


def _items(text: str) -> list[Interval]:
    starts = [match.start() for match in _ITEM.finditer(text)]
    spans = []
    for start, stop in pairwise([*starts, len(text)]):
        cut = _BREAK.search(text, start, stop)
        end = cut.end() if cut and (stop == len(text) or text[cut.end() : stop].strip()) else stop
        spans.append((start, end))
    return spans


_SPLITTERS: dict[str, Callable[[str], list[Interval]]] = {
    "sentences": _sentences,
    "lines": _lines,
    "paragraphs": _paragraphs,
    "steps": _steps,
    "turns": _turns,
    "items": _items,
}


def _after(pattern: re.Pattern[str], text: str) -> list[int]:
    return [match.end() for match in pattern.finditer(text)]


def _between(text: str, cuts: Sequence[int]) -> list[Interval]:
    """Intervals between cuts; those of white space only are joined to the one before."""
    spans: list[Interval] = []
    start = 0
    for cut in [*cuts, len(text)]:
        if not text[start:cut].strip():
            if spans and cut > start:
                spans[-1] = (spans[-1][0], cut)
                start = cut
            continue
        spans.append((start, cut))
        start = cut
    return spans

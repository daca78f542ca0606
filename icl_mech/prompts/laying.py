"""From a text with roles to a `Prompt`: its tokens, their spans, and the candidates that can follow it.

A prompt's text is read once, whole. A token belongs to the role of its first character that is not white
space (of white space alone, of its first character); every token with a character of a label word is the
label word's. The label words of the classes are compared where the tokens of the text with each of them
first differ: what they have in common is the prompt, its last token the target, what follows of each the
class's *candidate*.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple
from unicodedata import combining

from icl_mech.errors import PromptError
from icl_mech.prompts.encoding import Encoded, Interval, TextTokenizer
from icl_mech.prompts.roles import Role, Span
from icl_mech.prompts.spans import Prompt, WordScore, check_first_tokens
from icl_mech.tasks import Example, Template

TEMPLATE: tuple[Role, ...] = ("bos", "format", "narrative")
"""Roles of what the template writes itself, special tokens included."""

ROLE_OF: dict[str, Role] = {"format": "format", "text": "demo_text", "label": "label_word"}
"""Of the parts of a demonstration."""


class RolePiece(NamedTuple):
    """A stretch of text with its role and demonstration number."""

    role: Role
    demo: int | None
    text: str


@dataclass(frozen=True)
class Asked:
    """What can follow a prompt.

    Attributes:
        words: Label words of the classes, or choices, as they would stand in the text.
        names: What messages call them.
        after: What the template writes after a label word: its end.
        accepted: Further right answers, which are compared at the same place.
        score: How words of several tokens are scored; None: `first` where they begin with different
            tokens, else `sum`.
    """

    words: Sequence[str]
    names: Sequence[str]
    after: str = ""
    accepted: Sequence[str] = ()
    score: WordScore | None = None


class Laid(NamedTuple):
    """A text with roles, and its tokens.

    Attributes:
        ids: Token ids, with those put before the text.
        pieces: Characters that each token adds to the text.
        spans: Roles of the tokens.
        parts: Roles of the characters of the text.
        text: The text.
    """

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    spans: tuple[Span, ...]
    parts: tuple[Span, ...]
    text: str


def template_pieces(
    template: Template, demonstrations: Sequence[tuple[Example, str]], query: Example
) -> list[RolePiece]:
    """The pieces of a whole prompt; demonstrations come with the label word they display.

    Spaces at the end of a separator begin what follows it.
    """
    pieces: list[RolePiece] = []
    ends = template.separator.rstrip(" ")
    blanks = template.separator[len(ends) :]
    before = ""
    if template.narrative:
        pieces.append(RolePiece("narrative", None, template.narrative + ends))
        before = blanks
    for demo, (example, word) in enumerate(demonstrations):
        pieces.append(RolePiece("format", demo, before))
        for kind, text in template.pieces(example, word):
            pieces.append(RolePiece(ROLE_OF[kind], demo, text))
        pieces.append(RolePiece("format", demo, ends))
        before = blanks
    pieces.append(RolePiece("format", None, before))
    for kind, text in template.pieces(query, None):
        pieces.append(RolePiece("query_text" if kind == "text" else "format", None, text))
    return pieces


def assemble(
    tokenizer: TextTokenizer,
    pieces: Iterable[RolePiece],
    asked: Asked,
    *,
    label_classes: Sequence[int],
    answer: int | None,
    false_answer: int | None = None,
    bos: bool | None = None,
) -> Prompt:
    """The prompt of a text whose answer is one of several words.

    Raises:
        PromptError: no pieces, one that has no tokens, or words that cannot be compared.
    """
    text, parts = joined(pieces)
    common = _compared(tokenizer, text, parts, asked)
    laid = lay_out(tokenizer, common.text, parts, common.read, bos)
    count = len(asked.words)
    return Prompt(
        laid.ids,
        aimed(laid.spans),
        tuple(label_classes),
        tuple(common.words[:count]),
        answer=answer,
        false_answer=false_answer,
        labels=tuple(asked.names),
        pieces=laid.pieces,
        kind="choices" if asked.accepted else None,
        accepted=tuple(common.words[count:]),
        text=laid.text,
        parts=laid.parts,
        candidate_texts=tuple(common.texts[:count]),
        score=_score(common.words[:count], asked),
    )


class _Common(NamedTuple):
    """What a text has in common whatever word follows, and what is left of each word.

    Attributes:
        text: The characters all have in common, as far as their tokens have.
        read: The tokens.
        words: What follows of each word.
        texts: Its characters.
    """

    text: str
    read: Encoded
    words: list[tuple[int, ...]]
    texts: list[str]


def _compared(tokenizer: TextTokenizer, text: str, parts: Sequence[Span], asked: Asked) -> _Common:
    """Where the tokens of the text with each word first differ.

    Raises:
        PromptError: they differ from the beginning, or words cannot be told apart.
    """
    words = [*asked.words, *asked.accepted]
    first, common, tails = tokenizer.endings(text, words, asked.after, letters_of(parts))
    least = min(len(tail.ids) for tail in tails)
    same = next((t for t in range(least) if len({tail.ids[t] for tail in tails}) > 1), least)
    if not common + same:
        raise PromptError(
            f"The text {text[:40]!r} has no token before its answer; let the template write something there."
        )
    *before, (start, stop) = first.offsets[: common + same]
    behind = min((tail.offsets[same][0] for tail in tails if len(tail.ids) > same), default=stop)
    last = (start, _composed(text[:behind], stop))
    read = Encoded(first.ids[: common + same], (*before, last))
    ends = [_end(tail, len(text) + len(word)) for tail, word in zip(tails, words, strict=True)]
    ids = _candidates(tails, same, ends, asked)
    endings = [word + asked.after for word in words]
    shown = min(_alike(text, endings), read.offsets[-1][1])
    texts = []
    for ending, tail, word_ids in zip(endings, tails, ids, strict=True):
        stop = max((end for _, end in tail.offsets[: same + len(word_ids)]), default=0)
        texts.append((text + ending)[shown:stop])
    return _Common((text + endings[0])[:shown], read, ids, texts)


def _composed(text: str, end: int) -> int:
    """Where a sign ends with the marks that compose with it: a tokenizer that composes places it without them."""
    while end < len(text) and combining(text[end]):
        end += 1
    return end


def joined(pieces: Iterable[RolePiece]) -> tuple[str, tuple[Span, ...]]:
    """The text of pieces, and the role of its characters; neighbours of the template's own are one.

    Raises:
        PromptError: no text at all.
    """
    filled = [piece for piece in pieces if piece.text]
    parts: list[Span] = []
    ends = accumulate(len(piece.text) for piece in filled)
    for piece, stop in zip(filled, ends, strict=True):
        if parts and piece.role == parts[-1].role == "format" and piece.demo == parts[-1].demo:
            parts[-1] = Span("format", piece.demo, parts[-1].start, stop)
        else:
            parts.append(Span(piece.role, piece.demo, stop - len(piece.text), stop))
    if not parts:
        raise PromptError("The prompt is empty; it needs at least a query.")
    return "".join(piece.text for piece in filled), tuple(parts)


def letters_of(parts: Sequence[Span]) -> list[Interval]:
    """Characters that the template does not write itself."""
    return [(part.start, part.stop) for part in parts if part.role not in TEMPLATE]


def lay_out(
    tokenizer: TextTokenizer, text: str, parts: Sequence[Span], read: Encoded, bos: bool | None
) -> Laid:
    """The roles of a text's tokens, with what the tokenizer puts before it.

    Of the template what the tokenizer drops (line breaks, say) has no span.

    Args:
        tokenizer: Says what begins every text.
        text: Characters of these tokens.
        parts: Roles of characters; what goes on behind them is like the last.
        read: The tokens.
        bos: As in `build_prompts`.

    Raises:
        PromptError: a text or label word without any token.
    """
    start = tokenizer.start_tokens(bos)
    count = len(start) if start and read.ids[: len(start)] == start else 0
    if count and (parts[0].role in TEMPLATE or tokenizer.special_tokens == "control"):
        written = read.offsets[count - 1][1]
        rest = [
            Span(p.role, p.demo, max(p.start, written), p.stop) for p in parts if p.stop > written
        ]
        parts, start = (Span("bos", None, 0, written), *rest), ()
    roles = roles_of(text, parts, read.offsets)
    spans = [Span("bos", None, 0, len(start))] if start else []
    end = len(start)
    for part, tokens in groupby(roles):
        stop = end + len(list(tokens))
        spans.append(Span(parts[part].role, parts[part].demo, end, stop))
        end = stop
    ends = [0, *accumulate((min(stop, len(text)) for _, stop in read.offsets), max)]
    pieces = [text[a:b] for a, b in pairwise(ends)]
    kept = [
        Span(p.role, p.demo, p.start, min(p.stop, len(text))) for p in parts if p.start < len(text)
    ]
    kept[-1] = Span(kept[-1].role, kept[-1].demo, kept[-1].start, len(text))
    return Laid(
        (*start, *read.ids), (*tokenizer.words(start), *pieces), tuple(spans), tuple(kept), text
    )


def roles_of(text: str, parts: Sequence[Span], offsets: Sequence[Interval]) -> list[int]:
    """The part that each token belongs to, ascending.

    Raises:
        PromptError: a text or label word without any token.
    """
    starts = [part.start for part in parts]

    def part_at(character: int) -> int:
        return bisect_right(starts, character) - 1

    assigned: list[int] = []
    for start, stop in offsets:
        first, last = part_at(start), part_at(max(start, stop - 1))
        if first != last:
            label = next((n for n in range(first, last + 1) if parts[n].role == "label_word"), None)
            inside = text[start:stop]
            place = start + len(inside) - len(inside.lstrip()) if inside.strip() else start
            first = part_at(place) if label is None else label
        assigned.append(max(first, assigned[-1]) if assigned else first)
    for number in sorted({*range(len(parts))} - {*assigned}):
        _rescue(text, parts, offsets, assigned, number)
    return assigned


def _rescue(
    text: str, parts: Sequence[Span], offsets: Sequence[Interval], assigned: list[int], number: int
) -> None:
    """Give a text whose characters are all in tokens of the template the first of these."""
    part = parts[number]
    if part.role in TEMPLATE or part.role in ("span", "unknown"):
        return
    for token, (start, stop) in enumerate(offsets):
        if start < part.stop and stop > part.start and parts[assigned[token]].role in TEMPLATE:
            assigned[token] = number
            return
    raise PromptError(
        f"The {part.role.replace('_', ' ')} {text[part.start : part.stop].strip(' ')!a} has no token: all its "
        "characters are dropped by the tokenizer, or stand in tokens of what is around them. Leave the example "
        "out, or write it in other characters."
    )


def aimed(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Spans of which the last token is the target."""
    last = spans[-1]
    before = [Span(last.role, last.demo, last.start, last.stop - 1)] * (last.stop - last.start > 1)
    return (*spans[:-1], *before, Span("target", None, last.stop - 1, last.stop))


def _end(read: Encoded, character: int) -> int:
    """How many tokens there are up to the last that holds a character before this one."""
    return max((t + 1 for t, (start, _) in enumerate(read.offsets) if start < character), default=0)


def _alike(text: str, endings: Sequence[str]) -> int:
    """Characters that a text has in common whatever it ends with."""
    same = zip(*endings, strict=False)
    return len(text) + next(
        (n for n, characters in enumerate(same) if len({*characters}) > 1), min(map(len, endings))
    )


def _candidates(
    tails: Sequence[Encoded], same: int, ends: Sequence[int], asked: Asked
) -> list[tuple[int, ...]]:
    """Tokens of each word behind those that all share; of a word that begins another one also the next.

    Raises:
        PromptError: words of the same tokens, or one that begins another and has no end.
    """
    words = [tail.ids[same:end] for tail, end in zip(tails, ends, strict=True)]
    names = [*asked.names, *asked.accepted]
    count = len(asked.words)
    ids = list(words)
    for number, (word, tail) in enumerate(zip(words, tails, strict=True)):
        others = [
            n for n, longer in enumerate(words) if n != number and longer[: len(word)] == word
        ]
        if number >= count or not [n for n in others if n < count]:
            if not word:
                ids[number] = tail.ids[same : same + 1]
            continue
        ids[number] = tail.ids[same : same + len(word) + 1]
        again = [
            n
            for n in others
            if n < count and tails[n].ids[same : same + len(word) + 1] == ids[number]
        ]
        if again or len(ids[number]) == len(word):
            rival = again[0] if again else others[0]
            raise PromptError(
                f"The label words {names[number]!r} and {names[rival]!r} have the same tokens up to the end of "
                f"the first one{' and after it' * bool(again)}, so that one cannot be told from the other. "
                "Choose other words, or let the template write something after {label}."
            )
    return ids


def _score(ids: Sequence[tuple[int, ...]], asked: Asked) -> WordScore:
    """The score that was asked for, or the first that these words have.

    Raises:
        PromptError: `first`, and two words begin with the same token.
    """
    if asked.score == "first":
        check_first_tokens(ids, asked.names)
    alike = len({word[0] for word in ids}) < len(ids)
    return asked.score or ("sum" if alike else "first")

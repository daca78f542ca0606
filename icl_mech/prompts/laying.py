"""Building a `Prompt` from a text with roles: its tokens, their spans, and the candidates that can follow it.

A prompt's text is tokenised once, as a whole. A token takes the role of its first character that is not white
space (or of its first character if all are white space); every token that contains a character of a label word
belongs to the label word. The text is tokenised with the label word of each class; the shared prefix of tokens is
the prompt, its last token the target, and the remaining tokens of each label word are the class's *candidate*.
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
from icl_mech.prompts.splitting import split_text
from icl_mech.tasks import Example, Template
from icl_mech.tasks.types import Piece

TEMPLATE: tuple[Role, ...] = ("bos", "format", "narrative")
"""Roles of text written by the template, special tokens included."""

ROLE_OF: dict[str, Role] = {
    "format": "format",
    "text": "demo_text",
    "rationale": "rationale",
    "label": "label_word",
}
"""Roles of the pieces of a demonstration."""

ROLE_IN_QUERY: dict[str, Role] = {**ROLE_OF, "text": "query_text"}
"""Roles of the pieces of a query."""


class RolePiece(NamedTuple):
    """A piece of text with its role and demonstration number."""

    role: Role
    demo: int | None
    text: str


@dataclass(frozen=True)
class Asked:
    """Answers that can follow a prompt.

    Attributes:
        words: Label words of the classes, or choices, as they would appear in the text.
        names: Their names in messages.
        after: Text that the template writes after a label word.
        accepted: Further correct answers, compared at the same position.
        score: Score of words with several tokens; None: `first` if all begin with different
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
        ids: Token ids, including those before the text.
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
    """Pieces of a whole prompt; each demonstration is given with the label word it displays.

    Trailing spaces of a separator belong to the piece after it.
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
        for piece in template.pieces(example, word):
            pieces += with_role(piece, demo)
        pieces.append(RolePiece("format", demo, ends))
        before = blanks
    pieces.append(RolePiece("format", None, before))
    for piece in template.pieces(query, None):
        pieces += with_role(piece, None)
    return pieces


def with_role(piece: Piece, demo: int | None) -> list[RolePiece]:
    """A piece of a filled-in template with its role, a rationale sentence by sentence; `demo` None: of the query."""
    role = (ROLE_IN_QUERY if demo is None else ROLE_OF)[piece.kind]
    if role == "rationale":
        return sentences(piece.text, demo)
    return [RolePiece(role, demo, piece.text)]


def sentences(rationale: str, demo: int | None) -> list[RolePiece]:
    """A rationale as one piece for each sentence."""
    cuts = [start for start, _ in split_text(rationale, "sentences")][1:]
    texts = (rationale[a:b] for a, b in pairwise([0, *cuts, len(rationale)]))
    return [RolePiece("rationale", demo, text) for text in texts]


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
    """Prompt of a text whose answer is one of several words.

    Raises:
        PromptError: no pieces, a piece without tokens, or words that cannot be compared.
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
    """The prefix that a text shares whichever word follows, and the rest of each word.

    Attributes:
        text: Characters of the shared tokens.
        read: The shared tokens.
        words: Remaining tokens of each word.
        texts: Remaining characters of each word.
    """

    text: str
    read: Encoded
    words: list[tuple[int, ...]]
    texts: list[str]


def _compared(tokenizer: TextTokenizer, text: str, parts: Sequence[Span], asked: Asked) -> _Common:
    """Split the text with each word at the first token that differs between words.

    Raises:
        PromptError: the first tokens differ already, or words cannot be distinguished.
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
    """End of a character including its combining marks, which offsets of a composing tokenizer leave out."""
    while end < len(text) and combining(text[end]):
        end += 1
    return end


def joined(pieces: Iterable[RolePiece]) -> tuple[str, tuple[Span, ...]]:
    """Text of the pieces, and the roles of its characters; adjacent template pieces are merged.

    Raises:
        PromptError: all pieces are empty.
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
    """Character intervals that are not written by the template."""
    return [(part.start, part.stop) for part in parts if part.role not in TEMPLATE]


def lay_out(
    tokenizer: TextTokenizer, text: str, parts: Sequence[Span], read: Encoded, bos: bool | None
) -> Laid:
    """Roles of a text's tokens, including tokens that the tokenizer puts before it.

    Template text that the tokenizer drops (line breaks, for example) has no span.

    Args:
        tokenizer: Tokenizer, which determines the tokens before every text.
        text: Characters of these tokens.
        parts: Roles of characters; later characters take the last role.
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
    """Index of the part that each token belongs to, ascending.

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
    """Assign a text whose characters are all in template tokens the first of these tokens."""
    part = parts[number]
    if part.role in TEMPLATE or part.role in ("span", "unknown"):
        return
    for token, (start, stop) in enumerate(offsets):
        if start < part.stop and stop > part.start and parts[assigned[token]].role in TEMPLATE:
            assigned[token] = number
            return
    raise PromptError(
        f"The {part.role.replace('_', ' ')} {text[part.start : part.stop].strip(' ')!a} has no "
        "token: the tokenizer drops all its characters, or merges them into tokens of the "
        "surrounding text. Leave the example out, or write it with other characters."
    )


def aimed(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Spans with the last token as the target."""
    last = spans[-1]
    before = [Span(last.role, last.demo, last.start, last.stop - 1)] * (last.stop - last.start > 1)
    return (*spans[:-1], *before, Span("target", None, last.stop - 1, last.stop))


def _end(read: Encoded, character: int) -> int:
    """Number of tokens up to the last one that starts before this character."""
    return max((t + 1 for t, (start, _) in enumerate(read.offsets) if start < character), default=0)


def _alike(text: str, endings: Sequence[str]) -> int:
    """Number of characters that a text shares with all its endings."""
    same = zip(*endings, strict=False)
    return len(text) + next(
        (n for n, characters in enumerate(same) if len({*characters}) > 1), min(map(len, endings))
    )


def _candidates(
    tails: Sequence[Encoded], same: int, ends: Sequence[int], asked: Asked
) -> list[tuple[int, ...]]:
    """Tokens of each word after the shared ones; a word that is a prefix of another also gets the next token.

    Raises:
        PromptError: words with the same tokens, or a prefix of another word with nothing after it.
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
                f"The label words {names[number]!r} and {names[rival]!r} have the same tokens up "
                f"to the end of the first one{' and after it' * bool(again)}, so they cannot be "
                "told apart. Choose other words, or let the template write something after "
                "{label}."
            )
    return ids


def _score(ids: Sequence[tuple[int, ...]], asked: Asked) -> WordScore:
    """The requested score; by default `first` if all words begin with different tokens, else `sum`.

    Raises:
        PromptError: `first` is requested, and two words begin with the same token.
    """
    if asked.score == "first":
        check_first_tokens(ids, asked.names)
    alike = len({word[0] for word in ids}) < len(ids)
    return asked.score or ("sum" if alike else "first")

"""From pieces of text to a `Prompt`: tokens, spans and the check against whole-text tokens."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from icl_mech.errors import PromptError
from icl_mech.prompts.spans import Prompt, Role, Span
from icl_mech.prompts.tokenise import PieceTokenizer
from icl_mech.tasks import Example, Template

OWN: tuple[Role, ...] = ("format", "narrative")
"""Roles of what the template writes itself."""


class RolePiece(NamedTuple):
    """A stretch of text with its role and demonstration number."""

    role: Role
    demo: int | None
    text: str


def template_pieces(
    template: Template,
    demonstrations: Sequence[tuple[Example, str]],
    query: Example,
) -> list[RolePiece]:
    """The pieces of a whole prompt; demonstrations come with the label word they display."""
    pieces: list[RolePiece] = []
    if template.narrative:
        pieces.append(RolePiece("narrative", None, template.narrative + template.separator))
    for demo, (example, word) in enumerate(demonstrations):
        for kind, text in template.pieces(example, word):
            role: Role = {"format": "format", "text": "demo_text", "label": "label_word"}[kind]  # type: ignore[assignment]
            pieces.append(RolePiece(role, demo, text))
        pieces.append(RolePiece("format", demo, template.separator))
    for kind, text in template.pieces(query, None):
        pieces.append(RolePiece("query_text" if kind == "text" else "format", None, text))
    return pieces


def tidy_pieces(pieces: Iterable[RolePiece]) -> list[RolePiece]:
    """Move blanks at the end of a piece to the next one, and join format pieces.

    Tokenizers tie a blank to the word after it, so `"Review: "` + `"a dull film"` becomes
    `"Review:"` + `" a dull film"`.
    """
    tidy: list[RolePiece] = []
    carried = ""
    for role, demo, text in pieces:
        text = carried + text
        stripped = text.rstrip(" ")
        carried = text[len(stripped) :] if stripped and role in ("format", "narrative") else ""
        text = text[: len(text) - len(carried)]
        if tidy and role == "format" == tidy[-1].role and demo == tidy[-1].demo:
            tidy[-1] = RolePiece(role, demo, tidy[-1].text + text)
        elif text:
            tidy.append(RolePiece(role, demo, text))
    return tidy


def assemble(
    tokenizer: PieceTokenizer,
    pieces: Iterable[RolePiece],
    *,
    label_classes: Sequence[int],
    label_words: Sequence[tuple[int, ...]],
    labels: Sequence[str],
    answer: int | None,
    false_answer: int | None = None,
    bos: bool | None = None,
) -> Prompt:
    """Tokenise the pieces and lay the spans; the last token becomes the target.

    Raises:
        PromptError: no pieces, one that has no tokens, or a displayed label word whose ids differ
            from its class's.
    """
    tidy = tidy_pieces(pieces)
    if not tidy:
        raise PromptError("The prompt is empty; it needs at least a query.")
    begun = tokenizer.begun(tidy[0].text, bos, template=tidy[0].role in OWN)
    start = () if begun else tokenizer.start_tokens(bos)
    before = [Span("bos", None, 0, len(start))] if start else []
    ids, spans = lay_out(tokenizer, tidy, start, before, first=True)
    if begun:
        rest = replace(spans[0], start=begun)
        spans = (Span("bos", None, 0, begun), *(rest,) * (rest.stop > begun), *spans[1:])
    for span, label in zip(
        (span for span in spans if span.role == "label_word"), label_classes, strict=True
    ):
        if ids[span.start : span.stop] != label_words[label]:
            raise PromptError(
                f"The label word {labels[label]!r} is tokenised as {list(ids[span.start : span.stop])} "
                f"in the prompt but {list(label_words[label])} was expected for its class."
            )
    read = [(piece.text, piece.role in OWN) for piece in tidy]
    return Prompt(
        ids,
        spans,
        tuple(label_classes),
        tuple(label_words),
        answer=answer,
        false_answer=false_answer,
        labels=tuple(labels),
        pieces=tokenizer.words(ids),
        exact=tokenizer.gives(ids[len(start) :], read),
    )


def lay_out(
    tokenizer: PieceTokenizer,
    pieces: Sequence[RolePiece],
    ids: Sequence[int] = (),
    spans: Sequence[Span] = (),
    *,
    first: bool = False,
) -> tuple[tuple[int, ...], tuple[Span, ...]]:
    """Tokens and spans with tidy pieces added behind; the last token becomes the target.

    What a tokenizer drops of the template (line breaks, say) has no span.

    Raises:
        PromptError: a text or label word without any token.
    """
    tokens, laid = list(ids), list(spans)
    for number, (role, demo, text) in enumerate(pieces):
        following = pieces[number + 1].text if number + 1 < len(pieces) else ""
        own = role in OWN
        new = tokenizer.piece(text, first=first and number == 0, following=following, template=own)
        if new:
            laid.append(Span(role, demo, len(tokens), len(tokens) + len(new)))
            tokens += new
        elif not own:
            raise PromptError(
                f"The {role.replace('_', ' ')} {text.strip(' ')!a} has no token: all its characters are "
                "dropped by the tokenizer. Leave the example out, or write it in other characters."
            )
    last = laid.pop()
    if last.stop - last.start > 1:
        laid.append(Span(last.role, last.demo, last.start, last.stop - 1))
    return tuple(tokens), (*laid, Span("target", None, last.stop - 1, last.stop))

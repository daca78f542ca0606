"""From pieces of text to a `Prompt`: tokens, spans and the check against whole-text tokens."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from icl_mech.errors import PromptError
from icl_mech.prompts.spans import Prompt, Role, Span
from icl_mech.prompts.tokenise import PieceTokenizer
from icl_mech.tasks import Example, Template


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
        PromptError: no pieces, or a displayed label word whose ids differ from its class's.
    """
    start = tokenizer.start_tokens(bos)
    spans = [Span("bos", None, 0, len(start))] if start else []
    ids: list[int] = list(start)
    tidy = tidy_pieces(pieces)
    shown = iter(label_classes)
    for number, (role, demo, text) in enumerate(tidy):
        following = tidy[number + 1].text if number + 1 < len(tidy) else ""
        new = tokenizer.piece(text, first=number == 0, following=following)
        if role == "label_word":
            expected = label_words[next(shown)]
            if new != expected:
                raise PromptError(
                    f"The label word {text!r} is tokenised as {list(new)} in the prompt but "
                    f"{list(expected)} was expected for its class."
                )
        spans.append(Span(role, demo, len(ids), len(ids) + len(new)))
        ids += new
    if not tidy:
        raise PromptError("The prompt is empty; it needs at least a query.")
    last = spans.pop()
    if last.stop - last.start > 1:
        spans.append(Span(last.role, last.demo, last.start, last.stop - 1))
    spans.append(Span("target", None, last.stop - 1, last.stop))
    whole = tokenizer.whole("".join(piece.text for piece in tidy))
    return Prompt(
        tuple(ids),
        tuple(spans),
        tuple(label_classes),
        tuple(label_words),
        answer=answer,
        false_answer=false_answer,
        labels=tuple(labels),
        pieces=tokenizer.words(tuple(ids)),
        exact=tuple(chain(start, whole)) == tuple(ids),
    )

"""Serialisation of prompts as plain values, and a warning about repeated prompts.

Prompts of one study share most of their content, so label words, names of classes and the text of each
token are stored once for all prompts; the choices of a prompt are stored with it.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from icl_mech.errors import PromptError
from icl_mech.prompts.roles import Span
from icl_mech.prompts.spans import Prompt

WHAT = "tokens", "classes", "answer", "false_answer", "exact", "spans"
"""Fields stored for each prompt."""


def to_values(prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Prompts as lists, texts and numbers, the input of `from_values`.

    Returns:
        `labels` and `label_words` of the classes; `pieces`, the text of each token by its id;
        `roles`; and `prompts`, each with its token ids, and its spans as numbers: the role's in
        `roles`, the demonstration (None outside of demonstrations) and the position after the last token.
    """
    pieces: dict[int, str] = {}
    for prompt in prompts:
        for token, piece in zip(prompt.tokens, prompt.pieces, strict=False):
            pieces.setdefault(int(token), piece)
    roles = sorted({span.role for prompt in prompts for span in (*prompt.spans, *prompt.parts)})
    first = prompts[0]
    plain: list[dict[str, Any]] = []
    for prompt in prompts:
        record: dict[str, Any] = {
            "tokens": [int(token) for token in prompt.tokens],
            "classes": [int(label) for label in prompt.label_classes],
            "answer": _plain(prompt.answer),
            "false_answer": _plain(prompt.false_answer),
            "exact": bool(prompt.exact),
            "spans": [
                [roles.index(span.role), _plain(span.demo), int(span.stop)] for span in prompt.spans
            ],
        }
        record |= _differences(prompt, first, pieces, roles)
        plain.append(record)
    return {
        "labels": list(first.labels),
        "label_words": _words(first.label_words),
        "kind": first.kind,
        "candidates": list(first.candidate_texts),
        "score": first.score,
        "pieces": {str(token): piece for token, piece in sorted(pieces.items())},
        "roles": roles,
        "prompts": plain,
    }


def _differences(
    prompt: Prompt, first: Prompt, pieces: Mapping[int, str], roles: Sequence[str]
) -> dict[str, Any]:
    """Fields in which a prompt differs from the first one, and fields that not all prompts have."""
    record: dict[str, Any] = {}
    if prompt.pieces != tuple(pieces.get(token) for token in map(int, prompt.tokens)):
        record["pieces"] = list(prompt.pieces)
    if prompt.labels != first.labels:
        record["labels"] = list(prompt.labels)
    if prompt.label_words != first.label_words:
        record["label_words"] = _words(prompt.label_words)
    if prompt.accepted:
        record["accepted"] = _words(prompt.accepted)
    if prompt.text != prompt.written():
        record["text"] = prompt.text
    if prompt.parts:
        record["parts"] = [
            [roles.index(part.role), _plain(part.demo), int(part.stop)] for part in prompt.parts
        ]
    if prompt.candidate_texts != first.candidate_texts:
        record["candidates"] = list(prompt.candidate_texts)
    return record


def from_values(values: Mapping[str, Any]) -> tuple[Prompt, ...]:
    """The prompts that `to_values` wrote.

    Raises:
        PromptError: parts are missing, of the wrong type, or contradict each other.
    """
    try:
        return tuple(_prompt(record, values) for record in values["prompts"])
    except PromptError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise PromptError(
            f"Saved prompts cannot be read ({type(error).__name__}: {error}); expected the result "
            "of PromptBatch.to_dict."
        ) from error


def _prompt(record: Mapping[str, Any], all_of: Mapping[str, Any]) -> Prompt:
    tokens, classes, answer, false_answer, exact, spans = (record[name] for name in WHAT)
    pieces = record.get("pieces")
    if pieces is None:
        pieces = [all_of["pieces"][str(token)] for token in tokens]
    starts = [0, *(stop for _, _, stop in spans)]
    parts = record.get("parts", ())
    begins = [0, *(stop for _, _, stop in parts)]
    return Prompt(
        tokens=tuple(tokens),
        spans=tuple(
            Span(all_of["roles"][role], demo, start, stop)
            for start, (role, demo, stop) in zip(starts, spans, strict=False)
        ),
        label_classes=tuple(classes),
        label_words=tuple(tuple(word) for word in record.get("label_words", all_of["label_words"])),
        answer=answer,
        false_answer=false_answer,
        labels=tuple(record.get("labels", all_of["labels"])),
        pieces=tuple(pieces),
        exact=exact,
        kind=all_of.get("kind"),
        accepted=tuple(tuple(word) for word in record.get("accepted", ())),
        text=record.get("text", ""),
        parts=tuple(
            Span(all_of["roles"][role], demo, start, stop)
            for start, (role, demo, stop) in zip(begins, parts, strict=False)
        ),
        candidate_texts=tuple(record.get("candidates", all_of.get("candidates", ()))),
        score=all_of.get("score", "first"),
    )


def _words(words: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[int(token) for token in word] for word in words]


def _plain(number: int | None) -> int | None:
    return None if number is None else int(number)


def warn_of_copies(prompts: Sequence[Prompt], stacklevel: int) -> None:
    """Warn of repeated prompts, since intervals treat prompts as independent."""
    first: dict[tuple[int, ...], int] = {}
    again = [(n, first.setdefault(tuple(prompt.tokens), n)) for n, prompt in enumerate(prompts)]
    copies = [f"prompt {n} repeats prompt {original}" for n, original in again if n != original]
    if copies:
        warnings.warn(
            f"{len(copies)} of {len(prompts)} prompts repeat another one token for token "
            f"({copies[0]}); intervals assume that prompts are independent, so they will be too "
            "narrow. Give each prompt once.",
            stacklevel=stacklevel,
        )

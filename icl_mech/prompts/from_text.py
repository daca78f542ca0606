"""Prompts found in raw text: label words are located once, by characters."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from icl_mech.checking import conformed
from icl_mech.errors import PromptError, TaskError
from icl_mech.prompts.assemble import RolePiece, assemble
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.build import (
    check_lengths,
    label_word_tokens,
    report_inexact,
    tokenizer_and_limit,
)
from icl_mech.prompts.fingerprint import tokenizer_identity
from icl_mech.prompts.tokenise import PieceTokenizer, SpecialTokens
from icl_mech.tasks.types import is_index, label_names, text_fault


def prompts_from_text(
    texts: Sequence[str],
    label_words: Sequence[str],
    model: Any,
    answers: Sequence[int | str] | None = None,
    *,
    before: str | None = None,
    bos: bool | None = None,
    special_tokens: SpecialTokens = "refuse",
) -> PromptBatch:
    r"""Prompts from finished texts, e.g. `"Review: ...\nSentiment: Positive\n...Sentiment:"`.

    Every occurrence of a label word (with a space before it and no letter after it) is a
    demonstration's label; text between labels has the role `demo_text`, after the last one
    `query_text`, and the last token is the target.

    Args:
        texts: Prompts that end where the answer would follow.
        label_words: In class order, without their leading space.
        model: Model or tokenizer.
        answers: True class of each query, as index or label word.
        before: Only occurrences right behind this text count, e.g. `"Sentiment:"` - needed
            when label words also occur inside the texts.
        bos: As in `build_prompts`; a BOS token that a text writes itself is not put twice.
        special_tokens: What `<|im_end|>` and the like in the texts are: the tokens (`control`),
            as in texts of `tokenizer.apply_chat_template`; their letters (`text`); or an error
            (`refuse`), since a finished text does not tell which.

    Raises:
        PromptError: empty text, trailing space, unknown answer, wrong number of answers, special
            tokens in a text.
    """
    texts = _texts(texts)
    tokenizer, limit = tokenizer_and_limit(model)
    labels = list(_labels(label_words))
    answers = getattr(answers, "tolist", lambda: answers)()
    if answers is not None and (isinstance(answers, str) or not isinstance(answers, Sequence)):
        raise PromptError(f"answers={answers!r}; expected a list, one answer per text.")
    if answers is not None and len(answers) != len(texts):
        raise PromptError(f"{len(texts)} texts but {len(answers)} answers; give one per text.")
    breaks = isinstance(before, str) and bool(before.strip(" "))
    if before is not None and (fault := text_fault(before, blank=breaks)):
        raise PromptError(f"before= {fault}; give the text in front of label words, or None.")
    conformed("special_tokens", special_tokens, SpecialTokens, PromptError)
    conformed("bos", bos, bool | None, PromptError)
    pieces = PieceTokenizer(tokenizer, special_tokens)
    words = label_word_tokens(pieces, [f" {label}" for label in labels], labels)
    longest_first = sorted(labels, key=len, reverse=True)
    anchor = f"(?<={re.escape(before.rstrip(' '))})" if before else ""
    pattern = re.compile(rf"{anchor} ({'|'.join(map(re.escape, longest_first))})(?!\w)")
    prompts = []
    for number, text in enumerate(texts):
        if text != text.rstrip(" "):
            raise PromptError(
                f"Text {number} ends in a space; the answer brings its own, so end with the sign before it."
            )
        found = list(pattern.finditer(text))
        answer = None if answers is None else _class(answers[number], labels, number)
        prompts.append(
            assemble(
                pieces,
                _split(text, found),
                label_classes=[labels.index(match.group(1)) for match in found],
                label_words=words,
                labels=labels,
                answer=answer,
                bos=bos,
            )
        )
    check_lengths(prompts, limit)
    report_inexact(prompts)
    source = {
        "task": {"name": "text", "labels": labels},
        "n": len(texts),
        "before": before,
        "bos": any(prompt.spans[0].role == "bos" for prompt in prompts),
        "exact_tokens": all(prompt.exact for prompt in prompts),
        "tokenizer": tokenizer_identity(tokenizer),
    }
    return PromptBatch(tuple(prompts), source)


def _split(text: str, found: Sequence[re.Match[str]]) -> list[RolePiece]:
    pieces: list[RolePiece] = []
    end = 0
    for demo, match in enumerate(found):
        if match.start() > end:
            pieces.append(RolePiece("demo_text", demo, text[end : match.start()]))
        pieces.append(RolePiece("label_word", demo, match.group(0)))
        end = match.end()
    if end == len(text):
        raise PromptError(
            "A text ends with a label word; it must end where the answer would follow."
        )
    pieces.append(RolePiece("query_text", None, text[end:]))
    return pieces


def _texts(texts: Any) -> list[str]:
    if isinstance(texts, str | bytes):
        raise PromptError("texts is one string; give a list of texts, for one prompt [text].")
    if not isinstance(texts, Iterable):
        raise PromptError(f"texts is a {type(texts).__name__}; give a list of texts.")
    listed = list(texts)
    for number, text in enumerate(listed):
        if fault := text_fault(text):
            raise PromptError(f"Text {number} {fault}.")
    return listed


def _labels(label_words: Any) -> tuple[str, ...]:
    try:
        return label_names(label_words, "label_words")
    except TaskError as error:
        raise PromptError(str(error)) from None


def _class(answer: int | str, labels: Sequence[str], number: int) -> int:
    if isinstance(answer, str):
        if answer.strip() not in labels:
            raise PromptError(
                f"Answer {answer!r} of text {number} is not a label word: {', '.join(labels)}."
            )
        return list(labels).index(answer.strip())
    if not is_index(answer):
        raise PromptError(
            f"Answer {answer!r} of text {number} is a {type(answer).__name__}; expected a label "
            f"word ({', '.join(labels)}) or its index."
        )
    return int(answer)

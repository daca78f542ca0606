"""Prompts whose query says nothing: its text replaced, the same demonstrations before it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from icl_mech.errors import PromptError
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.prompts.tokenise import PieceTokenizer
from icl_mech.tasks import Task


class ContentFree(NamedTuple):
    """Prompts without content, and which of them belong to which prompt.

    Attributes:
        prompts: For each different context all replacements, one after the other.
        context: Number of the context of each prompt.
        each: Replacements per context.
    """

    prompts: PromptBatch
    context: tuple[int, ...]
    each: int

    def by_context(self) -> list[PromptBatch]:
        """The prompts of each context, which share all that stands before the query."""
        starts = range(0, len(self.prompts), self.each)
        return [self.prompts[start : start + self.each] for start in starts]


def replaced(prompts: PromptBatch, texts: Sequence[str], tokenizer: Any) -> ContentFree:
    """Every context of the prompts with each of these texts as its query.

    Prompts that differ in their query's text only share a context.
    """
    pieces = PieceTokenizer(tokenizer)
    numbers: dict[tuple[Any, ...], int] = {}
    first: list[Prompt] = []
    context = []
    for prompt in prompts:
        key = _around(prompt)
        if key not in numbers:
            numbers[key] = len(first)
            first.append(prompt)
        context.append(numbers[key])
    made = tuple(with_query(prompt, text, pieces) for prompt in first for text in texts)
    source = {**prompts.source, "query": "without content"}
    return ContentFree(PromptBatch(made, source), tuple(context), len(texts))


def with_query(prompt: Prompt, text: str, tokenizer: PieceTokenizer) -> Prompt:
    """The prompt with another text as each text of its query; an empty one leaves them out.

    A blank before the text is kept with the text, as prompts are tokenised.
    """
    tokens: list[int] = []
    spans: list[Span] = []
    for place, span in enumerate(prompt.spans):
        own = prompt.tokens[span.start : span.stop]
        if span.role == "query_text":
            if not text:
                continue
            blank = " " if prompt.pieces and prompt.pieces[span.start].startswith(" ") else ""
            after = "".join(prompt.pieces[span.stop :]) if prompt.pieces else ""
            first = all(other.role == "bos" for other in prompt.spans[:place])
            own = tokenizer.piece(blank + text, first=first, following=after)
        spans.append(Span(span.role, span.demo, len(tokens), len(tokens) + len(own)))
        tokens += own
    ids = tuple(tokens)
    return replace(
        prompt,
        tokens=ids,
        spans=tuple(spans),
        answer=None,
        false_answer=None,
        pieces=tokenizer.words(ids),
        exact=False,
    )


def _around(prompt: Prompt) -> tuple[Any, ...]:
    """What stands around the query's text."""
    return tuple(
        (span.role, () if span.role == "query_text" else prompt.tokens[span.start : span.stop])
        for span in prompt.spans
    )


def texts_of(prompts: PromptBatch, role: str) -> list[str]:
    """Texts of a role, each once, in order."""
    found: dict[str, None] = {}
    for prompt in prompts:
        for span in prompt.spans:
            if span.role == role and prompt.pieces:
                found["".join(prompt.pieces[span.start : span.stop]).strip()] = None
    return list(found)


def random_words(texts: Sequence[str], draws: int, seed: int) -> list[str]:
    """Texts of random words of these, each as long as the mean of them in words."""
    words = [text.split() for text in texts]
    pool = [word for own in words for word in own]
    length = max(1, round(len(pool) / len(texts)))
    generator = np.random.default_rng(seed)
    return [
        " ".join(pool[i] for i in generator.integers(len(pool), size=length)) for _ in range(draws)
    ]


def check_replaceable(prompts: PromptBatch) -> None:
    """Refuse prompts whose query's text cannot be replaced.

    Raises:
        PromptError: prompts without text roles or a query text, or whose answer is read at the text.
    """
    for number, prompt in enumerate(prompts):
        if not any(span.role == "query_text" for span in prompt.spans):
            raise PromptError(
                f"Prompt {number} has no text of a query that could be replaced by one without content; "
                "build prompts with build_prompts or prompts_from_text."
            )
    before = [
        next(
            own for own, nxt in zip(p.spans, p.spans[1:], strict=False) if nxt.role == "target"
        ).role
        for p in prompts
    ]
    ends = {prompt.tokens[prompt.target] for prompt in prompts}
    if "query_text" in before and len(ends) > 1:
        raise PromptError(
            "The answer is read at the last token of the query's text, so the text cannot be replaced; "
            "use a template with words between text and label, such as '{text}\\nSentiment:{label}'."
        )


def check_own_texts(texts: Sequence[str], prompts: PromptBatch) -> None:
    """Refuse texts without words, and texts of the prompts that are measured.

    Raises:
        PromptError: says how many.
    """
    if not any(text.split() for text in texts):
        raise PromptError(
            "There are no texts to draw words from (the prompts have no demonstrations); give the "
            "task, or texts= of its training examples."
        )
    known = _queries(prompts)
    shared = sum(" ".join(text.split()) in known for text in texts)
    if shared:
        raise PromptError(
            f"{shared} of {len(texts)} calibration texts are queries of these prompts; words must not be "
            "drawn from what is tested. Give training texts."
        )


def training_texts(task: Task, prompts: PromptBatch) -> list[str]:
    """Training texts of a task that are no queries of these prompts."""
    known = _queries(prompts)
    texts = (
        text for example in task.train for text in (example.text, example.text2) if text is not None
    )
    return [text for text in texts if " ".join(text.split()) not in known]


def _queries(prompts: PromptBatch) -> set[str]:
    """Texts of the queries, white space run together."""
    return {" ".join(text.split()) for text in texts_of(prompts, "query_text")}

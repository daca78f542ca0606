"""Content-free prompts: the query's text replaced, the same demonstrations before it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from icl_mech.errors import PromptError
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.prompts.laying import Asked, RolePiece, assemble
from icl_mech.tasks import Task


class ContentFree(NamedTuple):
    """Prompts without content, and the prompts they belong to.

    Attributes:
        prompts: All replacements for each different context, one after the other.
        context: Number of the context of each prompt.
        each: Number of replacements per context.
    """

    prompts: PromptBatch
    context: tuple[int, ...]
    each: int

    def by_context(self) -> list[PromptBatch]:
        """The prompts of each context, which share everything before the query."""
        starts = range(0, len(self.prompts), self.each)
        return [self.prompts[start : start + self.each] for start in starts]


def replaced(prompts: PromptBatch, texts: Sequence[str], tokenizer: Any) -> ContentFree:
    """Every context of the prompts with each of these texts as its query.

    Prompts that differ only in their query's text share a context.
    """
    reader = TextTokenizer(tokenizer, prompts.source.get("special_tokens", "text"))
    numbers: dict[tuple[Any, ...], int] = {}
    first: list[Prompt] = []
    context = []
    for prompt in prompts:
        key = _around(prompt)
        if key not in numbers:
            numbers[key] = len(first)
            first.append(prompt)
        context.append(numbers[key])
    made = tuple(with_query(prompt, text, reader) for prompt in first for text in texts)
    source = {**prompts.source, "query": "without content"}
    return ContentFree(PromptBatch(made, source), tuple(context), len(texts))


def with_query(prompt: Prompt, text: str, reader: TextTokenizer) -> Prompt:
    """The prompt with `text` as each text of its query; an empty one removes them.

    Where the answer is read at the end of the query's text, this end stays.
    """
    target = len(prompt.text) - len(prompt.pieces[prompt.target])
    pieces: list[RolePiece] = []
    for part in prompt.parts:
        content = prompt.text[part.start : part.stop]
        if part.role == "query_text":
            content = text + content[max(target - part.start, 0) :]
        pieces.append(RolePiece(part.role, part.demo, content))
    asked = Asked(prompt.candidate_texts, prompt.labels, score=prompt.score)
    bos = prompt.spans[0].role == "bos"
    return assemble(reader, pieces, asked, label_classes=prompt.label_classes, answer=None, bos=bos)


def _around(prompt: Prompt) -> tuple[Any, ...]:
    """Key of everything around the query's text."""
    return tuple(
        (part.role, "" if part.role == "query_text" else prompt.text[part.start : part.stop])
        for part in prompt.parts
    )


def texts_of(prompts: PromptBatch, role: str) -> list[str]:
    """Texts of a role, each once, in order."""
    texts: dict[str, None] = {}
    for prompt in prompts:
        for span in prompt.spans:
            if span.role == role and prompt.pieces:
                texts["".join(prompt.pieces[span.start : span.stop]).strip()] = None
    return list(texts)


def random_words(texts: Sequence[str], draws: int, seed: int) -> list[str]:
    """Texts of random words drawn from these texts, each with their mean number of words."""
    words = [text.split() for text in texts]
    pool = [word for text_words in words for word in text_words]
    length = max(1, round(len(pool) / len(texts)))
    generator = np.random.default_rng(seed)
    return [
        " ".join(pool[i] for i in generator.integers(len(pool), size=length)) for _ in range(draws)
    ]


def check_replaceable(prompts: PromptBatch) -> None:
    """Reject prompts whose query's text cannot be replaced.

    Raises:
        PromptError: prompts without text roles or a query text, or whose answer is read at the text.
    """
    for number, prompt in enumerate(prompts):
        if not any(part.role == "query_text" for part in prompt.parts):
            raise PromptError(
                f"Prompt {number} has no query text that could be replaced by a content-free one. "
                "Build prompts with build_prompts or prompts_from_text; rebuild those saved by "
                "earlier versions."
            )
    before = [
        next(
            span for span, nxt in zip(p.spans, p.spans[1:], strict=False) if nxt.role == "target"
        ).role
        for p in prompts
    ]
    ends = {prompt.tokens[prompt.target] for prompt in prompts}
    if "query_text" in before and len(ends) > 1:
        raise PromptError(
            "The answer is read at the last token of the query text, so the text cannot be "
            "replaced. Use a template with words between text and label, such as "
            "'{text}\\nSentiment: {label}'."
        )


def check_own_texts(texts: Sequence[str], prompts: PromptBatch) -> None:
    """Reject texts without words, and texts of the prompts that are measured.

    Raises:
        PromptError: says how many.
    """
    if not any(text.split() for text in texts):
        raise PromptError(
            "There are no texts to draw words from, because the prompts have no demonstrations. "
            "Give the task, or its training examples as texts=."
        )
    known = _queries(prompts)
    shared = sum(" ".join(text.split()) in known for text in texts)
    if shared:
        raise PromptError(
            f"{shared} of {len(texts)} calibration texts are queries of these prompts, but "
            "calibration words must not come from test texts. Give training texts."
        )


def training_texts(task: Task, prompts: PromptBatch) -> list[str]:
    """Training texts of a task that are not queries of these prompts."""
    known = _queries(prompts)
    texts = (
        text for example in task.train for text in (example.text, example.text2) if text is not None
    )
    return [text for text in texts if " ".join(text.split()) not in known]


def _queries(prompts: PromptBatch) -> set[str]:
    """Texts of the queries, with white space collapsed."""
    return {" ".join(text.split()) for text in texts_of(prompts, "query_text")}

"""Small tasks and helpers for the tests of prompts."""

from collections.abc import Callable

from icl_mech.prompts import Prompt, Span
from icl_mech.tasks import Example, Task, Template
from tests.tiny import tiny_tokenizer

KINDS = ("bpe", "sentencepiece")
REVIEW = Template("Review: {text}\nSentiment: {label}")
OBJECT = Template("{text}: {label}.", separator="\n\n", narrative="Sort them.")
SENTIMENTS = ("Negative", "Positive")
KINGDOMS = ("animal", "plant", "sport")
TOPICS = ("World", "Sports", "Business", "Technology")


def toy_task(
    labels: tuple[str, ...] = SENTIMENTS,
    template: Template = REVIEW,
    per_class: int = 6,
    name: str = "toy",
) -> Task:
    """A task whose texts say their split, class and number."""
    train, test = (
        tuple(
            Example(f"{split} {label} {number}", label)
            for label in range(len(labels))
            for number in range(per_class)
        )
        for split in ("train", "test")
    )
    return Task(name, template, labels, train, test)


def one_each(texts: list[str], query: str, template: Template = REVIEW) -> Task:
    """A task with one training example per class, and the same test text for all."""
    train = tuple(Example(text, label) for label, text in enumerate(texts))
    test = tuple(Example(query, label) for label in range(len(texts)))
    return Task("texts", template, SENTIMENTS[: len(texts)], train, test)


def decode(kind: str, ids: tuple[int, ...]) -> str:
    return tiny_tokenizer(kind).decode(list(ids), clean_up_tokenization_spaces=False)


def decoder(kind: str, prompt: Prompt) -> Callable[[Span], str]:
    return lambda span: decode(kind, prompt.tokens[span.start : span.stop])


def texts_of(prompt: Prompt, kind: str = "bpe") -> list[str]:
    """The texts of the demonstrations and of the query, read back from the tokens."""
    read = decoder(kind, prompt)
    return [read(span).strip() for span in prompt.spans if span.role in ("demo_text", "query_text")]

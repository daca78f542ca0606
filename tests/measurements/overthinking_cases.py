"""Pairs of true and false prompts for the planted model and for tiny random ones."""

from functools import lru_cache

from icl_mech import Example, Task, Template, build_prompt_pairs
from tests.planted import planted_model, planted_task
from tests.tiny import tiny_model

FAMILIES = ("gpt2", "gptj", "neox", "llama", "gemma3")
CLOSE = {"atol": 2e-5, "rtol": 1e-5}
N = 12

# Label words of one and of several tokens.
LABELS = ("World", "plant/vegetable", "Sports")
TEXTS = (
    "stocks fell", "green leaves", "the home team won", "a Business story", "wheat", "a match",
    "prices", "basil and thyme", "the final", "who wrote it?", "moss", "rowing",
)  # fmt: skip
TASK = Task(
    "tiny",
    Template("{text}:{label}.", separator="\n\n"),
    LABELS,
    tuple(Example(text, i % 3) for i, text in enumerate(TEXTS[:6])),
    tuple(Example(text, i % 3) for i, text in enumerate((*TEXTS, *reversed(TEXTS[6:])))),
)


@lru_cache
def tiny_case(family, false_labels="permuted"):
    """A tiny model with its (true, false) prompts: three classes, two demonstrations of each."""
    model = tiny_model(family)
    return model, *tiny_pairs(model, false_labels=false_labels)


def tiny_pairs(model, **options):
    settings = {"shots": 2, "n": N, "demonstrations": "per_prompt", **options}
    return build_prompt_pairs(TASK, model, **settings)


@lru_cache
def planted_case(false_labels="permuted"):
    """The planted model with its (true, false) prompts."""
    model = planted_model()
    return model, *planted_pairs(model, false_labels=false_labels)


def planted_pairs(model, **options):
    settings = {"shots": 1, "n": 30, "demonstrations": "per_prompt", **options}
    return build_prompt_pairs(planted_task(), model, **settings)

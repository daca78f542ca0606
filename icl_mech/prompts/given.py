"""Checks that what is given as prompts are prompts, and says how to make them if not."""

from collections.abc import Sequence
from typing import Any

from icl_mech.checking import shown
from icl_mech.errors import PromptError
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.spans import Prompt
from icl_mech.tasks import Task


def check_batch(given: Any, what: str = "prompts") -> PromptBatch:
    """The prompts, if they are a batch.

    Raises:
        PromptError: says what was found and how prompts are made of it.
    """
    if isinstance(given, PromptBatch):
        return given
    raise PromptError(
        f"{what}={shown(given)} is no PromptBatch, but {_found(given)}. {_advice(given)}"
    )


def check_classes(prompts: PromptBatch, what: str) -> None:
    """Refuse texts where label words are needed.

    Raises:
        PromptError: names what needs them.
    """
    if not prompts.has_classes:
        raise PromptError(
            f"{what} rests on label words, and these prompts are texts without classes. Take one of "
            "span_flow, suppression, anchor_tokens and saliency_maps, or build prompts with "
            "demonstrations (build_prompts, prompts_from_text)."
        )


def _found(given: Any) -> str:
    kind = type(given).__name__
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    inside = f" of {len(given)}" if isinstance(given, list | tuple) else ""
    return f"{article} {kind}{inside}"


def _advice(given: Any) -> str:
    if isinstance(given, Task):
        return "Build prompts of a task with build_prompts(task, model, shots=1, n=50)."
    if isinstance(given, Prompt):
        return "Make a batch of a single prompt with PromptBatch((prompt,))."
    several = isinstance(given, Sequence) and len(given) > 0
    if several and all(isinstance(one, Prompt) for one in given):
        return "Make a batch of them with PromptBatch(prompts)."
    if several and all(isinstance(one, PromptBatch) for one in given):
        return (
            "Give one batch, or where true and false demonstrations are compared the pair "
            "(true, false) as build_prompt_pairs returns it."
        )
    if several and all(isinstance(one, str) for one in given):
        return (
            "Prompts know which of their tokens are label words; make them from texts with "
            "prompts_from_text(texts, label_words, model), or from a task with build_prompts; texts "
            "without label words become prompts with texts(texts, model)."
        )
    return "Give what build_prompts or prompts_from_text returns."

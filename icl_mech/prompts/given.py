"""Validation of prompt arguments, with advice on how to build prompts, and drawing more prompts of the same kind."""

import inspect
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from icl_mech.checking import shown
from icl_mech.errors import PromptError
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.drawing import largest
from icl_mech.prompts.spans import Prompt
from icl_mech.tasks import Task, as_task

P = ParamSpec("P")
R = TypeVar("R")


def check_batch(given: object, what: str = "prompts") -> PromptBatch:
    """The prompts, checked to be a `PromptBatch`.

    Raises:
        PromptError: names the type that was given and how to build prompts from it.
    """
    if isinstance(given, PromptBatch):
        return given
    raise PromptError(
        f"{what}={shown(given)} is {_described(given)}, not a PromptBatch. {_advice(given)}"
    )


def _described(given: object) -> str:
    type_name = type(given).__name__
    article = "an" if type_name[0] in "aeiouAEIOU" else "a"
    inside = f" of {len(given)}" if isinstance(given, list | tuple) else ""
    return f"{article} {type_name}{inside}"


def _advice(given: object) -> str:
    if isinstance(given, Task):
        return "Build prompts from a task with build_prompts(task, model, shots=1, n=50)."
    if isinstance(given, Prompt):
        return "Make a batch of a single prompt with PromptBatch((prompt,))."
    inside = given if isinstance(given, Sequence) else ()
    if inside and all(isinstance(prompt, Prompt) for prompt in inside):
        return "Make a batch of them with PromptBatch(prompts)."
    if inside and all(isinstance(batch, PromptBatch) for batch in inside):
        return (
            "Give one batch or, to compare true and false demonstrations, the pair (true, false) "
            "that build_prompt_pairs returns."
        )
    if inside and all(isinstance(text, str) for text in inside):
        return (
            "Prompts record which of their tokens are label words. Build them from texts with "
            "prompts_from_text(texts, label_words, model), from a task with build_prompts, or "
            "from texts without label words with texts(texts, model)."
        )
    return "Give the result of build_prompts or prompts_from_text."


# --- more prompts like these ---

DRAWN: WeakKeyDictionary[PromptBatch, Callable[..., PromptBatch]] = WeakKeyDictionary()
"""Functions that redraw a batch, given `model_or_tokenizer` and `n`; they hold no reference to a model."""

AllPrompts = PromptBatch | tuple[PromptBatch, PromptBatch]


def redrawable(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator that records how to draw more prompts like those of batches with drawn queries."""
    names = [*inspect.signature(function).parameters]

    @wraps(function)
    def build(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        given = {**dict(zip(names, args, strict=False)), **kwargs, "model_or_tokenizer": None}
        if given.get("queries") is None:
            batches: Any = result if isinstance(result, tuple) else (result,)
            for place, batch in enumerate(batches):
                DRAWN[batch] = partial(_drawn, function, given, place)
        return result

    return build


def _drawn(
    function: Callable[..., Any],
    given: dict[str, Any],
    place: int,
    *,
    rewrite: Callable[[Task], Task] | None = None,
    **more: Any,
) -> Any:
    if rewrite is not None:
        more["task"] = rewrite(as_task(given["task"]))
    result = function(**{**given, **more})
    return result[place] if isinstance(result, tuple) else result


def drawn_again(
    prompts: AllPrompts,
    model: object,
    n: int,
    *,
    rewrite: Callable[[Task], Task] | None = None,
    **changes: Any,
) -> AllPrompts:
    """`n` prompts drawn like these, with the same seed; for a pair, both sides.

    Args:
        prompts: Prompts as drawn.
        model: Model or tokenizer.
        n: Number of prompts.
        rewrite: The task with another template or other label words.
        **changes: Other options of `build_prompts`, such as `seed`.

    Raises:
        PromptError: the prompts were not drawn, or there are too few examples.
    """
    batches = prompts if isinstance(prompts, tuple) else (prompts,)
    if any(batch not in DRAWN for batch in batches):
        raise PromptError(
            "No more prompts like these can be drawn, because these were chosen, loaded, changed "
            "or selected from others. Give the result of build_prompts or build_prompt_pairs, "
            "without queries=."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first batch has already warned
        changes |= {"model_or_tokenizer": model, "n": n, "rewrite": rewrite}
        redrawn: Any = tuple(DRAWN[batch](**changes) for batch in batches)
    again: AllPrompts = redrawn if isinstance(prompts, tuple) else redrawn[0]
    return again


def room(prompts: AllPrompts, model: object, least: int, most: int) -> int:
    """Number of prompts that can be drawn, up to `most`.

    Raises:
        PromptError: fewer than `least`, or prompts that were not drawn.
    """
    try:
        drawn_again(prompts, model, least)
    except PromptError as error:
        raise PromptError(f"until= starts with {least} prompts. {error}") from error

    def fits(n: int) -> bool:
        with suppress(PromptError):
            return bool(drawn_again(prompts, model, n))
        return False

    return most if fits(most) else largest(fits, most - 1)

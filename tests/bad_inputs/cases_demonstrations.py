"""Bad heads, layers and prompts for function vectors by demonstration."""

from collections.abc import Callable
from typing import Any

import icl_mech as icl
from icl_mech.errors import IclMechError, PromptError, RunError
from tests.bad_inputs.case import Bench, Case
from tests.engine.test_paths import TASK

HEADS = [(0, 1)]


def split(
    what: str,
    *says: str,
    error: type[IclMechError] = RunError,
    prompts: Callable[[Bench], Any] = lambda b: b.prompts,
    **options: Any,
) -> Case:
    """A split into demonstrations that must be refused."""
    return Case(
        what,
        lambda b: icl.function_vector_by_demonstration(b.model, prompts(b), **options),
        error,
        says,
    )


def built(**options: Any) -> Callable[[Bench], Any]:
    """Other prompts of the task."""
    return lambda b: icl.build_prompts(TASK, b.model, **{"n": 6, **options})


CASES = [
    split("no heads to split", heads=[]),
    split("heads to split twice", heads=[(0, 1), (0, 1)]),
    split("heads to split outside the model", "(9, 0)", heads=[(9, 0)]),
    split("more heads to split than others", "12", k=9, prompts=built(shots=2), mean="all"),
    split("vectors behind a block there is none of", "layer 9", heads=HEADS, layer=9),
    split("no draw of heads", "draws=0", heads=HEADS, draws=0),
    split("one query of a class in a half", "mean='class'", error=PromptError),
    split(
        "a single demonstration to split", error=PromptError, prompts=built(total=1), heads=HEADS
    ),
    split("no demonstration to split", error=PromptError, prompts=built(shots=0), heads=HEADS),
    split(
        "heads chosen and tested on the same query",
        "query 1",
        error=PromptError,
        prompts=lambda b: b.prompts[[0, 0, 1, 2]],
    ),
    split(
        "texts to split into demonstrations",
        error=PromptError,
        prompts=lambda b: icl.texts(["good film. bad. a nice Answer to it"], b.model),
        heads=HEADS,
    ),
    split(
        "one query to average over",
        error=PromptError,
        prompts=lambda b: b.prompts[[0, 0]],
        heads=HEADS,
    ),
]

"""Prompts of a task on which heads are chosen or tested."""

from typing import Any

from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import RunError
from icl_mech.measurements.base import Pair
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch, build_prompt_pairs
from icl_mech.tasks import Task, as_task


@checked(RunError)
def false_prompts(
    model: Any, task: Any, *, shots: Count = 4, n: Count, seed: Natural
) -> PromptBatch:
    """Prompts of a task (or its name) with permuted labels, demonstrations of their own each; or
    those given.

    Raises:
        IclMechError: as `build_prompt_pairs`.
    """
    return task if isinstance(task, PromptBatch) else pairs_of(model, task, shots, n, seed)[1]


def pairs_of(model: Any, task: str | Task, shots: int, n: int, seed: int) -> Pair:
    """Pairs of prompts of a task, demonstrations of their own each."""
    tokenizer = model if hasattr(model, "tokenizer") else adapt(model)
    return build_prompt_pairs(
        as_task(task), tokenizer, shots=shots, n=n, seed=seed, demonstrations="per_prompt"
    )

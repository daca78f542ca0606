"""Model, task and prompts from the options; what can be refused without a model is."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import icl_mech as icl
from icl_mech.checking import shown
from icl_mech.cli.console import waiting
from icl_mech.cli.options import ModelOptions, PromptOptions, RunOptions, TaskOptions
from icl_mech.cli.wording import in_options
from icl_mech.documents import json_of
from icl_mech.errors import RunError, TaskError
from icl_mech.interventions import Intervention
from icl_mech.interventions.base import load_intervention
from icl_mech.measurements import Options

Prompts = icl.PromptBatch | tuple[icl.PromptBatch, icl.PromptBatch]


def option_of(name: str) -> str:
    """An argument's option, where both have one name."""
    return f"--{name.replace('_', '-')}"


def options_of_fields(group: Any) -> dict[str, str]:
    """Options of a panel whose fields are arguments of the function it is for."""
    return {item.name: option_of(item.name) for item in fields(group)}


TASK_WORDS = {
    **options_of_fields(TaskOptions),
    "name_or_path": "--task",
    "labels": "--label-words",
}
PROMPT_WORDS = {**options_of_fields(PromptOptions), "false_labels": "--labels"}
RUN_WORDS = options_of_fields(RunOptions)


def check_model(options: ModelOptions) -> None:
    """Refuse a model, device or number format that cannot be, without loading anything.

    Raises:
        ModelError: says what there is.
    """
    from icl_mech.models.placement import device_of, dtype_of
    from icl_mech.models.sources import source_of

    source_of(options.model)
    device_of(options.device)
    dtype_of(options.dtype)


def loaded_model(options: ModelOptions, *, quiet: bool) -> Any:
    """The model.

    Raises:
        ModelError: it cannot be loaded.
    """
    with waiting(f"Loading {options.model} ...", quiet=quiet):
        return icl.load_model(options.model, device=options.device, dtype=options.dtype)


def loaded_tokenizer(options: ModelOptions, *, quiet: bool) -> Any:
    """The tokenizer of the model, whose weights are not read.

    Raises:
        ModelError: the model cannot be found.
    """
    from icl_mech.models.loading import load_tokenizer

    with waiting(f"Loading the tokenizer of {options.model} ...", quiet=quiet):
        return load_tokenizer(options.model)


def loaded_task(options: TaskOptions) -> icl.Task:
    """The task.

    Raises:
        TaskError: in the words of the command line.
    """
    given = {item.name: getattr(options, item.name) for item in fields(options)}
    words, mapped = given.pop("label_words"), given.pop("label_map")
    if options.template is not None:
        # A shell passes on the two characters, not a line break.
        given["template"] = options.template.replace("\\n", "\n")
    with in_options(TASK_WORDS):
        return icl.load_task(
            given.pop("task"),
            labels=_words(words) if words else None,
            label_map=_pairs(mapped) if mapped else None,
            **given,
        )


def built_prompts(
    task: icl.Task, model_or_tokenizer: Any, options: PromptOptions, *, pair: bool
) -> Prompts:
    """One set of prompts, or the pair with true and with false demonstrations.

    Raises:
        PromptError: in the words of the command line.
    """
    shared: dict[str, Any] = {
        "shots": options.shots, "n": options.n, "seed": options.seed, "balanced": options.balanced,
        "false_share": options.false_share,
    }  # fmt: skip
    with in_options(PROMPT_WORDS):
        if pair:
            return icl.build_prompt_pairs(
                task,
                model_or_tokenizer,
                demonstrations=options.demonstrations or "per_prompt",
                false_labels=options.labels or "permuted",
                **shared,
            )
        return icl.build_prompts(
            task,
            model_or_tokenizer,
            demonstrations=options.demonstrations or "shared",
            labels=options.labels or "correct",
            **shared,
        )


def run_options(options: RunOptions, *, quiet: bool) -> dict[str, Any]:
    """How to run, as arguments of `analyze` and `measure`.

    Raises:
        RunError: a budget that is no size, or a file that holds no interventions.
    """
    changes = _interventions(options.interventions)
    with in_options(RUN_WORDS):
        Options(changes, options.batch_size, options.memory)
    return {
        "interventions": changes,
        "batch_size": options.batch_size,
        "memory": options.memory,
        "progress": False if quiet else None,
    }


def _interventions(file: Path | None) -> Sequence[Intervention]:
    if file is None:
        return ()
    documents = json_of(file, RunError)
    if not isinstance(documents, list) or not all(isinstance(own, Mapping) for own in documents):
        raise RunError(
            f"--interventions {str(file)!r} holds {shown(documents)}; expected a list such as "
            '[{"intervention": "ZeroHeads", "heads": [[5, 1]]}].'
        )
    return [load_intervention(dict(document)) for document in documents]


def _words(words: str) -> list[str]:
    return [word.strip() for word in words.split(",")]


def _pairs(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise TaskError(f"--label-map {text!r}; write value=Label word, separated by commas.")
    return {value.strip(): word.strip() for value, _, word in pairs}

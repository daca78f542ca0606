"""Model, task, prompts and texts from the options; errors are raised without a model where possible."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import icl_mech as icl
from icl_mech.cli.console import in_options, waiting
from icl_mech.cli.options import (
    LoadOptions,
    ModelOptions,
    OwnOptions,
    PromptOptions,
    RunOptions,
    TaskOptions,
    TextOptions,
)
from icl_mech.documents import json_of
from icl_mech.errors import IclMechError, ModelError, PromptError, ResultError, RunError, TaskError
from icl_mech.model_sources import resolve
from icl_mech.names import at_address
from icl_mech.tasks.sources import check_name

if TYPE_CHECKING:
    from icl_mech.interventions import Intervention
    from icl_mech.measurements import AnyMeasurement
    from icl_mech.measurements.lens.fitted import FittedLens

Prompts: TypeAlias = "icl.PromptBatch | tuple[icl.PromptBatch, icl.PromptBatch]"


def option_of(name: str) -> str:
    """The option of an argument of the same name."""
    return f"--{name.replace('_', '-')}"


def options_of_fields(group: Any) -> dict[str, str]:
    """The options of a panel whose fields are arguments of one function."""
    return {item.name: option_of(item.name) for item in fields(group)}


TASK_WORDS = {**options_of_fields(TaskOptions), "name_or_path": "--task", "labels": "--label-words"}
PROMPT_WORDS = {**options_of_fields(PromptOptions), "false_labels": "--labels"}
RUN_WORDS = options_of_fields(RunOptions)
MODEL_WORDS = options_of_fields(LoadOptions)


def check_names(model: ModelOptions, task: TaskOptions | None) -> None:
    """Reject the name of a model or a task that does not exist, before seconds go by with imports.

    Raises:
        IclMechError: lists near matches.
    """
    resolve(model.model)
    if task is not None:
        with in_options(TASK_WORDS):
            check_name(task.task)


def check_model(options: ModelOptions) -> None:
    """Reject an unknown model, or invalid loading options, without loading anything.

    Raises:
        ModelError: lists the known models or valid options.
    """
    from icl_mech.models.loading import prepared

    with in_options(MODEL_WORDS):
        prepared(options.model, load_options(options))


def load_options(options: LoadOptions) -> dict[str, Any]:
    """The given loading options, as arguments of `load_model`.

    Raises:
        ModelError: the map or the limits cannot be read.
    """
    given = {item.name: getattr(options, item.name) for item in fields(LoadOptions)}
    for name in ("device_map", "max_memory"):
        text = given[name]
        if text is not None and Path(text).suffix == ".json":
            given[name] = json_of(Path(text), ModelError)
        elif text is not None and ("=" in text or name == "max_memory"):
            given[name] = _pairs(text, option_of(name), "place=value", ModelError)
        if isinstance(given[name], Mapping):
            given[name] = {_gpu(key): _gpu(place) for key, place in given[name].items()}
    return {name: value for name, value in given.items() if value is not None}


def _gpu(text: object) -> object:
    """The number of a GPU as an integer, as accelerate expects it."""
    return int(text) if isinstance(text, str) and text.isdecimal() else text


def loaded_model(options: ModelOptions, *, quiet: bool) -> Any:
    """The model.

    Raises:
        ModelError: it cannot be loaded.
    """
    with in_options(MODEL_WORDS), waiting(f"Loading {options.model} ...", quiet=quiet):
        return icl.load_model(options.model, **load_options(options))


def loaded_lens(folder: Path, model: object) -> "FittedLens":
    """The lens in a folder, saved or published, for this model.

    Raises:
        ResultError: there is none in this folder.
        RunError: it belongs to another model.
    """
    from icl_mech.measurements.lens.fitted import FittedLens

    lens = icl.load(folder, model)
    if not isinstance(lens, FittedLens):
        raise ResultError(
            f"{str(folder)!r} contains a {type(lens).__name__}; expected a fitted lens."
        )
    return lens


def loaded_tokenizer(options: ModelOptions, *, quiet: bool) -> Any:
    """The tokenizer of the model, whose weights are not read.

    Raises:
        ModelError: the model cannot be found.
    """
    from icl_mech.models.loading import load_tokenizer

    with waiting(f"Loading the tokenizer of {options.model} ...", quiet=quiet):
        return load_tokenizer(options.model, options.revision)


def loaded_task(options: TaskOptions) -> icl.Task:
    """The task.

    Raises:
        TaskError: it cannot be loaded; names the options.
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
            label_map=_pairs(mapped, "--label-map", "value=Label word") if mapped else None,
            **given,
        )


def built_prompts(
    task: icl.Task, model_or_tokenizer: Any, options: PromptOptions, *, pair: bool
) -> Prompts:
    """One set of prompts, or the pair with true and with false demonstrations.

    Raises:
        PromptError: they cannot be built; names the options.
    """
    shared: dict[str, Any] = {
        "shots": options.shots,
        "total": total_of(options),
        "n": options.n,
        "seed": options.seed,
        "balanced": options.balanced,
        "false_share": options.false_share,
        "score": options.score,
        "chat": options.chat,
        "system": options.system,
        "prefill": options.prefill.replace("\\n", "\n"),
        "template_kwargs": _template_kwargs(options.template_kwargs),
        "today": options.today,
    }
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
            demonstrations=options.demonstrations,
            labels=options.labels or "correct",
            **shared,
        )


def _template_kwargs(written: str | None) -> dict[str, Any] | None:
    """Options of a chat template, from JSON.

    Raises:
        PromptError: it is not a JSON object.
    """
    if written is None:
        return None
    try:
        read = json.loads(written)
    except ValueError as error:
        raise PromptError(
            f"--template-kwargs {written!r} is not valid JSON: {error}. Write, for example, "
            "'{\"enable_thinking\": false}'."
        ) from None
    if not isinstance(read, dict):
        raise PromptError(
            f"--template-kwargs {written!r} is not a JSON object; write, for example, "
            "'{\"enable_thinking\": false}'."
        )
    return read


def total_of(options: PromptOptions) -> int | str | None:
    """The total number of demonstrations, or the given word."""
    given = options.total
    return int(given) if given is not None and given.isdecimal() else given


def run_options(options: RunOptions, *, quiet: bool) -> dict[str, Any]:
    """How to run, as arguments of `analyze` and `measure`.

    Raises:
        RunError: the budget is not a size, or the file holds no interventions.
    """
    from icl_mech.interventions import Intervention
    from icl_mech.measurements import Options

    addresses = options.intervention or ()
    changes = [
        *_interventions(options.interventions),
        *(at_address(name, Intervention, RunError) for name in addresses),
    ]
    with in_options(RUN_WORDS):
        Options(changes, options.batch_size, options.memory)
    return {
        "interventions": changes,
        "batch_size": options.batch_size,
        "memory": options.memory,
        "progress": False if quiet else None,
    }


def _interventions(file: Path | None) -> "Sequence[Intervention]":
    from icl_mech.checking import shown
    from icl_mech.interventions.base import load_intervention

    if file is None:
        return ()
    documents = json_of(file, RunError)
    if not isinstance(documents, list) or not all(
        isinstance(document, Mapping) for document in documents
    ):
        raise RunError(
            f"--interventions {str(file)!r} holds {shown(documents)}; expected a list such as "
            '[{"intervention": "ZeroHeads", "heads": [[5, 1]]}].'
        )
    return [load_intervention(dict(document)) for document in documents]


def own_measurements(options: OwnOptions) -> "list[AnyMeasurement[Any, Any]]":
    """User-defined measurements, loaded from their addresses.

    Raises:
        RunError: there is none at an address.
    """
    from icl_mech.measurements import AnyMeasurement

    return [at_address(name, AnyMeasurement, RunError) for name in options.measurement or ()]


def _words(words: str) -> list[str]:
    return [word.strip() for word in words.split(",")]


def _pairs(
    text: str, option: str, form: str, error: type[IclMechError] = TaskError
) -> dict[Any, Any]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise error(f"{option} {text!r} cannot be read; write {form}, separated by commas.")
    return {value.strip(): word.strip() for value, _, word in pairs}


# --- texts from a file ---

TEXT_WORDS = {"texts": "--texts", "spans": "--spans"}


def built_texts(model_or_tokenizer: Any, options: TextOptions) -> "icl.PromptBatch":
    """The texts of a file as prompts.

    Raises:
        PromptError: they cannot be built; names the options.
    """
    from icl_mech.prompts.text_sets import read_texts

    assert options.texts is not None
    texts, anchors = read_texts(options.texts)
    with in_options(TEXT_WORDS):
        return icl.texts(texts, model_or_tokenizer, spans=options.spans, anchors=anchors)

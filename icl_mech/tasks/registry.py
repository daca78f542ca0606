"""The built-in tasks, and how a task is written."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from icl_mech.errors import TaskError, near_matches
from icl_mech.tasks.known import KnownTask
from icl_mech.tasks.label_words import LABEL_WORDS
from icl_mech.tasks.overthinking import OVERTHINKING
from icl_mech.tasks.types import Template, label_names

_KNOWN = {
    task.name: task
    for task in sorted((*LABEL_WORDS, *OVERTHINKING), key=lambda task: not task.offline)
}


def known_tasks() -> tuple[KnownTask, ...]:
    """All tasks `load_task` knows by name, offline ones first."""
    return tuple(_KNOWN.values())


def known_task(name: str) -> KnownTask:
    """What is known of one task: its formats, its label words, where its data is.

    Raises:
        TaskError: unknown name; near matches are listed.
    """
    if name not in _KNOWN:
        raise TaskError(
            f"Unknown task {name!r}. {near_matches(name, _KNOWN)} A file is given by its path, any "
            "other data set of the hub as 'owner/name'."
        )
    return _KNOWN[name]


def find_known(name: Any) -> KnownTask | None:
    """The built-in task of that name, if there is one."""
    return _KNOWN.get(str(name)) if isinstance(name, str | Path) else None


def task_format(
    known: KnownTask | None,
    template: Template | str | None,
    prompt_format: int | None,
    labels: Iterable[str] | None,
    separator: str | None,
    narrative: str | None,
) -> tuple[Template, tuple[str, ...]]:
    """The template and the label words; `known` is the built-in task they are for, if any.

    Raises:
        TaskError: one of the two is missing or unfit, or there is no such format.
    """
    labels = None if labels is None else label_names(labels, "labels=")
    named = known if template is None else None
    named = find_known(template) or named
    brought_by = "labels=" if labels is not None else f"template={template!r}"
    if named is not None:
        form = named.prompt_format(prompt_format)
        if form.fault and labels is None:
            warnings.warn(
                f"prompt_format={prompt_format} of {named.name!r}: {form.fault}. "
                "Give labels= to correct it.",
                stacklevel=3,
            )
        template = form.template
        labels = form.labels if labels is None else labels
    elif prompt_format is not None:
        raise TaskError(
            f"prompt_format={prompt_format} chooses among the formats of a built-in task; "
            "name that task with template=, or leave it out."
        )
    elif known is not None and labels is None:
        labels = known.labels
    if template is None or labels is None:
        raise TaskError(
            "A task from files or frames needs template= (for example "
            "'Review: {text}\\nSentiment:{label}', or the name of a built-in task) and labels= "
            "(label words in class order) or label_map=."
        )
    if known is not None and len(labels) != len(known.labels):
        raise TaskError(
            f"Task {known.name!r} has {len(known.labels)} classes ({', '.join(known.labels)}); "
            f"{brought_by} names {len(labels)}."
        )
    if not isinstance(template, Template):
        template = Template(template)
    laid_out = Template(
        template.pattern,
        template.separator if separator is None else separator,
        template.narrative if narrative is None else narrative,
    )
    return laid_out, tuple(labels)

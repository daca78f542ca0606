"""`icl-mech models` and `icl-mech tasks`: the models and tasks known by name."""

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from icl_mech.cli.console import draw, say, say_json
from icl_mech.cli.options import AsJson, task_names
from icl_mech.model_sources import known_models
from icl_mech.tasks import KnownTask, known_task, known_tasks


def models(json: AsJson = False) -> None:
    """List the models known by name."""
    if json:
        say_json([asdict(known) for known in known_models()])
        return
    table = Table("name", "parameters", Column("from", overflow="fold"), "note", box=None)
    for known in known_models():
        table.add_row(known.name, known.parameters, known.hub_id, known.note)
    draw(table, "Any other hub id, local folder or .gguf file works too.")


def tasks(
    name: Annotated[
        str | None, typer.Argument(help="Task whose template is shown.", autocompletion=task_names)
    ] = None,
    json: AsJson = False,
) -> None:
    """List the tasks known by name, or show the template of one."""
    if json:
        chosen = known_tasks() if name is None else (known_task(name),)
        say_json([_described(known) for known in chosen])
    elif name is None:
        _list()
    else:
        _show(known_task(name))


def _list() -> None:
    table = Table(
        Column("name", no_wrap=True), "classes", Column("data", overflow="fold"), "note", box=None
    )
    for task in known_tasks():
        source = "offline" if task.hub is None else f"hub: {task.hub.path}"
        classes = "open" if task.is_open else str(len(task.labels))
        table.add_row(task.name, classes, source, task.note)
    draw(table)


def _show(known: KnownTask) -> None:
    for number, form in enumerate(known.formats):
        if len(known.formats) > 1:
            say(f"\nformat {number}" + (f" (fault: {form.fault})" if form.fault else ""))
        if form.template.narrative:
            say(form.template.narrative + "\n")
        say(form.template.pattern)
        say("answers: open" if known.is_open else "labels: " + ", ".join(form.labels))


def _described(known: KnownTask) -> dict[str, Any]:
    return {
        "name": known.name,
        "labels": list(known.labels),
        "hub": None if known.hub is None else known.hub.path,
        "note": known.note,
        "formats": [
            {
                "pattern": form.template.pattern,
                "narrative": form.template.narrative,
                "labels": list(form.labels),
                "fault": form.fault,
            }
            for form in known.formats
        ],
    }

"""`reproduce`: a recipe run as a sweep that can be resumed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from icl_mech.bars import write_line
from icl_mech.errors import SweepError, TaskError
from icl_mech.models.rehearsal import stage
from icl_mech.prompts import TextSet
from icl_mech.recipes.comparing import Reproduction
from icl_mech.recipes.foreseen import foresee, loadable, notice
from icl_mech.recipes.recipe import Recipe, recipe
from icl_mech.results import given_path
from icl_mech.results.wording import listed
from icl_mech.studies.forecast import plannable
from icl_mech.sweeps import Item, Sweep, sweep
from icl_mech.sweeps.config import arguments
from icl_mech.sweeps.item import is_sweep
from icl_mech.sweeps.sources import TaskSource, model_sources, task_sources

OFFLINE = "offline"
"""Name used instead of tasks: those of the recipe that need no hub."""

ALL = "all"
OFFLINE_MODEL = "smollm2-135m"


@plannable
def reproduce(
    name: str | Path | Recipe,
    models: object = None,
    *,
    out: str | Path,
    tasks: object = None,
    scale: float = 1.0,
    resume: bool | Literal["again"] = False,
    plan: bool = False,
    **how: Any,
) -> Reproduction:
    """Measure a table or figure of a paper with its protocol, and compare with the published numbers.

    A run has as many prompts as the recipe says, or all prompts of its task if there are fewer. Before anything is
    computed, a message lists what the models cannot have, with the reasons; it becomes dashes in the table.

    Args:
        name: Name of the recipe, a custom YAML file, or the recipe.
        models: Models as `sweep` takes them; `all`: those of the paper. Default with offline tasks: the offline model.
        out: Folder of the sweep.
        tasks: Tasks instead of the paper's: `offline`, those of the recipe that need no hub, or tasks as `sweep`
            takes them. No differences are given then.
        scale: Fraction of the prompts and of the seeds, rounded; every run keeps its minimum number of prompts.
        resume: The folder may hold the sweep of this recipe: finished runs are kept; see `sweep`.
        plan: Run nothing; return the `Forecast` instead, as `sweep` does.
        **how: Options of `sweep` for where it runs: `device`, `dtype`, `workers`, `devices`, `executor`, `timeout`,
            `progress`, `batch_size`, `memory`, `path`.

    Raises:
        SweepError: no such recipe, no models, models that can have none of its numbers, or a folder that holds
            something else.
        TaskError: tasks that cannot be loaded.
    """
    chosen = name if isinstance(name, Recipe) else recipe(name)
    if not 0 < scale <= 1:
        raise SweepError(f"scale={scale}; give a fraction above 0 and at most 1.")
    offline = isinstance(tasks, str) and tasks == OFFLINE
    if models is None and not offline:
        theirs = f"No model was chosen. Give models='all' for those of the paper ({listed(chosen.models)}), "
        raise SweepError(f"{theirs}your own, or tasks='offline' for the offline model and tasks.")
    models = OFFLINE_MODEL if models is None else models
    if models == ALL and chosen.unnamed:
        raise SweepError(
            f"models='all', but the checkpoints of the paper are not known ({listed(chosen.models)}); name your own models."
        )
    if not resume and is_sweep(given_path(out, option="out")):
        raise SweepError(
            f"{str(out)!r} holds a sweep; give resume=True to continue it, or another folder."
        )
    try:
        grids = list(_grids(chosen, tasks, scale))
    except TaskError as error:
        if tasks is None and chosen.offline:
            raise TaskError(f"{error} Give tasks='offline' to do without it.") from error
        raise
    sources = model_sources(list(chosen.models) if models == ALL else models)
    left, lacks = foresee(chosen, sources, grids, {**how, "out": out, "resume": resume})
    if lacks and how.get("progress") is not False:
        write_line(notice(chosen, lacks))
    for model in sources:
        for grid in left[model.name]:
            sweep({model.name: loadable(model)}, **{**grid, **how}, out=out, resume=resume)
            resume = resume or True
    part = Sweep([]) if stage() else _part(out, {model.name for model in sources}, grids)
    stand_ins = None if tasks is None else chosen.offline["tasks"] if offline else {}
    return Reproduction(chosen, part, stand_ins, scale, lacks)


def _part(out: str | Path, models: set[str], grids: Sequence[Mapping[str, Any]]) -> Sweep:
    """The items of these arguments; the folder may hold some of another scale too."""
    whole = Sweep.load(out)
    items = [o for o in whole.plan if o.model in models and any(_is_of(o, grid) for grid in grids)]
    return Sweep(items, folder=whole.folder, skipped=whole.skipped, made=whole.made)


def _is_of(item: Item, given: Mapping[str, Any]) -> bool:
    """True if a sweep with these arguments has the item."""
    wanted = {"task": given["tasks"], "seed": given["seeds"], "n": [given["n"]]}
    for name in ("shots", "total", "labels", "false_share") if item.labels else ():  # not of texts
        value = given.get(name)
        wanted |= {} if value is None else {name: value if isinstance(value, list) else [value]}
    return all(getattr(item, name) in values for name, values in wanted.items())


def _grids(chosen: Recipe, tasks: object, scale: float) -> Iterator[dict[str, Any]]:
    """The arguments of every sweep to run, but for the model: the tasks of each have one number of prompts."""
    for grid in chosen.grids:
        fields = {**chosen.sweep, **grid}
        if tasks is not None:
            # Formats are those of the paper's tasks by number.
            fields = {**fields, **chosen.offline, "formats": [None], "tasks": fields["tasks"]}
        values = arguments({**fields, "models": list(chosen.models)}, chosen.folder)
        seeds = list(values.get("seeds", range(5)))
        values["seeds"] = seeds[: max(1, round(len(seeds) * scale))]
        groups: dict[int, dict[str, Any]] = defaultdict(dict)
        for source in _sources(chosen, tasks, values.pop("tasks")):
            n = min(values["n"], _there(source, values.get("balanced", True)))
            groups[max(round(n * scale), min(n, chosen.least))][source.name] = source.given
        del values["models"]
        for n, group in groups.items():
            yield {**values, "tasks": group, "n": n}


def _sources(chosen: Recipe, tasks: object, paper: Iterable[Any]) -> Sequence[TaskSource]:
    """The tasks of a grid, or their replacements.

    Raises:
        SweepError: the recipe has no offline tasks.
    """
    if tasks is None:
        return task_sources(paper)
    if not (isinstance(tasks, str) and tasks == OFFLINE):
        return task_sources(tasks)
    known = chosen.offline.get("tasks", {})
    if not known:
        raise SweepError(f"The recipe {chosen.name!r} names no offline tasks; give your own.")
    own = paper if isinstance(paper, Mapping) else {}  # texts in the recipe itself need no hub
    here = {known[task]: own.get(known[task], known[task]) for task in paper if task in known}
    return task_sources(here) if here else ()


def _there(source: TaskSource, balanced: bool) -> int:
    """The maximum number of queries of a task, or of texts."""
    if isinstance(source.given, TextSet):
        return len(source.given.texts)
    task = source.load()
    if not balanced:
        return len(task.test)
    groups = task.by_class("test")
    return len(groups) * min(map(len, groups))

"""What a model cannot have of a recipe, found before anything is computed: `foresee`, and each gap as a `Lack`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from icl_mech.errors import IclMechError, SweepError
from icl_mech.models import ServerModel
from icl_mech.recipes.recipe import HERE, OF_SWEEPS, Number, Recipe
from icl_mech.results import given_path
from icl_mech.results.wording import counted, listed
from icl_mech.studies import Analysis
from icl_mech.studies.study import OF_MEASUREMENTS, quantities
from icl_mech.sweeps.beforehand import jobs_of, refusal, rehearsed
from icl_mech.sweeps.item import is_sweep, short_name
from icl_mech.sweeps.sources import ModelSource
from icl_mech.sweeps.work import Job, loaded

APART = ("workers", "devices", "executor")
"""Options with which other processes load the models: what they cannot have is found when they run."""

SETTINGS = ("shots", "total")
"""Dimensions in which the grids of a recipe differ for one task."""

LEFT_OUT = re.compile(r"left out: |left out; |^No .* (chosen|ablated)")
"""Notes of an analysis on what it does not hold."""

UNREAD = ("Published numbers", "Untrained networks")
"""Beginnings of such notes on what no recipe reads."""

ELSEWHERE = "it names layers and heads of {} by number, which means nothing in another model"

OF_HEADS, OF_LATE = ("No heads", "Heads and ablations"), ("No late layers", "Heads and ablations")
OF_PARTS = {"ablation": OF_HEADS, "false_induction": OF_HEADS, "late_ablation": OF_LATE}
"""Beginnings of notes on results that a study leaves out; others begin with the name of the result."""


@dataclass(frozen=True)
class Lack:
    """Runs that a model cannot do, or numbers that its runs do not have.

    Attributes:
        model: Name of the model.
        why: The reason, in a sentence.
        task: Name of the task; empty: all of them.
        at: Settings of the runs; empty: all of them.
        numbers: Names of the numbers; empty: all of these runs.
    """

    model: str
    why: str
    task: str = ""
    at: Mapping[str, Any] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()

    def meets(self, number: Number, model: str, tasks: Iterable[str]) -> bool:
        """True if runs for this number are among those that the model cannot do."""
        if self.numbers or self.model != model or (self.task and self.task not in tasks):
            return False
        wanted = {name: at for name, at in number.at.items() if name in self.at}
        return all(
            self.at[name] in (at if isinstance(at, list) else [at]) for name, at in wanted.items()
        )

    @property
    def what(self) -> str:
        """What is lacking, in words."""
        if self.numbers:
            return listed(self.numbers)
        shots, total = self.at.get("shots"), self.at.get("total")
        count = "" if shots is None else f" with {counted(shots, 'demonstration')} per class"
        if total is not None:
            count = f" with {'as many demonstrations as fit' if total == 'max' else counted(total, 'demonstration')}"
        return f"{self.task}{count}"


Grids = Sequence[dict[str, Any]]


def foresee(
    chosen: Recipe, sources: Sequence[ModelSource], grids: Grids, how: Mapping[str, Any]
) -> tuple[dict[str, list[dict[str, Any]]], list[Lack]]:
    """What is left of the grids for each model, and what is not.

    Prompts of every run are built and every measurement checks them, until one of a task can be run; for a study,
    one run is rehearsed. Models on a server or loaded by other processes are not checked, nor runs that continue
    what a folder holds: each run that cannot be done then says so itself.

    Raises:
        SweepError: no run is left.
        IclMechError: what `sweep` raises before anything runs.
    """
    left = {source.name: list(grids) for source in sources}
    on_server = any(isinstance(source.given, ServerModel) for source in sources)
    if on_server or _holds_runs(how) or any(how.get(name) for name in APART):
        return left, []
    lacks: list[Lack] = []
    # The first model is loaded last, and kept.
    for source in reversed(sources):
        of_model = list(_of_model(chosen, source, grids, how, alone=len(sources) == 1))
        lacks[:0] = of_model
        gone = {name for lack in of_model for name in lack.numbers}
        some = any(number.name not in gone for number in chosen.numbers)
        runs = _without(grids, [lack for lack in of_model if not lack.numbers])
        left[source.name] = list(runs) if some else []
    if not any(left.values()):
        raise SweepError(_nothing(chosen, lacks))
    return left, lacks


def loadable(source: ModelSource) -> Any:
    """A model as `sweep` takes it, with how it is loaded."""
    if not source.options and source.revision is None:
        return source.given
    revision = {} if source.revision is None else {"revision": source.revision}
    return {"path": source.given, **source.options, **revision}


def _of_model(
    chosen: Recipe, source: ModelSource, grids: Grids, how: Mapping[str, Any], *, alone: bool
) -> Iterator[Lack]:
    """What one model cannot have.

    Raises:
        IclMechError: it cannot be loaded, and there is no other model.
    """
    try:
        loaded(source, how.get("device"), how.get("dtype"))
    except IclMechError as error:
        if alone:
            raise
        yield Lack(source.name, str(error))
        return
    except Exception:
        if alone:
            raise
        return  # its runs keep the error
    elsewhere = [number for number in chosen.numbers if not number.has_meaning(source.name)]
    for models in dict.fromkeys(number.theirs for number in elsewhere):
        names = [number.name for number in elsewhere if number.theirs == models]
        yield Lack(source.name, ELSEWHERE.format(models), numbers=tuple(names))
    jobs = [
        job for grid in grids for job in jobs_of({source.name: loadable(source)}, {**grid, **how})
    ]
    has_rehearsed = False
    for place in dict.fromkeys(map(_place, jobs)):
        whys = []
        for job in jobs:
            if _place(job) != place:
                continue
            why = refusal(job, chosen.least)
            if not why and not has_rehearsed and job.item.study != OF_MEASUREMENTS:
                run = rehearsed(job, chosen.least)
                if isinstance(run, Analysis):
                    yield from _unmeasured(chosen, source.name, run)
                else:
                    why = run
                has_rehearsed = not why  # what it leaves out is the same for all tasks
            whys.append(why)
            if not why:
                break
        if all(whys):
            task, *settings = place
            at = {
                name: value
                for name, value in zip(SETTINGS, settings, strict=True)
                if value is not None
            }
            yield Lack(source.name, whys[0], task, at)


def _place(job: Job) -> tuple[Any, ...]:
    """Task and settings, whose runs are left out if none of them can be done."""
    return (job.item.task, *(getattr(job.item, name) for name in SETTINGS))


def _holds_runs(how: Mapping[str, Any]) -> bool:
    return bool(how.get("resume")) and is_sweep(given_path(how["out"], option="out"))


def _unmeasured(chosen: Recipe, model: str, run: Analysis) -> Iterator[Lack]:
    """Numbers whose part a rehearsed run leaves out, by the reason that it gives."""
    reasons: dict[str, list[str]] = {}
    for number in chosen.numbers:
        if not number.has_meaning(model):
            continue
        if not _has_part(run, number) and (why := missing(run, number)):
            reasons.setdefault("; ".join(why), []).append(number.name)
    for reason, names in reasons.items():
        yield Lack(model, reason, numbers=tuple(names))


def missing(run: Analysis, number: Number) -> list[str]:
    """Why an analysis has no value of a number: what it says it left out, or what the recipe says."""
    part = "ablation" if number.quantity in OF_SWEEPS else number.part
    if part in run or (number.undefined and not part):
        return [number.undefined] if number.undefined else []
    notes = [note for note in run.notes if LEFT_OUT.search(note) and not note.startswith(UNREAD)]
    begun = OF_PARTS.get(part, (part.replace("_", " ").capitalize(), OF_HEADS[-1]))
    return [note for note in notes if part and note.startswith(begun)] or notes


def _has_part(run: Analysis, number: Number) -> bool:
    """True if an analysis holds the result that a number is read from."""
    if number.quantity in OF_SWEEPS:
        return "ablation" in run
    if number.part:
        return number.part in run
    of: Any = quantities()[number.quantity].of
    try:
        return of(run) is not None
    except IclMechError:
        return False


def _without(grids: Grids, lacks: Sequence[Lack]) -> Iterator[dict[str, Any]]:
    """The grids without the tasks that cannot be run."""
    for grid in grids:
        tasks = {
            name: task
            for name, task in grid["tasks"].items()
            if not any(
                lack.task in ("", name)
                and all(_values(grid.get(dim, at)) == [at] for dim, at in lack.at.items())
                for lack in lacks
            )
        }
        if tasks:
            yield {**grid, "tasks": tasks}


def _values(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | range) else [value]


# --- in words ---


def short_reason(why: str) -> str:
    """What is wrong, without what follows: where exactly, and what to do."""
    return re.split(r"; |(?<=[^.])\.\s", f"{why} ", maxsplit=1)[0].rstrip(". ")


def by_reason(why: Mapping[str, str]) -> str:
    """Names with the reasons they have, each once: `a and b: why; c: why`."""
    names: dict[str, list[str]] = {}
    for name, reason in why.items():
        names.setdefault(short_reason(reason), []).append(name)
    return "; ".join(f"{listed(named)}: {reason}" for reason, named in names.items())


def notice(chosen: Recipe, lacks: Sequence[Lack]) -> str:
    """What is said before the runs; empty if nothing is lacking."""
    lines = []
    for model in dict.fromkeys(lack.model for lack in lacks):
        lines.append(
            f"Not all of {chosen.name} can be measured on {short_name(model)}. Left out, and explained in the table:"
        )
        reasons = _reasons(chosen, [lack for lack in lacks if lack.model == model])
        lines += [f"  {line}" for line in reasons]
    return "\n".join(lines)


def _reasons(chosen: Recipe, lacks: Sequence[Lack]) -> list[str]:
    """What is lacking, and why: one line for each reason."""
    tasks = [task for grid in chosen.grids for task in grid.get("tasks", chosen.tasks)]
    several = len({*tasks}) < len(tasks)
    reasons: dict[str, dict[str, None]] = {}
    for lack in lacks:
        what = lack.what if several or lack.numbers else lack.task
        reasons.setdefault(lack.why, {})[what or "everything"] = None
    return [f"{listed(what)}: {why}" for why, what in reasons.items()]


def _nothing(chosen: Recipe, lacks: Sequence[Lack]) -> str:
    models = dict.fromkeys(short_name(lack.model) for lack in lacks)
    lines = _reasons(chosen, lacks)
    why = " ".join(line if line.endswith(".") else f"{line}." for line in lines)
    copy = (
        f"change a copy of the recipe (icl-mech reproduce {chosen.name} --copy mine.yaml)"
        if chosen.folder == HERE
        else "change the recipe"
    )
    return (
        f"Nothing of {chosen.name!r} can be measured on {listed(map(repr, models))}. {why} Give another model "
        f"(models=), other tasks (tasks=), or {copy}."
    )

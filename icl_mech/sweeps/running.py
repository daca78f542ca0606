"""`sweep`: models × tasks × settings × seeds, on any executor, saved and resumable."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from icl_mech.checking import Count, conformed, shown
from icl_mech.errors import SweepError, near_matches
from icl_mech.measurements.base import AnyMeasurement, Options
from icl_mech.measurements.provenance import now
from icl_mech.models.rehearsal import stage
from icl_mech.prompts.drawing import Demonstrations
from icl_mech.results import given_path, is_vacant
from icl_mech.results.wording import counted, listed
from icl_mech.studies import OPTIONS, Study
from icl_mech.studies.forecast import ItemForecast, forecast, plannable
from icl_mech.studies.measuring import command_noted
from icl_mech.sweeps.executors import Workers, in_processes, on_executor, serially
from icl_mech.sweeps.item import (
    Item,
    error_of,
    is_complete,
    is_sweep,
    item_folder,
    note_error,
    read_list,
    write_list,
)
from icl_mech.sweeps.patience import SweepProgress, check_guard, full_disk, stopped_by
from icl_mech.sweeps.plan import Plan, contents_of, grid_of, planned
from icl_mech.sweeps.result import Sweep
from icl_mech.sweeps.work import Job, Outcome, run_item

StudyGiven = Study | str | None
"""A study, its name, or the address of a custom one."""

PATIENCE = 6 * 3600.0
"""Maximum time of a run in seconds by default."""

OF_STUDIES = tuple(name for name in OPTIONS if name != "seed")
OF_RUNS = ("interventions", "batch_size", "memory", "path")


@plannable
def sweep(
    models: Any,
    tasks: Any,
    measurements: Sequence[AnyMeasurement[Any, Any]] = (),
    *,
    study: StudyGiven | Sequence[StudyGiven] = None,
    labels: Any = None,
    false_share: Any = (None,),
    shots: Any = None,
    total: Any = None,
    formats: Any = (None,),
    seeds: Any = range(5),
    n: Any = 50,
    demonstrations: Demonstrations | None = None,
    balanced: bool = True,
    writing: Mapping[str, Any] | None = None,
    revisions: Any = None,
    device: str | None = None,
    dtype: str | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    devices: Sequence[str] = (),
    timeout: float | int | None = None,
    out: str | Path | None = None,
    resume: bool | Literal["again"] = False,
    overwrite: bool = False,
    progress: bool | None = None,
    plan: bool = False,
    **options: Any,
) -> Sweep:
    r"""Every model on every task in every setting with every seed.

    Runs are independent: each is one `measure` or `analyze` call, whose finished parts are saved at
    once. If a run fails, its error is recorded, and the others continue.

    Args:
        models: Names, folders, models, or functions without arguments that load one; one, a list,
            or a mapping from the name that tables show. A name may come with loading options:
            `{"path": "gpt2-xl", "dtype": "bfloat16", "device_map": "auto"}`, see `load_model`.
        tasks: Names, files or tasks; one, a list, or a mapping from the name that tables show. A
            study of texts uses sets of texts (`TextSet`, a `.txt` file), or the test texts of tasks.
        measurements: What to measure, see `icl_mech.measurements`. Measurements that compare true with
            false demonstrations get pairs, in separate runs.
        study: A study of prompts or pairs, by name or address or as a value, or several; see `analyze`.
        labels: Label settings of the demonstrations, for pairs of the false ones (default
            `correct`, and `permuted` for pairs).
        false_share: Doses of false labels, see `build_prompts`.
        shots: Demonstrations per class (default 1, or none if `total` is given).
        total: Demonstrations in total, with classes drawn independently, or `max`, see `build_prompts`;
            with `shots` there are runs of both, which are not averaged together.
        formats: Prompt formats: numbers of a built-in task's formats, templates, or None, the task's own.
        seeds: Seeds of demonstrations, queries and a study's random controls.
        n: Number of prompts; this many texts are drawn by seed.
        demonstrations: `shared` or `per_prompt`; None: per prompt for pairs, else shared.
        balanced: Queries with equally many true answers per class.
        writing: How prompts are written and scored, the same in all runs: `score`, `chat` and its options of
            `build_prompts`, such as `{"chat": True, "today": "2026-01-01"}`.
        revisions: Checkpoints of models: branches, tags or commits of a hub id, or values that functions take
            as `revision`.
        device: Device of models that are loaded by name.
        dtype: Number format of their weights.
        executor: Any `concurrent.futures.Executor`, such as `dask.distributed`'s
            `Client.get_executor()`; its workers load models by name or function.
        workers: Number of processes, instead of an executor; None: this process.
        devices: One device for each of these processes, such as `("cuda:0", "cuda:1")`.
        timeout: Seconds a run may take on an executor or in processes (default: six hours); then
            it fails, and the others continue. A run in this process cannot be ended.
        out: Folder of the sweep, on a disk that all workers see.
        resume: The folder may hold a sweep: finished runs are kept, failed ones are repeated. Raises an error
            if a model's files or a task have changed since; `"again"` measures these runs again.
        overwrite: The folder may hold a sweep: all runs are measured again.
        progress: Show a bar; None: in a terminal or notebook, elsewhere a line now and then.
        plan: Run nothing; return the `Forecast` instead, with one entry for runs that differ only in their
            seed, for execution in this process, one after the other.
        **options: Options of studies (`maps`, `loss`, `reduction`, `heads_from`, `nulls`) and of every run
            (`interventions`, `batch_size`, `memory`, `path`), see `analyze`.

    Raises:
        SweepError: invalid dimensions, or a folder that holds something else.
        IclMechError: a model, task or measurement that is rejected before anything runs.
    """
    of_studies, of_runs, plain = _options(options)
    grid = grid_of(
        labels=labels,
        false_share=false_share,
        shots=shots,
        total=total,
        n=n,
        seeds=seeds,
        demonstrations=demonstrations,
        balanced=balanced,
        writing=writing,
        revisions=revisions,
    )
    if dtype is not None:
        plain["dtype"] = str(dtype)
    contents = contents_of(study, measurements, of_studies, plain)
    every = planned(models, tasks, formats, grid, contents)
    folder = _folder(out, resume=resume, overwrite=overwrite)
    patience = _patience(
        timeout, apart=executor is not None or workers is not None or bool(devices)
    )
    carry = _carrier(every, executor, workers, devices, patience)
    earlier = _earlier(folder, every, resume=resume, overwrite=overwrite)
    if folder is not None and stage() is None:
        known = {item.key for item in earlier}
        _write(folder, [*earlier, *(item for item in every.items if item.key not in known)], every)
    jobs = [
        Job.of(
            entry,
            of_runs,
            device=device,
            dtype=dtype,
            out=folder,
            overwrite=overwrite,
            timeout=patience,
        )
        for entry in every.entries
        if overwrite or folder is None or not is_complete(item_folder(folder, entry.item.key))
    ]
    if (rehearsal := stage()) is not None:
        rehearsal.items += jobs if rehearsal.planning else _forecasts(jobs)
        return Sweep(every.items, skipped=every.skipped)
    outcomes = _run(jobs, carry, len(every), folder, progress)
    if folder is not None:
        return Sweep.load(folder)
    analyses = {o.key: o.analysis for o in outcomes if o.analysis is not None}
    errors = {o.key: o.error for o in outcomes if o.error}
    return Sweep(every.items, analyses=analyses, errors=errors, skipped=every.skipped)


def _forecasts(jobs: Sequence[Job]) -> Iterator[ItemForecast]:
    """Forecasts, one for all runs that differ only in their seed."""
    alike: dict[Item, list[Job]] = {}
    for job in jobs:
        alike.setdefault(replace(job.item, seed=0), []).append(job)
    for first, *others in alike.values():
        (estimate,) = forecast(run_item, first, None).items
        yield replace(estimate, title=first.item.title, items=1 + len(others))


def _options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Options of studies, options of every run, and plain values of the run options that change numbers."""
    known = (*OF_STUDIES, *OF_RUNS)
    for name in given:
        if name not in known:
            raise SweepError(f"sweep has no option {name!r}. {near_matches(name, known)}")
    of_runs = {name: value for name, value in given.items() if name in OF_RUNS}
    checked = Options(**of_runs)
    edits = [edit.to_dict() for edit in checked.interventions]
    of_studies = {name: value for name, value in given.items() if name in OF_STUDIES}
    if not isinstance(of_studies.get("heads_from", ""), str | None):
        raise SweepError("heads_from= is not a name; in a sweep, give the name of a task.")
    return of_studies, of_runs, {"interventions": edits} if edits else {}


def _folder(
    out: str | Path | None, *, resume: bool | Literal["again"], overwrite: bool
) -> Path | None:
    if resume not in (True, False, "again"):
        raise SweepError(f"resume={shown(resume)}; give True, False or 'again'.")
    if resume and overwrite:
        raise SweepError(
            "resume=True keeps finished runs, but overwrite=True measures them again; give only one of them."
        )
    if out is None:
        if resume or overwrite:
            raise SweepError("resume= and overwrite= need out=, the folder of the sweep.")
        return None
    folder = given_path(out, option="out")
    if is_sweep(folder):
        if not (resume or overwrite):
            raise SweepError(
                f"{str(out)!r} holds a sweep; give resume=True to continue it, overwrite=True to "
                "measure it again, or another folder."
            )
    elif not is_vacant(folder):
        raise SweepError(
            f"{str(out)!r} holds other files and no sweep; choose a new or empty folder."
        )
    return folder


def _earlier(
    folder: Path | None, plan: Plan, *, resume: bool | Literal["again"], overwrite: bool
) -> list[Item]:
    """Runs that the folder already lists.

    Raises:
        SweepError: they have other measurements, models or tasks, and would be averaged with
            these.
    """
    if folder is None or overwrite or not is_sweep(folder):
        return []
    items = [Item.from_dict(values) for values in read_list(folder)[1].get("items", [])]
    contents = {(item.study, item.pair): item.content for item in plan.items}
    for item in items:
        if contents.get((item.study, item.pair), item.content) != item.content:
            raise SweepError(
                f"{str(folder)!r} holds a sweep with other measurements, variants or options of "
                f"{item.study!r}; results are not mixed. Choose another folder, or use the settings of the "
                "sweep that is there."
            )
    changed = _changed(items, plan)
    if changed and resume != "again":
        raise SweepError(
            f"{_differing(changed)} changed since the sweep in {str(folder)!r} was measured "
            f"({counted(len(changed), 'run')}); results are not mixed. Use a new folder, or "
            "resume='again' to measure these runs again."
        )
    return [item for item in items if item.key not in changed]


def _changed(items: Sequence[Item], plan: Plan) -> dict[str, tuple[Item, Item]]:
    """Runs in the folder, by key, that are planned again with another model or task of the same name."""
    of_models: dict[str, Item] = {item.model: item for item in plan.items}
    of_tasks: dict[str, Item] = {item.task: item for item in plan.items}
    changed: dict[str, tuple[Item, Item]] = {}
    for item in items:
        for part, current in (
            ("model", of_models.get(item.model)),
            ("task", of_tasks.get(item.task)),
        ):
            if current is not None and current.sources.get(part) != item.sources.get(part):
                changed.setdefault(item.key, (item, current))
    return changed


def _differing(changed: Mapping[str, tuple[Item, Item]]) -> str:
    """The models and tasks that changed, in words."""
    said: dict[str, None] = {}
    for before, after in changed.values():
        if before.sources.get("task") != after.sources.get("task") and before.task == after.task:
            said[f"The task {before.task!r}"] = None
        if (
            before.sources.get("model") != after.sources.get("model")
            and before.model == after.model
        ):
            lines = [set(item.sources.get("model", "").splitlines()) for item in (before, after)]
            files = sorted({line.rsplit(" ", 1)[0] for line in lines[0] ^ lines[1] if " " in line})
            of = f" ({listed(files)})" if files else ""
            said[f"The model {before.model!r}{of}"] = None
    return " and ".join(said)


def _write(folder: Path, items: Sequence[Item], plan: Plan) -> None:
    document = {
        "kind": "sweep",
        "items": [item.to_dict() for item in items],
        "skipped": list(plan.skipped),
        "made": {"date": now(), "command": command_noted()},
    }
    write_list(folder, document)


def _carrier(
    plan: Plan,
    executor: Executor | None,
    workers: int | None,
    devices: Sequence[str],
    patience: float,
) -> Any:
    """The function that executes jobs.

    Raises:
        SweepError: two ways at once, or a model that cannot be sent.
    """
    if executor is not None and (workers is not None or devices):
        raise SweepError("executor= has its own workers; leave out workers= and devices=.")
    if devices:
        if workers not in (None, len(devices)):
            raise SweepError(
                f"workers={workers} does not match {len(devices)} devices; give one device for each worker."
            )
        workers = len(devices)
    if executor is None and workers is None:
        return serially
    if executor is not None and not isinstance(executor, Executor):
        raise SweepError(
            f"executor={shown(executor)} is not an executor; give a concurrent.futures.Executor, for a Dask client "
            "client.get_executor()."
        )
    for source in {id(e.model): e.model for e in plan.entries}.values():
        if source.is_object and not _stays_here(executor):
            raise SweepError(
                f"The model {source.name!r} was given as an object, which other processes do not have; give "
                "its name or folder, or a function in a module that loads it."
            )
    if executor is not None:
        return partial(on_executor, executor=executor, timeout=patience)
    count = conformed("workers", workers, Count, SweepError)
    check_guard()
    return partial(in_processes, workers=Workers(count, devices), timeout=patience)


def _patience(timeout: float | int | None, *, apart: bool) -> float:
    if timeout is None:
        return PATIENCE
    timeout = conformed("timeout", timeout, float, SweepError)
    if timeout <= 0:
        raise SweepError(f"timeout={shown(timeout)}; give a number of seconds above 0.")
    if not apart:
        raise SweepError(
            "timeout= can only end runs in other processes, but this sweep runs in this process; give workers=1 or "
            "more, or an executor."
        )
    return float(timeout)


def _stays_here(executor: Executor | None) -> bool:
    from concurrent.futures import ThreadPoolExecutor

    return isinstance(executor, ThreadPoolExecutor)


def _run(
    jobs: Sequence[Job],
    carry: Callable[[Sequence[Job]], Iterator[Outcome]],
    total: int,
    folder: Path | None,
    progress: bool | None,
) -> list[Outcome]:
    titles = {job.item.key: job.item.title for job in jobs}
    finished: list[Outcome] = []
    with SweepProgress(total, total - len(jobs), progress) as bar:
        outcomes: Iterator[Outcome] = carry(jobs) if jobs else iter(())
        for outcome in outcomes:
            finished.append(outcome)
            if outcome.state == "full" and folder is not None:
                done = total - len(jobs) + sum(past.state == "done" for past in finished)
                raise stopped_by(outcome.error, folder, {"done": done, "all": total})
            failed = outcome.state == "failed"
            if failed and folder is not None:
                _note(folder, outcome)
            bar.done(titles[outcome.key], failed=failed)
    return finished


def _note(folder: Path, outcome: Outcome) -> None:
    """Save the error of a run whose worker could not save it."""
    place = item_folder(folder, outcome.key)
    # A worker that was given up may have finished after all.
    if error_of(place) is None and not is_complete(place):
        try:
            note_error(place, {"type": "SweepError", "message": outcome.error})
        except OSError as error:
            if full := full_disk(error):
                raise SweepError(
                    f"The disk of {str(folder)!r} accepts no more files ({full}), not even the reason why "
                    f"{outcome.key} failed: {outcome.error} Free some space, and continue with resume=True."
                ) from error
            raise

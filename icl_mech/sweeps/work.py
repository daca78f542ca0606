"""A worker's side of a sweep: it executes one run after the other and keeps the loaded model."""

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icl_mech.errors import IclMechError, SweepError
from icl_mech.prompts import build_prompt_pairs, build_prompts
from icl_mech.studies import Analysis, Study, analyze, measure
from icl_mech.studies.study import OF_MEASUREMENTS
from icl_mech.sweeps.item import Item, alone, forget_error, is_complete, item_folder, note_error
from icl_mech.sweeps.patience import full_disk
from icl_mech.sweeps.plan import Measurements, Planned
from icl_mech.sweeps.sources import ModelSource, TaskSource


@dataclass(frozen=True, eq=False)
class Job:
    """A run with everything a worker needs for it; it can be sent to another machine.

    Attributes:
        item: The run.
        model: Source of its model.
        task: Source of its task.
        measurements: The measurements, in addition to a study if there is one.
        options: Options of the study and of the run.
        device: Device of the model; None: the worker's device, or a GPU if there is one.
        dtype: Number format of the weights.
        out: Folder of the sweep, or None: the results are sent back.
        overwrite: Finished results are measured again.
        timeout: Seconds to wait for another process that executes this run.
        study: A study, its address or its name; None: the default one, or measurements alone.
    """

    item: Item
    model: ModelSource
    task: TaskSource
    measurements: Measurements
    options: Mapping[str, Any]
    device: str | None = None
    dtype: str | None = None
    out: Path | None = None
    overwrite: bool = False
    timeout: float = 0.0
    study: Study | str | None = None

    @classmethod
    def of(cls, planned: Planned, options: Mapping[str, Any], **more: Any) -> "Job":
        """The job of a planned run."""
        content = planned.content
        merged = {**options, **content.options}
        return cls(
            planned.item,
            planned.model,
            planned.task,
            content.measurements,
            merged,
            study=content.runs,
            **more,
        )


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        key: Key of the run.
        state: `done`, `failed`, or `full`: the disk accepts no more.
        seconds: Time it took.
        error: Type and message of the error; empty if there was none.
        analysis: The results, if there is no folder for them.
        process: Id of the process it ran in.
    """

    key: str
    state: str
    seconds: float
    error: str = ""
    analysis: Analysis | None = None
    process: int = 0


_TURN = threading.Lock()
"""Hooks of two runs on one model would mix, so threads of a process take turns."""

_LOADED: list[tuple[ModelSource, tuple[str | None, str | None], Any]] = []
"""The model that is kept, with its source, device and number format."""

_DEVICE: list[str] = []
"""The device assigned to this process."""


def use_device(device: str) -> None:
    """Set the device of this process's models, unless a job names another one."""
    _DEVICE[:] = [device]


def loaded(source: ModelSource, device: str | None, dtype: str | None) -> Any:
    """The model, loaded once and kept until another one replaces it."""
    place = (device, dtype)
    if not (_LOADED and _LOADED[0][0].same(source) and _LOADED[0][1] == place):
        _LOADED.clear()
        _LOADED.append((source, place, source.load(device, dtype)))
    return _LOADED[0][2]


def run_job(job: Job) -> Outcome:
    """Execute a run; an error in it becomes its outcome, not an exception."""
    with _TURN:
        if job.out is None:
            return _run(job, None)
        folder = item_folder(job.out, job.item.key)
        try:
            with alone(job.out, job.item.key, job.timeout):
                if is_complete(folder) and not job.overwrite:  # another process was faster
                    forget_error(folder)
                    return Outcome(job.item.key, "done", 0.0, process=os.getpid())
                return _run(job, folder)
        except (SweepError, OSError) as error:
            state = "full" if full_disk(error) else "failed"
            return Outcome(job.item.key, state, 0.0, str(error), process=os.getpid())


def _run(job: Job, folder: Path | None) -> Outcome:
    start = time.monotonic()
    try:
        analysis = run_item(job, folder)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs continue
        seconds = time.monotonic() - start
        if folder is not None and (full := full_disk(error)):
            return Outcome(job.item.key, "full", seconds, str(full), process=os.getpid())
        said = {"type": type(error).__name__, "message": str(error), "item": job.item.title}
        if folder is not None:
            note_error(folder, {**said, "seconds": round(seconds, 2)})
        prefix = "" if isinstance(error, IclMechError) else f"{type(error).__name__}: "
        return Outcome(
            job.item.key,
            "failed",
            seconds,
            f"{prefix}{error}" or type(error).__name__,
            process=os.getpid(),
        )
    seconds = time.monotonic() - start
    if folder is not None:
        forget_error(folder)
    kept = analysis if folder is None else None
    return Outcome(job.item.key, "done", seconds, "", kept, os.getpid())


def run_item(job: Job, folder: Path | None) -> Analysis:
    """Execute a run; every finished part is saved in the folder at once.

    Raises:
        IclMechError: the run is rejected.
    """
    item = job.item
    device = job.device or (_DEVICE[0] if _DEVICE else None)
    model = loaded(job.model, device, job.dtype)
    data = prompts_of(job, model)
    # Saved parts are kept, or replaced in the end: never both.
    out = None if job.overwrite else folder
    options: dict[str, Any] = {"progress": False, "out": out, **job.options}
    if item.study == OF_MEASUREMENTS:
        analysis = measure(model, data, *job.measurements, **options)
    else:
        analysis = analyze(
            model, data, study=job.study, measurements=job.measurements, seed=item.seed, **options
        )
    if job.overwrite and folder is not None:
        analysis.save(folder, overwrite=True)
    return analysis


def prompts_of(job: Job, model: Any) -> Any:
    """The prompts of a run."""
    item = job.item
    if not item.labels:
        return job.task.texts().prompts(model, n=item.n, seed=item.seed)
    task = job.task.load()
    names = ("shots", "total", "n", "seed", "false_share", "demonstrations", "balanced")
    options = {**{name: getattr(item, name) for name in names}, **(item.writing or {})}
    labels: Any = item.labels
    if item.pair:
        return build_prompt_pairs(task, model, false_labels=labels, **options)
    return build_prompts(task, model, labels=labels, **options)

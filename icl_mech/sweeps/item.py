"""`Item`: one run of a sweep, as a value that determines where its results are saved; and the folder of a sweep.

sweep.json                 the runs, with everything that identifies them
items/KEY/                 a saved analysis, complete as soon as its `analysis.json` exists
items/KEY/error.json       why a run failed
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from os.path import isfile
from pathlib import Path
from typing import Any, Literal

from icl_mech._files import FolderLock, write_synced
from icl_mech.documents import content_of_file, fitted
from icl_mech.errors import IclMechError, ResultError, SweepError
from icl_mech.results import INDEX, Folder, given_path, jsonable
from icl_mech.results.files import FORMAT, read_json, sealed
from icl_mech.results.storage import content_of, steadily
from icl_mech.studies.study import OF_MEASUREMENTS

DIMS = (
    "model",
    "revision",
    "task",
    "study",
    "labels",
    "false_share",
    "shots",
    "total",
    "format",
    "demonstrations",
    "n",
    "seed",
)
"""Dimensions that a sweep varies, from the outermost level to the innermost."""

LATER = ("revision", "total", "writing")
"""Fields that are written only if they are set, so that earlier runs keep their keys."""


@dataclass(frozen=True)
class Item:
    """One run of a sweep: a model, a set of prompts and what is measured, as plain values.

    Attributes:
        model: Name of the model.
        task: Name of the task, or of a set of texts.
        study: `label_words`, `overthinking`, `causal`, `default` or `measurements`.
        labels: Label setting of the demonstrations (of the false ones in a pair); empty for texts.
        false_share: Probability of a false label; None: that of the setting.
        shots: Demonstrations per class; None: they are counted in total, or the prompts are texts.
        format: Number or pattern of the prompt format; empty: the task's own.
        demonstrations: `shared` or `per_prompt`; empty for texts.
        n: Number of prompts.
        seed: Seed of demonstrations, queries and random controls.
        pair: True if true and false demonstrations are compared.
        balanced: Queries with equally many true answers per class.
        measured: Names and variants of the measurements, and the options of the run.
        sources: Identities of a model or task that was given as an object.
        total: Demonstrations in total, or `max`.
        revision: Revision of the model: a branch, tag or commit.
        writing: How prompts are written and scored: `score` and the options of chats of `build_prompts`.
    """

    model: str
    task: str
    study: str
    labels: str
    false_share: float | None
    shots: int | None
    format: str
    demonstrations: str
    n: int
    seed: int
    pair: bool
    balanced: bool
    measured: Mapping[str, Any]
    sources: Mapping[str, str]
    total: int | Literal["max"] | None = None
    revision: str | None = None
    writing: Mapping[str, Any] | None = None

    def __hash__(self) -> int:
        """The hash of its key."""
        return hash(self.key)

    @property
    def dims(self) -> dict[str, Any]:
        """Its value of every dimension."""
        return {name: getattr(self, name) for name in DIMS}

    @property
    def content(self) -> str:
        """Digest of what is measured, independent of what varies."""
        return _digest(self.measured)

    @cached_property
    def key(self) -> str:
        """Name of its folder: a few words, and a digest of everything it holds."""
        share = "" if self.false_share is None else f"-{self.false_share:g}"
        model = self.model.rstrip("/").split("/")[-1]
        if self.revision is not None:
            model = f"{model[:12]}_{self.revision}"
        count = "" if self.shots is None else f"{self.shots}shot"
        count = count if self.total is None else f"{self.total}inall"
        settings = (f"{self.labels}{share}", count, f"seed{self.seed}")
        words = [word for word in (model, self.task, self.study, *settings) if word]
        slug = "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", word).strip("._")[:24] for word in words)
        return f"{slug[:78]}-{_digest(self.to_dict())}"

    @property
    def title(self) -> str:
        """The run in words."""
        share = "" if self.false_share is None else f" ({self.false_share:g})"
        revision = "" if self.revision is None else f" at {self.revision}"
        study = "" if self.study == OF_MEASUREMENTS else f": {self.study.replace('_', ' ')}"
        parts = [
            f"{short_name(self.model)}{revision} on {self.task}{study}",
            f"{self.labels.replace('_', ' ')} labels{share}" if self.labels else "",
            "" if self.shots is None else f"{self.shots} per class",
            "" if self.total is None else f"{self.total} in total",
            f"format {self.format}" if self.format else "",
            ", ".join(f"{name}={value}" for name, value in (self.writing or {}).items()),
            f"seed {self.seed}",
            f"n = {self.n}",
        ]
        return ", ".join(part for part in parts if part)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a JSON file; see `from_dict`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain: dict[str, Any] = jsonable(
            {
                name: value
                for name, value in values.items()
                if name not in LATER or value is not None
            }
        )
        return plain

    @classmethod
    def from_dict(cls, values: object) -> "Item":
        """The run that `to_dict` wrote.

        Raises:
            SweepError: the entries are not those of a run.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(values, Mapping) or {*values, *LATER} != names:
            raise SweepError(
                f"A run of the sweep does not have the expected entries {', '.join(sorted(names))}; restore the list "
                "of runs from a copy, or measure the sweep again."
            )
        return cls(**values)


def _digest(values: object) -> str:
    text = json.dumps(jsonable(values), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def short_name(model: str) -> str:
    """The name of a model; of a folder, its last part, which does not reveal where it lies on this machine."""
    return Path(model).name if Path(model).is_absolute() else model


def short_names(models: Iterable[str]) -> dict[str, str]:
    """`short_name` of each; folders with the same last part keep as much of their paths as tells them apart."""
    names, every = {}, [*dict.fromkeys(models)]
    for model in every:
        parts = [Path(own).parts for own in every if short_name(own) == short_name(model)]
        lengths = range(1, max(map(len, parts)) + 1)
        apart = (k for k in lengths if len({own[-k:] for own in parts}) == len(parts))
        names[model] = (
            "/".join(Path(model).parts[-next(apart) :]) if parts[1:] else short_name(model)
        )
    return names


STATES = ("done", "failed", "damaged", "unfinished")
"""States of a run."""

LIST = "sweep.json"
ITEMS, RUNNING = "items", ".running"
ERROR = "error.json"

POLL = 0.2
"""Seconds between two checks of a run that another process executes."""


def item_folder(folder: Path, key: str) -> Path:
    """The folder of a run's results."""
    return folder / ITEMS / key


def is_sweep(folder: Path) -> bool:
    """True if a folder holds the list of a sweep."""
    return isfile(folder / LIST)


def write_list(folder: Path, document: Mapping[str, Any]) -> None:
    """Put the list of runs in place, all or nothing.

    Raises:
        ResultError: it cannot be written.
    """
    with Folder(folder, beside=True) as place:
        place.replace(LIST, sealed({"format": FORMAT, **document}))


def read_list(folder: str | Path) -> tuple[Path, dict[str, Any]]:
    """The list of runs in a folder.

    Raises:
        SweepError: there is none, or it is damaged.
    """
    try:
        place = given_path(folder)
        if not is_sweep(place):
            raise SweepError(
                f"{str(folder)!r} holds no sweep ({LIST} is missing); give the folder that "
                "sweep(..., out=) or icl-mech sweep has written."
            )
        document = read_json(place / LIST)
        fit = fitted("sweep.json", document, SweepError, f"{place / LIST} is damaged")
        return place, {**document, **fit}
    except ResultError as error:
        raise SweepError(str(error)) from error


def is_complete(folder: Path) -> bool:
    """True if a run's results are all there; their content is checked when it is loaded."""
    try:
        index = read_json(folder / INDEX)
    except IclMechError:
        return False
    names = index.get("results")
    return isinstance(names, list) and all((folder / str(name)).is_dir() for name in names)


def damage_of(folder: Path) -> str:
    """What is wrong with the files of complete results; empty if they are unchanged."""
    try:
        files = read_json(folder / INDEX)["files"]
    except ResultError as error:
        return str(error)
    return _damage(folder, tuple((path, files[path], _mark(folder / path)) for path in files))


def _mark(file: Path) -> tuple[int, ...]:
    try:
        state = file.stat()
    except OSError:
        return ()
    return state.st_ino, state.st_size, state.st_mtime_ns


@lru_cache(maxsize=4096)
def _damage(folder: Path, files: tuple[tuple[str, str, tuple[int, ...]], ...]) -> str:
    """The damage of these files, which are read once, and again when they change."""

    def read() -> None:
        for path, checksum, _ in files:
            content_of(folder, path, checksum)

    try:
        steadily(read, folder / INDEX)
    except ResultError as error:
        return f"{error} To measure it again, delete {str(folder)!r} and resume the sweep."
    return ""


def note_error(folder: Path, values: Mapping[str, Any]) -> None:
    """Save why a run failed."""
    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / f".{ERROR}-{os.getpid()}"
    write_synced(staged, json.dumps(values, indent=1).encode())
    staged.replace(folder / ERROR)


def error_of(folder: Path) -> dict[str, Any] | None:
    """Why a run failed; None if that is not known."""
    try:
        values = json.loads(content_of_file(folder / ERROR, SweepError))
    except (OSError, ValueError, RecursionError, SweepError):
        return None
    return values if isinstance(values, dict) else None


def forget_error(folder: Path) -> None:
    """Remove the error that an earlier, failed attempt left."""
    with suppress(OSError):
        (folder / ERROR).unlink()


@contextmanager
def alone(folder: Path, key: str, patience: float) -> Iterator[None]:
    """Hold the lock of a run; wait up to `patience` seconds for another process that executes it.

    The system releases the lock when the process ends, for whatever reason.

    Raises:
        SweepError: another process is still executing it.
    """
    place = folder / RUNNING / key
    until = time.monotonic() + patience
    while True:
        place.mkdir(parents=True, exist_ok=True)
        try:
            lock = FolderLock(place, 0.0)
        except BlockingIOError:
            if time.monotonic() > until:
                raise SweepError(
                    f"Another process has been executing this run for more than {patience:g} s "
                    "(timeout=); end that process, and call again with resume=True."
                ) from None
            time.sleep(POLL)
        except FileNotFoundError:
            continue  # its holder has just removed it
        else:
            break
    try:
        yield
    finally:
        with suppress(OSError):
            place.rmdir()
        lock.release()
        with suppress(OSError):
            (folder / RUNNING).rmdir()

"""The folder of a sweep: its list of items, a folder for each of them, errors beside results.

sweep.json                 the items, with all that makes them what they are
items/KEY/                 a saved analysis, complete as soon as its `analysis.json` is there
items/KEY/error.json       why an item failed
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from icl_mech._files import FolderLock, write_synced
from icl_mech.documents import content_of_file, fitted
from icl_mech.errors import IclMechError, ResultError, SweepError
from icl_mech.results import INDEX, Folder, given_path
from icl_mech.results.files import FORMAT, read_json, sealed

LIST = "sweep.json"
ITEMS, RUNNING = "items", ".running"
ERROR = "error.json"

POLL = 0.2
"""Seconds between two looks at an item that another process runs."""


def item_folder(folder: Path, key: str) -> Path:
    """Where an item's results are."""
    return folder / ITEMS / key


def is_sweep(folder: Path) -> bool:
    """True if a folder holds the list of a sweep."""
    return (folder / LIST).is_file()


def write_list(folder: Path, document: Mapping[str, Any]) -> None:
    """Put the list of items in place, all or nothing.

    Raises:
        ResultError: it cannot be written.
    """
    with Folder(folder, beside=True) as place:
        place.replace(LIST, sealed({"format": FORMAT, **document}))


def read_list(folder: str | Path) -> tuple[Path, dict[str, Any]]:
    """The list of items of a folder.

    Raises:
        SweepError: there is none, or it is damaged.
    """
    try:
        place = given_path(folder)
        if not is_sweep(place):
            raise SweepError(
                f"{str(folder)!r} holds no sweep ({LIST} is missing); give the folder that "
                "sweep(..., out=) or icl-mech sweep wrote."
            )
        document = read_json(place / LIST)
        fit = fitted("sweep.json", document, SweepError, f"{place / LIST} is damaged")
        return place, {**document, **fit}
    except ResultError as error:
        raise SweepError(str(error)) from error


def is_complete(folder: Path) -> bool:
    """True if an item's results are all there; their content is checked when it is loaded."""
    try:
        index = read_json(folder / INDEX)
    except IclMechError:
        return False
    names = index.get("results")
    return isinstance(names, list) and all((folder / str(name)).is_dir() for name in names)


def note_error(folder: Path, values: Mapping[str, Any]) -> None:
    """Keep why an item failed."""
    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / f".{ERROR}-{os.getpid()}"
    write_synced(staged, json.dumps(values, indent=1).encode())
    staged.replace(folder / ERROR)


def error_of(folder: Path) -> dict[str, Any] | None:
    """Why an item failed; None if that is not known."""
    try:
        found = json.loads(content_of_file(folder / ERROR, SweepError))
    except (OSError, ValueError, RecursionError, SweepError):
        return None
    return found if isinstance(found, dict) else None


def forget_error(folder: Path) -> None:
    """Remove what an earlier, failed run of an item left."""
    with suppress(OSError):
        (folder / ERROR).unlink()


@contextmanager
def alone(folder: Path, key: str, patience: float) -> Iterator[None]:
    """The right to run an item; waits so many seconds for another process that runs it.

    The system takes it back when the process ends, whatever ends it.

    Raises:
        SweepError: another process runs it all the time.
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
                    f"Another process has been running this item for more than {patience:g} s "
                    "(timeout=); end it, and call again with resume=True."
                ) from None
            time.sleep(POLL)
        except FileNotFoundError:
            continue  # whoever had it has just removed it
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

"""Several results in one folder: one subfolder each, and an index with their common data.

`analysis.json` is the index; `prompts.json` holds their prompts.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from icl_mech.documents import fitted
from icl_mech.errors import ResultError
from icl_mech.results.base import Result
from icl_mech.results.files import (
    FORMAT,
    PAGE,
    PROMPTS,
    check_names,
    given_path,
    parsed,
    read_json,
    sealed,
)
from icl_mech.results.folders import Folder
from icl_mech.results.storage import FILES, content_of, load_part, steadily, write_result

INDEX = "analysis.json"


class About(NamedTuple):
    """Information saved once for several results.

    Attributes:
        title: Model and task.
        notes: Measurements that were left out, and why.
        made: When and how the results were made, plain values.
        prompts: The prompts of the study, plain values of each batch.
    """

    title: str
    notes: Sequence[str] = ()
    made: Mapping[str, Any] = {}
    prompts: Sequence[Mapping[str, Any]] = ()


def paths_of(names: Iterable[str], *, page: bool = False, prompts: bool = True) -> list[str]:
    """Files written when results of these names are saved; the index comes last, except for a page."""
    parts = [f"{name}/{file}" for name in names for file in FILES]
    return [*parts, *([PROMPTS] if prompts else []), INDEX, *([PAGE] if page else [])]


def write_results(
    place: Folder, results: Mapping[str, Result], about: About, page: bytes | None = None
) -> None:
    """Write results into a folder, with a page of them if there is one.

    Raises:
        ResultError: they cannot be written.
    """
    for name, result in results.items():
        write_result(result, place, name)
    if page is not None:
        place.put(PAGE, page)
    list_results(place, results, about)


def list_results(place: Folder, names: Collection[str], about: About) -> None:
    """Write the index of the results in a folder and their prompts.

    Raises:
        ResultError: it cannot be written.
    """
    *paths, index = paths_of(names, prompts=False)
    for path in paths:
        place.keep(path)
    if about.prompts:
        place.put(PROMPTS, sealed({"format": FORMAT, "batches": about.prompts}, compact=True))
    # The folder may hold the prompts of an earlier study; the number shows whether they belong to this one.
    document = {"title": about.title, "results": list(names), "notes": about.notes}
    place.commit(index, {**document, "made": about.made, "prompts": len(about.prompts)})


def read_results(folder: str | Path) -> tuple[dict[str, Result], About]:
    """Results by name, and their common data.

    Raises:
        ResultError: missing or damaged files, or a newer layout.
    """
    place = given_path(folder)
    return steadily(lambda: _read(place), place / INDEX)


def _read(folder: Path) -> tuple[dict[str, Result], About]:
    index = read_json(folder / INDEX)
    fit = fitted("analysis.json", index, ResultError, f"{folder / INDEX} is damaged")
    names, title, notes, made = (fit[name] for name in ("results", "title", "notes", "made"))
    try:
        check_names(names)
    except ResultError as error:
        raise ResultError(f"{folder / INDEX} is damaged: {error}") from error
    prompts = _prompts(folder, index)
    results = {name: load_part(Result, folder, name, index) for name in names}
    return results, About(title, tuple(map(str, notes)), made, prompts)


def _prompts(folder: Path, index: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The prompts that an index lists: none in earlier layouts."""
    count = index.get("prompts", 0)
    if count == 0:
        return []
    if PROMPTS not in index["files"]:
        raise ResultError(f"{folder / INDEX} is damaged: it has no checksum for {PROMPTS}.")
    content = content_of(folder, PROMPTS, index["files"][PROMPTS])
    batches = parsed(content, folder / PROMPTS).get("batches")
    if not isinstance(batches, list) or len(batches) != count:
        raise ResultError(f"{folder / PROMPTS} is damaged: expected {count} batches of prompts.")
    return batches

"""Several results in one folder: one below another, listed with title and notes in `analysis.json`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from icl_mech.errors import ResultError
from icl_mech.results.base import Result
from icl_mech.results.files import PAGE, check_names, given_path, read_json
from icl_mech.results.folders import Folder
from icl_mech.results.storage import FILES, load_part, steadily, write_result

INDEX = "analysis.json"


def paths_of(names: Iterable[str], *, page: bool = False) -> list[str]:
    """What is written when results of these names are saved."""
    parts = [f"{name}/{file}" for name in names for file in FILES]
    return [*parts, INDEX, *([PAGE] if page else [])]


def write_results(
    place: Folder,
    results: Mapping[str, Result],
    title: str,
    notes: Sequence[str],
    page: bytes | None = None,
) -> None:
    """Write results into a folder, with a page of them if there is one.

    Raises:
        ResultError: they cannot be written.
    """
    for name, result in results.items():
        write_result(result, place, name)
    if page is not None:
        place.put(PAGE, page)
    list_results(place, results, title, notes)


def list_results(place: Folder, names: Collection[str], title: str, notes: Sequence[str]) -> None:
    """Write the list of results that lie in a folder, or were put there.

    Raises:
        ResultError: it cannot be written.
    """
    *paths, index = paths_of(names)
    for path in paths:
        place.keep(path)
    place.commit(index, {"title": title, "results": list(names), "notes": notes})


def read_results(folder: str | Path) -> tuple[dict[str, Result], str, tuple[str, ...]]:
    """Results by name, title and notes.

    Raises:
        ResultError: missing or damaged files, or a newer layout.
    """
    place = given_path(folder)
    return steadily(lambda: _read(place), place / INDEX)


def _read(folder: Path) -> tuple[dict[str, Result], str, tuple[str, ...]]:
    index = read_json(folder / INDEX)
    names, title, notes = index.get("results"), index.get("title"), index.get("notes", [])
    if not isinstance(title, str) or not isinstance(names, list) or not isinstance(notes, list):
        raise ResultError(f"{folder / INDEX} is damaged: it has no title or no list of results.")
    try:
        check_names(names)
    except ResultError as error:
        raise ResultError(f"{folder / INDEX} is damaged: {error}") from error
    return {name: load_part(folder, name, index) for name in names}, title, tuple(map(str, notes))

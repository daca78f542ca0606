"""Types of all external documents: sweep files, lists of runs, indexes of results.

A document is read from a regular file of bounded size, and its values are validated against a model;
errors name the place in the document. Meaning - whether a layer exists, whether a variant is known - is
checked where the values are used.
"""

import json
import re
import stat
from os.path import exists, expanduser, isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from icl_mech.errors import IclMechError, ResultError, near_matches

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

SAVED = ("analysis.json", "sweep.json", "result.json")
"""Index of a run, of a sweep and of a single result: what a folder holds, by the first that is there."""

MEBIBYTE = 1 << 20

LARGEST = {".json": 256 * MEBIBYTE, ".jsonl": 4096 * MEBIBYTE, ".yaml": 4 * MEBIBYTE}
"""Maximum number of bytes of a file, by its kind."""

DEEPEST = 60
"""Maximum depth of nested values."""

SEEDS, ITEMS = 100_000, 1_000_000
"""Maximum number of seeds and of runs of a sweep."""


def index_in(folder: str | Path) -> str:
    """Name of the index in a folder of saved results; libraries that load them need not be imported.

    Raises:
        ResultError: the folder is missing, or holds none.
    """
    place = expanduser(folder)
    index = next((name for name in SAVED if isfile(f"{place}/{name}")), None)
    if index is None:
        holds = (
            f"contains none of {', '.join(SAVED)}, so icl_mech did not save it; give the folder "
            "of a run."
        )
        gone = "does not exist; give the folder of a run, such as runs/analysis."
        raise ResultError(f"{str(folder)!r} {holds if exists(place) else gone}")
    return index


def content_of_file(path: Path, error: type[IclMechError], *, kind: str = ".json") -> bytes:
    """The bytes of a regular file that is not larger than its kind allows.

    Raises:
        IclMechError: of the given class; it is a pipe, a device or a folder, or too large.
        OSError: it cannot be read.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise error(f"{str(path)!r} is a {_kind(status.st_mode)}; expected a file.")
    most = LARGEST[kind]
    if status.st_size > most:
        raise error(
            f"{str(path)!r} has {status.st_size / MEBIBYTE:.0f} MiB; files of this kind may have "
            f"at most {most / MEBIBYTE:.0f} MiB."
        )
    return path.read_bytes()


def _kind(mode: int) -> str:
    names = {
        stat.S_ISDIR: "folder",
        stat.S_ISFIFO: "pipe",
        stat.S_ISSOCK: "socket",
        stat.S_ISCHR: "device",
        stat.S_ISBLK: "device",
    }
    return next((name for test, name in names.items() if test(mode)), "special file")


def read_yaml(path: Path, error: type[IclMechError]) -> Any:
    """The values of a YAML file.

    Raises:
        IclMechError: of the given class; it cannot be read, or is not YAML with plain values.
    """
    import yaml

    try:
        text = content_of_file(path, error, kind=".yaml").decode("utf-8")
        values = yaml.safe_load(text)
    except FileNotFoundError as problem:
        raise error(f"There is no file {str(path)!r}; check the path.") from problem
    except (OSError, ValueError, RecursionError, OverflowError, yaml.YAMLError) as problem:
        raise error(f"{str(path)!r} cannot be read as YAML: {problem}") from problem
    check_plain(values, error, str(path))
    return values


def check_plain(found: object, error: type[IclMechError], where: str) -> None:
    """Reject values that are nested too deeply or are not plain.

    Raises:
        IclMechError: of the given class.
    """
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        inside: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                if not all(isinstance(key, str | int | float | bool | None) for key in value):
                    raise error(
                        f"{where!r} contains a mapping whose keys are not plain values (text, "
                        "numbers)."
                    )
                inside += value.values()
            elif isinstance(value, list):
                inside += value
            elif not isinstance(value, str | int | float | bool | None):
                raise error(
                    f"{where!r} holds {str(value)[:60]!r}, a {type(value).__name__}; expected "
                    "text, numbers, lists and mappings. If it is meant as text, put it in "
                    "quotation marks."
                )
        if len(inside) > ITEMS:
            raise error(f"{where!r} contains more than {ITEMS} values at one level of nesting.")
        level = inside
    if level:
        raise error(f"{where!r} contains values nested more than {DEEPEST} levels deep.")


def fitted(kind: str, values: object, error: type[IclMechError], where: str) -> dict[str, Any]:
    """The values, validated as a kind of document; further entries are left as they are.

    Args:
        kind: Name in `models`.
        values: The values read.
        error: Class of the error.
        where: The document, for messages.

    Raises:
        IclMechError: of the given class; names the first entry that does not fit.
    """
    from pydantic import ValidationError

    try:
        return models()[kind].model_validate(values, strict=True).model_dump()
    except (ValidationError, RecursionError) as problem:
        if isinstance(problem, RecursionError):
            raise error(f"{where}: values are nested too deeply.") from None
        first, *others = problem.errors()
        # Among several alternatives, the one matched deepest is the most informative.
        alike = [issue for issue in others if issue["loc"][:1] == first["loc"][:1]]
        deepest = max([first, *alike], key=lambda issue: len(issue["loc"]))
        raise error(f"{where}: {_message(deepest)}") from None


def _message(problem: "ErrorDetails") -> str:
    """An error of pydantic in plain words."""
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]
    ).lstrip(".")
    # pydantic appends the type of an alternative to the place.
    place = place.split(".str")[0].split(".list[")[0].split(".int")[0] or "it"
    value = repr(problem["input"])
    value = value if len(value) <= 80 else f"{value[:77]}..."
    words = {
        "missing": "is missing",
        "string_type": "expected text",
        "int_type": "expected a whole number",
        "float_type": "expected a number",
        "bool_type": "expected true or false",
        "list_type": "expected a list",
        "dict_type": "expected a mapping of names to values",
        "model_type": "expected a mapping of names to values",
        "none_required": "expected nothing",
        "model_attributes_type": "expected a mapping of names to values",
    }
    if problem["type"] == "literal_error":
        known = re.findall(r"'([^']*)'", problem["ctx"]["expected"])
        return f"{place} is {value}. {near_matches(problem['input'], known)}"
    if problem["type"] == "missing":
        return f"{place} is missing."
    expected = words.get(problem["type"]) or problem["msg"][:1].lower() + problem["msg"][1:]
    return f"{place} is {value}; {expected}."


def models() -> dict[str, type["BaseModel"]]:
    """The kinds of documents by name; built when the first is read."""
    if not _MODELS:
        _MODELS.update(_made())
    return _MODELS


_MODELS: dict[str, type["BaseModel"]] = {}


def _made() -> dict[str, type["BaseModel"]]:
    return {**_of_folders(), "study": _of_study()}


def _of_folders() -> dict[str, type["BaseModel"]]:
    """Models of saved sweeps, analyses and results; unknown entries are kept as they are."""
    from pydantic import BaseModel, Field

    count = Annotated[int, Field(ge=1, le=10**9)]
    natural = Annotated[int, Field(ge=0, lt=2**63)]
    share = Annotated[float, Field(ge=0, le=1)]
    words = Annotated[str, Field(min_length=1, max_length=4096)]
    short = Annotated[str, Field(max_length=4096)]

    class ItemEntry(BaseModel, extra="forbid", strict=True):
        """One run of a sweep."""

        model: words
        task: words
        study: words
        labels: short
        false_share: share | Annotated[int, Field(ge=0, le=1)] | None
        shots: natural | None
        format: str
        demonstrations: short
        n: count
        seed: natural
        pair: bool
        balanced: bool
        measured: dict[str, Any]
        sources: dict[str, str]
        total: natural | Literal["max"] | None = None
        revision: words | None = None
        writing: dict[str, Any] | None = None

    class SweepList(BaseModel, extra="allow", strict=True):
        items: Annotated[list[ItemEntry], Field(min_length=1, max_length=ITEMS)]
        skipped: list[str] = Field(default_factory=list)
        made: dict[str, Any] | None = None

    class Index(BaseModel, extra="allow", strict=True):
        title: str
        results: list[str]
        notes: list[str] = Field(default_factory=list)
        made: dict[str, Any] = Field(default_factory=dict)
        prompts: Annotated[int, Field(ge=0, le=1000)] = 0

    class ResultFile(BaseModel, extra="allow", strict=True):
        kind: str
        values: dict[str, Any]

    return {"sweep.json": SweepList, "analysis.json": Index, "result.json": ResultFile}


def _of_study() -> type["BaseModel"]:
    from pydantic import BaseModel, Field

    natural = Annotated[int, Field(ge=0, lt=2**63)]
    listed = Annotated[list[natural], Field(min_length=1, max_length=SEEDS)]

    class StudyFile(BaseModel, extra="allow", strict=True):
        """A sweep as YAML: entries whose types `sweep` itself does not check."""

        study: str | list[str | None] | None = None
        seeds: str | listed | natural = "0-4"
        interventions: list[dict[str, Any]] = Field(default_factory=list)
        devices: list[str] | None = None
        workers: Annotated[int, Field(ge=1, le=10**9)] | None = None
        device: str | None = None
        dtype: str | None = None
        timeout: float | int | None = None
        balanced: bool = True
        heads_from: str | None = None
        memory: str | int | None = None
        path: Literal["auto", "whole"] = "auto"

    return StudyFile


def json_of(path: Path, error: type[IclMechError]) -> Any:
    """The values of a JSON file a user gave.

    Raises:
        IclMechError: of the given class; it cannot be read, or is not JSON.
    """
    try:
        values = json.loads(content_of_file(path, error).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise error(f"{str(path)!r} cannot be read as JSON: {problem}.") from problem
    check_plain(values, error, str(path))
    return values

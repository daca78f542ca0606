"""Location of a user's data: files, folders, frames by split, or the hub."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from os.path import exists, isdir
from pathlib import Path
from typing import Any, NamedTuple

from icl_mech.errors import TaskError
from icl_mech.hub import without_retries
from icl_mech.tasks.files import files_by_split, is_data, plain_name, read_file
from icl_mech.tasks.frames import class_names, part_of, split_names
from icl_mech.tasks.known import CONVERTED, HubSource
from icl_mech.tasks.registry import known_task
from icl_mech.tasks.rows import Columns, Part


def hub_part(hub: HubSource, split: str, *, task: str, offline: Sequence[str]) -> Part:
    """Rows of one split of a known task; `offline` lists tasks that an error message can suggest.

    Raises:
        TaskError: the data set cannot be loaded.
    """
    # A converted branch has no list of configurations, but one folder for each.
    config = {"data_dir" if hub.revision == CONVERTED else "name": hub.config}
    rows = _load(
        hub.path,
        f"Task {task!r} needs the data set {hub.path!r} from the Hugging Face hub, which",
        f"Go online, give a local file (load_task('my.csv', template={task!r})), or use an "
        f"offline task: {', '.join(offline)}.",
        split=split,
        revision=hub.revision,
        **(config if hub.config else {}),
    )

    def used(row: Mapping[str, Any]) -> bool:
        return row.get(hub.label) not in hub.left_out

    return Part(f"{hub.path} {split}", list(filter(used, rows)))


def hub_splits(path: str, config: str | None, revision: str | None) -> Mapping[str, Any]:
    """All splits of a data set on the hub, by name.

    Raises:
        TaskError: the data set cannot be loaded.
    """
    splits: Mapping[str, Any] = _load(
        path,
        f"{path!r} is not a local file or folder, and as a data set of the Hugging Face hub it",
        "Check the name (owner/name), name one of its configurations with config=, go online, or "
        "load the data yourself and pass the frame.",
        **({"name": config} if config else {}),
        **({"revision": revision} if revision else {}),
    )
    return splits


def _load(path: str, what: str, remedy: str, **options: object) -> Any:
    import datasets

    try:
        with without_retries():
            return datasets.load_dataset(path, **options)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        why = " ".join(str(error).split())[:300]
        raise TaskError(
            f"{what} could not be loaded ({type(error).__name__}). {why} {remedy}"
        ) from error


class Source(NamedTuple):
    """Data that has been located, but not yet read.

    Attributes:
        name: Name of the task.
        origin: Origin for provenance.
        read: Reads the rows of one part (to be divided) or of training and test.
        unused: Options without effect on this data, the reason and the remedy, for messages.
        class_names: Class names of a label column in the data's metadata, if any.
    """

    name: str
    origin: str
    read: Callable[[Columns], list[Part]]
    unused: tuple[tuple[str, ...], str, str]
    class_names: Callable[[str], tuple[str, ...] | None] = lambda column: None


HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")

_FRAME_ONLY = ("train_split", "test_split", "config", "revision")


def find(
    data: object,
    test_path: str | Path | None,
    train_split: str | None,
    test_split: str | None,
    config: str | None,
    revision: str | None,
) -> Source:
    """Source of the data given to `load_task`.

    Raises:
        TaskError: the data does not exist, or is of an unsupported type.
    """
    if not isinstance(data, str | Path):
        unused = ("test_path", "config", "revision")
        return _from_frames(data, train_split, test_split, "frame", "the frame", "", unused)
    path = Path(data)
    if isdir(path):
        return _from_folder(path, train_split, test_split)
    if exists(path):
        return _from_file(path, test_path)
    check_name(data)
    splits = hub_splits(str(data), config, revision)
    at = "".join(f" {given}" for given in (config, revision) if given)
    return _from_frames(
        splits, train_split, test_split, path.name, str(data), f"hub {data}{at}", ("test_path",)
    )


def check_name(name: str | Path) -> None:
    """Reject what is neither a known task nor a file or folder, and cannot be a data set of the hub.

    Raises:
        TaskError: lists near matches, or asks for the path.
    """
    path = Path(name)
    if exists(path) or (HUB_ID.fullmatch(str(name)) and not is_data(path.name)):
        return
    if path.suffix or len(path.parts) > 1:
        raise TaskError(f"There is no file or folder {str(name)!r}; check the path.")
    known_task(str(name))


def _from_file(path: Path, test_path: str | Path | None) -> Source:
    files = [path]
    unused: tuple[str, ...] = _FRAME_ONLY
    why, remedy = f"{str(path)!r} is a file", "Omit it."
    if test_path is not None:
        files, unused = [path, Path(test_path)], ("test_fraction", *_FRAME_ONLY)
        why, remedy = "test_path= holds the test examples", "Omit one of the two."
    read, names = _reading(files, [*map(str, files)], "the files")
    return Source(plain_name(path), f"file {path.name}", read, (unused, why, remedy), names)


def _from_folder(path: Path, train_split: str | None, test_split: str | None) -> Source:
    """Source of a folder written by `save_to_disk`, or with a file for each split."""
    import datasets

    name, called = path.resolve().name, f"Folder {str(path)!r}"
    unused = ("test_path", "config", "revision")
    if any((path / marker).is_file() for marker in ("dataset_dict.json", "state.json")):
        try:
            saved = datasets.load_from_disk(str(path))
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise TaskError(
                f"{called} looks like a saved data set, but cannot be read ({type(error).__name__}: {error}); "
                "write it again with save_to_disk()."
            ) from error
        return _from_frames(saved, train_split, test_split, name, called, f"folder {name}", unused)
    files = files_by_split(path)
    train, test = split_names([*files], train_split or "train", test_split or "test", called)
    for split in (train, test):
        if len(files[split]) > 1:
            raise TaskError(
                f"{called} has several files for one split: {' and '.join(file.name for file in files[split])}; "
                "keep one, or give a file and test_path=."
            )
    chosen = {split: files[split][0] for split in files if split in (train, test)}
    return _from_frames(chosen, train, test, name, called, f"file {name}", unused)


def _from_frames(
    data: object,
    train_split: str | None,
    test_split: str | None,
    name: str,
    called: str,
    origin: str,
    unused: tuple[str, ...],
) -> Source:
    frames, origins = [data], [called]
    origin = origin or f"{type(data).__name__} given in code"
    why, remedy = f"The data is a {type(data).__name__}", "Omit it."
    if isinstance(data, Mapping):
        columns = [str(key) for key, value in data.items() if isinstance(value, list | tuple)]
        if columns:
            raise TaskError(
                f"The data is a dictionary of columns ({', '.join(columns)}); expected a table or "
                "a dictionary of splits. Pass pandas.DataFrame(data)."
            )
        splits = {str(key): value for key, value in data.items()}
        train, test = split_names([*splits], train_split, test_split, called)
        parts = (train,) if train == test else (train, test)
        frames = [splits[split] for split in parts]
        origins = [
            str(frame) if isinstance(frame, str | Path) else f"{called} {split!r}"
            for split, frame in zip(parts, frames, strict=True)
        ]
        if len(parts) == 2:
            unused = (*unused, "test_fraction")
            why, remedy = (
                f"{called} has a test split",
                "Omit it, or give one split as train_split= and test_split=.",
            )
    else:
        unused = (*unused, "train_split", "test_split")
    read, class_names_of = _reading(frames, origins, called)
    return Source(name, origin, read, (unused, why, remedy), class_names_of)


def _reading(
    data: Sequence[object], origins: Sequence[str], called: str
) -> tuple[Callable[[Columns], list[Part]], Callable[[str], tuple[str, ...] | None]]:
    """Functions that read the parts and the names of their classes; files are read once, on demand."""

    @cache
    def opened() -> list[object]:
        return [
            read_file(Path(given)) if isinstance(given, str | Path) else given for given in data
        ]

    def names(column: str) -> tuple[str, ...] | None:
        named = {class_names(frame, column) for frame in opened()}
        if len(named) > 1:
            raise TaskError(
                f"The splits of {called} name their classes differently: {named}. Give them the same class names."
            )
        return named.pop()

    def read(columns: Columns) -> list[Part]:
        return [part_of(frame, columns, at) for frame, at in zip(opened(), origins, strict=True)]

    return read, names

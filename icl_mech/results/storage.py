"""Results as files: `result.json` and `tensors.safetensors` in a folder, never pickle."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from icl_mech.documents import content_of_file, fitted
from icl_mech.errors import ResultError, near_matches
from icl_mech.results.files import FORMAT, TENSORS, digest, given_path, parsed, read_json, sealed
from icl_mech.results.folders import Folder, hidden
from icl_mech.results.record import Record, known_kinds
from icl_mech.results.values import check_values

T = TypeVar("T")
R = TypeVar("R", bound=Record)

FILES = ("result.json", TENSORS)


def write_result(result: Record, place: Folder, part: str = "") -> None:
    """Write one result: alone into its folder, or as a named part of what the folder holds.

    Raises:
        ResultError: values that could not be loaded again, or a full or failing disk.
    """
    values = {field.name: getattr(result, field.name) for field in fields(result)}
    check_values(type(result), values)
    tensors: dict[str, torch.Tensor] = {}
    for name, value in list(values.items()):
        if isinstance(value, torch.Tensor):
            tensors[name] = values.pop(name)
        elif isinstance(value, tuple | list) and any(isinstance(v, torch.Tensor) for v in value):
            tensors |= {f"{name}/{i}": v for i, v in enumerate(values.pop(name))}
    content = _tensor_bytes(result, tensors)
    document = {"kind": type(result).__name__, "values": values}
    if not part:
        place.put(TENSORS, content)
        place.commit("result.json", document)
    else:
        files = {TENSORS: digest(content)}
        place.put(f"{part}/{TENSORS}", content)
        place.put(f"{part}/result.json", sealed({"format": FORMAT, **document, "files": files}))


def _tensor_bytes(result: Record, tensors: Mapping[str, torch.Tensor]) -> bytes:
    from safetensors import SafetensorError
    from safetensors.torch import save

    plain: dict[str, torch.Tensor] = {}
    storages: set[int] = set()
    try:
        for name, tensor in tensors.items():
            dense = tensor.detach().cpu().contiguous()
            storage = dense.untyped_storage().data_ptr()
            # The format rejects tensors that share memory.
            plain[name] = dense.clone() if storage in storages else dense
            storages.add(storage)
        return save(plain)
    except (
        AttributeError,
        RuntimeError,
        TypeError,
        ValueError,
        KeyError,
        SafetensorError,
    ) as error:
        raise ResultError(
            f"The tensors of the {type(result).__name__} cannot be written: {error}. Nothing was "
            "saved; use only dense tensors, or tuples of tensors."
        ) from error


def load_as(kind: type[R], folder: str | Path) -> R:
    """Load a saved result of this kind.

    Raises:
        ResultError: missing or damaged files, an unknown or another kind, or a newer layout.
    """
    place = given_path(folder)

    def read() -> Record:
        return _loaded(read_json(place / "result.json"), place)

    return _of_kind(kind, steadily(read, place / "result.json"), place)


def _of_kind(kind: type[R], loaded: Record, folder: Path) -> R:
    if not isinstance(loaded, kind):
        raise ResultError(
            f"{folder} holds a {type(loaded).__name__}, but a {kind.__name__} was expected; load it with "
            "icl_mech.load."
        )
    return loaded


def load_part(kind: type[R], folder: Path, name: str, index: Mapping[str, Any]) -> R:
    """Load one of the results that an analysis lists.

    Raises:
        ResultError: as `load_as`, or a different result from the one that was saved.
    """
    if index["format"] == 1:
        return load_as(kind, folder / name)
    path = f"{name}/result.json"
    if path not in index["files"]:
        raise ResultError(f"{folder / 'analysis.json'} is damaged: it has no checksum for {path}.")
    content = content_of(folder, path, index["files"][path])
    document = parsed(content, folder / path)
    if document["format"] == 1 and (listed := index["files"].get(f"{name}/{TENSORS}")):
        document["files"] = {TENSORS: listed}
    return _of_kind(kind, _loaded(document, folder / name), folder / name)


def steadily(read: Callable[[], T], index: Path) -> T:
    """Return `read()`, retried if another process replaced the index meanwhile."""
    while True:
        before = _version(index)
        try:
            return read()
        except ResultError:
            if _version(index) == before:
                raise


def _version(file: Path) -> tuple[int, int, bytes | None] | None:
    """Version of a file, which differs if it was replaced, even by one of equal content."""
    try:
        status = file.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns, _bytes(file)


def _bytes(file: Path) -> bytes | None:
    try:
        return content_of_file(file, ResultError, kind=".jsonl")
    except (OSError, ResultError):
        return None


def content_of(folder: Path, path: str, checksum: str | None) -> bytes:
    """The content of a file of a saved folder, even while it is being replaced.

    Raises:
        ResultError: a missing file, or one without the checksum it was saved with.
    """
    places = [folder / path]
    if checksum is not None:
        above = hidden(folder.parent, f"{folder.name}/{path}", checksum)
        # The final name comes last: the file may be moved there between two lookups.
        places = [hidden(folder, path, checksum), above, folder / path]
    contents = [data for place in places if (data := _bytes(place)) is not None]
    for content in contents:
        if checksum in (None, digest(content)):
            return content
    if contents:
        raise ResultError(
            f"{folder / path} is damaged: its checksum differs from the saved one. Restore it from a copy, "
            "or measure again."
        )
    if (folder / path).exists():
        raise ResultError(
            f"{folder / path} cannot be read; check that it is a file and that you may read it."
        )
    raise ResultError(
        f"{folder / path} is missing, so the saved result is incomplete; restore it from a copy, or measure "
        "again."
    )


def _loaded(document: Mapping[str, Any], folder: Path) -> Record:
    from safetensors import SafetensorError
    from safetensors.torch import load

    index = folder / "result.json"
    fit = fitted("result.json", document, ResultError, f"{index} is damaged")
    name, values = fit["kind"], fit["values"]
    checksum = document["files"].get(TENSORS)
    if document["format"] > 1 and checksum is None:
        raise ResultError(f"{index} is damaged: it has no checksum for {TENSORS}.")
    content = content_of(folder, TENSORS, checksum)
    try:
        tensors = load(content)
    except (SafetensorError, ValueError, RuntimeError, KeyError, AssertionError) as error:
        raise ResultError(f"{folder / TENSORS} is damaged: {error}.") from error
    kinds = known_kinds()
    if name not in kinds:
        raise ResultError(
            f"Unknown result type {name!r}; if it is a custom one, import its class first. "
            f"{near_matches(name, kinds)}"
        )
    return _made(kinds[name], values, tensors, folder)


def _made(
    kind: type[Record], plain: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], folder: Path
) -> Record:
    """The result built from its values, if they fit the types of its fields."""
    values = {key: value if key == "provenance" else _tuples(value) for key, value in plain.items()}
    for name in {name.split("/")[0] for name in tensors}:
        parts = {key: tensor for key, tensor in tensors.items() if key.split("/")[0] == name}
        many = tuple(parts[key] for i in range(len(parts)) if (key := f"{name}/{i}") in parts)
        if name in values or (set(parts) != {name} and len(many) < len(parts)):
            raise ResultError(
                f"The result at {folder} is damaged: the parts of {name} do not fit together."
            )
        values[name] = parts.get(name, many)
    values = {kind.renamed.get(name, name): value for name, value in values.items()}
    missing = [
        field.name
        for field in fields(kind)
        if field.name not in values and field.default is field.default_factory is MISSING
    ]
    if missing:
        raise ResultError(f"The result at {folder} is damaged: it lacks {', '.join(missing)}.")
    known = {field.name: values[field.name] for field in fields(kind) if field.name in values}
    try:
        check_values(kind, known)
        return kind(**known)
    except Exception as error:
        raise ResultError(f"The result at {folder} is damaged: {error}") from error


def _tuples(value: object) -> Any:
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value

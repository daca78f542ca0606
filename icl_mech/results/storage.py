"""Results as files: `result.json` and `tensors.safetensors` in a folder, never pickle."""

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import torch

from icl_mech.errors import ResultError, near_matches
from icl_mech.results.base import Result, known_kinds
from icl_mech.results.files import FORMAT, jsonable, read_json


def write_result(result: Result, folder: Path) -> None:
    """Write one result's two files into an existing folder.

    Raises:
        ResultError: the disk is full or failing.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    values: dict[str, Any] = {}
    for item in fields(result):
        value = getattr(result, item.name)
        if isinstance(value, torch.Tensor):
            tensors[item.name] = value.contiguous().cpu()
        elif (
            isinstance(value, tuple | list)
            and value
            and all(isinstance(v, torch.Tensor) for v in value)
        ):
            tensors |= {f"{item.name}/{i}": v.contiguous().cpu() for i, v in enumerate(value)}
        else:
            values[item.name] = value
    document = {"format": FORMAT, "kind": type(result).__name__, "values": values}
    text = json.dumps(jsonable(document), indent=1, allow_nan=False)
    try:
        (folder / "result.json").write_text(text, encoding="utf-8")
        save_file(tensors, folder / "tensors.safetensors")
    except (OSError, SafetensorError) as error:
        raise ResultError(
            f"Cannot write the {type(result).__name__}: {error}. Nothing was saved; choose a folder "
            "on a disk with space."
        ) from error


def load_result(folder: str | Path) -> Result:
    """A saved result, of whatever kind it is.

    Raises:
        ResultError: missing or damaged files, an unknown kind or a newer layout.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder).expanduser()
    document = read_json(folder / "result.json")
    if not {"kind", "values"} <= document.keys():
        raise ResultError(f"{folder / 'result.json'} is damaged: it has no kind or no values.")
    tensors_file = folder / "tensors.safetensors"
    if not tensors_file.is_file():
        raise ResultError(f"{tensors_file} is missing; the saved result is incomplete.")
    try:
        tensors = load_file(tensors_file)
    except SafetensorError as error:
        raise ResultError(f"{tensors_file} is damaged: {error}.") from error
    kinds = known_kinds()
    if document["kind"] not in kinds:
        raise ResultError(
            f"Unknown result {document['kind']!r}; if it is your own, import its class first. "
            f"{near_matches(document['kind'], kinds)}"
        )
    kind = kinds[document["kind"]]
    values: dict[str, Any] = dict(document["values"])
    for name, tensor in sorted(tensors.items(), key=lambda item: _order(item[0])):
        if "/" in name:
            values[name.split("/")[0]] = (*values.get(name.split("/")[0], ()), tensor)
        else:
            values[name] = tensor
    values = {kind.renamed.get(name, name): value for name, value in values.items()}
    known = {item.name for item in fields(kind)}
    missing = [
        item.name
        for item in fields(kind)
        if item.name not in values and item.default is item.default_factory is MISSING
    ]
    if missing:
        raise ResultError(f"The result at {folder} is damaged: it lacks {', '.join(missing)}.")
    values = {
        key: _tuples(value) if key != "provenance" else value for key, value in values.items()
    }
    return kind(**{key: value for key, value in values.items() if key in known})


def _order(name: str) -> tuple[str, int]:
    head, _, tail = name.partition("/")
    return head, int(tail) if tail else -1


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value

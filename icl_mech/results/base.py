"""Results: labelled values with provenance, saved as JSON + safetensors.

A result is a frozen dataclass of tensors and plain values. It can be saved, loaded, turned
into a pandas table and drawn; reductions over prompts are done, per-prompt values kept.
"""

import json
from dataclasses import MISSING, dataclass, field, fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from icl_mech.errors import ResultError, near_matches
from icl_mech.results.storage import FORMAT, atomic_folder, jsonable, read_json
from icl_mech.shapes import Shape

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_KINDS: dict[str, type["Result"]] = {}
AnyResult = TypeVar("AnyResult", bound="Result")


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """Base of all results.

    Attributes:
        provenance: Model, task, seed, versions and the variant of every definition used.
    """

    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    def __init_subclass__(cls) -> None:
        """Make the kind known to `load_result`."""
        _KINDS[cls.__name__] = cls

    def summary(self) -> str:
        """One line that says what came out."""
        return type(self).__name__

    def to_pandas(self) -> "pd.DataFrame":
        """The values as a table, one row per value.

        Raises:
            ResultError: for results that have no table.
        """
        raise ResultError(f"{type(self).__name__} has no table; read its fields.")

    def drawing(self) -> Shape:
        """The shape this result is drawn as.

        Raises:
            ResultError: for results that have no figure.
        """
        raise ResultError(f"{type(self).__name__} has no figure; read its fields.")

    def plot(self, **options: Any) -> "go.Figure":
        """The interactive plotly figure; `options` are those of the result's `drawing`."""
        from icl_mech.plots import figure

        return figure(self.drawing(**options))

    def _repr_html_(self) -> str:
        from icl_mech.plots import to_notebook

        return f"<p>{escape(self.summary())}</p>{to_notebook(self.plot())}"

    def save(self, folder: str | Path) -> Path:
        """Write `result.json` and `tensors.safetensors` into a folder, all or nothing.

        Raises:
            ResultError: the folder cannot be written, or a tensor is not finite-storable.
        """
        with atomic_folder(folder) as staging:
            write_result(self, staging)
        return Path(folder).expanduser()

    @classmethod
    def load(cls: type[AnyResult], folder: str | Path) -> AnyResult:
        """Read what `save` wrote.

        Raises:
            ResultError: missing files, another kind of result, or a newer layout.
        """
        loaded = load_result(folder)
        if not isinstance(loaded, cls):
            raise ResultError(f"{folder} holds a {type(loaded).__name__}, expected {cls.__name__}.")
        return loaded


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
        elif isinstance(value, tuple) and value and all(isinstance(v, torch.Tensor) for v in value):
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
    if document["kind"] not in _KINDS:
        raise ResultError(
            f"Unknown result {document['kind']!r}. {near_matches(document['kind'], _KINDS)}"
        )
    kind = _KINDS[document["kind"]]
    values: dict[str, Any] = dict(document["values"])
    for name, tensor in sorted(tensors.items(), key=lambda item: _order(item[0])):
        if "/" in name:
            values[name.split("/")[0]] = (*values.get(name.split("/")[0], ()), tensor)
        else:
            values[name] = tensor
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

"""Results: labelled values with provenance, saved as JSON + safetensors.

A result is a frozen dataclass of tensors and plain values. It can be saved, loaded, turned
into a pandas table and drawn; reductions over prompts are done, per-prompt values kept.
"""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch

from icl_mech.errors import ResultError, near_matches

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

FORMAT = 1
"""Version of the saved layout."""

_KINDS: dict[str, type["Result"]] = {}
AnyResult = TypeVar("AnyResult", bound="Result")


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """Base of all results.

    Attributes:
        provenance: Model, task, seed, versions and the variant of every definition used.
    """

    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    shape_of_plot: ClassVar[str] = ""
    """Which figure of `icl_mech.plots` draws it."""

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

    def plot(self, **options: Any) -> "go.Figure":
        """The plotly figure of this result."""
        from icl_mech.plots import figure

        return figure(self, **options)

    def _repr_html_(self) -> str:
        from icl_mech.plots import to_notebook

        return to_notebook(self)

    def save(self, folder: str | Path) -> Path:
        """Write `result.json` and `tensors.safetensors` into a folder, all or nothing.

        Raises:
            ResultError: the folder cannot be written, or a tensor is not finite-storable.
        """
        with atomic_folder(folder) as staging:
            write_result(self, staging)
        return Path(folder)

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


class atomic_folder:  # noqa: N801 - used like the contextlib functions
    """A staging folder that replaces `folder` only when the block ends without an error."""

    def __init__(self, folder: str | Path) -> None:
        """Remember the target; nothing is written yet."""
        self.target = Path(folder).expanduser()

    def __enter__(self) -> Path:
        """Create the staging folder beside the target.

        Raises:
            ResultError: if that is not possible.
        """
        try:
            if self.target.exists() and not self.target.is_dir():
                raise NotADirectoryError(f"{self.target} is a file")
            if self.target.is_dir() and not _is_ours(self.target):
                raise FileExistsError("it holds other files, which saving would replace")
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self.staging = Path(
                tempfile.mkdtemp(prefix=f".{self.target.name}-", dir=self.target.parent)
            )
        except OSError as error:
            raise ResultError(
                f"Cannot write to {str(self.target)!r}: {error}. Nothing was written; choose a new or "
                "empty folder you may write to."
            ) from error
        return self.staging

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        """Move the staging folder into place, or drop it."""
        if kind is not None:
            shutil.rmtree(self.staging, ignore_errors=True)
            return
        if self.target.exists():
            old = self.staging.with_name(self.staging.name + "-old")
            os.replace(self.target, old)
            os.replace(self.staging, self.target)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(self.staging, self.target)
        self.target.chmod(0o755)


def _is_ours(folder: Path) -> bool:
    entries = {entry.name for entry in folder.iterdir()}
    return not entries or bool(entries & {"result.json", "analysis.json"})


def write_result(result: Result, folder: Path) -> None:
    """Write one result's two files into an existing folder."""
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
    (folder / "result.json").write_text(text, encoding="utf-8")
    save_file(tensors, folder / "tensors.safetensors")


def load_result(folder: str | Path) -> Result:
    """A saved result, of whatever kind it is.

    Raises:
        ResultError: missing or damaged files, an unknown kind or a newer layout.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    document = read_json(folder / "result.json")
    tensors_file = folder / "tensors.safetensors"
    if not tensors_file.is_file():
        raise ResultError(f"{tensors_file} is missing; the saved result is incomplete.")
    try:
        tensors = load_file(tensors_file)
    except SafetensorError as error:
        raise ResultError(f"{tensors_file} is damaged: {error}.") from error
    if document["kind"] not in _KINDS:
        raise ResultError(f"Unknown result {document['kind']!r}. {near_matches(document['kind'], _KINDS)}")
    kind = _KINDS[document["kind"]]
    values: dict[str, Any] = dict(document["values"])
    for name, tensor in sorted(tensors.items(), key=lambda item: _order(item[0])):
        if "/" in name:
            values[name.split("/")[0]] = (*values.get(name.split("/")[0], ()), tensor)
        else:
            values[name] = tensor
    known = {item.name for item in fields(kind)}
    values = {key: _tuples(value) if key != "provenance" else value for key, value in values.items()}
    return kind(**{key: value for key, value in values.items() if key in known})


def read_json(path: Path) -> dict[str, Any]:
    """A JSON document this package wrote.

    Raises:
        ResultError: missing, damaged, or of a newer layout.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultError(f"No saved result at {str(path.parent)!r} ({path.name} is missing).") from error
    except json.JSONDecodeError as error:
        raise ResultError(f"{path} is damaged: {error}.") from error
    if document.get("format", 0) > FORMAT:
        raise ResultError(
            f"{path} was written by a newer icl_mech (layout {document['format']}, this one reads "
            f"up to {FORMAT}); update icl_mech."
        )
    return document


def jsonable(value: Any) -> Any:
    """Plain JSON values; not-a-number and infinities become None and their names."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return str(value)


def _order(name: str) -> tuple[str, int]:
    head, _, tail = name.partition("/")
    return head, int(tail) if tail else -1


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value

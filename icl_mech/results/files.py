"""Files of results: folders and files written all or nothing, JSON without surprises."""

import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icl_mech.errors import ResultError

FORMAT = 1
"""Version of the saved layout."""

OURS = frozenset({"result.json", "analysis.json"})
"""A folder that holds one of these was written by this package and may be replaced."""


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
            remove_left_over(self.target)
            prefix = f".{self.target.name}-{os.getpid()}-"
            self.staging = Path(tempfile.mkdtemp(prefix=prefix, dir=self.target.parent))
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
            self.target.replace(old)
            self.staging.replace(self.target)
            shutil.rmtree(old, ignore_errors=True)
        else:
            self.staging.replace(self.target)
        self.target.chmod(0o755)


def write_text(file: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    remove_left_over(file)
    handle, staging = tempfile.mkstemp(prefix=f".{file.name}-{os.getpid()}-", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(staging).chmod(0o644)
        Path(staging).replace(file)
    except BaseException:
        Path(staging).unlink(missing_ok=True)
        raise


def remove_left_over(target: Path) -> None:
    """Remove staging of this target whose process was killed; its name holds the process number."""
    pattern = re.compile(re.escape(f".{target.name}-") + r"(\d+)-[a-z0-9_]{8}(-old)?")
    for entry in list(target.parent.iterdir()):
        found = pattern.fullmatch(entry.name)
        if found and not _is_running(int(found[1])):
            if found[2] and not target.exists():
                entry.replace(target)  # killed between the two renames of a replacement
            elif entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True


def _is_ours(folder: Path) -> bool:
    entries = {entry.name for entry in folder.iterdir()}
    return not entries or bool(entries & OURS)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON document this package wrote.

    Raises:
        ResultError: missing, damaged, or of a newer layout.
    """
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultError(
            f"No saved result at {str(path.parent)!r} ({path.name} is missing)."
        ) from error
    except ValueError as error:  # not JSON, or not even text
        raise ResultError(f"{path} is damaged: {error}.") from error
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise ResultError(f"{path} is damaged: it holds no layout number; expected a saved result.")
    if document["format"] > FORMAT:
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
    if hasattr(value, "shape"):
        raise ResultError(
            f"A {type(value).__name__} of shape {list(value.shape)} stands inside of other values, where "
            "it would be saved as text. Make it a field of its own, or a tuple of tensors."
        )
    return str(value)

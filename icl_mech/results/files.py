"""Paths, names and checksummed JSON of saved files, and which files this package wrote."""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from icl_mech.documents import check_plain, content_of_file
from icl_mech.errors import ResultError
from icl_mech.export_text import as_bytes

FORMAT = 3
"""Version of the saved layout; 1 had no checksums, 2 no prompts."""

INDEXES = {
    "analysis.json": frozenset({"title", "results"}),
    "result.json": frozenset({"kind", "values"}),
}
"""Index files, which list the other saved files, and their required keys."""

TENSORS, PAGE, PROMPTS = "tensors.safetensors", "index.html", "prompts.json"

_FILES = frozenset({*INDEXES, TENSORS, PAGE, PROMPTS})
_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNFIT = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f\ud800-\udfff]|^[.\s]|[.\s]$|^$')
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_LONGEST = 100


def digest(content: bytes) -> str:
    """Checksum (SHA-256) of a file's content."""
    return hashlib.sha256(content).hexdigest()


def given_path(path: object, what: str = "folder", *, option: str = "") -> Path:
    """A path given by the user, with `~` expanded and links followed.

    Args:
        path: The path.
        what: What the path leads to, for messages.
        option: Name of the argument, if not `what`.

    Raises:
        ResultError: not a usable path.
    """
    if not isinstance(path, str | os.PathLike) or not str(path).strip():
        example = "reviews.html" if what == "page" else "runs/reviews"
        raise ResultError(
            f"{option or what}={path!r} is not a path; give the path of a {what}, such as {example!r}."
        )
    try:
        resolved = Path(path).expanduser().resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            resolved.lstat()
        return resolved
    except (OSError, RuntimeError, ValueError) as error:
        raise ResultError(
            f"{option or what}={str(path)!r} is not a usable path ({error}); choose another one."
        ) from error


def check_names(names: Iterable[object]) -> None:
    """Reject result names that cannot be folder names on every system.

    Raises:
        ResultError: names the first such name.
    """
    seen: dict[str, str] = {}
    for name in names:
        if (
            not isinstance(name, str)
            or _UNFIT.search(name)
            or _DEVICES.fullmatch(name)
            or len(name.encode("utf-8", "replace")) > _LONGEST
            or name.lower() in _FILES
        ):
            raise ResultError(
                f"{name!r} cannot be the name of a result, because it becomes the name of a folder; use "
                "one such as 'flow' or 'my_scores', without slashes or dots at its ends."
            )
        earlier = seen.setdefault(name.casefold(), name)
        if earlier != name:
            raise ResultError(
                f"Results {earlier!r} and {name!r} would share a folder on file systems that ignore case; "
                "rename one of them."
            )


# --- JSON with its own checksum ---


def sealed(document: Mapping[str, Any], *, compact: bool = False) -> bytes:
    """A JSON document with a checksum of its values, one per line unless `compact`."""
    plain = jsonable(document)
    how: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 1}
    return json.dumps({**plain, "sha256": _seal(plain)}, allow_nan=False, **how).encode()


def _seal(plain: Mapping[str, Any]) -> str:
    values = {key: value for key, value in plain.items() if key != "sha256"}
    return digest(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON document this package wrote; `files` in it holds the checksum of each saved file.

    Raises:
        ResultError: missing, damaged, or of a newer layout.
    """
    try:
        content = content_of_file(path, ResultError)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ResultError(
            f"No saved result at {str(path.parent)!r} ({path.name} is missing); give the folder of a saved run."
        ) from error
    except (OSError, ValueError) as error:
        raise ResultError(f"{path} cannot be read: {str(error).removesuffix('.')}.") from error
    return parsed(content, path)


def parsed(content: bytes, path: Path) -> dict[str, Any]:
    """The document in the content of a file, checked as in `read_json`."""
    try:
        document: Any = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # not JSON, or not even text
        raise ResultError(f"{path} is damaged: {error}.") from error
    check_plain(document, ResultError, str(path))
    if not isinstance(document, dict) or type(document.get("format")) is not int:
        raise ResultError(f"{path} is damaged: it has no layout number; expected a saved result.")
    if document["format"] > FORMAT:
        raise ResultError(
            f"{path} was written by a newer icl_mech (layout {document['format']}, this one reads "
            f"up to {FORMAT}); update icl_mech."
        )
    if document["format"] == 1:
        return {**document, "files": {}}
    if document.get("sha256") != _seal(document):
        raise ResultError(
            f"{path} is damaged: the checksum of its values differs from the saved one. Restore it from a "
            "copy, or measure again."
        )
    for entry in ("files", "replaced"):
        _check_manifest(document.setdefault(entry, {}), path)
    return document


def _check_manifest(files: object, path: Path) -> None:
    """Reject a list of files that names anything but this package's files inside the folder."""
    if not isinstance(files, dict):
        raise ResultError(f"{path} is damaged: its list of files is a {type(files).__name__}.")
    for name, checksum in files.items():
        *part, file = name.split("/")
        wrong = f"{path} is damaged: it lists {name!r} with checksum {checksum!r}."
        if len(part) > 1 or file not in _FILES or not _DIGEST.fullmatch(str(checksum)):
            raise ResultError(wrong)
        try:
            check_names(part)
        except ResultError as error:
            raise ResultError(f"{wrong} {error}") from error


def jsonable(value: object) -> Any:
    """Plain JSON values; NaN becomes None and infinities their names."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, Mapping):
        plain = {str(key): jsonable(entry) for key, entry in value.items()}
        if len(plain) < len(value):
            raise ResultError(
                f"Some of the keys {list(value)} are the same as text, so values would be lost in a file; "
                "use keys of one type."
            )
        return plain
    if isinstance(value, list | tuple):
        return [jsonable(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if hasattr(value, "shape"):
        raise ResultError(
            f"A {type(value).__name__} of shape {list(value.shape)} is nested in other values, where it "
            "would be saved as text. Make it a separate field, or use a tuple of tensors."
        )
    return str(value)


# --- pages ---

_MARK = re.compile(rb"<!-- written by icl_mech, sha256 ([0-9a-f]{64}) -->\n?$")


def sealed_page(page: str) -> bytes:
    """A page with a checksum in its last line, by which it is recognised until edited."""
    content = as_bytes(page)
    return content + f"<!-- written by icl_mech, sha256 {digest(content)} -->\n".encode()


def is_own_page(content: bytes) -> bool:
    """True for an unchanged page of `sealed_page`."""
    mark = _MARK.search(content[-200:])
    return mark is not None and digest(content[: -len(mark[0])]) == mark[1].decode()


class Contents:
    """Files of a folder, by their paths in it.

    A file belongs to this package if an index lists it with its current checksum. An index contains its
    own checksum, and so does a page.

    Attributes:
        path: The folder.
        known: Files that the indexes of the folder list, with their checksums.
    """

    def __init__(self, path: Path) -> None:
        """Store the path; nothing is read yet."""
        self.path = path
        self.known: dict[str, str] = {}
        self._read: dict[tuple[str, int, int, int], str] = {}

    def indexes(self) -> dict[str, dict[str, Any]]:
        """Indexes of earlier saves; damaged ones are left out."""
        documents = {index: document for index in INDEXES if (document := self._document(index))}
        for index, document in documents.items():
            self.known |= {**document["files"], index: self.checksum(index) or ""}
        return documents

    def _document(self, index: str) -> dict[str, Any] | None:
        with suppress(ResultError):
            document = {"replaced": {}, **read_json(self.path / index)}
            if INDEXES[index] <= document.keys():
                if document["format"] == 1:
                    document["files"] = self._earlier(index, document)
                return document
        return None

    def _earlier(self, index: str, document: Mapping[str, Any]) -> dict[str, str]:
        """Files of layout 1, which had no checksums, with the checksums they have now."""
        names = [TENSORS]
        if index == "analysis.json":
            parts = document.get("results")
            check_names(parts if isinstance(parts, list) else ())
            names = [f"{part}/{file}" for part in parts or () for file in ("result.json", TENSORS)]
        return {name: checksum for name in names if (checksum := self.checksum(name))}

    def refuse_foreign(self, paths: Iterable[str]) -> None:
        """Reject paths of files that this package did not write or that were changed since.

        Raises:
            ResultError: names the file.
        """
        for path in paths:
            file = self.path / path
            if os.path.lexists(file.parent) and (
                not file.parent.is_dir() or (file.parent.is_symlink() and file.parent != self.path)
            ):
                raise self._foreign(file.parent)
            if os.path.lexists(file) and not self.is_own(path):
                raise self._foreign(file)

    def refuse_other_kinds(self, index: str) -> None:
        """Reject the replacement of a whole analysis by a single result, and vice versa.

        Raises:
            ResultError: says what the folder holds.
        """
        if others := self.indexes().keys() - {index}:
            raise ResultError(
                f"Cannot write {index} to {str(self.path)!r}: it holds a saved {min(others)[:-5]}, which "
                "would be removed completely. Nothing was written; choose another folder, or delete it first."
            )

    def _foreign(self, file: Path) -> ResultError:
        page = " (to_html replaces a page with overwrite=True)" if file.suffix == ".html" else ""
        return ResultError(
            f"Cannot write to {str(self.path)!r}: {file} was not written by icl_mech, or was changed or "
            f"damaged since. Nothing was written; move it away, or choose another folder{page}."
        )

    def is_own(self, path: str) -> bool:
        """True for an unchanged file of this package."""
        file, checksum = self.path / path, self.checksum(path)
        if checksum is None:
            return False
        if self.known.get(path) == checksum or is_own_page(file.read_bytes()):
            return True
        if "/" not in path:
            return False
        # A result in a subfolder has its own index.
        with suppress(ResultError):
            document = read_json(file.parent / "result.json")
            files = document["files"] or {TENSORS: checksum}
            whole = INDEXES["result.json"] <= document.keys()
            return whole and (file.name == "result.json" or files.get(file.name) == checksum)
        return False

    def checksum(self, path: str) -> str | None:
        """Current checksum of a file, None if there is no plain file."""
        file = self.path / path
        if file.is_symlink() or not file.is_file():
            return None
        status = file.stat()
        key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self._read:
            self._read[key] = digest(file.read_bytes())
        return self._read[key]

"""What lies in a folder, and which of it this package wrote."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from icl_mech.errors import ResultError
from icl_mech.results.files import INDEXES, TENSORS, check_names, digest, is_own_page, read_json


class Contents:
    """Files of a folder, by their paths in it.

    A file is this package's own if an index lists it with the checksum it has. An index has its
    own checksum inside, and so has a page.

    Attributes:
        path: The folder.
        known: Files that the indexes of the folder list, with their checksums.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self.path = path
        self.known: dict[str, str] = {}
        self._read: dict[tuple[str, int, int, int], str] = {}

    def indexes(self) -> dict[str, dict[str, Any]]:
        """What earlier saves say they wrote; damaged indexes say nothing."""
        found = {index: document for index in INDEXES if (document := self._document(index))}
        for index, document in found.items():
            self.known |= {**document["files"], index: self.checksum(index) or ""}
        return found

    def _document(self, index: str) -> dict[str, Any] | None:
        with suppress(ResultError):
            document = {"replaced": {}, **read_json(self.path / index)}
            if INDEXES[index] <= document.keys():
                if document["format"] == 1:
                    document["files"] = self._earlier(index, document)
                return document
        return None

    def _earlier(self, index: str, document: Mapping[str, Any]) -> dict[str, str]:
        """Files of the layout without checksums: those of these names, as they are."""
        names = [TENSORS]
        if index == "analysis.json":
            parts = document.get("results")
            check_names(parts if isinstance(parts, list) else ())
            names = [f"{part}/{file}" for part in parts or () for file in ("result.json", TENSORS)]
        return {name: found for name in names if (found := self.checksum(name))}

    def refuse_foreign(self, paths: Iterable[str]) -> None:
        """Refuse to write where something lies that this package did not write, or not so.

        Raises:
            ResultError: names it.
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
        """Refuse a result in place of a whole analysis, and the other way round.

        Raises:
            ResultError: says what lies there.
        """
        if other := self.indexes().keys() - {index}:
            raise ResultError(
                f"Cannot write {index} to {str(self.path)!r}: it holds a saved {min(other)[:-5]}, which "
                "would be removed as a whole. Nothing was written; choose another folder, or remove it."
            )

    def _foreign(self, file: Path) -> ResultError:
        page = " (to_html replaces a page with overwrite=True)" if file.suffix == ".html" else ""
        return ResultError(
            f"Cannot write to {str(self.path)!r}: {file} was not written by icl_mech, or was changed or "
            f"damaged since. Nothing was written; move it away, or choose another folder{page}."
        )

    def is_own(self, path: str) -> bool:
        """True for a file as this package wrote it."""
        file, found = self.path / path, self.checksum(path)
        if found is None:
            return False
        if self.known.get(path) == found or is_own_page(file.read_bytes()):
            return True
        if "/" not in path:
            return False
        # A result in a folder of its own says so itself.
        with suppress(ResultError):
            document = read_json(file.parent / "result.json")
            files = document["files"] or {TENSORS: found}
            whole = INDEXES["result.json"] <= document.keys()
            return whole and (file.name == "result.json" or files.get(file.name) == found)
        return False

    def checksum(self, path: str) -> str | None:
        """The checksum of a file as it lies there, None if there is no plain file."""
        file = self.path / path
        if file.is_symlink() or not file.is_file():
            return None
        status = file.stat()
        key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self._read:
            self._read[key] = digest(file.read_bytes())
        return self._read[key]

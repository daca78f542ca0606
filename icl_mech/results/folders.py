"""Folders of results: written all or nothing, and never over files that other programs wrote.

Every new file is first written under a hidden name that holds its checksum. Then one rename
replaces the index, which lists all files with their checksums: the single moment at which the old
content becomes the new. A process killed before it leaves the old content, after it the new,
because readers look for the hidden name first; the next save cleans up. Swapping whole folders
would also move files a user has put inside, and could not be done in one step.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from icl_mech._files import FolderLock, sync, write_synced
from icl_mech.errors import ResultError
from icl_mech.results.files import FORMAT, INDEXES, Contents, digest, given_path, sealed

_HIDDEN = ".icl_mech-"
WAIT = 10.0
"""Seconds to wait for another process that saves into the same folder."""


def hidden(folder: Path, path: str, checksum: str) -> Path:
    """Temporary path of a file until the index that lists it is in place."""
    return folder / f"{_HIDDEN}{digest(os.fsencode(f'{path} {checksum}'))[:32]}"


def is_vacant(folder: Path) -> bool:
    """True if the folder is missing, or empty except for leftovers of a killed process."""
    if not os.path.lexists(folder):
        return True
    with suppress(OSError):
        return all(entry.name.startswith(_HIDDEN) for entry in folder.iterdir())
    return False


class Folder:
    """A folder for results, for one writer at a time: `with Folder(path) as place`.

    Attributes:
        path: The folder, with links resolved.
    """

    def __init__(
        self,
        folder: object,
        *,
        overwrite: bool = False,
        beside: bool = False,
        files: Iterable[str] = (),
        wait: float = WAIT,
    ) -> None:
        """Store the options; nothing is touched yet.

        Args:
            folder: A new or empty folder.
            overwrite: It may hold files: files of earlier saves are replaced.
            beside: It may hold files: files of earlier saves stay next to the new ones.
            files: Files that may be written, rejected at once if something else is there.
            wait: Seconds to wait for another process.

        Raises:
            ResultError: not a usable path.
        """
        self.path = given_path(folder)
        self._overwrite, self._beside = overwrite, beside
        self._wanted, self._wait = tuple(files), wait
        self._made: list[Path] = []
        self._staged: list[Path] = []
        self._contents = Contents(self.path)
        self.files: dict[str, str] = {}

    def __enter__(self) -> "Folder":
        """Create the folder, or check what it holds.

        Raises:
            ResultError: it cannot be written, or holds what must not be replaced.
        """
        try:
            with self._writing():
                self._lock = self._locked()
            try:
                with self._writing():
                    self._prepare()
            except BaseException:
                self._lock.release()
                raise
        except BaseException:
            self._undo()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove uncommitted files and release the lock."""
        self._undo()
        self._lock.release()

    # --- entering ---

    def _locked(self) -> FolderLock:
        while True:
            missing = [p for p in (self.path, *self.path.parents) if not os.path.lexists(p)]
            for folder in reversed(missing):
                with suppress(FileExistsError):
                    folder.mkdir()
                    self._made.append(folder)
            if not self.path.is_dir():
                raise NotADirectoryError(f"{self.path} is a file")
            try:
                return FolderLock(self.path, self._wait)
            except FileNotFoundError:
                continue  # another process created it, failed and removed it

    def _prepare(self) -> None:
        for index, document in self._contents.indexes().items():
            self._finish(document["files"], document["replaced"])
            if document.pop("replaced"):
                self._replace(index, sealed(document))
        documents = self._contents.indexes()
        if all(index in documents or not (self.path / index).exists() for index in INDEXES):
            for entry in self.path.glob(_HIDDEN + "*"):
                entry.unlink()
        probe = self.path / f"{_HIDDEN}probe"
        self._stage(probe, b"")
        probe.unlink()
        there = sorted(e.name for e in self.path.iterdir() if not e.name.startswith(_HIDDEN))
        if there and not (self._overwrite or self._beside):
            contents = (
                "results that were saved before" if documents else f"other files ({there[0]})"
            )
            raise ResultError(
                f"Cannot write to {str(self.path)!r}: it holds {contents}. Nothing was written; choose a new "
                "or empty folder, or give overwrite=True, which replaces only what was saved before and "
                "leaves all other files alone."
            )
        self._contents.refuse_foreign(self._wanted)

    # --- writing ---

    def put(self, path: str, content: bytes) -> None:
        """Write a file, hidden until `commit`.

        Raises:
            ResultError: something else is there, or it cannot be written.
        """
        checksum = digest(content)
        with self._writing():
            self._contents.refuse_foreign([path])
            if self._contents.checksum(path) != checksum:
                self._stage(hidden(self.path, path, checksum), content)
        self.files[path] = checksum

    def keep(self, path: str) -> None:
        """List a file that already exists, unless it is written again."""
        with self._writing():
            if path not in self.files and (checksum := self._contents.checksum(path)):
                self.files[path] = checksum

    def commit(self, index: str, document: Mapping[str, Any]) -> None:
        """Put the index in place, and with it every file passed to `put`.

        Args:
            index: Name of the index.
            document: Its content apart from the list of files.

        Raises:
            ResultError: it cannot be written; the old content stays.
        """
        with self._writing():
            self._contents.refuse_foreign([index])
            if not self._beside:
                self._contents.refuse_other_kinds(index)
            old = {
                p: c
                for p in (*self._contents.known, *self.files)
                if p != index and (c := self._contents.checksum(p))
            }
            gone = {
                p: c for p, c in old.items() if p not in self.files and self._contents.known[p] == c
            }
            files = {**gone, **self.files} if self._beside else self.files
            replaced = {p: c for p, c in old.items() if p in self.files and self.files[p] != c}
            replaced |= {} if self._beside else gone
            sync(self.path)
            whole = {"format": FORMAT, **document, "files": files}
            self._replace(index, sealed({**whole, "replaced": replaced} if replaced else whole))
        with suppress(OSError):  # it is saved; the next save cleans up
            self._finish(files, replaced)
            if replaced:
                self._replace(index, sealed(whole))

    def claim(self) -> None:
        """Keep the folder even if nothing is written into it now."""
        self._made.clear()

    def replace(self, path: str, content: bytes) -> None:
        """Write one file that no index lists, at once.

        Raises:
            ResultError: something else is there, or it cannot be written.
        """
        with self._writing():
            self._replace(path, content)

    def _replace(self, path: str, content: bytes) -> None:
        staged = hidden(self.path, path, "")
        self._stage(staged, content)
        # From here on nothing may be undone, even if an interrupt follows right after the rename.
        before, self._staged = self._staged, []
        try:
            staged.replace(self.path / path)
        except OSError:
            self._staged = before
            raise
        for folder in (self.path, *(made.parent for made in self._made)):
            with suppress(OSError):
                sync(folder)
        self._made.clear()

    def _stage(self, staged: Path, content: bytes) -> None:
        self._staged.append(staged)
        write_synced(staged, content)

    def _finish(self, files: Mapping[str, str], replaced: Mapping[str, str]) -> None:
        """Move committed files to their names and remove those they replace; repeatable."""
        for path, checksum in sorted(files.items(), key=lambda entry: entry[0].split("/")):
            staged, final = hidden(self.path, path, checksum), self.path / path
            if staged.exists() and self._contents.checksum(path) in (
                None,
                replaced.get(path),
                checksum,
            ):
                final.parent.mkdir(exist_ok=True)
                staged.replace(final)
        # An index is removed before the files it lists.
        for path, checksum in sorted(
            replaced.items(), key=lambda entry: (entry[0] not in INDEXES, entry)
        ):
            if path not in files and self._contents.checksum(path) == checksum:
                (self.path / path).unlink()
                if "/" in path:
                    with suppress(OSError):  # a user's file is in it
                        (self.path / path).parent.rmdir()

    def _undo(self) -> None:
        for staged in self._staged:
            with suppress(OSError):
                staged.unlink(missing_ok=True)
        for folder in reversed(self._made):
            with suppress(OSError):
                folder.rmdir()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError as error:
            raise ResultError(
                f"Cannot write to {str(self.path)!r}: another process is saving there. Nothing was "
                "written; wait for it, or choose another folder."
            ) from error
        except (OSError, ValueError) as error:
            if isinstance(error, ResultError):
                raise
            raise ResultError(
                f"Cannot write to {str(self.path)!r}: {error}. Nothing was written; choose a folder that you "
                "may write to, on a disk with free space."
            ) from error


@contextmanager
def claimed(
    folder: Path | None, default: str, *, overwrite: bool, files: Iterable[str]
) -> Iterator[Folder]:
    """Open the folder for a long run; by default the first free one of `default`, `default-2`, ...

    Raises:
        ResultError: it cannot be written, or holds what must not be replaced.
    """
    with ExitStack() as stack:
        if folder is not None or overwrite:
            place = Folder(folder or default, overwrite=overwrite, files=files)
            yield stack.enter_context(place)
            return
        for number in count(1):
            path = default if number == 1 else f"{default}-{number}"
            try:
                place = stack.enter_context(Folder(path, wait=0.0))
            except ResultError:
                if not os.path.lexists(path):
                    raise
            else:
                yield place
                return

"""Write files durably and atomically, and lock folders so that one process writes at a time."""

import os
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from icl_mech.errors import IclMechError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: folders are not locked
    fcntl = None


def write_synced(file: Path, content: bytes) -> None:
    """Write a file and flush it to disk."""
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def replace_file(file: Path, content: bytes, error: type[IclMechError]) -> None:
    """Write a file atomically, and create its folder if it is missing.

    Raises:
        IclMechError: the file cannot be written; the class is `error`.
    """
    try:
        part = file.with_name(f".{file.name}.part")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_synced(part, content)
            part.replace(file)
        except OSError:
            with suppress(OSError):
                part.unlink()
            raise
    except (OSError, ValueError) as problem:
        raise error(
            f"{str(file)!r} cannot be written: {problem}. Give a file in a writable folder."
        ) from problem


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    if fcntl is None and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class FolderLock:
    """An exclusive lock for writing into a folder; the system releases it when the process ends.

    The folder itself is locked, so no lock file is left behind. On file systems without locks,
    every process gets it.
    """

    def __init__(self, folder: Path, wait: float) -> None:
        """Acquire the lock within `wait` seconds.

        Raises:
            BlockingIOError: another process holds it.
            OSError: the folder no longer exists.
        """
        self._handle: int | None = None
        if fcntl is None:
            return
        self._handle = os.open(folder, os.O_RDONLY)
        try:
            self._take(wait)
            here = folder.stat()
            if (here.st_dev, here.st_ino) != _identity(self._handle):
                raise FileNotFoundError(f"{folder} was replaced meanwhile")
        except BaseException:
            self.release()
            raise

    def _take(self, wait: float) -> None:
        until = time.monotonic() + wait
        while not self._free():
            if time.monotonic() >= until:
                raise BlockingIOError("another process is writing there")
            time.sleep(0.002)

    def _free(self) -> bool:
        assert fcntl is not None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _identity(handle: int) -> tuple[int, int]:
    status = os.fstat(handle)
    return status.st_dev, status.st_ino

"""Waiting for runs, lost executors and other processes, and the progress shown meanwhile."""

import ast
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from rich.console import Console

from icl_mech.bars import duration, write_line
from icl_mech.engine.progress import Progress
from icl_mech.errors import SweepError
from icl_mech.frontend import in_notebook

LOOK = 0.5
"""Seconds between two checks of futures that are not done."""

ALIVE = ("running", "connecting", "newly-created")
"""States of a Dask client that may still answer."""

J = TypeVar("J")


class Flying(Generic[J]):
    """Runs that are executing or queued, by their futures."""

    def __init__(self, timeout: float) -> None:
        """Start without runs.

        Args:
            timeout: Seconds a run may take.
        """
        self.jobs: dict[Future[Any], J] = {}
        self._timeout = timeout
        self._seen: dict[Future[Any], float] = {}
        self._last = time.monotonic()

    def add(self, future: "Future[Any]", job: J) -> None:
        """Add a run."""
        self.jobs[future] = job

    def look(self) -> Iterator[tuple["Future[Any]", J]]:
        """Remove and return runs that are done, after waiting for a moment."""
        done = wait(self.jobs, timeout=LOOK, return_when=FIRST_COMPLETED).done
        now = time.monotonic()
        if done:
            self._last = now
        for future in self.jobs:
            if future.running():
                self._seen.setdefault(future, now)
        for future in done:
            self._seen.pop(future, None)
            yield future, self.jobs.pop(future)

    def overdue(self) -> list[J]:
        """Remove and return runs that have taken too long.

        If an executor does not report which runs are executing, the time counts from its last answer.
        """
        now = time.monotonic()
        late = [
            future
            for future in self.jobs
            if now - (self._seen.get(future, now) if self._seen else self._last) > self._timeout
        ]
        for future in late:
            future.cancel()
            self._seen.pop(future, None)
        return [self.jobs.pop(future) for future in late]


def too_long(timeout: float) -> str:
    """Why a run was given up."""
    return f"it returned no result within {timeout:g} s (timeout=)"


def gone(executor: Executor) -> str | None:
    """Why an executor will no longer answer, if it reports that; None: it may still answer."""
    client = getattr(executor, "_client", None)
    status = getattr(client, "status", None)
    if isinstance(status, str) and status not in ALIVE:
        return f"the Dask client is {status}"
    return None


def check_guard() -> None:
    """Reject a script that starts processes which would run it again from the top.

    Each process imports the script, and without a guard it starts the sweep again, so all would fail.

    Raises:
        SweepError: names the line, and what to put before it.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SweepError(f"A worker process has reached the call of sweep itself. {GUARD}")
    main: Any = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    frame: Any = sys._getframe()
    while frame is not None and not (
        frame.f_code.co_name == "<module>" and frame.f_globals is vars(main)
    ):
        frame = frame.f_back
    if frame is None or file is None:
        return
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return
    if not _guarded(tree, frame.f_lineno):
        raise SweepError(f"{Path(file).name}, line {frame.f_lineno}: {GUARD}")


GUARD = (
    "Worker processes import the script that starts them. Put its code under\n"
    '    if __name__ == "__main__":\n'
    "or run the sweep in this process, without workers= and devices=."
)


def _guarded(tree: ast.Module, line: int) -> bool:
    return any(
        isinstance(node, ast.If)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and any(
            isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
        )
        for node in tree.body
    )


def full_disk(error: BaseException) -> OSError | None:
    """The error of a full or read-only disk among the causes of this one; None if there is none."""
    import errno

    cause: BaseException | None = error
    for _ in range(20):
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            return cause
        if cause is None:
            return None
        cause = cause.__cause__ or cause.__context__
    return None


def stopped_by(full: str, folder: Path, counts: Mapping[str, int]) -> SweepError:
    """The error of a sweep that was stopped by a full disk."""
    return SweepError(
        f"The disk of {str(folder)!r} accepts no more files ({full}); {counts['done']} of {counts['all']} runs "
        "are finished and kept, and no file is incomplete. Free some space, and continue with resume=True."
    )


# --- progress ---

EVERY = 10.0
"""Seconds between two lines."""


class SweepProgress:
    """`with SweepProgress(24, 3, None) as shown: shown.done("reviews, seed 0", failed=False)`."""

    def __init__(self, total: int, before: int, show: bool | None) -> None:
        """A bar over the remaining runs.

        Args:
            total: Number of runs.
            before: Number of runs that an earlier call finished.
            show: False: nothing; True: a bar; None: a bar in a terminal or notebook, else lines.
        """
        watched = Console(stderr=True).is_terminal or in_notebook()
        left = total - before
        self._total, self._before, self._finished, self._failed = total, before, 0, 0
        self._lines = show is None and not watched and left > 0
        self._bar = Progress("runs", left, show=left > 0 and (watched if show is None else show))
        self._began = self._written = time.monotonic()

    def __enter__(self) -> "SweepProgress":
        """Start."""
        self._bar.__enter__()
        if self._lines and self._before:
            write_line(f"Sweep: {self._before} of {self._total} runs were already finished.")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, also on errors."""
        self._bar.__exit__(kind, error, trace)

    def done(self, title: str, *, failed: bool) -> None:
        """Count a run."""
        self._finished += 1
        self._failed += failed
        self._bar.advance(1)
        now = time.monotonic()
        last = self._before + self._finished == self._total
        if self._lines and (last or failed or now - self._written >= EVERY):
            self._written = now
            write_line(f"Sweep: {self.words(now - self._began)}; {title}")

    def words(self, seconds: float) -> str:
        """How many runs are done, and how long the rest will take."""
        done = self._before + self._finished
        text = f"{done} of {self._total} runs"
        text += f", {self._failed} failed" if self._failed else ""
        left = (self._total - done) * seconds / max(self._finished, 1)
        return f"{text}, {duration(seconds)}" + (f", about {duration(left)} left" if left else "")

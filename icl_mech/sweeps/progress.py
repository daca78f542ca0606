"""Progress over a whole sweep: a bar where someone watches, else a line now and then."""

import time
from types import TracebackType

from rich.console import Console

from icl_mech.engine.bars import duration, write_line
from icl_mech.engine.progress import Progress
from icl_mech.frontend import in_notebook

EVERY = 10.0
"""Seconds between two lines."""


class SweepProgress:
    """`with SweepProgress(24, 3, None) as shown: shown.done("reviews, seed 0", failed=False)`."""

    def __init__(self, total: int, before: int, show: bool | None) -> None:
        """A bar over the items that are left.

        Args:
            total: Number of items.
            before: Of these, finished by an earlier run.
            show: False: nothing; True: a bar; None: a bar in a terminal or notebook, else lines.
        """
        watched = Console(stderr=True).is_terminal or in_notebook()
        left = total - before
        self._total, self._before, self._finished, self._failed = total, before, 0, 0
        self._lines = show is None and not watched and left > 0
        self._bar = Progress("items", left, show=left > 0 and (watched if show is None else show))
        self._began = self._written = time.monotonic()

    def __enter__(self) -> "SweepProgress":
        """Start."""
        self._bar.__enter__()
        if self._lines and self._before:
            write_line(f"Sweep: {self._before} of {self._total} items were finished before.")
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
        """Count an item."""
        self._finished += 1
        self._failed += failed
        self._bar.advance(1)
        now = time.monotonic()
        last = self._before + self._finished == self._total
        if self._lines and (last or failed or now - self._written >= EVERY):
            self._written = now
            write_line(f"Sweep: {self.words(now - self._began)}; {title}")

    def words(self, seconds: float) -> str:
        """How far it is, and how long it will take."""
        done = self._before + self._finished
        text = f"{done} of {self._total} items"
        text += f", {self._failed} failed" if self._failed else ""
        left = (self._total - done) * seconds / max(self._finished, 1)
        return f"{text}, {duration(seconds)}" + (f", about {duration(left)} left" if left else "")

"""Progress bars: one in a terminal or notebook, otherwise lines on standard error."""

import sys
import time
from html import escape
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from icl_mech.frontend import in_notebook

EVERY = 0.2
"""Seconds between two updates of a bar in a notebook."""

LINES_EVERY = 30.0
"""Seconds between two lines, and before the first, so that short runs print nothing."""


class Bar:
    """Base class of progress bars; this one shows nothing."""

    def start(self, title: str) -> None:
        """Begin."""

    def show(self, title: str, share: float, words: str) -> None:
        """Show progress so far, as a fraction and in words."""

    def stop(self) -> None:
        """Remove the bar."""


def bar_for(show: bool | None, *, lines: bool = False) -> Bar:
    """A bar if `show`, or if it is None and the output is a terminal or notebook.

    Args:
        show: True, False or None.
        lines: Print a line now and then where there is neither and `show` is None.
    """
    notebook = in_notebook()
    watched = notebook or Console(stderr=True).is_terminal
    if watched if show is None else show:
        return NotebookBar() if notebook else TerminalBar()
    return LineBar() if lines and show is None else Bar()


def duration(seconds: float) -> str:
    """Seconds, minutes or hours: `40 s`, `3 min`, `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def write_line(text: str) -> None:
    """Write a line to standard error and flush."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class TerminalBar(Bar):
    """A progress bar of the library rich, on standard error."""

    def __init__(self) -> None:
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[words]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=1.0, words="")

    def start(self, title: str) -> None:
        """Begin to draw."""
        self._bar.update(self._task, description=title)
        self._bar.start()

    def show(self, title: str, share: float, words: str) -> None:
        """Update the bar, which rich redraws a few times a second."""
        self._bar.update(self._task, description=title, completed=share, words=words)

    def stop(self) -> None:
        """The bar vanishes."""
        self._bar.stop()


class NotebookBar(Bar):
    """An HTML bar that is redrawn repeatedly; rich would need ipywidgets here."""

    def __init__(self) -> None:
        self._drawn = 0.0
        self._place: Any = None

    def start(self, title: str) -> None:
        """Display it."""
        from IPython.display import display

        self._drawn = time.monotonic()
        self._place = display(self._picture(title, 0.0, ""), raw=True, display_id=True)

    def show(self, title: str, share: float, words: str) -> None:
        """Redraw the bar if the last update is old enough."""
        now = time.monotonic()
        if now - self._drawn >= EVERY:
            self._drawn = now
            self._place.update(self._picture(title, share, words), raw=True)

    def stop(self) -> None:
        """The bar vanishes."""
        self._place.update({"text/html": "", "text/plain": ""}, raw=True)

    @staticmethod
    def _picture(title: str, share: float, words: str) -> dict[str, str]:
        label = escape(title)
        bar = f'<progress max="1" value="{share:.4f}" aria-label="{label}"></progress>'
        return {
            "text/html": f"{bar} <small>{label} {escape(words)}</small>",
            "text/plain": f"{title} {words}",
        }


class LineBar(Bar):
    """A line on standard error now and then, for logs."""

    def __init__(self) -> None:
        self._written = 0.0

    def start(self, title: str) -> None:
        """Start the clock; the first line comes after `LINES_EVERY` seconds."""
        self._written = time.monotonic()

    def show(self, title: str, share: float, words: str) -> None:
        """Write a line if the last one is old enough."""
        now = time.monotonic()
        if now - self._written >= LINES_EVERY:
            self._written = now
            write_line(f"{title} {words}")

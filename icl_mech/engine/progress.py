"""A progress bar with rate and remaining time; silent in scripts and tests."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress:
    """`with Progress("prompts", 50, None) as bar: bar.advance(10)`."""

    def __init__(self, title: str, total: int, show: bool | None) -> None:
        """Show the bar if `show`, or if it is None and someone may be watching."""
        console = Console(stderr=True)
        watched = console.is_terminal or "ipykernel" in sys.modules
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (watched if show is None else show),
        )
        self._task = self._bar.add_task(title, total=total, rate="")

    def __enter__(self) -> "Progress":
        """Start drawing."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing, also on errors."""
        self._bar.stop()

    def advance(self, prompts: int) -> None:
        """Count finished prompts."""
        self._bar.advance(self._task, prompts)
        speed = self._bar.tasks[0].speed
        if speed:
            self._bar.update(self._task, rate=f"{speed:.1f}/s")

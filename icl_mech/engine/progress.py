"""Progress of a run and of many: a bar in a terminal and in a notebook, lines where neither is."""

import sys
import time
from collections.abc import Sequence
from contextvars import ContextVar, Token
from html import escape
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from icl_mech.frontend import in_notebook

EVERY = 0.2
"""Seconds between two pictures of a bar in a notebook."""

LINES_EVERY = 30.0
"""Seconds between two lines, and before the first: what is short says nothing."""


class Bar:
    """Shows how far something is; this one shows nothing."""

    def start(self, title: str) -> None:
        """Begin."""

    def show(self, title: str, share: float, words: str) -> None:
        """So far: a share of 1, and the same in words."""

    def stop(self) -> None:
        """Leave nothing behind."""


def bar_for(show: bool | None, *, lines: bool = False) -> Bar:
    """A bar if `show`, or if it is None and someone may be watching.

    Args:
        show: True, False or None.
        lines: Where nobody watches a line now and then, unless `show` is False.
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
    """A line on standard error, at once."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class TerminalBar(Bar):
    """A bar of rich, on standard error."""

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
        """Drawn by rich a few times a second."""
        self._bar.update(self._task, description=title, completed=share, words=words)

    def stop(self) -> None:
        """The bar vanishes."""
        self._bar.stop()


class NotebookBar(Bar):
    """An HTML bar that is drawn again and again; rich would need ipywidgets here."""

    def __init__(self) -> None:
        self._drawn = 0.0
        self._place: Any = None

    def start(self, title: str) -> None:
        """Display it."""
        from IPython.display import display

        self._drawn = time.monotonic()
        self._place = display(self._picture(title, 0.0, ""), raw=True, display_id=True)

    def show(self, title: str, share: float, words: str) -> None:
        """Drawn again if the last picture is old enough."""
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
        """The first line comes after a while."""
        self._written = time.monotonic()

    def show(self, title: str, share: float, words: str) -> None:
        """A line, if the last one is old enough."""
        now = time.monotonic()
        if now - self._written >= LINES_EVERY:
            self._written = now
            write_line(f"{title} {words}")


BACKWARD = 3.0
"""What a prompt costs with its backward pass, in forward passes."""

VARIANT = 0.3
"""And what one of many variants of it costs, which share what they can."""


TOKENS = 100
"""Tokens of a prompt whose forward pass costs 1."""

FIRST = 0.03
"""The share of the work that is done before anything is said of the time left: loading and warming up mislead."""

STEADY = 1.4
"""By this factor what is said to be left may change in half a minute, beside the time that has passed."""


def cost(lengths: Sequence[int], *, gradient: bool, variants: int = 1) -> float:
    """About what one prompt of a run costs, in forward passes over 100 tokens."""
    each = BACKWARD if gradient else VARIANT if variants > 1 else 1.0
    return each * sum(lengths) / max(len(lengths), 1) / TOKENS


class Overall:
    """One bar over many runs: `with Overall("label words study", None): ...`.

    Runs inside show no bars of their own; what they count is counted here, in forward passes over
    100 tokens. Inside of another one it does nothing.
    """

    def __init__(self, title: str, show: bool | None, bar: Bar | None = None) -> None:
        """Show it if `show`; None: a bar if someone may be watching, else a line now and then.

        Args:
            title: What is counted.
            show: Whether it is shown.
            bar: A bar of the caller's own instead, which hears of every batch; what it raises ends the run.
        """
        self._title, self._part = title, ""
        self._bar: Bar = Bar()
        self._own = bar
        self._show = show
        self._done = self._total = self._promised = self._began = 0.0
        self._said = 0.0, 0.0
        self._token: Token[Overall | None] | None = None

    def __enter__(self) -> "Overall":
        """Begin."""
        if _OVERALL.get() is None and self._show is not False:
            self._bar = self._own or bar_for(self._show, lines=True)
            self._token = _OVERALL.set(self)
            self._began = time.monotonic()
            self._bar.start(self._title)
        return self

    def __exit__(self, *error: object) -> None:
        """Stop drawing, also on errors."""
        if self._token is not None:
            _OVERALL.reset(self._token)
            self._token = None
            self._bar.stop()

    def expect(self, work: float) -> None:
        """So much is known to come; less than nothing: it will not come after all."""
        self._total += work
        self._promised += work

    def begin(self, part: str, work: float) -> None:
        """A run begins; what of it was not expected is added."""
        known = min(work, max(self._promised, 0.0))
        self._promised -= known
        self._total += work - known
        self._part = part
        self._draw()

    def advance(self, work: float) -> None:
        """Count what is done."""
        self._done += work
        self._draw()

    @property
    def share(self) -> float:
        """Of the work that is known so far."""
        return min(self._done / self._total, 1.0) if self._total > 0 else 0.0

    def words(self, seconds: float) -> str:
        """Such as `40 %, 3 min, about 5 min left (prompts)`."""
        text = f"{100 * self.share:.0f} %, {duration(seconds)}"
        if self.share >= FIRST:
            text += f", about {duration(self.left(seconds))} left"
        return f"{text} ({self._part})"

    def left(self, seconds: float) -> float:
        """Seconds of the work left, as fast as what is done, told steadily.

        Costs of work are rough, and some work is known late: what is said follows within a minute or two.

        Args:
            seconds: So long the work that is done took.
        """
        found = seconds * (1 - self.share) / self.share
        when, said = self._said
        if said and found:
            passed = (seconds - when) / min(max(when, 1.0), LINES_EVERY)
            room = STEADY ** min(passed, LINES_EVERY)
            found = min(max(found, (said - seconds + when) / room), said * room)
        self._said = seconds, found
        return found

    def _draw(self) -> None:
        if self._token is None:
            return
        self._bar.show(self._title, self.share, self.words(time.monotonic() - self._began))


_OVERALL: ContextVar[Overall | None] = ContextVar("overall", default=None)


def expect(work: float) -> None:
    """Tell the bar over many runs, if there is one, what is known to come."""
    whole = _OVERALL.get()
    if whole is not None:
        whole.expect(work)


class Progress:
    """`with Progress("prompts", 50, None) as bar: bar.advance(10)`."""

    def __init__(self, title: str, total: int, show: bool | None, *, cost: float = 1.0) -> None:
        """Show a bar if `show`, or if it is None and someone may be watching.

        Args:
            title: What is counted.
            total: Number of prompts.
            show: False silences it, within a study too.
            cost: Of one prompt, for the bar over many runs.
        """
        self._title, self._total, self._done, self._cost = title, total, 0, cost
        self._whole = None if show is False else _OVERALL.get()
        self._bar: Bar = Bar() if self._whole is not None else bar_for(show)
        self._began = 0.0

    def __enter__(self) -> "Progress":
        """Start drawing."""
        self._began = time.monotonic()
        self._bar.start(self._title)
        if self._whole is not None:
            self._whole.begin(self._title, self._total * self._cost)
        return self

    def __exit__(self, *error: object) -> None:
        """Stop drawing, also on errors."""
        self._bar.stop()

    def advance(self, prompts: int) -> None:
        """Count finished prompts."""
        self._done += prompts
        if self._whole is not None:
            self._whole.advance(prompts * self._cost)
        seconds = time.monotonic() - self._began
        words = f"{self._done}/{self._total}"
        if self._done and seconds > 0:
            rate = self._done / seconds
            words += f", {rate:.1f}/s, {duration((self._total - self._done) / rate)} left"
        self._bar.show(self._title, self._done / max(self._total, 1), words)

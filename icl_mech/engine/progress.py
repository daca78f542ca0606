"""Progress of one run or many, by the cost of what is done."""

import time
from collections.abc import Sequence
from contextvars import ContextVar, Token

from icl_mech.bars import LINES_EVERY, Bar, bar_for, duration

BACKWARD = 3.0
"""Cost of a prompt with its backward pass, in forward passes."""

VARIANT = 0.3
"""Cost of one of many variants of a prompt, which share computation, in forward passes."""


TOKENS = 100
"""Tokens of a prompt whose forward pass costs 1."""

ROUNDING = 1e-9
"""Fraction of the work that sums of its parts may lack."""

FIRST = 0.03
"""Fraction of the work that is done before the time left is shown: loading and warming up distort it."""

STEADY = 1.4
"""Largest factor by which the displayed time left may change in half a minute, beyond the time elapsed."""


def cost(lengths: Sequence[int], *, gradient: bool, variants: int = 1) -> float:
    """Approximate cost of one prompt of a run, in forward passes over 100 tokens."""
    each = BACKWARD if gradient else VARIANT if variants > 1 else 1.0
    return each * sum(lengths) / max(len(lengths), 1) / TOKENS


def passes_of(rows: int, blocks: int, *, gradient: bool) -> float:
    """Cost of rows times blocks, of `blocks` in all, in forward passes over 100 tokens."""
    return rows / blocks / TOKENS * (BACKWARD if gradient else 1.0)


class Overall:
    """One bar over many runs: `with Overall("label words study", None): ...`.

    Runs inside show no bars; their work is counted here, in forward passes over 100 tokens. Nested
    inside another `Overall` it does nothing.
    """

    def __init__(self, title: str, show: bool | None, bar: Bar | None = None) -> None:
        """Show it if `show`; None: a bar in a terminal or notebook, else a line now and then.

        Args:
            title: What is counted.
            show: Whether it is shown.
            bar: A custom bar to use instead, called after every batch; an exception it raises ends the run.
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
        """Announce work that is to come; a negative amount withdraws an earlier announcement."""
        self._total += work
        self._promised += work

    def begin(self, part: str, work: float) -> None:
        """Begin a run; work that was not announced is added to the total."""
        known = min(work, max(self._promised, 0.0))
        self._promised -= known
        self._total += work - known
        self._part = part
        self._draw()

    def advance(self, work: float) -> None:
        """Count finished work."""
        self._done += work
        self._draw()

    @property
    def share(self) -> float:
        """Fraction of the known work that is done; sums of parts are rounded, the whole is exactly 1."""
        done = self._done / self._total if self._total > 0 else 0.0
        return 1.0 if done > 1 - ROUNDING else done

    def words(self, seconds: float) -> str:
        """Progress in words, such as `40 %, 3 min, about 5 min left (prompts)`."""
        text = f"{100 * self.share:.0f} %, {duration(seconds)}"
        if self.share >= FIRST:
            text += f", about {duration(self.left(seconds))} left"
        return f"{text} ({self._part})"

    def left(self, seconds: float) -> float:
        """Seconds left at the speed so far, smoothed.

        Costs of work are rough, and some work is announced late: the displayed value follows within a minute or
        two.

        Args:
            seconds: Time taken by the work done so far.
        """
        remaining = seconds * (1 - self.share) / self.share
        when, said = self._said
        if said and remaining:
            passed = (seconds - when) / min(max(when, 1.0), LINES_EVERY)
            room = STEADY ** min(passed, LINES_EVERY)
            remaining = min(max(remaining, (said - seconds + when) / room), said * room)
        self._said = seconds, remaining
        return remaining

    def _draw(self) -> None:
        if self._token is None:
            return
        self._bar.show(self._title, self.share, self.words(time.monotonic() - self._began))


_OVERALL: ContextVar[Overall | None] = ContextVar("overall", default=None)


def expect(work: float) -> None:
    """Announce work that is to come to the bar over many runs, if there is one."""
    whole = _OVERALL.get()
    if whole is not None:
        whole.expect(work)


def is_watched() -> bool:
    """True if there is a bar over many runs, to which work can be announced."""
    return _OVERALL.get() is not None


class Progress:
    """Progress of one run: `with Progress("prompts", 50, None) as bar: bar.advance(10)`."""

    def __init__(self, title: str, total: int, show: bool | None, *, cost: float = 1.0) -> None:
        """Show a bar if `show`, or if it is None and the output is a terminal or notebook.

        Args:
            title: What is counted.
            total: Number of prompts.
            show: False silences it, within a study too.
            cost: Cost of one prompt, for the bar over many runs.
        """
        self._title, self._total, self._done, self._cost = title, total, 0, cost
        self._rows, self._rows_done, self._share, self._first = 0, 0, 0.0, 0.0
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
        if self._whole is not None and not any(error):
            self._whole.advance((1 - self._share) * self._total * self._cost)
        self._bar.stop()

    @property
    def is_shown(self) -> bool:
        """True if it is drawn, or counted in the bar over many runs."""
        return self._whole is not None or type(self._bar) is not Bar

    def expect(self, rows: int, cost: float) -> None:
        """Count by rows that ran instead of prompts.

        Args:
            rows: Rows times blocks of the run.
            cost: Cost of the run.
        """
        self._rows, self._cost = rows, cost / max(self._total, 1)

    def ran(self, rows: int) -> None:
        """Count rows that went through blocks."""
        self._rows_done += rows
        if self._rows:
            self._reach(min(self._rows_done / self._rows, 1.0))

    def ran_before(self, rows: int) -> None:
        """Count rows that ran before this began, which say nothing on the time left."""
        self.ran(rows)
        self._first = self._share

    def advance(self, prompts: int) -> None:
        """Count finished prompts."""
        self._done += prompts
        self._reach(self._share if self._rows else self._done / max(self._total, 1))

    def _reach(self, share: float) -> None:
        more, self._share = share - self._share, share
        if self._whole is not None:
            self._whole.advance(more * self._total * self._cost)
        seconds = time.monotonic() - self._began
        words = f"{self._done}/{self._total}"
        if share > self._first and seconds > 0:
            left = seconds * (1 - share) / (share - self._first)
            words += f", {self._done / seconds:.1f}/s, {duration(left)} left"
        self._bar.show(self._title, share, words)

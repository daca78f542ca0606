"""How far a run is, and how far the study that it belongs to; silent in scripts and tests."""

import time
from contextvars import ContextVar, Token
from types import TracebackType

from icl_mech.engine.bars import Bar, bar_for, duration

BACKWARD = 3.0
"""What a prompt costs with its backward pass, in forward passes."""

VARIANT = 0.3
"""And what one of many variants of it costs, which share what they can."""


def cost(*, gradient: bool, variants: int = 1) -> float:
    """About what one prompt of a run costs, in forward passes."""
    return BACKWARD if gradient else VARIANT if variants > 1 else 1.0


class Overall:
    """One bar over many runs: `with Overall("label words study", None): ...`.

    Runs inside show no bars of their own; what they count is counted here, in forward passes over
    one prompt. Inside of another one it does nothing.
    """

    def __init__(self, title: str, show: bool | None) -> None:
        """Show it if `show`; None: a bar if someone may be watching, else a line now and then."""
        self._title, self._part = title, ""
        self._bar: Bar = Bar()
        self._show = show
        self._done = self._total = self._promised = self._began = 0.0
        self._token: Token[Overall | None] | None = None

    def __enter__(self) -> "Overall":
        """Begin."""
        if _OVERALL.get() is None and self._show is not False:
            self._bar = bar_for(self._show, lines=True)
            self._token = _OVERALL.set(self)
            self._began = time.monotonic()
            self._bar.start(self._title)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        if self.share > 0:
            text += f", about {duration(seconds * (1 - self.share) / self.share)} left"
        return f"{text} ({self._part})"

    def _draw(self) -> None:
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
        self._done += prompts
        if self._whole is not None:
            self._whole.advance(prompts * self._cost)
        seconds = time.monotonic() - self._began
        words = f"{self._done}/{self._total}"
        if self._done and seconds > 0:
            rate = self._done / seconds
            words += f", {rate:.1f}/s, {duration((self._total - self._done) / rate)} left"
        self._bar.show(self._title, self._done / max(self._total, 1), words)

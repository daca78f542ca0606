"""The errors this package raises on purpose; everything derives from `IclMechError`.

Each message says what was found, what was expected and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class IclMechError(Exception):
    """Base class of all errors raised by `icl_mech`."""


class TaskError(IclMechError, ValueError):
    """A task, template or data file cannot be used as given."""


class PromptError(IclMechError, ValueError):
    """A prompt cannot be built, or does not carry what an analysis needs."""


class ModelError(IclMechError, ValueError):
    """A model cannot be loaded, or would give wrong numbers."""


class RunError(IclMechError, RuntimeError):
    """A run of the engine failed one of its own checks."""


class ResultError(IclMechError, ValueError):
    """A result cannot be saved, loaded or computed."""


class SweepError(IclMechError, RuntimeError):
    """A sweep cannot be planned, run, resumed or averaged as asked."""


class CallError(RunError, TypeError):
    """A function was called with an option it does not have, with too many arguments, or without one."""


class MissingResult(ResultError, AttributeError, KeyError):  # noqa: N818 - what is missing
    """An analysis has no result of that name; `hasattr`, `getattr` and `in` understand it."""

    def __str__(self) -> str:
        """The message; a `KeyError` would quote it."""
        return str(self.args[0])


def near_matches(name: object, known: Iterable[object]) -> str:
    """A sentence for messages: the known names nearest to `name`, or all of them."""
    names = sorted(map(str, known))
    return did_you_mean(name, names) or f"Known: {', '.join(names)}."


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """A sentence for messages: the known names nearest to `name`; empty if none is near."""
    by_letters = {candidate.lower(): candidate for candidate in sorted(map(str, known))}
    close = get_close_matches(str(name).lower(), by_letters, n=3, cutoff=0.5)
    names = " or ".join(repr(by_letters[match]) for match in close)
    return f"Did you mean {names}?" if names else ""

"""One call at a time on a model: hooks, gradients and replaced parts belong to the whole of it.

Two threads on one model would run under each other's interventions. So every call that runs a model
holds its lock until it is done; it is re-entrant, so calls may nest. Results hold no model, and are
read without it. The lock hangs on the innermost module: however often that is wrapped, it is one.

Inside, torch's modes are those in which numbers are checked: no autocast, no inference mode, new
tensors on the CPU and in float32 unless something else is said.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import torch

from icl_mech.checking import bound_to
from icl_mech.errors import RunError
from icl_mech.models.interface import LanguageModel
from icl_mech.models.watching import CALL, Call

_LOCK = "_icl_mech_lock"
_WAIT: ContextVar[float | None] = ContextVar("wait", default=None)

P = ParamSpec("P")
R = TypeVar("R")


class ModelLock:
    """A re-entrant lock that knows who holds it."""

    def __init__(self) -> None:
        self.inner = threading.RLock()
        self.holders: list[tuple[str, str, float]] = []

    def __reduce__(self) -> tuple[type["ModelLock"], tuple[()]]:
        """A copy of a model is another model: nobody holds it."""
        return ModelLock, ()

    def told(self) -> str:
        """Who holds it, for what, for how long."""
        for thread, work, since in self.holders[:1]:
            return (
                f"{work} has been running in thread {thread!r} for {time.monotonic() - since:.1f} s"
            )
        return "another thread runs it"


def lock_of(model: object) -> ModelLock | None:
    """The lock of a model or an adapter; None for what is no model."""
    module = model.module if isinstance(model, LanguageModel) else model
    if not isinstance(module, torch.nn.Module):  # nnsight's wrapper
        module = getattr(model, "__dict__", {}).get("_module")
    if not isinstance(module, torch.nn.Module):
        return None
    inner = getattr(module, "original_model", module)
    lock: ModelLock = vars(inner).setdefault(_LOCK, ModelLock())  # atomic
    return lock


@contextmanager
def waiting(seconds: float | int | None) -> Iterator[None]:
    """Context in which calls wait at most so long for a model that another thread runs.

    Args:
        seconds: 0: not at all; None (the default outside): until it is free.
    """
    before = _WAIT.set(seconds)
    try:
        yield
    finally:
        _WAIT.reset(before)


def exclusive(function: Callable[P, R]) -> Callable[P, R]:
    """A function with an argument `model`, whose lock is held while it runs.

    If it has an option `wait`: True as `waiting` says, False not at all, or so many seconds.
    """
    own = signature(function)
    place = [*own.parameters].index("model")

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        bound_to(own, function.__name__, args, kwargs)
        lock = lock_of(args[place] if len(args) > place else kwargs.get("model"))
        wait: Any = kwargs.get("wait", True)
        seconds = _WAIT.get() if wait is True else float(wait)
        if lock is None:
            return function(*args, **kwargs)
        if seconds is None:
            # Entered in C: no interrupt can come between taking the lock and noting so.
            with lock.inner, _noted(lock, function.__name__), plain_modes():
                return function(*args, **kwargs)
        if not lock.inner.acquire(timeout=max(seconds, 0)):
            raise RunError(
                f"The model is in use: {lock.told()}. One model runs one call at a time; wait for "
                "it (wait=True, icl_mech.models.waiting(None)), or load the model a second time."
            )
        try:
            with _noted(lock, function.__name__), plain_modes():
                return function(*args, **kwargs)
        finally:
            lock.inner.release()

    return run


@contextmanager
def _noted(lock: ModelLock, work: str) -> Iterator[None]:
    holders, before, call = len(lock.holders), CALL.get(), Call()
    try:
        lock.holders.append((threading.current_thread().name, work, time.monotonic()))
        if not holders:
            CALL.set(call)
        yield
    finally:
        call.open = False
        CALL.set(before)
        del lock.holders[holders:]


@contextmanager
def plain_modes() -> Iterator[None]:
    """Context without autocast, inference mode, default device or dtype of the caller's."""
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(torch.is_grad_enabled()))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if (dtype := torch.get_default_dtype()) is not torch.float32:
            stack.callback(torch.set_default_dtype, dtype)
            torch.set_default_dtype(torch.float32)
        yield

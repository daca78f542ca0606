"""Allow one call at a time on a model: hooks, gradients and replaced modules affect all of its users.

Two threads on one model would run under each other's interventions. So every call that runs a model
holds its lock until it is done; the lock is re-entrant, so calls may nest. Results hold no model, and are
read without it. The lock is stored on the innermost module: all wrappers of it share one lock.

Inside, torch has the modes in which models are checked: no autocast, no inference mode, and new
tensors on the CPU and in float32 by default.
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
    """A re-entrant lock that records its holders."""

    def __init__(self) -> None:
        self.inner = threading.RLock()
        self.holders: list[tuple[str, str, float]] = []

    def __reduce__(self) -> tuple[type["ModelLock"], tuple[()]]:
        """Copy as a new, free lock: a copy of a model is another model."""
        return ModelLock, ()

    def told(self) -> str:
        """The holder, its call and the time since it began, in words."""
        for thread, work, since in self.holders[:1]:
            return (
                f"{work} has been running in thread {thread!r} for {time.monotonic() - since:.1f} s"
            )
        return "another thread runs it"


def lock_of(model: object) -> ModelLock | None:
    """The lock of a model or an adapter; None for other objects."""
    module = model.module if isinstance(model, LanguageModel) else model
    if not isinstance(module, torch.nn.Module):  # nnsight's wrapper
        module = getattr(model, "__dict__", {}).get("_module")
    if not isinstance(module, torch.nn.Module):
        return None
    inner = getattr(module, "original_model", module)
    lock: ModelLock = vars(inner).setdefault(_LOCK, ModelLock())  # atomic: threads get one lock
    return lock


@contextmanager
def waiting(seconds: float | int | None) -> Iterator[None]:
    """Context in which calls wait at most `seconds` for a model that another thread is running.

    Args:
        seconds: 0: not at all; None (the default outside): until it is free.
    """
    before = _WAIT.set(seconds)
    try:
        yield
    finally:
        _WAIT.reset(before)


def exclusive(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function with an argument `model` so that it holds the model's lock while it runs.

    If the function has an option `wait`: True waits as set by `waiting`, False not at all, a number so
    many seconds.
    """
    function_signature = signature(function)
    place = [*function_signature.parameters].index("model")

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        bound_to(function_signature, function.__name__, args, kwargs)
        lock = lock_of(args[place] if len(args) > place else kwargs.get("model"))
        wait: Any = kwargs.get("wait", True)
        seconds = _WAIT.get() if wait is True else float(wait)
        if lock is None:
            return function(*args, **kwargs)
        if seconds is None:
            # `with` enters the lock in C: no interrupt can come between taking it and recording that.
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
    """Context without the caller's autocast, inference mode, default device or dtype."""
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(torch.is_grad_enabled()))
        for device_type in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device_type):
                stack.enter_context(torch.autocast(device_type, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if (dtype := torch.get_default_dtype()) is not torch.float32:
            stack.callback(torch.set_default_dtype, dtype)
            torch.set_default_dtype(torch.float32)
        yield

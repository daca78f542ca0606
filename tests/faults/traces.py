"""What a run may have left behind, and runs that are broken off at a chosen moment."""

import random
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack

from icl_mech.models import LanguageModel
from icl_mech.models import hooked as hooked_module
from icl_mech.models.undo import torch_stacks

TOKENS = torch.tensor([[5, 6, 7, 8, 9]])
CONTEXTS = ("models/undo.py", "/contextlib.py")
CHANGES = (
    *CONTEXTS,
    "models/hooked.py",
    "models/bridge.py",
    "models/huggingface.py",
    "engine/work.py",
)
"""Files in whose steps runs are interrupted."""


class FaultError(Exception):
    """Raised on purpose."""


@dataclass(frozen=True)
class State:
    """All that a run changes for a while, of a model and of the process."""

    hooks: tuple[Any, ...]
    modules: tuple[Any, ...]
    gradients: tuple[bool, ...]
    modes: tuple[Any, ...]
    pending: int
    random_state: bytes

    @classmethod
    def of(cls, model: LanguageModel) -> "State":
        """As it is now."""
        points = model.wrapped.hook_dict.values()
        roots = (model.wrapped, model.wrapped.original_model)
        modules = [module for root in roots for module in root.modules()]
        return cls(
            tuple((len(p.fwd_hooks), len(p.bwd_hooks), len(p._forward_hooks)) for p in points),
            tuple(
                (
                    module.training,
                    len(module._forward_hooks),
                    len(module._forward_pre_hooks),
                    len(module._backward_hooks),
                    id(vars(module).get("forward")),
                )
                for module in modules
            ),
            tuple(parameter.requires_grad for parameter in model.wrapped.parameters()),
            (
                torch.is_grad_enabled(),
                torch.is_inference_mode_enabled(),
                torch.get_default_dtype(),
                tuple(_get_current_function_mode_stack()),
                torch_stacks(),
            ),
            len(model.undo._pending),
            torch.random.get_rng_state().numpy().tobytes(),
        )


class Untouched:
    """Compares a model with what it was before."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.logits = self._logits()
        self.state = State.of(model)

    def _logits(self) -> torch.Tensor:
        with torch.no_grad():
            return self.model.wrapped(TOKENS)

    def check(self) -> None:
        """Everything is as before, the logits bit for bit."""
        assert State.of(self.model) == self.state
        assert torch.equal(self._logits(), self.logits)


class Firings:
    """Counts the calls of hooks and of gradient reductions, and fails at one of them."""

    def __init__(self, monkeypatch: Any, *readings: type) -> None:
        self.count, self.fatal = 0, -1
        called = hooked_module._called
        monkeypatch.setattr(hooked_module, "_called", lambda f, *to: called(self._counted(f), *to))
        for reading in readings:
            monkeypatch.setattr(reading, "reduce", self._counted(reading.reduce))

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.count += 1
            if self.count - 1 == self.fatal:
                raise FaultError
            return function(*args)

        return counted

    def restart(self, fatal: int = -1) -> int:
        """How often they fired since the last time."""
        count, self.count, self.fatal = self.count, 0, fatal
        return count


Step = tuple[CodeType, int, str]


class Steps:
    """The steps of a run in some files, at one of which it is interrupted."""

    def __init__(self, files: tuple[str, ...], fatal: Step | None = None, time: int = 1) -> None:
        """Interrupt at the n-th time of a step."""
        self.files, self.fatal, self.time = files, fatal, time
        self.seen: dict[Step, int] = {}
        self.done = False

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self.done or not frame.f_code.co_filename.endswith(self.files):
            return None
        if event in ("call", "line"):
            step = (frame.f_code, frame.f_lineno, event)
            self.seen[step] = self.seen.get(step, 0) + 1
            if step == self.fatal and self.seen[step] == self.time:
                self.done = True
                sys.settrace(None)
                raise KeyboardInterrupt
        return self.trace

    def run(self, call: Callable[[], object]) -> None:
        """The call, traced."""
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            call()
        finally:
            sys.settrace(before)


def interrupted(call: Callable[[], object], seconds: float, check: Callable[[], None]) -> bool:
    """Whether the call was interrupted after so many seconds; checked while the interrupt is held."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            call()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except (KeyboardInterrupt, RuntimeError, SystemError) as error:
            # Where a thread is being started or code compiled, Python itself turns an interrupt into an error.
            place = traceback.extract_tb(error.__traceback__)[-1].filename
            started = isinstance(error, RuntimeError) and Path(place).name == "threading.py"
            compiled = isinstance(error, SystemError) and "AST constructor" in str(error)
            if not (isinstance(error, KeyboardInterrupt) or started or compiled):
                raise
            signal.setitimer(signal.ITIMER_REAL, 0)
            check()
            return True
    finally:
        # Also after any other error: a late alarm would end the process.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    check()
    return False


def moments(count: int, longest: float, seed: int) -> list[float]:
    """Seconds after which to interrupt, spread evenly over a run."""
    generator = random.Random(seed)
    return [longest * (step + generator.random()) / count for step in range(count)]

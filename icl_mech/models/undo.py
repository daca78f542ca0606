"""`Undo`: temporary changes of a model or of torch's modes that are reverted in any case, also at an interrupt.

One such mode keeps float64 throughout. Models compute softmax, norms and rotary angles in float32 by
name, whatever their dtype: this widens half precision but narrows float64. Besides the lost digits, the
mask of a padded row (the lowest float64) becomes -inf there, and its softmax NaN. A float64 model called
directly, without this context, is right for prompts without padding, to the digits of float32. Hooks run
outside the context: readings and interventions compute as with any model.

An interrupt (`KeyboardInterrupt`) can arise between any two steps: after a change and before the
`try` that would revert it, or at the first step of reverting it. So the way to revert a change is
recorded before it is made; reverting it a second time does nothing; and changes left over by an
interrupt are reverted by the pass that made them (`kept`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode,
    _pop_mode,
    _pop_mode_temporarily,
)

from icl_mech._typing import Tensor

T = TypeVar("T")
R = TypeVar("R")


class _Float64(TorchFunctionMode):
    """Mode that gives float64 wherever float32 is requested."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        widened = {name: _wide(value) for name, value in (kwargs or {}).items()}
        func = torch.Tensor.double if func is torch.Tensor.float else func
        return func(*map(_wide, args), **widened)


def _wide(value: object) -> Any:
    return torch.float64 if value is torch.float32 else value


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision widened to float32 for sums and logarithms; float64 is kept."""
    return values if values.dtype is torch.float64 else values.float()


def undiminished(dtype: str) -> AbstractContextManager[object]:
    """Context in which a float64 model computes in nothing narrower; empty for other dtypes."""
    return _Float64() if dtype == "float64" else nullcontext()


def aside(function: Callable[[T], R]) -> Callable[[T], R]:
    """The function, always run outside the float64 context."""

    def run(value: T) -> R:
        if not isinstance(_get_current_function_mode(), _Float64):
            return function(value)
        with _pop_mode_temporarily():
            return function(value)

    return run


def leave() -> None:
    """Leave float64 contexts that an interrupt has left active."""
    while isinstance(_get_current_function_mode(), _Float64):
        _pop_mode()


def torch_stacks() -> tuple[Any, int]:
    """The innermost of torch's hooks for saved tensors, and the nesting level of `torch.vmap`."""
    level: Any = torch._C._functorch.peek_interpreter_stack()  # None outside of all
    return torch._C._autograd._top_saved_tensors_default_hooks(False), level.level() if level else 0


def leave_torch_stacks(outer: tuple[Any, int]) -> None:
    """Remove entries that an interrupt inside `torch.utils.checkpoint` or `torch.vmap` left on these stacks.

    The stacks are global: every later backward pass would fail with a `CheckpointError`.
    """
    while torch_stacks()[0] not in (None, outer[0]):
        torch._C._autograd._pop_saved_tensors_default_hooks()
    while torch_stacks()[1] > outer[1]:
        torch._C._functorch._vmap_decrement_nesting()


class Undo:
    """Registry of temporary changes and of the functions that revert them."""

    def __init__(self) -> None:
        self._pending: dict[object, Callable[[], None]] = {}

    @contextmanager
    def by(self, take_back: Callable[[], None]) -> Iterator[None]:
        """Context in which a change may be made; `take_back` restores the earlier state.

        Args:
            take_back: Must hold the earlier state, and do nothing where nothing was changed.
        """
        key = object()
        try:
            self._pending[key] = take_back
            yield
        finally:
            self._take_back([key])

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Context that, on an error or interrupt, reverts all changes made inside and restores torch's modes."""
        before, enabled = set(self._pending), torch.is_grad_enabled()
        stacks = torch_stacks()
        try:
            yield
        except BaseException:
            self._take_back([key for key in self._pending if key not in before])
            leave()
            leave_torch_stacks(stacks)
            torch.set_grad_enabled(enabled)
            raise

    def _take_back(self, keys: Sequence[object]) -> None:
        interrupt: KeyboardInterrupt | None = None
        for key in reversed(keys):
            while key in self._pending:
                try:
                    self._pending[key]()
                    self._pending.pop(key, None)
                except KeyboardInterrupt as error:  # noqa: PERF203 - it must not end the loop
                    interrupt = error
        if interrupt is not None:
            raise interrupt

"""float64 all the way through: what models compute in float32 by name would be narrowed.

Softmax, norms and rotary angles are taken in float32 whatever the model's dtype: in half precision
that is wider, in float64 narrower. Besides the lost digits, the mask of a padded row (the lowest
float64) becomes -inf there, and its softmax NaN. What such a model is called on directly, without
this context, is right for prompts without padding, to the digits of float32.

Hooks run outside of the context: readings and interventions compute as with any model.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode,
    _pop_mode,
    _pop_mode_temporarily,
)

from icl_mech._typing import Tensor


class _Float64(TorchFunctionMode):
    """Where float32 is asked for, float64 is given."""

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


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision widened for sums and logarithms; float64 stays what it is."""
    return values if values.dtype is torch.float64 else values.float()


def undiminished(dtype: str) -> AbstractContextManager[Any]:
    """Context in which a model of this dtype computes in nothing narrower."""
    return _Float64() if dtype == "float64" else nullcontext()


def aside(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, run outside of the context wherever it is called."""

    def run(value: Any) -> Any:
        if not isinstance(_get_current_function_mode(), _Float64):
            return function(value)
        with _pop_mode_temporarily():
            return function(value)

    return run


def leave() -> None:
    """Leave contexts that an interrupt has left entered."""
    while isinstance(_get_current_function_mode(), _Float64):
        _pop_mode()

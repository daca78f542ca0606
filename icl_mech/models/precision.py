"""float64 all the way through: what models compute in float32 by name would be narrowed.

Softmax, norms and rotary angles are taken in float32 whatever the model's dtype: in half precision
that is wider, in float64 narrower. Besides the lost digits, the mask of a padded row (the lowest
float64) becomes -inf there, and its softmax NaN. What such a model is called on directly, without
this context, is right for prompts without padding, to the digits of float32.

Hooks run inside the context too: what they ask for in float32 stays float64.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


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


def undiminished(dtype: str) -> AbstractContextManager[Any]:
    """Context in which a model of this dtype computes in nothing narrower."""
    return _Float64() if dtype == "float64" else nullcontext()

"""Results and prompts create their tensors on the CPU, whatever torch's default device is.

`torch.set_default_device("cuda")` would create the tensors of a mean or an interval on the GPU, while
their values lie on the CPU.
"""

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, TypeVar

import torch

C = TypeVar("C", bound=type)


def at_home(kind: C) -> C:
    """Class decorator: methods and properties run with the CPU as default device."""
    for name, value in list(vars(kind).items()):
        wrapped: Any = None
        if isinstance(value, property) and value.fget is not None:
            wrapped = property(_on_cpu(value.fget), doc=value.__doc__)
        elif isinstance(value, cached_property):
            wrapped = cached_property(_on_cpu(value.func))
            wrapped.attrname = name
        elif callable(value) and not isinstance(value, type) and hasattr(value, "__code__"):
            wrapped = _on_cpu(value)
        if wrapped is not None:
            setattr(kind, name, wrapped)
    return kind


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: object, **kwargs: object) -> Any:
        if torch.get_default_device().type == "cpu":
            return function(*args, **kwargs)
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return run

"""Checks of values against the types of a result's fields, before saving and after loading."""

from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

import numpy as np
from jaxtyping import jaxtyped
from torch import Tensor

from icl_mech.errors import ResultError


def check_values(kind: type, values: Mapping[str, Any]) -> None:
    """Reject values that do not fit the types of a kind's fields.

    Axes with the same name must have the same length in all tensors that are themselves fields.

    Raises:
        ResultError: names the field.
    """
    try:
        hints = get_type_hints(kind)
    except NameError:  # types that exist during type checking only
        return
    with jaxtyped("context"):
        for name, value in values.items():
            if not fits(value, hints[name]):
                raise ResultError(
                    f"{name} of {kind.__name__} is {_words(value)}, but its type is {_name(hints[name])}; give a "
                    "value of that type (files hold tensors, numbers, text, lists and mappings)."
                )


def fits(value: object, hint: Any) -> bool:
    """True if a value fits a type, as far as a file can represent it.

    Files hold sequences as lists, keys as text, and non-finite numbers as null or their names.
    Unknown types fit everything a file can hold except tensors.
    """
    value = value.item() if isinstance(value, np.generic) else value
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, arg) for arg in args)
    if origin is Literal:
        return value in args
    if hint is Tensor or hasattr(hint, "dim_str"):
        return isinstance(value, hint)
    if origin is tuple and Ellipsis not in args:
        inside = () if args == ((),) else args
        return _is_sequence(value) and len(value) == len(inside) and all(map(_fits, value, inside))
    if args and isinstance(origin, type) and issubclass(origin, Sequence):
        return _is_sequence(value) and all(_fits(entry, args[0]) for entry in value)
    if args and isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(_fits(entry, args[1]) for entry in value.values())
    if hint is float:
        return value in (None, "inf", "-inf") or _is_number(value, int | float)
    if hint is int:
        return _is_number(value, int)
    if hint in (str, bool, NoneType):
        return isinstance(value, hint)
    return (hint is Any and isinstance(value, Tensor)) or _is_plain(value)


def _fits(value: object, hint: object) -> bool:
    """Like `fits`, but axis lengths inside a container are independent of lengths outside."""
    with jaxtyped("context"):
        return fits(value, hint)


def _is_plain(value: object) -> bool:
    """True for values that JSON can hold; anything else would be loaded as text."""
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    if _is_sequence(value):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | np.generic)


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_number(value: object, kind: type | UnionType) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _words(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {list(value.shape)}"
    shown = repr(value)
    return f"{shown[:80]}..." if len(shown) > 80 else shown


def _name(hint: object) -> str:
    return str(hint) if get_origin(hint) else getattr(hint, "__name__", str(hint))

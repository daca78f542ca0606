"""Values against the types of a result's fields, before they are saved and after they are loaded."""

from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

import numpy as np
from jaxtyping import jaxtyped
from torch import Tensor

from icl_mech.errors import ResultError


def check_values(kind: type, values: Mapping[str, Any]) -> None:
    """Refuse values that are not what the fields of a kind declare.

    Axes of one name have one length in all tensors that are fields of their own.

    Raises:
        ResultError: names the field.
    """
    try:
        hints = get_type_hints(kind)
    except NameError:  # types that exist while checking only
        return
    with jaxtyped("context"):
        for name, value in values.items():
            if not fits(value, hints[name]):
                raise ResultError(
                    f"{name} of {kind.__name__} is {_words(value)}; its type is {_name(hints[name])}, "
                    "and files hold tensors, numbers, text, lists and mappings."
                )


def fits(value: object, hint: Any) -> bool:
    """True if a value could be what a type says, as far as a file can hold it.

    A file holds sequences as lists, keys as text, and numbers that are not finite as nothing or
    their names. Types that are not known here fit all that a file holds but tensors.
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
    """As `fits`; axes inside of a container have lengths of their own."""
    with jaxtyped("context"):
        return fits(value, hint)


def _is_plain(value: object) -> bool:
    """True for what JSON holds; anything else would come back as text."""
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

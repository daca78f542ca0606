"""Types and shapes are checked at run time in all tests, at half the price.

The import hook of jaxtyping puts `jaxtyped` around every function of the package. It binds the
arguments of each call and has them checked twice, before the function and behind it, which was more
than half of the time of the tests. Here beartype checks a call once, arguments first and then what is
returned. As with jaxtyping the axes named in a call are its own.
"""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import beartype  # noqa: F401 - cannot be imported once nnsight has put a method on `object`
import jaxtyping
from jaxtyping import _decorator
from jaxtyping._storage import pop_shape_memo, push_shape_memo

_WHOLE = _decorator.jaxtyped
_NONE = _decorator._sentinel


def jaxtyped(fn: Any = _NONE, *, typechecker: Any = _NONE) -> Any:
    """As jaxtyping's."""
    if fn is _NONE and callable(typechecker):
        return functools.partial(jaxtyped, typechecker=typechecker)
    # Of Python 3.10 beartype takes `list[int]` for a class, and knows no `Unpack`.
    if sys.version_info < (3, 11) and callable(fn):
        return fn
    # The arguments of a generator are looked at when it is first asked, after the call.
    plain = inspect.isfunction(fn) and not inspect.isgeneratorfunction(fn)
    if hasattr(fn, "__no_type_check__"):
        return fn
    if not (plain and callable(typechecker)):
        return _WHOLE(fn, typechecker=typechecker)
    if not fn.__annotations__:
        return fn
    made: list[tuple[Callable[..., Any], bool]] = []

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if _CONFIG.jaxtyping_disable:
            return fn(*args, **kwargs)
        if not made:
            made.append(_checked(fn, typechecker))
        checked, names_axes = made[0]
        if not names_axes:
            return checked(*args, **kwargs)
        push_shape_memo({})
        try:
            return checked(*args, **kwargs)
        finally:
            pop_shape_memo()

    return wrapped


def _checked(fn: types.FunctionType, typechecker: Any) -> tuple[Callable[..., Any], bool]:
    """The function with its checks, written at its first call; True if axes are named in an annotation."""
    raw, known, checked = _MADE.get(fn.__code__, (None, {}, None))
    again = "<locals>" in fn.__qualname__ and raw == fn.__annotations__
    own = _copy(fn)
    own.__annotations__ = known if again else annotations(fn)
    checked = _around(checked, own) if again else None
    if checked is None:
        try:
            checked = typechecker(own)
        except AttributeError:  # beartype 0.23 stumbles over types that contain themselves
            return _WHOLE(fn, typechecker=typechecker), False
        _MADE[fn.__code__] = dict(fn.__annotations__), own.__annotations__, checked
    return checked, _has_shapes(fn.__code__, tuple(own.__annotations__.values()))


_CONFIG = jaxtyping.config

_MADE: dict[types.CodeType, tuple[dict[str, Any], dict[str, Any], Any]] = {}
"""What was made of each function: inner ones come again with every call of the outer."""


def _copy(fn: types.FunctionType) -> types.FunctionType:
    own = types.FunctionType(
        fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    functools.update_wrapper(own, fn)
    own.__dict__.pop("__wrapped__", None)
    own.__kwdefaults__ = fn.__kwdefaults__
    return own


def _around(checked: Any, own: types.FunctionType) -> Any:
    """The same checks around this function; None if beartype keeps it elsewhere."""
    if "__beartype_func" not in (checked.__kwdefaults__ or {}):
        return None
    found = _copy(checked)
    found.__kwdefaults__ = {**checked.__kwdefaults__, "__beartype_func": own}
    return found


_SHAPES: dict[types.CodeType, bool] = {}


def _has_shapes(code: types.CodeType, given: Any) -> bool:
    """True if axes are named in an annotation."""
    if code not in _SHAPES:
        _SHAPES[code] = _names_axes(given)
    return _SHAPES[code]


def _names_axes(given: Any) -> bool:
    if isinstance(given, list | tuple):
        return any(map(_names_axes, given))
    named = isinstance(given, type) and issubclass(given, jaxtyping.AbstractArray)
    return named or _names_axes(typing.get_args(given))


def annotations(fn: Callable[..., Any]) -> dict[str, Any]:
    """Those of a function without names of types; Any where a name is not known at run time."""
    return {
        name: _resolved(own, fn.__globals__) if _has_names(own) else own
        for name, own in fn.__annotations__.items()
    }


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    # jaxtyping has a function for this from 0.3.7 on; older versions are allowed.
    def holder(value: Any) -> None:
        del value

    holder.__annotations__ = {"value": annotation}
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["value"]
    except (NameError, AttributeError, TypeError, ValueError):
        # A name for type checkers only, or a shape that jaxtyping refuses.
        return Any


def _has_names(annotation: Any) -> bool:
    if isinstance(annotation, list | tuple):
        return any(map(_has_names, annotation))
    named = isinstance(annotation, str | typing.ForwardRef)
    return named or any(map(_has_names, typing.get_args(annotation)))


def install() -> None:
    """For all modules that are imported from now on."""
    jaxtyping.jaxtyped = _decorator.jaxtyped = jaxtyped

"""Type checks of user input: fields of values, arguments of functions.

Numbers of NumPy and torch are converted to plain ones, arrays and lists to tuples.
A type other than those below is not checked.
"""

import functools
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import torch
from jaxtyping import jaxtyped

from icl_mech._typing import Tensor
from icl_mech.errors import CallError, IclMechError, RunError, did_you_mean, near_matches

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class AtLeast:
    """Annotation of a numeric type: the least value allowed."""

    least: int


@dataclass(frozen=True)
class Called:
    """Annotation of a type: its name in messages."""

    name: str


Count = Annotated[int, AtLeast(1)]
"""A number of things, at least one."""

Natural = Annotated[int, AtLeast(0)]
"""A whole number that is not negative: a seed, a position."""

Head = Annotated[tuple[int, int], Called("a pair (layer, head) of whole numbers")]
Heads = Sequence[Head]
"""(layer, head) pairs."""

LONGEST = 100
"""Maximum number of characters of a value in a message."""


class Misfit(Exception):  # noqa: N818 - becomes an error of the package
    """A value is not of its type; the most deeply nested misfit is the most informative."""

    def __init__(self, problem: str, depth: int = 0) -> None:
        super().__init__(problem)
        self.depth = depth


def check_fields(value: "DataclassInstance") -> None:
    """Reject fields that are not of their types, and convert values to plain ones.

    Raises:
        RunError: names the field and what it may be.
    """
    hints = get_type_hints(type(value), include_extras=True)
    for item in fields(value):
        given = getattr(value, item.name)
        plain = conformed(item.name, given, hints[item.name])
        if isinstance(plain, Tensor) and not bool(plain.isfinite().all()):
            raise RunError(f"{item.name} holds NaN or infinite values; expected finite numbers.")
        object.__setattr__(value, item.name, plain)


def checked(
    error: type[IclMechError], *, but: Collection[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: arguments are checked against their types, axes of tensors against each other.

    Arguments in `but` are left to the function itself.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        kinds = {
            name: parameter.annotation
            for name, parameter in signature.parameters.items()
            if parameter.annotation is not parameter.empty
            and name not in but
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = bound_to(signature, function.__name__, args, kwargs, error)
            with jaxtyped("context"):
                for name, given in bound.arguments.items():
                    kind = kinds.get(name, Any)
                    bound.arguments[name] = conformed(name, given, kind, error)
            return function(*bound.args, **bound.kwargs)

        return call

    return decorated


def bound_to(
    signature: inspect.Signature,
    name: str,
    args: Sequence[object],
    options: Mapping[str, object],
    error: type[IclMechError] = CallError,
) -> inspect.BoundArguments:
    """The arguments of a call by name.

    Raises:
        IclMechError: an unknown option (suggests near names), too many arguments, or a missing one.
    """
    try:
        return signature.bind(*args, **options)
    except TypeError as problem:
        takes = [*signature.parameters]
        near = [did_you_mean(option, takes) for option in options if option not in takes]
        said = (f"{name}: {problem}.", *near[:1], f"It takes {', '.join(takes) or 'nothing'}.")
        raise error(" ".join(filter(None, said))) from None


def conformed(name: str, given: object, kind: object, error: type[IclMechError] = RunError) -> Any:
    """The value converted to its type.

    Raises:
        IclMechError: names the argument, its value and what was expected.
    """
    try:
        return _fitted(given, kind)
    except Misfit as misfit:
        raise error(f"{name}={shown(given)}{misfit}") from None


def shown(given: object) -> str:
    """A value in a message, shortened."""
    if isinstance(given, Tensor | np.ndarray) and given.ndim:
        return f"{type(given).__name__}{list(given.shape)} of {given.dtype}"
    text = " ".join(repr(given).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _fitted(given: object, kind: object) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _annotated(given, *args)
    if origin is Literal:
        if isinstance(given, str | int) and given in args:
            return given
        raise Misfit(f". {near_matches(str(given), map(str, args))}")
    if origin in (Union, UnionType):
        return _any_of(given, args)
    if origin in (Sequence, list, tuple) and args:
        return _entries(given, origin, args)
    if isinstance(kind, type) and kind in _PLAIN:
        return _plain(given, kind)
    if hasattr(kind, "array_type"):
        return _tensor(given, kind)
    known = origin or kind
    # Protocols do not support isinstance.
    if known is Any or not isinstance(known, type) or getattr(known, "_is_protocol", False):
        return given
    if not isinstance(given, known):
        raise Misfit(_expected(given, known))
    if isinstance(given, Mapping) and known is Mapping and args:
        return {
            _inside(k, args[0], "a key"): _inside(v, args[1], repr(k)) for k, v in given.items()
        }
    return given


def _annotated(given: object, kind: object, *notes: object) -> Any:
    names = [note.name for note in notes if isinstance(note, Called)]
    try:
        value = _fitted(given, kind)
    except Misfit as misfit:
        raise Misfit(f"; expected {names[0]}.") if names else misfit from None
    for note in notes:
        if isinstance(note, AtLeast) and value < note.least:
            raise Misfit(f"; it must be at least {note.least}.")
    return value


def _any_of(given: object, kinds: Sequence[Any]) -> Any:
    misfits = []
    for kind in kinds:
        try:
            return _fitted(given, kind)
        except Misfit as misfit:  # noqa: PERF203 - of few kinds
            misfits.append(misfit)
    raise max(misfits, key=lambda misfit: misfit.depth)


def _entries(given: Any, origin: object, kinds: tuple[Any, ...]) -> Any:
    several = isinstance(given, Sequence) or hasattr(given, "tolist")
    if not several or isinstance(given, str | bytes) or getattr(given, "ndim", 1) == 0:
        names = "a list"
        if _is_literal(kinds[0]):
            names = f"a list of names out of {', '.join(map(repr, get_args(kinds[0])))}"
        raise Misfit(f"; expected {names}.")
    values = given.tolist() if hasattr(given, "tolist") else list(given)
    if origin is tuple and kinds[-1] is not Ellipsis:
        if len(values) != len(kinds):
            raise Misfit(f"; expected {len(kinds)} entries.")
    elif not values and _is_literal(kinds[0]):
        choices = near_matches("", map(str, get_args(kinds[0])))
        raise Misfit(f": none chosen. {choices}", 1)
    else:
        kinds = (kinds[0],) * len(values)
    entries = [
        _inside(v, k, f"entry {i}") for i, (v, k) in enumerate(zip(values, kinds, strict=True))
    ]
    return entries if origin is list else tuple(entries)


def _inside(given: object, kind: object, place: str) -> Any:
    try:
        return _fitted(given, kind)
    except Misfit as misfit:
        raise Misfit(f": {place} is {shown(given)}{misfit}", misfit.depth + 1) from None


_PLAIN = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    type(None): "None",
}


def _plain(given: Any, kind: type) -> Any:
    scalar = isinstance(given, np.generic | np.ndarray | Tensor) and given.ndim == 0
    value = given.item() if scalar else given
    kinds: Any = int | float if kind is float else kind
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise Misfit(f"; expected {_PLAIN[kind]}.")
    if kind is float and not math.isfinite(value):
        raise Misfit("; expected a finite number.")
    return value


def _tensor(given: object, kind: Any) -> Any:
    if not isinstance(given, kind):
        what = f"a tensor of {kind.dtype.__name__.lower()} numbers"
        raise Misfit(f"; expected {what} with the axes ({', '.join(kind.dim_str.split())}).")
    if isinstance(given, Tensor) and given.layout is not torch.strided:
        raise Misfit("; expected a dense tensor: give it .to_dense().")
    if kind.dim_str.split()[:1] == ["batch"] and not len(given):
        raise Misfit("; expected at least one prompt.")
    return given


def _expected(given: object, kind: type) -> str:
    if isinstance(given, type) and get_origin(given) is None and issubclass(given, kind):
        return f"; give an instance, {given.__name__}(...), not the class."
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    return f"; expected {article} {kind.__name__}."


def _is_literal(kind: object) -> bool:
    return get_origin(kind) is Literal

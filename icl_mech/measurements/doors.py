"""Functions built from measurements: `flow_scores = door(Flow, "flow_scores", prompts="...")`.

A door takes a model, the prompts, the fields of the measurement and the options of a run; its signature and
its help are assembled from theirs.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, Signature
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

from icl_mech.checking import bound_to
from icl_mech.measurements.base import AnyMeasurement, PairMeasurement
from icl_mech.measurements.demonstrations import check_differing
from icl_mech.measurements.passes import How, Options
from icl_mech.results import Result

P = ParamSpec("P")
R = TypeVar("R", bound=Result)
T = TypeVar("T")

MODEL = "TransformerBridge, HookedTransformer or adapted model."


def door(
    kind: type[AnyMeasurement[Any, R]],
    name: str,
    *,
    first: Sequence[str] = (),
    then: Sequence[str] = (),
    called: Mapping[str, str] | None = None,
    **said: str,
) -> Callable[..., R]:
    """Build the function of a measurement: `name(model, prompts, *, variants, options)`.

    Args:
        kind: The measurement.
        name: Name of the function in its module.
        first: Fields that precede the prompts.
        then: Fields that may be passed by position, after the prompts.
        called: Argument names of fields, where they differ.
        **said: Help on the prompts, by the names of these arguments, and on options whose general
            help is not enough.
    """
    options = [option.name for option in fields(Options)]
    data = [argument for argument in said if argument not in options]
    assert len(data) == 1 + issubclass(kind, PairMeasurement), (name, data)
    names = {field.name: field.name for field in fields(kind)} | dict(called or {})
    of_kind = {
        parameter.name: parameter.replace(name=names[parameter.name])
        for parameter in _field_parameters(kind)
    }
    before, behind = (
        [of_kind.pop(argument).replace(kind=Parameter.POSITIONAL_OR_KEYWORD) for argument in places]
        for places in (first, then)
    )
    model_first, *of_data = _called_with(kind, data)
    parameters = [model_first, *before, *of_data, *behind, *of_kind.values()]
    parameters += _option_parameters(options)
    signature = Signature(parameters, return_annotation=_result_of(kind))

    def measure(*args: Any, **given: Any) -> R:
        bound = bound_to(signature, name, args, given).arguments
        model, *prompts = (bound.pop(argument) for argument in ("model", *data))
        check_differing(prompts)
        variants = {field: bound.pop(word) for field, word in names.items() if word in bound}
        return kind(**variants)(model, *prompts, **bound)  # type: ignore[operator, no-any-return]

    measure.__name__ = measure.__qualname__ = name
    measure.__module__ = kind.__module__
    measure.__doc__ = _help(
        kind, _words(kind, names, said), [parameter.name for parameter in parameters]
    )
    vars(measure)["__signature__"] = signature
    measure.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    measure.__annotations__["return"] = signature.return_annotation
    return measure


def with_options(function: Callable[P, T]) -> Callable[P, T]:
    """Replace `**how` by the options of a run in the signature and help of a function."""
    original = inspect.signature(function)
    parameters = list(original.parameters.values())
    assert parameters.pop().kind is Parameter.VAR_KEYWORD
    options = [option.name for option in fields(Options) if option.name not in original.parameters]
    parameters += _option_parameters(options)
    signature = original.replace(parameters=parameters)

    @wraps(function)
    def measure(*args: P.args, **given: P.kwargs) -> T:
        bound_to(signature, function.__name__, args, given)
        return function(*args, **given)

    text = inspect.cleandoc(function.__doc__ or "")
    lines = [
        f"    {name}: {words}"
        for name, words in _described(Options)
        if name in options and f"\n    {name}: " not in text
    ]
    head, raises, tail = text.partition("\n\nRaises:")
    measure.__doc__ = "\n".join([head, *lines]) + raises + tail
    vars(measure)["__signature__"] = signature
    # Following it, autodoc finds the signature of the source and fails ("pop from empty list").
    vars(measure).pop("__wrapped__")
    measure.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    measure.__annotations__["return"] = original.return_annotation
    return measure


def _called_with(kind: type[AnyMeasurement[Any, R]], data: Sequence[str]) -> list[Parameter]:
    """Parameters for model and prompts, annotated as in the call of the measurement, which may take a single prompt."""
    _, *taken = inspect.signature(kind.__call__).parameters.values()
    return [
        _positional(name, parameter.annotation)
        for name, parameter in zip(("model", *data), taken, strict=False)
    ]


def _positional(name: str, annotation: object) -> Parameter:
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)


def _field_parameters(kind: type) -> Iterator[Parameter]:
    types = get_type_hints(kind)
    for field in fields(kind):
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        yield Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if default is MISSING else default,
            annotation=types[field.name],
        )


def _option_parameters(names: Sequence[str]) -> list[Parameter]:
    defaults = {option.name: option.default for option in fields(Options)}
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=defaults[name],
            annotation=How.__annotations__[name],
        )
        for name in names
    ]


def _result_of(kind: type[AnyMeasurement[Any, R]]) -> Any:
    annotation = inspect.signature(kind.result).return_annotation
    if not isinstance(annotation, TypeVar):
        return annotation
    # `result` is defined in a class that several kinds share: `class CompressDemonstrations(OfStandIns[CompressDemonstrationsResult])`.
    (result_type,) = (
        argument for base in vars(kind)["__orig_bases__"] for argument in get_args(base)
    )
    return result_type


def _words(kind: type, names: Mapping[str, str], said: Mapping[str, str]) -> dict[str, str]:
    """Help on each argument."""
    return {
        "model": MODEL,
        **said,
        **{names[field]: text for field, text in _described(kind) if field in names},
        **{option: said.get(option, text) for option, text in _described(Options)},
    }


def _described(kind: type) -> Iterator[tuple[str, str]]:
    """Fields with their descriptions in the docstrings of the class and its bases."""
    for base in reversed(kind.__mro__):
        text = inspect.cleandoc(vars(base).get("__doc__") or "")
        section = re.search(r"^Attributes:\n((?:    .*\n?|\n(?=    ))*)", text, re.MULTILINE)
        for match in re.finditer(
            r"^    (\w+): (.*(?:\n        .*)*)", section[1] if section else "", re.MULTILINE
        ):
            yield match[1], match[2]


def _help(kind: type, described: dict[str, str], names: Sequence[str]) -> str:
    """The measurement's docstring with its fields and the options of a run as arguments."""
    text = inspect.cleandoc(kind.__doc__ or "")
    head, *sections = re.split(r"\n\n(?=Attributes:|Raises:|Source:)", text)
    arguments = [f"    {name}: {described[name]}" for name in names]
    rest = [section for section in sections if not section.startswith("Attributes:")]
    return "\n\n".join([head, "\n".join(["Args:", *arguments]), *rest])

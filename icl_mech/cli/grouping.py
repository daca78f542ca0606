"""Commands whose parameters are groups of options: one dataclass for each panel of the help."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

import typer

Command = Callable[..., None]

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def grouped(function: Command) -> Command:
    """The function as typer reads it, with every dataclass among its parameters taken apart.

    `def show(source: Source, json: bool = False)` becomes a command with the fields of `Source` as
    options, in their order, and `--json`. A parameter `context` is what typer knows of the call.
    """
    groups: dict[str, Any] = {}
    parameters: dict[str, inspect.Parameter] = {}
    hints = get_type_hints(function, include_extras=True)
    if "context" in hints:
        # typer knows it by this type, but hands over an object of another class with its methods.
        hints["context"] = typer.Context
    for name, own in inspect.signature(function).parameters.items():
        if not is_dataclass(hints[name]):
            parameters[name] = own.replace(annotation=hints[name], kind=_KEYWORD)
            continue
        groups[name] = hints[name]
        parameters |= options_of(hints[name])

    def command(**given: Any) -> None:
        chosen = {
            name: kind(**{item.name: given.pop(item.name) for item in fields(kind)})
            for name, kind in groups.items()
        }
        function(**chosen, **given)

    return as_command(command, function.__name__, function.__doc__ or "", parameters)


def options_of(group: Any) -> dict[str, inspect.Parameter]:
    """The fields of a dataclass as keyword parameters."""
    hints = get_type_hints(group, include_extras=True)
    return {
        item.name: inspect.Parameter(
            item.name,
            _KEYWORD,
            default=inspect.Parameter.empty if item.default is MISSING else item.default,
            annotation=hints[item.name],
        )
        for item in fields(group)
    }


def as_command(
    function: Command, name: str, doc: str, parameters: Mapping[str, inspect.Parameter]
) -> Command:
    """The function with name, help and parameters that are only known now."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = inspect.cleandoc(doc)
    function.__annotations__ = {key: own.annotation for key, own in parameters.items()}
    function.__dict__["__signature__"] = inspect.Signature([*parameters.values()])
    return function

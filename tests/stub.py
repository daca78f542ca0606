"""Types of the public names for editors and type checkers: `icl_mech/__init__.pyi`.

    python -m tests.stub    # writes it

Doors are made of measurements when the package is imported; type checkers only read. So their
signatures and help are written out here, and all else is imported.
"""

import ast
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import icl_mech as icl

SOURCE = Path(icl.__file__)
STUB = SOURCE.with_suffix(".pyi")


def stub() -> str:
    """What the file must hold."""
    places = dict(_imported(ast.parse(SOURCE.read_text(encoding="utf-8"))))
    places |= {name: f"icl_mech.{place}" for name, place in icl.ELSEWHERE.items()}
    needed: set[tuple[str, str]] = set()
    imports, functions = [], []
    for name in (*icl.__all__, *icl.ELSEWHERE):
        value = getattr(icl, name)
        if "__signature__" in vars(value):
            functions.append(_function(name, value, needed))
        else:
            imports.append(f"from {places[name]} import {name} as {name}")
    own = {line.split()[3] for line in imports}
    imports += [f"from {place} import {name}" for place, name in needed if name not in own]
    return "\n".join(
        ['"""Made by `python -m tests.stub`."""', "", *sorted(imports), "", "__version__: str", "", *functions]
    )  # fmt: skip


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.name, str(node.module)


def _function(name: str, value: Callable[..., Any], needed: set[tuple[str, str]]) -> str:
    signature, before = inspect.signature(value), ""
    lines = [f"def {name}("]
    for own in signature.parameters.values():
        if own.kind is own.KEYWORD_ONLY and not before:
            before = "*"
            lines.append("    *,")
        default = "" if own.default is own.empty else " = ..."
        lines.append(f"    {own.name}: {_type(own.annotation, needed)}{default},")
    lines.append(f") -> {_type(signature.return_annotation, needed)}:")
    text = str(value.__doc__).replace("\n", "\n    ").replace("\n    \n", "\n\n")
    return "\n".join([*lines, f'    r"""{text}', '    """', ""])


def _type(given: Any, needed: set[tuple[str, str]]) -> str:
    if isinstance(given, str):  # a class of the file that is being read
        return given
    if given is None or given is type(None):
        return "None"
    if given is Ellipsis:
        return "..."
    if given is Any:
        needed.add(("typing", "Any"))
        return "Any"
    origin, inner = typing.get_origin(given), typing.get_args(given)
    if origin is typing.Literal:
        needed.add(("typing", "Literal"))
        return f"Literal[{', '.join(map(repr, inner))}]"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_type(own, needed) for own in inner)
    if isinstance(given, list):
        return f"[{', '.join(_type(own, needed) for own in given)}]"
    if origin is not None:
        return f"{_type(origin, needed)}[{', '.join(_type(own, needed) for own in inner)}]"
    if hasattr(given, "array_type"):  # a shape of jaxtyping, which type checkers ignore
        return _type(given.array_type, needed)
    if given.__module__ != "builtins":
        needed.add((given.__module__, given.__name__))
    return str(given.__name__)


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")

"""Types for editors and type checkers: `icl_mech/__init__.pyi`, `icl_mech/studies/parts.pyi`.

    python -m tests.stub    # writes them

Doors are made of measurements when the package is imported, and the results of an analysis have the names
of measurements; type checkers only read. So signatures, help and kinds are written out here, and all else is
imported.
"""

import ast
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import icl_mech as icl
from icl_mech import measurements
from icl_mech.measurements import AnyMeasurement
from icl_mech.measurements.doors import _result_of
from icl_mech.studies.parts import Parts
from icl_mech.studies.study import is_own, known_studies

SOURCE = Path(icl.__file__)
STUB = SOURCE.with_suffix(".pyi")
PARTS = SOURCE.parent / "studies" / "parts.pyi"


def stub() -> str:
    """What the file must hold."""
    places = {name: f"icl_mech.{own}" for name, own in {**icl.HERE, **icl.ELSEWHERE}.items()}
    needed: set[tuple[str, str]] = set()
    imports, functions = [], []
    for name in (*icl.__all__, *icl.ELSEWHERE):
        value = getattr(icl, name)
        if "__signature__" in vars(value):
            functions.append(_function(name, value, needed))
        else:
            imports.append(f"from {places[name]} import {name} as {name}")
    imports += [
        f"from {places[now]} import {now} as {earlier}" for earlier, now in icl.ALIASES.items()
    ]
    own = {line.split()[3] for line in imports}
    imports += [f"from {place} import {name}" for place, name in needed if name not in own]
    return "\n".join(
        ['"""Made by `python -m tests.stub`."""', "", *sorted(imports), "", "__version__: str", "", *functions]
    )  # fmt: skip


def parts() -> str:
    """What the file of the results of an analysis must hold."""
    kinds: dict[str, Any] = {}
    for name in measurements.__all__:
        kind = getattr(measurements, name)
        if (
            isinstance(kind, type)
            and issubclass(kind, AnyMeasurement)
            and not inspect.isabstract(kind)
        ):
            kinds[kind.name] = _result_of(kind)
    for study in known_studies().values():
        if is_own(study):
            kinds |= study.gives
    needed: set[tuple[str, str]] = set()
    typed = {name: _type(kind, needed) for name, kind in sorted(kinds.items())}
    needed.add(("icl_mech.results", "Result"))
    doc = ast.get_docstring(ast.parse(inspect.getsource(Parts)).body[0])
    return "\n".join([
        '"""Made by `python -m tests.stub`."""', "",
        "from typing import Literal, TypeVar, overload", "",
        *sorted(f"from {place} import {name}" for place, name in needed), "",
        'R = TypeVar("R", bound=Result)', "",
        "class Parts:", f'    """{doc}"""', "",
        "    results: dict[str, Result]",
        *(f"    {name}: {kind}" for name, kind in typed.items()),
        *(f'    @overload\n    def __getitem__(self, key: Literal["{name}"]) -> {kind}: ...'
          for name, kind in typed.items()),
        "    @overload\n    def __getitem__(self, key: str) -> Result: ...",
        "    @overload\n    def __getitem__(self, key: type[R]) -> R: ...",
        "    def __getattr__(self, name: str) -> Result: ...", "",
    ])  # fmt: skip


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
    PARTS.write_text(parts(), encoding="utf-8")

"""The reference: names in the order given on a page, with formulas and types of fields.

A block of names, one per line,

    ```{api}
    icl_mech.flow_scores
    icl_mech.measurements.saliency.flow.FlowScores
    about icl_mech.measurements.saliency.flow
    ```

becomes the documentation of functions and classes; `about` inserts a module's description of its method.
"""

import inspect
import re
from importlib import import_module
from typing import Any, get_args, get_origin

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.errors import ExtensionError
from sphinx.ext.napoleon import GoogleDocstring

FIELD = re.compile(r":ivar (\w+):")
ANNOTATED = re.compile(r"(?:typing\.)?Annotated\[(\w+), \w+\([^()]*\)\]")
BLOCK = re.compile(r"^```\{api\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def found(name: str) -> Any:
    """The object with that dotted name.

    A function is found before a module of its name, as `import` does not.

    Raises:
        ExtensionError: there is no such object, or it is a module.
    """
    module, _, own = name.rpartition(".")
    thing = getattr(import_module(module), own, None)
    if thing is None or inspect.ismodule(thing):
        raise ExtensionError(f"The reference names {name}, which is not a function or class.")
    return thing


def protocol(thing: type) -> tuple[str, ...]:
    """Members common to all measurements or results, described once: at `Measurement` and `Result`."""
    from icl_mech.measurements.base import AnyMeasurement
    from icl_mech.results import Result
    from icl_mech.results.record import Record

    if thing.__module__.startswith("icl_mech.measurements.base"):
        return ()
    if issubclass(thing, AnyMeasurement):
        return (
            "check",
            "check_options",
            "filled",
            "name",
            "takes",
            "why_not",
            "reads_texts",
            "reads_spans",
            "passes",
            "result",
            "side",
            "steps",
        )
    if issubclass(thing, Result) and thing.__module__.startswith("icl_mech.measurements"):
        return (*vars(Record), "figures", "page_title", "more_columns", "plain_table", "status")
    return ()


def directive(line: str) -> str:
    """The autodoc directive for one line of a block."""
    if line.startswith("about "):
        return f".. automodule:: {line.removeprefix('about ')}\n   :no-members:\n   :no-index:\n"
    if inspect.isclass(thing := found(line)):
        left_out = ", ".join(protocol(thing))
        return f".. autoclass:: {line}\n   :members:\n" + (
            f"   :exclude-members: {left_out}\n" if left_out else ""
        )
    return f".. autofunction:: {line}\n"


def expand(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the blocks of names before a page is parsed."""

    def replaced(match: re.Match[str]) -> str:
        lines = [line.strip() for line in match[1].splitlines() if line.strip()]
        return "```{eval-rst}\n" + "\n".join(map(directive, lines)) + "```"

    source[0] = BLOCK.sub(replaced, source[0])


def written(annotation: Any) -> str:
    """A type as written in code, without modules."""
    if isinstance(annotation, str):
        return annotation
    if get_origin(annotation) is None and isinstance(annotation, type):
        return annotation.__name__
    text = str(annotation) if get_args(annotation) else repr(annotation)
    text = ANNOTATED.sub(r"\1", text)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z]\w*)", "", text)


def inherited(app: Sphinx, thing: Any, described: set[str]) -> list[str]:
    """Descriptions by the parents of a dataclass of fields that it does not describe itself."""
    from icl_mech.results import Result

    lines: list[str] = []
    for parent in thing.__mro__[1:]:
        own = vars(parent).get("__doc__") if hasattr(parent, "__dataclass_fields__") else None
        # Fields common to all results are described at `Result`.
        if not own or parent in Result.__mro__:
            continue
        taken = False
        for line in GoogleDocstring(inspect.cleandoc(own), app.config, what="class").lines():
            if field := FIELD.match(line):
                taken = field[1] not in described
                described.add(field[1])
            taken = taken and bool(field or line.startswith(" "))
            if taken:
                lines.append(line)
    return lines


def complete(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Add missing fields of parents, types of fields, and formulas of a result."""
    if what != "class":
        return
    lines += inherited(app, thing, {found[1] for line in lines if (found := FIELD.match(line))})
    types = {
        field: written(annotation)
        for own in reversed(thing.__mro__)
        for field, annotation in vars(own).get("__annotations__", {}).items()
    }
    for place in range(len(lines) - 1, -1, -1):
        field = FIELD.match(lines[place])
        if field and field[1] in types:
            lines.insert(place, f":vartype {field[1]}: {types[field[1]]}".replace("*", "\\*"))
    for definition in getattr(thing, "definitions", ()):
        source = f" ({definition.source})" if definition.source else ""
        lines += ["", f"**{definition.name}**{source}", "", f".. math:: {definition.formula}", ""]
        lines += [definition.words, ""]


def shorten(app: Sphinx, what: str, name: str, thing: Any, options: Any, *texts: Any) -> Any:
    """Signatures without annotations that only checks read.

    A result's constructor is left out: users do not call it, and its fields are listed below.
    """
    from icl_mech.results import Result

    if what == "class" and isinstance(thing, type) and issubclass(thing, Result):
        return "", None
    signature, returned = texts
    return (ANNOTATED.sub(r"\1", signature), returned) if signature else None


def without_type(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Keep a colon in the first line of an attribute: napoleon would take what stands before it for a type."""
    if what in ("attribute", "data", "property"):
        lines.insert(0, "")


def code(name: str, raw: str, text: str, line: int, inliner: Any, *more: Any) -> Any:
    """Text in single backquotes: code, as in Markdown."""
    return [nodes.literal(raw, text.replace("\\", ""))], []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the blocks and the functions that complete them."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Fields"
    app.add_role("plain-code", code)
    app.config["default_role"] = "plain-code"
    app.connect("source-read", expand)
    app.connect("autodoc-process-docstring", complete)
    app.connect("autodoc-process-docstring", without_type, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""What is printed: results on standard output, everything else on standard error."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape

from icl_mech.results import jsonable


def say(text: str) -> None:
    """A result, as it is: no markup, no line breaks of ours."""
    print(text)


def say_json(document: Any) -> None:
    """A result for programs."""
    print(json.dumps(jsonable(document), indent=1, ensure_ascii=False))


def draw(*parts: RenderableType) -> None:
    """Tables and coloured text; colours only where a terminal shows them."""
    console = Console(highlight=False)
    for part in parts:
        console.print(part)


def note(text: str) -> None:
    """A line beside the results."""
    _aside().print(escape(text), soft_wrap=True)


def error_line(text: str) -> None:
    """What went wrong, in one line."""
    # Paths and lists in a message hold brackets, which are not rich's markup.
    _aside().print(f"[red]Error:[/red] {escape(text)}", soft_wrap=True)


@contextmanager
def waiting(text: str, *, quiet: bool) -> Iterator[None]:
    """A line with a turning sign while something is loaded."""
    # Where nothing can turn, rich would still write an empty line.
    if quiet or not _aside().is_terminal:
        yield
        return
    with _aside().status(escape(text)):
        yield


def _aside() -> Console:
    return Console(stderr=True, highlight=False)

"""Output: results on standard output, everything else on standard error, in terms of options."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import typer
from rich.console import Console, RenderableType
from rich.markup import escape

from icl_mech.errors import IclMechError


def say(text: str) -> None:
    """Print a result unchanged: no markup, no added line breaks."""
    print(text)


def say_json(document: object) -> None:
    """Print a result as JSON."""
    from icl_mech.results import jsonable

    print(json.dumps(jsonable(document), indent=1, ensure_ascii=False))


def say_forecast(found: object, *, json: bool) -> None:
    """Print what a run would cost.

    Raises:
        typer.Exit: it does not fit into memory.
    """
    from icl_mech.studies.forecast import Forecast

    assert isinstance(found, Forecast)
    say_json(found.to_dict()) if json else say(repr(found))
    if not found.fits:
        raise typer.Exit(1)


def draw(*parts: RenderableType) -> None:
    """Print tables and coloured text; colours only where a terminal shows them."""
    console = Console(highlight=False)
    for part in parts:
        console.print(part)


def note(text: str) -> None:
    """Print a line to standard error."""
    _aside().print(escape(text), soft_wrap=True)


def error_line(text: str) -> None:
    """Print an error in one line; `overwrite=` and `resume=` become the options of that name."""
    text = reworded(text.replace("resume='again'", "--resume --again"), ALWAYS)
    # Paths and lists in a message hold brackets, which are not rich's markup.
    _aside().print(f"[red]Error:[/red] {escape(text)}", soft_wrap=True)


@contextmanager
def waiting(text: str, *, quiet: bool) -> Iterator[None]:
    """Show a spinner while something is loaded."""
    # Without a terminal, rich would still write an empty line.
    if quiet or not _aside().is_terminal:
        yield
        return
    with _aside().status(escape(text)):
        yield


def _aside() -> Console:
    return Console(stderr=True, highlight=False)


# --- Ctrl-C ---

EXIT_CODE = 130
"""Exit code after Ctrl-C, as in shells."""


@contextmanager
def interruptible(kept: str) -> Iterator[None]:
    """Ctrl-C ends the command with this line.

    Raises:
        typer.Exit: instead of `KeyboardInterrupt`.
    """
    try:
        yield
    except KeyboardInterrupt:
        note(f"Interrupted. {kept}")
        raise typer.Exit(EXIT_CODE) from None


# --- errors in terms of the command line: `--label-words`, not `labels=` ---


@contextmanager
def in_options(options: Mapping[str, str]) -> Iterator[None]:
    """Errors name the options that arguments came from.

    Messages of the package write an argument as `name=`, alone or with its value. The caller of a
    function knows which option each argument came from, and passes it here.

    Args:
        options: Option of each argument, such as `{"labels": "--label-words"}`.
    """
    try:
        yield
    except IclMechError as error:
        raise type(error)(reworded(str(error), options)) from error


def reworded(message: str, options: Mapping[str, str]) -> str:
    """The message with `labels=['a']` written as `--label-words ['a']`.

    >>> reworded("so test_split= would have no effect", {"test_split": "--test-split"})
    'so --test-split would have no effect'
    >>> reworded("use balanced=False or bos=True", {"balanced": "--balanced", "bos": "--bos"})
    'use --no-balanced or --bos'
    >>> call = "load a file: load_task('my.csv', template='sst2', ...)."
    >>> reworded(call, {"name_or_path": "--task", "template": "--template"})
    "load a file: --task 'my.csv' --template 'sst2' ..."
    >>> reworded("give label_map={-1: 'bad', 1: 'good'}", {"label_map": "--label-map"})
    "give --label-map='-1=bad,1=good'"
    """
    if "name_or_path" in options:
        message = _CALL.sub(
            lambda call: f"{options['name_or_path']} {call[1].replace(', ', ' ')}", message
        )
    for name, option in options.items():
        pairs = rf"(?<![\w.-]){name}={{([^{{}}]*)}}"
        message = re.sub(pairs, partial(_as_pairs, option), message)
        for value, flag in (("True", option), ("False", f"--no-{option[2:]}")):
            message = re.sub(rf"(?<![\w.-]){name}={value}\b", flag, message)
        message = re.sub(rf"(?<![\w.-]){name}=(?!=)(?=[\w'\"\[({{.-])", f"{option} ", message)
        message = re.sub(rf"(?<![\w.-]){name}=(?!=)", option, message)
    return message


def _as_pairs(option: str, mapping: re.Match[str]) -> str:
    """A dictionary as an option writes it: `--label-map='-1=bad,1=good'`."""
    pairs = mapping[1].replace("'", "").replace(": ", "=").replace(", ", ",")
    return f"{option}='{pairs}'"


ALWAYS = {"overwrite": "--overwrite", "resume": "--resume"}

_CALL = re.compile(r"load_task\(('[^'()]*'(?:, [^()]*)?)\)")
"""A call in a message, whose first argument is a word."""

"""The application: all commands, and the version, errors and exit codes they share."""

import ast
import re
import sys
import warnings
from collections.abc import MutableMapping
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup
from typer.main import get_command

from icl_mech.cli.analyze import analyze
from icl_mech.cli.atlas import atlas_commands
from icl_mech.cli.console import error_line, note, say
from icl_mech.cli.demo import demo
from icl_mech.cli.explore import explore
from icl_mech.cli.lists import models, tasks
from icl_mech.cli.power import power
from icl_mech.cli.prompts import prompts
from icl_mech.cli.reproduce import reproduce
from icl_mech.cli.show import compare, export, page, show
from icl_mech.cli.sweep import sweep
from icl_mech.errors import IclMechError, near_matches
from icl_mech.names import versions

RUN, LOOK, LISTS = "Measure", "Inspect runs", "Known models and tasks"

EXIT_CODES = "Exit codes: 0 success, 1 error, 2 invalid command line, 130 interrupted."


def examples(*lines: str) -> str:
    """The epilog of a command's help: examples, then the exit codes."""
    return "\n\n".join(("[bold]Examples[/bold]", *(f"  {line}" for line in lines), EXIT_CODES))


class Commands(TyperGroup):
    """All commands; an invalid value of an option is rejected with the nearest valid ones."""

    def invoke(self, *args: Any, **named: Any) -> Any:
        """Run the requested command."""
        try:
            return super().invoke(*args, **named)
        except Exception as error:
            refused = _NO_CHOICE.fullmatch(str(getattr(error, "message", "")))
            if refused:
                given, known = map(ast.literal_eval, (refused[1], f"[{refused[2]}]"))
                error.__dict__["message"] = f"{given!r}. {near_matches(given, known)}"
            raise


_NO_CHOICE = re.compile(r"(?:Value error, )?('.*') is not one of ('.*')\.")
"""Message with which typer (or click) rejects a value."""


class Measurements(TyperGroup):
    """Subcommands of `measure`, built on first use, since their options need all measurements."""

    @property
    def commands(self) -> MutableMapping[str, Any]:
        """Subcommands by name."""
        return _measurements()

    @commands.setter
    def commands(self, given: object) -> None:
        """Ignore the commands typer collected: there are none."""


@cache
def _measurements() -> dict[str, Any]:
    from icl_mech.cli.measure import measure_commands

    group: Any = get_command(measure_commands(examples))
    return dict(group.commands)


app = typer.Typer(
    name="icl-mech",
    cls=Commands,
    help="How does a language model use its in-context demonstrations?",
    epilog=examples(
        "icl-mech demo",
        "icl-mech prompts --task headlines",
        "icl-mech analyze --study label_words --task headlines --n 100",
        "icl-mech measure isolation --task headlines --mode zero",
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)


def _version(wanted: bool | None) -> None:
    if wanted:
        say(versions())
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool | None,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the versions and exit."
        ),
    ] = False,
) -> None:
    """How does a language model use its in-context demonstrations?"""


COMMANDS = {
    RUN: (demo, analyze, sweep, reproduce),
    LOOK: (explore, power, prompts, show, page, export, compare),
    LISTS: (models, tasks),
}
"""Commands by panel."""

EXAMPLES = r"""
icl-mech demo --n 12
icl-mech analyze --task headlines --shots 2 --n 100 --out runs/headlines
icl-mech analyze --study overthinking --task headlines --shots 2 --resume --out runs/ot
icl-mech analyze --study my_module:MY_STUDY --measurement my_module:MyMeasurement
icl-mech analyze --task my.csv --template 'Review: {text}\nSentiment: {label}' --label-words Negative,Positive
icl-mech sweep study.yaml --out runs/study --workers 2
icl-mech sweep study.yaml --out runs/study --resume
icl-mech reproduce lw-table-1 --model gpt2-xl --out runs/table-1
icl-mech reproduce lw-table-1 --tasks offline --scale 0.1
icl-mech explore
icl-mech explore --task reviews --shots 2 --no-browser --out runs/by-hand
icl-mech power study.yaml --effect 0.3 --power 0.9
icl-mech prompts --task headlines --shots 2 -n 3
icl-mech prompts --model gpt2 --task reviews --tokens -n 1
icl-mech show runs/headlines --json
icl-mech page runs/headlines --out headlines.html
icl-mech export runs/headlines --out paper --width page
icl-mech compare runs/gpt2 runs/smollm --out comparison.html
icl-mech compare runs/a runs/b --names before,after
icl-mech models
icl-mech tasks
icl-mech tasks ot-sst2
"""
"""Examples of every command, in order."""

for panel, functions in COMMANDS.items():
    for function in functions:
        lines = [line for line in EXAMPLES.splitlines() if line.split()[1:2] == [function.__name__]]
        app.command(rich_help_panel=panel, epilog=examples(*lines))(function)
app.add_typer(
    typer.Typer(cls=Measurements, no_args_is_help=True),
    name="measure",
    help="Run one measurement; write its result and an HTML report to a folder.",
    rich_help_panel=RUN,
    epilog=examples(
        "icl-mech measure flow --task headlines --reduction abs_then_sum",
        "icl-mech measure isolation --depths 1,2,5 --tokens label",
        "icl-mech measure head-attention --heads 13.2,24.6 --first 1",
    ),
)
app.add_typer(atlas_commands(examples), name="atlas", rich_help_panel=LOOK)


def main() -> None:
    """Run the command line; an error of this package gives one red line and exit code 1."""
    # A name that is not UTF-8, or a character the terminal lacks, must not abort a command.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = _as_note
        # User modules lie in the working directory, which the installed command does not search.
        here = str(Path.cwd())
        sys.path.append(here)
        try:
            app(prog_name="icl-mech")
        except IclMechError as error:
            error_line(str(error))
            sys.exit(1)
        finally:
            sys.path.remove(here)


def _as_note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print only the message of a warning; its place in the code does not help a user."""
    if not issubclass(category, DeprecationWarning | FutureWarning | PendingDeprecationWarning):
        note(f"Note: {message}")

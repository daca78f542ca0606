"""The commands put together, and what holds for all of them: version, errors, exit codes."""

import sys
import warnings
from typing import Annotated, TextIO

import typer

from icl_mech.cli.analyze import analyze
from icl_mech.cli.compare import compare
from icl_mech.cli.console import error_line, note, say
from icl_mech.cli.demo import demo
from icl_mech.cli.measure import measure_commands
from icl_mech.cli.models import models
from icl_mech.cli.page import page
from icl_mech.cli.power import power
from icl_mech.cli.prompts import prompts
from icl_mech.cli.show import show
from icl_mech.cli.sweep import sweep
from icl_mech.cli.tasks import tasks
from icl_mech.errors import IclMechError

RUN, LOOK, LISTS = "Measure", "Look at a run", "What there is"

EXIT_CODES = "Exit codes: 0 done, 1 an error, 2 a command that cannot be read, 130 interrupted."


def examples(*lines: str) -> str:
    """What stands below a command's options: examples, then the exit codes."""
    return "\n\n".join(("[bold]Examples[/bold]", *(f"  {line}" for line in lines), EXIT_CODES))


app = typer.Typer(
    name="icl-mech",
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
        from importlib.metadata import version

        from icl_mech.measurements.provenance import LIBRARIES

        own, *others = (f"{name} {version(name)}" for name in LIBRARIES)
        say(f"{own} ({', '.join(others)})")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool | None,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the versions and leave."
        ),
    ] = False,
) -> None:
    """How does a language model use its in-context demonstrations?"""


app.command(
    rich_help_panel=RUN,
    epilog=examples("icl-mech demo --n 12"),
)(demo)
app.command(
    rich_help_panel=RUN,
    epilog=examples(
        "icl-mech analyze --task headlines --shots 2 --n 100 --out runs/headlines",
        "icl-mech analyze --study overthinking --task headlines --shots 2 --resume --out runs/ot",
        r"icl-mech analyze --task my.csv --template 'Review: {text}\nSentiment:{label}' "
        "--label-words Negative,Positive",
    ),
)(analyze)
app.add_typer(
    measure_commands(examples),
    name="measure",
    rich_help_panel=RUN,
    epilog=examples(
        "icl-mech measure flow --task headlines --reduction abs_then_sum",
        "icl-mech measure isolation --depths 1,2,5 --tokens label",
        "icl-mech measure head-attention --heads 13.2,24.6 --first 1",
    ),
)
app.command(
    rich_help_panel=RUN,
    epilog=examples(
        "icl-mech sweep study.yaml --out runs/study --workers 2",
        "icl-mech sweep study.yaml --out runs/study --resume",
    ),
)(sweep)
app.command(
    rich_help_panel=LOOK,
    epilog=examples("icl-mech power study.yaml --effect 0.3 --power 0.9"),
)(power)
app.command(
    rich_help_panel=LOOK,
    epilog=examples(
        "icl-mech prompts --task headlines --shots 2 -n 3",
        "icl-mech prompts --model gpt2 --task reviews --tokens -n 1",
    ),
)(prompts)
app.command(rich_help_panel=LOOK, epilog=examples("icl-mech show runs/headlines --json"))(show)
app.command(
    rich_help_panel=LOOK, epilog=examples("icl-mech page runs/headlines --out headlines.html")
)(page)
app.command(
    rich_help_panel=LOOK,
    epilog=examples(
        "icl-mech compare runs/gpt2 runs/smollm --out comparison.html",
        "icl-mech compare runs/a runs/b --names before,after",
    ),
)(compare)
app.command(rich_help_panel=LISTS, epilog=examples("icl-mech models"))(models)
app.command(rich_help_panel=LISTS, epilog=examples("icl-mech tasks", "icl-mech tasks ot-sst2"))(
    tasks
)


def main() -> None:
    """Run the command line; errors of ours are one red line and exit code 1."""
    with warnings.catch_warnings():
        warnings.showwarning = _as_note
        try:
            app(prog_name="icl-mech")
        except IclMechError as error:
            error_line(str(error))
            sys.exit(1)


def _as_note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning in the words of its message; where in the code it arose tells a user nothing."""
    if not issubclass(category, DeprecationWarning | FutureWarning | PendingDeprecationWarning):
        note(f"Note: {message}")

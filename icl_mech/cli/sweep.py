"""`icl-mech sweep`: many models, tasks, settings and seeds, as a YAML file says."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from icl_mech.cli.command_line import command_line
from icl_mech.cli.console import note, say, say_json
from icl_mech.cli.grouping import grouped
from icl_mech.cli.interrupted import interruptible
from icl_mech.results import PAGE
from icl_mech.studies.made import by_command
from icl_mech.sweeps import Sweep
from icl_mech.sweeps import sweep as run_sweep
from icl_mech.sweeps.compare import comparison
from icl_mech.sweeps.config import read_config

_OUT, _RUN = "What is written", "How to run"


def _option(panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **more)


@grouped
def sweep(
    context: Any,
    file: Annotated[
        Path, typer.Argument(metavar="STUDY.YAML", help="What to run: models, tasks, ...")
    ],
    out: Annotated[Path, _option(_OUT, help="Folder of the sweep, such as runs/study.")],
    resume: Annotated[
        bool,
        _option(_OUT, "--resume", help="Go on in the folder: finished items stay, others run."),
    ] = False,
    again: Annotated[
        bool,
        _option(_OUT, "--again", help="With --resume: items of a changed model or task run anew."),
    ] = False,
    overwrite: Annotated[
        bool, _option(_OUT, "--overwrite", help="Measure all items of the folder again.")
    ] = False,
    workers: Annotated[
        int | None, _option(_RUN, min=1, help="Processes side by side; default: one, this.")
    ] = None,
    devices: Annotated[
        str | None, _option(_RUN, help="One process for each: cuda:0,cuda:1")
    ] = None,
    timeout: Annotated[
        float | None,
        _option(_RUN, min=0.001, help="Seconds an item may take in its process; default: 6 hours."),
    ] = None,
    json: Annotated[bool, _option(_OUT, "--json", help="Print the items as JSON.")] = False,
    quiet: Annotated[
        bool,
        _option(_OUT, "--quiet", "-q", help="No progress; print the folder and nothing else."),
    ] = False,
) -> None:
    """Run a sweep; write every finished item at once, and a page in the end."""
    given = read_config(file)
    if workers is not None:
        given |= {"workers": workers}
    if devices is not None:
        given |= {"devices": tuple(own.strip() for own in devices.split(","))}
    if timeout is not None:
        given |= {"timeout": timeout}
    kept = f"Finished items are kept in {out}; the same command with --resume goes on with them."
    with interruptible(kept), by_command(command_line(context)):
        found = run_sweep(
            **given, out=out, resume=_resumed(again) if resume and out.exists() else False, overwrite=overwrite,
            progress=False if quiet else None,
        )  # fmt: skip
    written = _page(found, out)
    if json:
        items = found.items.to_dict("records")
        say_json({"folder": str(out), "page": written, "items": items, "left_out": found.skipped})
    elif quiet:
        say(str(out))
    else:
        say(found.summary())
        say(f"Results: {out}")
        if written:
            say(f"Page: {written}")
    if any(state != "done" for state in found.items.state):
        raise typer.Exit(1)


def _resumed(again: bool) -> bool | Literal["again"]:
    return "again" if again else True


def _page(found: Sweep, out: Path) -> str | None:
    """The page of all finished items; a figure must not cost hours of measuring."""
    if not any(state == "done" for state in found.items.state):
        return None
    try:
        return str(comparison(found).to_html(out / PAGE))
    except Exception as error:  # noqa: BLE001 - the results are there
        note(f"The page could not be made ({type(error).__name__}: {error}).")
        return None

"""`icl-mech sweep`: many models, tasks, settings and seeds, as described by a YAML file."""

from dataclasses import dataclass
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from icl_mech.cli.console import interruptible, note, say, say_forecast, say_json
from icl_mech.cli.inputs import load_options, own_measurements
from icl_mech.cli.job import command_line
from icl_mech.cli.options import DryRun, LoadOptions, OwnOptions, _option, grouped

if TYPE_CHECKING:
    from icl_mech.recipes import Reproduction
    from icl_mech.sweeps import Comparison, Sweep

_OUT, _RUN = "Output", "How to run"


@dataclass(frozen=True)
class RunOptions:
    """How the runs of a sweep are computed, and what is printed."""

    resume: Annotated[
        bool,
        _option(
            _OUT, "--resume", help="Continue in the folder: finished runs are kept, the others run."
        ),
    ] = False
    again: Annotated[
        bool,
        _option(
            _OUT, "--again", help="With --resume: repeat runs whose model or task has changed."
        ),
    ] = False
    workers: Annotated[
        int | None,
        _option(_RUN, min=1, help="Number of parallel processes; default: only this one."),
    ] = None
    devices: Annotated[str | None, _option(_RUN, help="One process per device: cuda:0,cuda:1")] = (
        None
    )
    timeout: Annotated[
        float | None,
        _option(
            _RUN,
            min=0.001,
            help="Maximum number of seconds for a run in its process; default: 6 hours.",
        ),
    ] = None
    dry_run: DryRun = False
    json: Annotated[bool, _option(_OUT, "--json", help="Print the runs as JSON.")] = False
    quiet: Annotated[
        bool, _option(_OUT, "--quiet", "-q", help="No progress; print the folder and nothing else.")
    ] = False

    def arguments(self, out: Path) -> dict[str, Any]:
        """The arguments of `sweep`."""
        given: dict[str, Any] = {"workers": self.workers, "timeout": self.timeout}
        if self.devices is not None:
            given["devices"] = tuple(device.strip() for device in self.devices.split(","))
        again: bool | Literal["again"] = "again" if self.again else True
        return {
            **{name: value for name, value in given.items() if value is not None},
            "out": out,
            "resume": again if self.resume and exists(out) else False,
            "progress": False if self.quiet else None,
            "plan": self.dry_run,
        }


def kept(out: Path) -> str:
    """Message of an interrupted command."""
    return f"Finished runs are kept in {out}; run the same command with --resume to continue."


@grouped
def sweep(
    context: object,
    file: Annotated[
        Path, typer.Argument(metavar="STUDY.YAML", help="What to run: models, tasks, ...")
    ],
    out: Annotated[Path, _option(_OUT, help="Folder of the sweep, such as runs/study.")],
    overwrite: Annotated[
        bool, _option(_OUT, "--overwrite", help="Measure all runs in the folder again.")
    ] = False,
    *,
    run: RunOptions,
    load: LoadOptions,
    own: OwnOptions,
) -> None:
    """Run a sweep; save each run as soon as it finishes, and an HTML report at the end."""
    from icl_mech.studies.measuring import by_command
    from icl_mech.sweeps import sweep as run_sweep
    from icl_mech.sweeps.compare import comparison
    from icl_mech.sweeps.config import read_config

    given = read_config(file, load_options(load))
    if besides := own_measurements(own):
        given["measurements"] = [*given.get("measurements", ()), *besides]
    given |= run.arguments(out)
    with interruptible(kept(out)), by_command(command_line(context)):
        result = run_sweep(**given, overwrite=overwrite)
    if run.dry_run:
        say_forecast(result, json=run.json)
        return
    tell(result, result.summary(), page_of(result, comparison(result), out), run)


def of_runs(found: "Sweep") -> dict[str, Any]:
    """The runs of a sweep and their states, and what was left out, as plain values."""
    return {"items": found.items.to_dict("records"), "left_out": found.skipped}


def tell(found: "Sweep", summary: str, written: str | None, run: RunOptions) -> None:
    """Print the state of the runs; exit code 1 if some failed.

    Raises:
        typer.Exit: a run failed.
    """
    if run.json:
        say_json({"folder": str(found.folder), "page": written, **of_runs(found)})
    elif run.quiet:
        say(str(found.folder))
    else:
        say(summary)
        say(f"Results: {Path(written).parent if written else found.folder}")
        if written:
            say(f"Page: {written}")
    if any(state != "done" for state in found.items.state):
        raise typer.Exit(1)


def page_of(found: "Sweep", shown: "Comparison | Reproduction", out: Path) -> str | None:
    """Write the report of all finished runs; a failing figure must not lose hours of measurements."""
    from icl_mech.results import PAGE

    if not any(state == "done" for state in found.items.state):
        return None
    try:
        return str(shown.to_html(out / PAGE))
    except Exception as error:  # noqa: BLE001 - the results are there
        note(f"The HTML report could not be written ({type(error).__name__}: {error}).")
        return None

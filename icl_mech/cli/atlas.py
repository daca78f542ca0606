"""`icl-mech atlas add`, `list` and `build`: finished, checked runs as one static site."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import icl_mech as icl
from icl_mech.cli.console import say
from icl_mech.documents import index_in

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs or of sweeps.")]
Atlas = Annotated[Path, typer.Argument(metavar="ATLAS", help="The folder of the atlas.")]
Into = Annotated[
    Path, typer.Option("--atlas", help="Folder of the atlas, created if it does not exist.")
]
Label = Annotated[
    str, typer.Option(help="Display name of the model, if its own name is uninformative.")
]
Again = Annotated[
    str | None, typer.Option(help="Load this model, measure everything again, and compare.")
]
Out = Annotated[
    Path, typer.Option(help="Folder for the site: new, empty, or that of an earlier site.")
]
Over = Annotated[
    bool, typer.Option("--overwrite", help="Allow a folder that contains other files, which stay.")
]


def add_runs(runs: Runs, atlas: Into, label: Label = "", measure_again: Again = None) -> None:
    """Check saved runs and copy them into an atlas: all of them, or none."""
    for folder in runs:
        index_in(folder)
    from icl_mech.atlas import add

    models = None if measure_again is None else [icl.load_model(measure_again)]
    for place in add(runs, atlas, label=label, models=models):
        say(f"Added: {place}")


def list_runs(atlas: Atlas) -> None:
    """List the runs of an atlas."""
    from icl_mech.atlas import load_atlas

    for run in load_atlas(atlas, checked=False):
        say(f"{run.name}\n  {run.item.title}")


def build_site(atlas: Atlas, out: Out, overwrite: Over = False) -> None:
    """Check every run again and write the site: an index, a page for each run, CSV and JSON."""
    from icl_mech.atlas import build

    say(f"Atlas: {build(atlas, out, overwrite=overwrite)}")


def atlas_commands(examples: Callable[..., str]) -> typer.Typer:
    """The group of the three commands."""
    app = typer.Typer(help="Collect finished, checked runs side by side in one static site.")
    app.command("add", epilog=examples("icl-mech atlas add runs/a --atlas runs/atlas"))(add_runs)
    app.command("list", epilog=examples("icl-mech atlas list runs/atlas"))(list_runs)
    app.command("build", epilog=examples("icl-mech atlas build runs/atlas --out site"))(build_site)
    return app

"""`icl-mech show`: what a saved run found."""

from pathlib import Path
from typing import Annotated

import typer

import icl_mech as icl
from icl_mech.cli.console import say, say_json
from icl_mech.cli.described import described
from icl_mech.cli.options import AsJson

RunFolder = Annotated[
    Path,
    typer.Argument(metavar="RUN_FOLDER", help="What --out named, such as runs/analysis."),
]


def show(folder: RunFolder, json: AsJson = False) -> None:
    """Show what a saved run found."""
    analysis = icl.load_analysis(folder)
    if json:
        say_json({**described(analysis), "folder": str(folder)})
    else:
        say(analysis.summary())

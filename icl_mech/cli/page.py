"""`icl-mech page`: the page of a saved run, without measuring anything again."""

from pathlib import Path
from typing import Annotated

import typer

import icl_mech as icl
from icl_mech.cli.console import say
from icl_mech.cli.options import OverwritePage
from icl_mech.cli.show import RunFolder
from icl_mech.results import PAGE


def page(
    folder: RunFolder,
    out: Annotated[
        Path | None, typer.Option(help="The page; default: index.html in the run's folder.")
    ] = None,
    overwrite: OverwritePage = False,
) -> None:
    """Write the page of a saved run; no model is loaded."""
    written = icl.load_analysis(folder).to_html(out or folder / PAGE, overwrite=overwrite)
    say(f"Page: {written}")

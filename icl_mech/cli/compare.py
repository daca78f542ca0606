"""`icl-mech compare`: two or more saved runs side by side, as one page."""

from pathlib import Path
from typing import Annotated

import typer

from icl_mech.cli.console import say
from icl_mech.cli.options import OverwritePage
from icl_mech.sweeps import compare as compared


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_FOLDER...", help="Folders of runs or of sweeps."),
    ],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("comparison.html"),
    names: Annotated[
        str | None, typer.Option(help="What to call them, separated by commas.")
    ] = None,
    overwrite: OverwritePage = False,
) -> None:
    """Write a page that compares runs: figures side by side, claims with nested intervals."""
    chosen = None if names is None else [name.strip() for name in names.split(",")]
    found = compared(*folders, names=chosen)
    written = found.to_html(out, overwrite=overwrite)
    say(found.summary())
    say(f"Page: {written}")

"""`icl-mech show`, `page`, `export` and `compare`: results of saved runs, without measuring anything again."""

from pathlib import Path
from typing import Annotated, Literal

import typer

import icl_mech as icl
from icl_mech.cli.console import say, say_json
from icl_mech.cli.options import AsJson, OverwritePage
from icl_mech.errors import ResultError

RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN_FOLDER", help="Folder of a run, as given to --out, such as runs/analysis."
    ),
]


def show(folder: RunFolder, json: AsJson = False) -> None:
    """Show the results of a saved run."""
    from icl_mech.studies.analysis import described, in_lines

    analysis = icl.load(folder, kind=icl.Analysis)
    if json:
        say_json({**described(analysis), "folder": str(folder)})
    else:
        say(in_lines(analysis))


def page(
    folder: RunFolder,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the HTML report; default: index.html in the run's folder."),
    ] = None,
    overwrite: OverwritePage = False,
) -> None:
    """Write the HTML report of a saved run; no model is loaded."""
    from icl_mech.results import PAGE

    written = icl.load(folder, kind=icl.Analysis).to_html(out or folder / PAGE, overwrite=overwrite)
    say(f"Page: {written}")


def export(
    folder: RunFolder,
    out: Annotated[Path, typer.Option(help="Folder for the exported files.")],
    width: Annotated[
        Literal["column", "page"], typer.Option(help="Width of figures: 3.25 or 6.75 inches.")
    ] = "column",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing files of the same names.")
    ] = False,
) -> None:
    """Write figures, tables, methods and references of a saved run or sweep for a paper."""
    from icl_mech.reports import Paged
    from icl_mech.sweeps.compare import comparison

    loaded = icl.load(folder)
    paged = comparison(loaded) if isinstance(loaded, icl.Sweep) else loaded
    if not isinstance(paged, Paged):
        raise ResultError(
            f"{str(folder)!r} holds a {type(loaded).__name__}; give the folder of a run or a sweep."
        )
    written = paged.export(out, width=width, overwrite=overwrite)
    say(f"Paper: {written / 'paper.tex'}")


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN_FOLDER...", help="Folders of runs or of sweeps.")
    ],
    out: Annotated[Path, typer.Option(help="File for the HTML report.")] = Path("comparison.html"),
    names: Annotated[
        str | None, typer.Option(help="Names of the runs, separated by commas.")
    ] = None,
    overwrite: OverwritePage = False,
) -> None:
    """Write an HTML report that compares runs: figures side by side, claims with hierarchical intervals."""
    chosen = None if names is None else [name.strip() for name in names.split(",")]
    comparison = icl.compare(*folders, names=chosen)
    written = comparison.to_html(out, overwrite=overwrite)
    say(comparison.summary())
    say(f"Page: {written}")

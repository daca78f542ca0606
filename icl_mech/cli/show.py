"""`icl-mech show`, `page`, `export` and `compare`: results of saved runs, without measuring anything again."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import icl_mech as icl
from icl_mech.cli.console import in_options, say, say_json
from icl_mech.cli.options import AsJson, OverwritePage
from icl_mech.cli.sweep import of_runs
from icl_mech.documents import SAVED, index_in
from icl_mech.errors import ResultError

if TYPE_CHECKING:
    from icl_mech.reports import Paged
    from icl_mech.results import Result

RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN_FOLDER",
        help="Folder of a run or of a sweep, as given to --out, such as runs/analysis.",
    ),
]


def show(folder: RunFolder, json: AsJson = False) -> None:
    """Show the results of a saved run, of a sweep, or a single one."""
    loaded = _loaded(folder)
    from icl_mech.studies.analysis import described, in_lines, result_values
    from icl_mech.sweeps.compare import comparison

    if isinstance(loaded, icl.Sweep):
        shown = comparison(loaded)
        claims = shown.to_pandas().to_dict("records")
        document, text = {**of_runs(loaded), "claims": claims}, shown.summary()
    elif isinstance(loaded, icl.Analysis):
        document, text = described(loaded), in_lines(loaded)
    else:
        document, text = result_values(loaded), loaded.summary()
    if json:
        say_json({**document, "folder": str(folder)})
    else:
        say(text)


def page(
    folder: RunFolder,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the HTML report; default: index.html in the run's folder."),
    ] = None,
    overwrite: OverwritePage = False,
) -> None:
    """Write the HTML report of a saved run or sweep; no model is loaded."""
    paged = _paged(folder, "page")
    from icl_mech.results import PAGE

    written = paged.to_html(out or folder / PAGE, overwrite=overwrite)
    say(f"Page: {written}")


def export(
    folder: RunFolder,
    out: Annotated[Path, typer.Option(help="Folder for the exported files.")],
    width: Annotated[
        Literal["column", "page"], typer.Option(help="Width of figures: 3.25 or 6.75 inches.")
    ] = "column",
    figures: Annotated[
        bool, typer.Option(help="Draw the figures, which needs a browser (Chrome or Chromium).")
    ] = True,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing files of the same names.")
    ] = False,
) -> None:
    """Write figures, tables, methods and references of a saved run or sweep for a paper."""
    paged = _paged(folder, "export")
    with in_options({"figures": "--figures"}):
        written = paged.export(out, width=width, figures=figures, overwrite=overwrite)
    say(f"Paper: {written / 'paper.tex'}{'' if figures else ' (without figures)'}")


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
    for folder in folders:
        index_in(folder)
    chosen = None if names is None else [name.strip() for name in names.split(",")]
    comparison = icl.compare(*folders, names=chosen)
    written = comparison.to_html(out, overwrite=overwrite)
    say(comparison.summary())
    say(f"Page: {written}")


def _loaded(folder: Path) -> "icl.Analysis | icl.Sweep | Result":
    """What a folder holds; a wrong folder is rejected before seconds go by with imports."""
    index_in(folder)
    return icl.load(folder)


def _paged(folder: Path, command: str) -> "Paged":
    """The run of a folder, or the comparison of its sweep.

    Raises:
        ResultError: a single result; names the folder of its run, if it belongs to one.
    """
    loaded = _loaded(folder)
    from icl_mech.reports import Paged
    from icl_mech.sweeps.compare import comparison

    paged = comparison(loaded) if isinstance(loaded, icl.Sweep) else loaded
    if isinstance(paged, Paged):
        return paged
    run = folder.expanduser().resolve().parent
    instead = f"type icl-mech show {quote(str(folder))}"
    if (run / SAVED[0]).is_file():
        instead = f"type icl-mech {command} {quote(str(run))}, the run that it belongs to"
    raise ResultError(
        f"{str(folder)!r} holds a single result ({type(loaded).__name__}), but icl-mech {command} takes a run or "
        f"a sweep; {instead}."
    )

"""`icl-mech reproduce`: the papers' tables and figures, listed, shown, copied, and run on any model."""

from dataclasses import dataclass
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from icl_mech._files import replace_file
from icl_mech.cli.console import draw, in_options, interruptible, say, say_forecast, say_json
from icl_mech.cli.inputs import load_options
from icl_mech.cli.job import command_line
from icl_mech.cli.options import LoadOptions, grouped, model_names
from icl_mech.cli.sweep import RunOptions, kept, page_of, tell
from icl_mech.errors import SweepError

if TYPE_CHECKING:
    from icl_mech.recipes import Recipe

_WORDS = {"models": "--model", "tasks": "--tasks", "scale": "--scale"}
_MODELS = (
    "Known name, hub id or folder; may be given several times. `all`: the models of the paper."
)
_TASKS = "Tasks instead of the paper's: `offline`, or names and files separated by commas."


TABLE = "table.tex"
"""The table in LaTeX, in the folder of the sweep."""


def names_begun(incomplete: str) -> list[str]:
    """Recipes that begin with this text, for completion."""
    from icl_mech.recipes.recipe import recipe_names

    return [name for name in recipe_names() if name.startswith(incomplete)]


@dataclass(frozen=True)
class RecipeOptions:
    """Which part of a recipe runs, and where results go; or how the recipe is shown."""

    model: Annotated[list[str] | None, typer.Option(help=_MODELS, autocompletion=model_names)] = (
        None
    )
    tasks: Annotated[str | None, typer.Option(help=_TASKS)] = None
    scale: Annotated[
        float, typer.Option(help="Fraction of the prompts and of the seeds to run.")
    ] = 1.0
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep; default: runs/NAME.")] = (
        None
    )
    show: Annotated[bool, typer.Option("--show", help="Print the recipe.")] = False
    copy: Annotated[
        Path | None, typer.Option(help="Copy the recipe to this file, for editing.")
    ] = None


_HELP = "A recipe, or a .yaml file with your own; without it, all recipes are listed."


@grouped
def reproduce(
    context: object,
    name: Annotated[str | None, typer.Argument(help=_HELP, autocompletion=names_begun)] = None,
    *,
    of: RecipeOptions,
    load: LoadOptions,
    run: RunOptions,
) -> None:
    """Reproduce a table or figure of a paper on your models, next to the published numbers."""
    from icl_mech.recipes import recipe
    from icl_mech.recipes import reproduce as run_recipe
    from icl_mech.studies.measuring import by_command

    if name is None:
        _list(json=run.json)
        return
    chosen = recipe(name)
    if of.show or of.copy is not None:
        _show(chosen, of.copy)
        return
    out = of.out or Path("runs") / chosen.name
    models = _models(of, chosen, load_options(load))
    tasks = of.tasks.split(",") if of.tasks is not None and "," in of.tasks else of.tasks
    with in_options(_WORDS), interruptible(kept(out)), by_command(command_line(context)):
        result = run_recipe(chosen, models, tasks=tasks, scale=of.scale, **run.arguments(out))
    if run.dry_run:
        say_forecast(result, json=run.json)
        return
    page, summary = page_of(result.sweep, result, out), result.summary()
    if page is not None:
        table = out / TABLE
        result.to_latex(table)
        summary += f"\nTable for a paper: {table}"
    tell(result.sweep, summary, page, run)


def _models(of: RecipeOptions, chosen: "Recipe", load: dict[str, Any]) -> object:
    """The requested models, each with its loading options; None leaves the choice to the recipe."""
    from icl_mech.recipes.reproducing import ALL, OFFLINE, OFFLINE_MODEL

    names = of.model or ([OFFLINE_MODEL] if of.tasks == OFFLINE else None)
    names = list(chosen.models) if names == [ALL] else names
    return [{**load, "path": name} for name in names] if load and names else names


def _show(chosen: "Recipe", copy: Path | None) -> None:
    """Print a recipe, or copy it.

    Raises:
        SweepError: the file exists already, or cannot be written.
    """
    if copy is None:
        say(chosen.text.rstrip())
        return
    if exists(copy):
        raise SweepError(f"{str(copy)!r} already exists; name another file.")
    replace_file(copy, chosen.text.encode(), SweepError)
    say(f"Recipe: {copy}")


def _list(*, json: bool) -> None:
    from icl_mech.recipes import shown_in_papers

    shown = shown_in_papers()
    if json:
        say_json(shown)
        return
    for paper in dict.fromkeys(entry["paper"] for entry in shown):
        heads = (Column("recipe", no_wrap=True), "place", "what")
        table = Table(*heads, title=paper, box=None, title_justify="left")
        for entry in shown:
            if entry["paper"] == paper:
                why = f" (no recipe: {entry['why']})" if "why" in entry else ""
                table.add_row(entry.get("recipe", "–"), entry["place"], entry["what"] + why)
        draw(table, "")

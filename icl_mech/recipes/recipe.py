"""`Recipe`: a table or figure of a paper as a value, read from a YAML file and checked when it is read."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from os.path import expanduser
from pathlib import Path
from typing import Any

from icl_mech.checking import Count, Natural, check_fields, conformed
from icl_mech.documents import content_of_file, read_yaml
from icl_mech.errors import RunError, SweepError, near_matches
from icl_mech.measurements.base import by_name
from icl_mech.results.wording import listed
from icl_mech.studies.study import known_studies, quantities
from icl_mech.sweeps import gap_reduction
from icl_mech.sweeps.config import arguments, keys, mapping

HERE = Path(__file__).parent
PAPERS = "papers.yaml"

MEAN = "mean"
"""Name used instead of a task's: the mean over the tasks of the paper."""

OF_SWEEPS: Mapping[str, Callable[..., Any]] = {"gap reduction": gap_reduction}
"""Quantities that no single run has."""

Published = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Number:
    """One row or column of published numbers, and the quantity that gives it here.

    Attributes:
        name: The number in words.
        quantity: `part.quantity`, an effect by name, or `gap reduction`, as `Sweep.average` has them.
        at: Places along dimensions of the sweep (`shots: 1`) and axes of the quantity (`condition: plain`);
            `last` is the last label of an axis. Several values of a dimension are averaged.
        published: Values by model and task, `mean` for the mean over tasks; empty where the paper only draws them.
        percent: Published as a percentage; measured values are fractions.
        only: Meaningful for these models alone, such as the score of a head by its number.
        why_not: Why no measured value can be compared with it, whatever model and tasks.
        row, column: Its row and column in the table; by default its name and its task.
        along: Axis of the quantity along which the table has one row for each label, instead of one row.
        undefined: Why a run may have no value, in words.
        digits: Number of decimals.
    """

    name: str
    quantity: str
    at: Mapping[str, Any] = field(default_factory=dict)
    published: Published = field(default_factory=dict)
    percent: bool = False
    only: bool = False
    why_not: str = ""
    row: str = ""
    column: str = ""
    along: str = ""
    undefined: str = ""
    digits: Natural = 2

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)

    @property
    def part(self) -> str:
        """Name of the result it is read from; empty for effects by name."""
        return "" if self.quantity in (*quantities(), *OF_SWEEPS) else self.quantity.split(".")[0]

    def has_meaning(self, model: str) -> bool:
        """False if it is about layers and heads of other models by their numbers."""
        return not self.only or model in self.published

    @property
    def theirs(self) -> str:
        """The models that it is published for."""
        return listed(self.published)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks it is published for, `mean` last; `mean` alone where the paper only draws it."""
        tasks = dict.fromkeys(task for by_task in self.published.values() for task in by_task)
        return tuple(sorted(tasks or [MEAN], key=lambda task: task == MEAN))


@dataclass(frozen=True)
class Recipe:
    """What is run for a table or figure, and the published numbers it is compared with.

    Attributes:
        name: Name of the recipe: the file's name.
        title: What the table is about.
        paper: The paper, a key of `papers.yaml`.
        place: Table or figure of the paper.
        measures: What is measured, in a sentence.
        models: Models of the paper.
        sweep: The protocol: the keys of a sweep's file, without models.
        numbers: The published numbers.
        grids: Settings that replace those of `sweep`, one after the other, where the design is not a product.
        offline: `tasks` that need no hub, by the paper's tasks that they replace, and settings for them.
        least: Minimum number of prompts per run, at any scale.
        notes: What is known to differ from the paper.
        show: Parts whose figures in the first run the report shows, such as a plot of one prompt.
        unnamed: The names of `models` are not those of known checkpoints, so that `all` does not load them.
        text: The file.
        folder: Folder of the file: paths are relative to it.
    """

    name: str
    title: str
    paper: str
    place: str
    measures: str
    models: Sequence[str]
    sweep: Mapping[str, Any]
    numbers: Sequence[Number]
    grids: Sequence[Mapping[str, Any]] = ({},)
    offline: Mapping[str, Any] = field(default_factory=dict)
    least: Count = 8
    notes: Sequence[str] = ()
    show: Sequence[str] = ()
    unnamed: bool = False
    text: str = field(default="", repr=False)
    folder: Path = HERE

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks of the paper."""
        given = [grid.get("tasks", self.sweep.get("tasks", ())) for grid in self.grids]
        return tuple(dict.fromkeys(str(task) for tasks in given for task in tasks))

    @property
    def source(self) -> str:
        """Paper and place."""
        return f"{papers()[self.paper]['source']}, {self.place}"


def recipes() -> dict[str, Recipe]:
    """All recipes of the package, by name.

    Raises:
        SweepError: a file that is not a valid recipe.
    """
    return {name: read_recipe(HERE / f"{name}.yaml") for name in recipe_names()}


def recipe_names() -> list[str]:
    """Names of the package's recipes."""
    return sorted(path.stem for path in HERE.glob("*.yaml") if path.name != PAPERS)


def recipe(name: str | Path) -> Recipe:
    """The recipe of this name, or of a custom YAML file.

    Raises:
        SweepError: there is none, or the file holds something else.
    """
    path = Path(expanduser(conformed("name", name, str | Path, SweepError)))
    if path.suffix in (".yaml", ".yml"):
        return read_recipe(path)
    if str(name) not in recipe_names():
        raise SweepError(
            f"There is no recipe {str(name)!r}. {near_matches(name, recipe_names())} Give a custom "
            "recipe as a .yaml file."
        )
    return read_recipe(HERE / f"{name}.yaml")


def read_recipe(path: Path) -> Recipe:
    """A recipe from its file.

    Raises:
        SweepError: invalid keys or values, with their place in the file.
    """
    content = read_yaml(path, SweepError)
    try:
        values = mapping(content, "It", [attribute.name for attribute in fields(Recipe)][1:-2])
        annotation, given = Sequence[Mapping[str, Any]], values.get("numbers", ())
        numbers = conformed("numbers", given, annotation, SweepError)
        known = [attribute.name for attribute in fields(Number)]
        made = [
            _made(Number, _named(mapping(number, f"Number {place}", known)))
            for place, number in enumerate(numbers, start=1)
        ]
        text = content_of_file(path, SweepError, kind=".yaml").decode()
        added = {"numbers": made, "name": path.stem, "text": text, "folder": path.parent}
        chosen: Recipe = _made(Recipe, {**values, **added})
        _check(chosen)
    except (SweepError, RunError) as error:
        raise SweepError(f"{str(path)!r} is not a valid recipe. {error}") from error
    return chosen


def _made(kind: Any, values: Mapping[str, Any]) -> Any:
    """An object with these fields.

    Raises:
        SweepError: one is missing.
        RunError: one is of another type.
    """
    for attribute in fields(kind):
        if (
            attribute.name not in values
            and attribute.default is MISSING
            and attribute.default_factory is MISSING
        ):
            raise SweepError(f"{attribute.name} is missing.")
    return kind(**values)


def _named(number: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a number; its row and column name it where `name` does not."""
    places = [str(number[key]) for key in ("column", "row") if number.get(key)]
    named = {"name": ", ".join(places)} if places else {}
    return {**named, **number, "published": _spread(number)}


def _spread(number: Mapping[str, Any]) -> object:
    """Published values by model and task: one without tasks is the mean over them."""
    published = number.get("published", {})
    if not isinstance(published, Mapping):
        return published
    return {model: at if isinstance(at, Mapping) else {MEAN: at} for model, at in published.items()}


def _check(made: Recipe) -> None:
    """Reject unknown names, before anything runs.

    Raises:
        SweepError: names the first one.
    """
    _known("paper", [made.paper], papers())
    mapping(made.offline, "offline", ("tasks", *keys()))
    for grid in made.grids:
        if fixed := {"study", "measurements", "models"} & {*grid}:
            raise SweepError(f"grids: {fixed.pop()} is the same for all grids; put it under sweep.")
        given = arguments({**made.sweep, **grid, "models": list(made.models)}, made.folder)
        conformed("n", given.get("n"), Count, SweepError)
    _known("offline: the task", made.offline.get("tasks", {}), made.tasks)
    parts = {*by_name(), *(part for study in known_studies().values() for part in study.parts)}
    _known("show: the part", made.show, parts)
    for number in made.numbers:
        # The second measurement of a kind is `generate_2`.
        part = re.sub(r"_\d+$", "", number.part)
        _known(f"{number.name!r}: the quantity", [part] if part else [], parts)
        for by_task in number.published.values():
            _known(f"{number.name!r}: the task", by_task, {*made.tasks, MEAN})
        _known(f"{number.name!r}: the model", number.published, made.models)
        if number.along and number.published:
            raise SweepError(
                f"{number.name!r}: along={number.along!r} makes one row for each label, and published "
                "values have no labels; leave one of the two out."
            )


def _known(what: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise SweepError(f"{what} {name!r} is not known. {near_matches(name, known)}")


# --- the papers ---


@lru_cache
def papers() -> dict[str, Any]:
    """The papers by key: `name`, `source`, and what they show."""
    content: dict[str, Any] = read_yaml(HERE / PAPERS, SweepError)
    return content


def shown_in_papers() -> list[dict[str, str]]:
    """Every table and figure of the papers in their order: `paper`, `place`, `what`, and `recipe` or `why` not."""
    every = papers().values()
    return [{"paper": paper["name"], **entry} for paper in every for entry in paper["shown"]]

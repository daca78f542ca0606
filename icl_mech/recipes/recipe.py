"""`Recipe`: a table or figure of a paper as a value, read from a YAML file and checked when it is read."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from os.path import expanduser
from pathlib import Path
from typing import Any

from icl_mech.checking import Count, check_fields, conformed
from icl_mech.documents import content_of_file, read_yaml
from icl_mech.errors import RunError, SweepError, near_matches
from icl_mech.studies.study import known_studies, quantities
from icl_mech.sweeps import gap_reduction
from icl_mech.sweeps.config import arguments, by_name, keys, mapping

HERE = Path(__file__).parent
PAPERS = "papers.yaml"

MEAN = "mean"
"""In the place of a task: the mean over the tasks of the paper."""

OF_SWEEPS: Mapping[str, Callable[..., Any]] = {"gap reduction": gap_reduction}
"""Quantities that no single run has."""

Published = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Number:
    """One row or column of published numbers, and the quantity that gives it here.

    Attributes:
        name: In words.
        quantity: `part.quantity`, an effect by name, or `gap reduction`, as `Sweep.average` has them.
        at: Places along dimensions of the sweep (`shots: 1`) and axes of the quantity (`condition: plain`);
            `last` is the last one there. Several values of a dimension are averaged.
        published: By model and task, `mean` that over tasks; empty where the paper draws it only.
        percent: Published as a percentage; own values are shares.
        only: It means something for these models alone, such as the score of a head by its number.
        why_not: Why no own value can be compared with it, whatever model and tasks.
    """

    name: str
    quantity: str
    at: Mapping[str, Any] = field(default_factory=dict)
    published: Published = field(default_factory=dict)
    percent: bool = False
    only: bool = False
    why_not: str = ""

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

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks it is published for, `mean` last; that alone where the paper draws it."""
        found = dict.fromkeys(task for own in self.published.values() for task in own)
        return tuple(sorted(found or [MEAN], key=lambda task: task == MEAN))


@dataclass(frozen=True)
class Recipe:
    """What is run for a table or figure, and which numbers it stands beside.

    Attributes:
        name: By which it is called: the file's name.
        title: What the table is about.
        paper: Its paper, a key of `papers.yaml`.
        place: Where it stands there.
        measures: What is measured, in a sentence.
        models: Of the paper.
        sweep: The protocol: what a sweep's file may hold, without models.
        numbers: The published numbers.
        grids: Settings that stand in the place of `sweep`'s, one after the other, where it is no product.
        offline: `tasks` that need no hub, by those of the paper, and settings for them.
        least: Prompts of an item, however small the scale.
        notes: What is known to differ from the paper.
        text: The file.
        folder: Where it lies: paths are read from there.
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
        return tuple(dict.fromkeys(str(task) for own in given for task in own))

    @property
    def source(self) -> str:
        """Paper and place."""
        return f"{papers()[self.paper]['source']}, {self.place}"


def recipes() -> dict[str, Recipe]:
    """All recipes of the package, by name.

    Raises:
        SweepError: a file that is no recipe.
    """
    return {name: read_recipe(HERE / f"{name}.yaml") for name in recipe_names()}


def recipe_names() -> list[str]:
    """Names of the package's recipes."""
    return sorted(path.stem for path in HERE.glob("*.yaml") if path.name != PAPERS)


def recipe(name: str | Path) -> Recipe:
    """The recipe of a name, or in a YAML file of your own.

    Raises:
        SweepError: there is none, or the file holds something else.
    """
    path = Path(expanduser(conformed("name", name, str | Path, SweepError)))
    if path.suffix in (".yaml", ".yml"):
        return read_recipe(path)
    if str(name) not in recipe_names():
        raise SweepError(
            f"There is no recipe {str(name)!r}. {near_matches(name, recipe_names())} A recipe of your own is "
            "given as a .yaml file."
        )
    return read_recipe(HERE / f"{name}.yaml")


def read_recipe(path: Path) -> Recipe:
    """A recipe from its file.

    Raises:
        SweepError: keys or values that cannot be, with the place where they stand.
    """
    found = read_yaml(path, SweepError)
    try:
        values = mapping(found, "It", [own.name for own in fields(Recipe)][1:-2])
        kind, given = Sequence[Mapping[str, Any]], values.get("numbers", ())
        numbers = conformed("numbers", given, kind, SweepError)
        known = [own.name for own in fields(Number)]
        made = [
            _made(Number, {**mapping(own, f"Number {place}", known), "published": _spread(own)})
            for place, own in enumerate(numbers, start=1)
        ]
        text = content_of_file(path, SweepError, kind=".yaml").decode()
        own = {"numbers": made, "name": path.stem, "text": text, "folder": path.parent}
        chosen: Recipe = _made(Recipe, {**values, **own})
        _check(chosen)
    except (SweepError, RunError) as error:
        raise SweepError(f"{str(path)!r} is no recipe. {error}") from error
    return chosen


def _made(kind: Any, values: Mapping[str, Any]) -> Any:
    """A value of these fields.

    Raises:
        SweepError: one is missing.
        RunError: one is of another type.
    """
    for own in fields(kind):
        if own.name not in values and own.default is MISSING and own.default_factory is MISSING:
            raise SweepError(f"{own.name} is missing.")
    return kind(**values)


def _spread(number: Mapping[str, Any]) -> object:
    """A number published without tasks is the mean over them."""
    own = number.get("published", {})
    if not isinstance(own, Mapping):
        return own
    return {model: at if isinstance(at, Mapping) else {MEAN: at} for model, at in own.items()}


def _check(made: Recipe) -> None:
    """Refuse names that are not there, before anything runs.

    Raises:
        SweepError: names the first one.
    """
    _known("paper", [made.paper], papers())
    mapping(made.offline, "offline", ("tasks", *keys()))
    for grid in made.grids:
        if fixed := {"study", "measurements", "models"} & {*grid}:
            raise SweepError(f"grids: {fixed.pop()} is one for all grids; write it under sweep.")
        given = arguments({**made.sweep, **grid, "models": list(made.models)}, made.folder)
        conformed("n", given.get("n"), Count, SweepError)
    _known("offline: the task", made.offline.get("tasks", {}), made.tasks)
    parts = {*by_name(), *(part for own in known_studies().values() for part in own.parts)}
    for number in made.numbers:
        _known(f"{number.name!r}: the quantity", [number.part] if number.part else [], parts)
        for own in number.published.values():
            _known(f"{number.name!r}: the task", own, {*made.tasks, MEAN})
        _known(f"{number.name!r}: the model", number.published, made.models)


def _known(what: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise SweepError(f"{what} {name!r} is not known. {near_matches(name, known)}")


# --- the papers ---


@lru_cache
def papers() -> dict[str, Any]:
    """The papers by key: `name`, `source`, and what they show."""
    found: dict[str, Any] = read_yaml(HERE / PAPERS, SweepError)
    return found


def shown_in_papers() -> list[dict[str, str]]:
    """Every table and figure of the papers in their order: `paper`, `place`, `what`, and `recipe` or `why` not."""
    every = papers().values()
    return [{"paper": paper["name"], **own} for paper in every for own in paper["shown"]]

"""A sweep as a YAML file: the arguments of `sweep`, with measurements by name."""

import inspect
import os
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from os.path import exists, expanduser
from pathlib import Path
from typing import Any, get_args, get_type_hints

from icl_mech import measurements
from icl_mech.checking import shown
from icl_mech.documents import SEEDS, fitted, read_yaml
from icl_mech.errors import IclMechError, SweepError, near_matches
from icl_mech.interventions.base import load_intervention
from icl_mech.measurements.base import AnyMeasurement, by_name
from icl_mech.models.loading import LOADING
from icl_mech.names import MEASUREMENTS, is_address, key_now, kind_at
from icl_mech.prompts import TextSet
from icl_mech.sweeps.running import OF_RUNS, OF_STUDIES, sweep
from icl_mech.tasks import load_task

NOT_IN_FILES = ("executor", "out", "resume", "overwrite", "progress", "plan", "options")
"""Arguments that set where and how a sweep runs, not what it measures."""


def keys() -> tuple[str, ...]:
    """Keys that a file may hold."""
    names = [name for name in inspect.signature(sweep).parameters if name not in NOT_IN_FILES]
    return (*names, *OF_STUDIES, *OF_RUNS)


def read_config(file: str | Path, load: Mapping[str, object] | None = None) -> dict[str, Any]:
    """The arguments of `sweep` that a file holds.

    Paths of models and tasks are read from the file's own folder. `load` says how models are loaded
    unless the file says otherwise, see `LOADING`.

    Raises:
        SweepError: it is not YAML, or holds keys or values that are not allowed.
    """
    path = Path(expanduser(file))
    content = read_yaml(path, SweepError)
    if content is None:
        raise SweepError(f"{str(path)!r} is empty; expected keys with values: {', '.join(keys())}.")
    return arguments(content, path.parent, load, f"The file {str(path)!r}")


def arguments(
    found: object, folder: Path, load: Mapping[str, object] | None = None, what: str = "The file"
) -> dict[str, Any]:
    """The arguments of `sweep` from plain values.

    Raises:
        SweepError: keys or values that are not allowed.
    """
    given = mapping(found, what, keys())
    for name in ("models", "tasks"):
        if name not in given:
            raise SweepError(f"{name} is missing; a sweep needs at least one.")
    fitted("study", given, SweepError, what)
    read: dict[str, Any] = {**given, "models": _models(given["models"], folder, load or {})}
    read["tasks"] = _tasks(given["tasks"], folder)
    if "measurements" in given:
        entries = given["measurements"]
        entries = entries if isinstance(entries, list) else [entries]
        read["measurements"] = [measurement(entry) for entry in entries]
    if "seeds" in given:
        read["seeds"] = seeds(given["seeds"])
    if "interventions" in given:
        read["interventions"] = [
            load_intervention(intervention) for intervention in given["interventions"]
        ]
    if given.get("false_share", ()) is None:
        read["false_share"] = (None,)
    return read


def mapping(found: object, what: str, known: Collection[str]) -> dict[str, Any]:
    """The entries of a mapping with known keys only.

    Raises:
        SweepError: another value, or a key that is not known.
    """
    if not isinstance(found, Mapping):
        raise SweepError(
            f"{what} holds {shown(found)}; expected keys with values: {', '.join(known)}."
        )
    for name in found:
        if name not in known:
            raise SweepError(
                f"{what} has the unknown key {name!r}. {near_matches(name, known)} "
                f"Allowed: {', '.join(known)}."
            )
    return dict(found)


def seeds(given: object) -> Any:
    """Seeds from a list or a range: `[0, 3]`, `0-4`.

    Raises:
        SweepError: one number, which might mean one seed or a number of seeds.
    """
    if isinstance(given, str) and given.count("-") == 1:
        first, _, last = given.partition("-")
        try:
            numbers = range(int(first), int(last) + 1)
        except ValueError:
            numbers = range(0)
        if len(numbers) > SEEDS:
            raise SweepError(
                f"seeds: {given} names {len(numbers):,} seeds; give at most {SEEDS:,}."
            )
        if numbers:
            return numbers
    if not isinstance(given, list):
        raise SweepError(
            f"seeds: {shown(given)} is neither a list nor a range; write [0, 1, 2] or 0-4."
        )
    return given


# --- models and tasks ---


def _placed(given: str, folder: Path) -> str:
    """A path in the file's folder, if it exists; else the name as it is."""
    beside = folder / given
    is_path = os.sep in given or Path(given).suffix
    return str(beside) if is_path and exists(beside) else given


def _models(given: object, folder: Path, load: Mapping[str, object]) -> Any:
    if isinstance(given, Mapping) and "path" not in given:
        return {str(name): _model(model, folder, load) for name, model in given.items()}
    several = given if isinstance(given, list) else [given]
    return [_model(model, folder, load) for model in several]


def _model(given: object, folder: Path, load: Mapping[str, object]) -> Any:
    named = given if isinstance(given, Mapping) else {"path": given}
    if not isinstance(path := named.get("path"), str):
        raise SweepError(
            f"models: {shown(given)} is not a model; give names, folders or files of models, or "
            f"{{path: name, ...}} with {', '.join(LOADING)}."
        )
    path = _placed(path, folder)
    return {**load, **named, "path": path} if load or len(named) > 1 else path


def _tasks(given: object, folder: Path) -> Any:
    if isinstance(given, Mapping):
        return {str(name): _task(str(name), task, folder) for name, task in given.items()}
    return [_task("", task, folder) for task in (given if isinstance(given, list) else [given])]


def _task(name: str, given: object, folder: Path) -> Any:
    if isinstance(given, str):
        return _placed(given, folder)
    if isinstance(given, Mapping) and "texts" in given:
        return _texts(name, given, folder)
    known = ["path", *list(inspect.signature(load_task).parameters)[1:]]
    options = mapping(given, f"The task {name!r}", known)
    if "path" not in options:
        raise SweepError(
            f"The task {name!r} has no path; give the path of its file, or the name of a built-in task."
        )
    path = _placed(str(options.pop("path")), folder)
    options |= {"name": name} if name else {}
    return load_task(path, **options)


def _texts(name: str, given: Mapping[Any, Any], folder: Path) -> TextSet:
    """A set of texts from a list or a file."""
    options = mapping(given, f"The texts {name!r}", ("texts", "spans"))
    texts, spans = options["texts"], options.get("spans", "sentences")
    if isinstance(texts, str):
        return TextSet.load(_placed(texts, folder), name=name, spans=spans)
    return TextSet(name or "texts", texts, spans)


# --- measurements ---


def measurement(entry: object) -> AnyMeasurement[Any, Any]:
    """A measurement from `flow` or `{flow: {loss: label}}`; class names and addresses work too.

    Raises:
        SweepError: no such measurement or variant.
    """
    if isinstance(entry, Mapping) and len(entry) == 1:
        ((name, values),) = entry.items()
    elif isinstance(entry, str):
        name, values = entry, {}
    else:
        raise SweepError(
            f"measurements: {shown(entry)} is not a measurement; write one name per entry, with variants after it: "
            "- flow: {loss: label}"
        )
    kind = _kind(str(name))
    given = mapping(
        values or {}, f"The measurement {name!r}", [field.name for field in fields(kind)]
    )
    try:
        given = {name: _nested(kind, name, value) for name, value in given.items()}
        return kind(**given) if isinstance(kind, type) else replace(kind, **given)
    except (IclMechError, TypeError) as error:
        raise SweepError(f"The measurement {name!r} cannot be created: {error}") from error


def _nested(measurement: object, name: str, value: object) -> object:
    """The value of a field; options in braces, such as `over_trust: {beams: 5}`, become the object that the field takes."""
    if not isinstance(value, Mapping):
        return value
    owner = measurement if isinstance(measurement, type) else type(measurement)
    try:
        takes = get_type_hints(owner).get(name)
    except NameError:  # types imported for type checks alone
        return value
    for option in get_args(takes) or (takes,):
        if isinstance(option, type) and is_dataclass(option):
            names = [field.name for field in fields(option)]
            return option(**mapping(value, f"The option {name!r}", names))
    return value


def _kind(name: str) -> "AnyMeasurement[Any, Any] | type[AnyMeasurement[Any, Any]]":
    """The measurement class of a name, or the class or value at an address."""
    if is_address(name):
        value: AnyMeasurement[Any, Any] | type[AnyMeasurement[Any, Any]]
        value = kind_at(name, AnyMeasurement, SweepError)
        return value
    known = by_name()
    classes = {kind.__name__.lower(): kind for kind in known.values()}
    classes |= {old.lower(): getattr(measurements, now) for old, now in MEASUREMENTS.items()}
    kind = known.get(key_now(name.replace("-", "_"))) or classes.get(name.lower())
    if kind is None:
        raise SweepError(f"There is no measurement {name!r}. {near_matches(name, known)}")
    return kind

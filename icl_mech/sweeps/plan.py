"""`Plan`: what a sweep will do: the product of its dimensions, in order, and what is left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, get_args

from icl_mech.checking import Count, Natural, conformed, shown
from icl_mech.corruption import LabelSetting, check_share
from icl_mech.errors import SweepError
from icl_mech.measurements.base import AnyMeasurement, Measurement
from icl_mech.prompts.build import Demonstrations
from icl_mech.studies.measuring import check_values
from icl_mech.studies.names import PAIRED
from icl_mech.sweeps.item import Item
from icl_mech.sweeps.sources import (
    ModelSource,
    TaskSource,
    formats_of,
    model_sources,
    task_sources,
)

SweptStudy = Literal["default", "label_words", "overthinking", "causal"]
STUDIES: tuple[SweptStudy, ...] = get_args(SweptStudy)

SHARELESS = ("correct", "half_permuted", "shuffled")
"""Label settings without a share of false labels of their own."""

Measurements = Sequence[AnyMeasurement[Any, Any]]


@dataclass(frozen=True, eq=False)
class Content:
    """What is measured in an item, beside what varies.

    Attributes:
        study: As in an item.
        pair: It compares true with false demonstrations.
        measurements: The measurements; of a study those besides.
        measured: What an item keeps of it.
    """

    study: str
    pair: bool
    measurements: Measurements
    measured: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Planned:
    """An item with what is needed to run it."""

    item: Item
    model: ModelSource
    task: TaskSource
    content: Content


@dataclass(frozen=True, eq=False)
class Plan:
    """All items of a sweep.

    Attributes:
        entries: In the order they are run: one model after the other.
        skipped: What was left out and why.
    """

    entries: tuple[Planned, ...]
    skipped: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[Item, ...]:
        """The items alone."""
        return tuple(entry.item for entry in self.entries)

    def __len__(self) -> int:
        """Number of items."""
        return len(self.entries)


@dataclass(frozen=True)
class Grid:
    """The values along the dimensions of prompts.

    Attributes:
        labels: Label settings; None: `correct`, and `permuted` where pairs are compared.
        false_share: Probabilities of a false label; None: the setting's own.
        shots: Demonstrations per class.
        n: Number of prompts.
        seeds: Seeds.
        demonstrations: None: `shared`, and `per_prompt` where pairs are compared.
        balanced: Queries with equally many true answers per class.
    """

    labels: Sequence[LabelSetting] | None = None
    false_share: Sequence[float | None] = (None,)
    shots: Sequence[Natural] = (1,)
    n: Sequence[Count] = (50,)
    seeds: Sequence[Natural] = tuple(range(5))
    demonstrations: Demonstrations | None = None
    balanced: bool = True


def grid_of(**given: Any) -> Grid:
    """The values along the dimensions; a single one stands for a list of one.

    Raises:
        SweepError: values that cannot be, an empty list, or one value twice.
    """
    hints = Grid.__annotations__
    values: dict[str, Any] = {}
    for name, value in given.items():
        several = name not in ("demonstrations", "balanced") and value is not None
        one = not isinstance(value, Sequence) or isinstance(value, str)
        listed = [value] if several and one and not hasattr(value, "tolist") else value
        values[name] = conformed(name, listed, hints[name], SweepError)
        if several and not values[name]:
            raise SweepError(f"{name} is empty; give one value at least.")
        if several and len(set(values[name])) < len(values[name]):
            raise SweepError(f"{name}={shown(listed)} holds one value twice; give each once.")
    return Grid(**values)


def contents_of(
    study: Any, measurements: Any, options: Mapping[str, Any], run: Mapping[str, Any]
) -> list[Content]:
    """What is measured: studies, or measurements on single sets and those of pairs.

    Args:
        study: One study, several, or None.
        measurements: Measured besides a study, or alone.
        options: Of the studies.
        run: Plain values of how it is run, as far as it changes numbers.

    Raises:
        SweepError: an unknown study.
        RunError: what is no measurement.
    """
    measurements = () if measurements is None else measurements
    if isinstance(measurements, AnyMeasurement):
        measurements = (measurements,)
    check_values(measurements)
    variants = [{"measurement": own.name, **own.variants()} for own in measurements]
    if study is None and measurements:
        if options:
            raise SweepError(f"{', '.join(options)}: of a study; no study was chosen.")
        return _of_measurements(measurements, run)
    named = [study] if study is None or isinstance(study, str) else list(study)
    found = []
    for name in dict.fromkeys(own or "default" for own in named):
        if name not in STUDIES:
            conformed("study", name, SweptStudy, SweepError)
        pair = name in PAIRED
        extra = [own for own in measurements if _is_pair(own) is pair]
        kept = [own for own in variants if own["measurement"] in {given.name for given in extra}]
        own_options = {
            key: value
            for key, value in options.items()
            if (key == "heads_from") is (name == "overthinking")
        }
        measured = {"study": name, "options": own_options, "measurements": kept, **run}
        found.append(Content(name, pair, tuple(extra), measured))
    if not found:
        raise SweepError("study is empty; leave it out, or name one.")
    # What no chosen study has prompts for gets items of its own.
    studied = {content.pair for content in found}
    return found + [
        content for content in _of_measurements(measurements, run) if content.pair not in studied
    ]


def _of_measurements(measurements: Measurements, run: Mapping[str, Any]) -> list[Content]:
    found = []
    for pair in (False, True):
        own = [given for given in measurements if _is_pair(given) is pair]
        variants = [{"measurement": given.name, **given.variants()} for given in own]
        if own:
            measured = {"measurements": variants, **run}
            found.append(Content("measurements", pair, tuple(own), measured))
    return found


def _is_pair(measurement: AnyMeasurement[Any, Any]) -> bool:
    return not isinstance(measurement, Measurement) or measurement.side is not None


def planned(models: Any, tasks: Any, formats: Any, grid: Grid, contents: Sequence[Content]) -> Plan:
    """The product of all dimensions, in their order.

    Raises:
        IclMechError: what cannot be, before anything runs.
    """
    sources, forms = task_sources(tasks), formats_of(formats)
    entries: list[Planned] = []
    skipped: dict[str, None] = {}
    chosen = model_sources(models)
    settled: dict[tuple[str, str], TaskSource | str] = {}
    for source, (name, form) in product(sources, forms.items()):
        settled[source.name, name] = _formatted(source, name, form)
    for model, source, content in product(chosen, sources, contents):
        for labels, share, shots, name, n, seed in _cells(grid, content, list(forms), skipped):
            task = settled[source.name, name]
            if isinstance(task, str):
                skipped[task] = None
                continue
            identity = {"model": model.identity, "task": task.identity}
            item = Item(
                model=model.name, task=source.name, study=content.study, labels=labels,
                false_share=share, shots=shots, format=name,
                demonstrations=grid.demonstrations or ("per_prompt" if content.pair else "shared"),
                n=n, seed=seed, pair=content.pair, balanced=grid.balanced,
                measured=content.measured,
                sources={key: value for key, value in identity.items() if value},
            )  # fmt: skip
            entries.append(Planned(item, model, task, content))
    if not entries:
        raise SweepError(f"Nothing is left to run: {' '.join(skipped)}")
    return Plan(tuple(entries), tuple(skipped))


def _formatted(source: TaskSource, name: str, form: Any) -> TaskSource | str:
    """The task in a format, or why it cannot be."""
    from icl_mech.errors import TaskError

    task = TaskSource(source.name, source.given, form, source.identity)
    try:
        task.load()
    except TaskError as error:
        if form is None:
            raise
        return f"{source.name} in format {name} was left out: {error}"
    if isinstance(form, int | type(None)):
        return task
    identity = f"{source.identity}{form.separator!r}{form.narrative!r}"
    usual = ("\n", "")
    plain = (form.separator, form.narrative) == usual
    return TaskSource(source.name, source.given, form, source.identity if plain else identity)


def _cells(
    grid: Grid, content: Content, forms: Sequence[str], skipped: dict[str, None]
) -> Sequence[tuple[LabelSetting, float | None, int, str, int, int]]:
    """Settings of the prompts that make sense for what is measured."""
    usual: tuple[LabelSetting, ...] = ("permuted",) if content.pair else ("correct",)
    found: dict[tuple[LabelSetting, float | None, int, str, int, int], None] = {}
    every = product(grid.labels or usual, grid.false_share, grid.shots, forms, grid.n, grid.seeds)
    for labels, share, shots, form, n, seed in every:
        if content.pair and labels == "correct":
            skipped["Pairs with false labels 'correct' were left out: nothing differs."] = None
            continue
        if content.study != "measurements" and not shots:
            skipped["Studies without demonstrations (shots 0) were left out."] = None
            continue
        # Without demonstrations, or with true ones, no label is false: one item instead of many.
        if share is not None and labels not in SHARELESS:
            check_share(share, labels)
        own = None if labels in SHARELESS else share
        if not shots:
            labels, own = usual[0], None
        found[labels, own, shots, form, n, seed] = None
    return list(found)

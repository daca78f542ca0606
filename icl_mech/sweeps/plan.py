"""`Plan`: the runs of a sweep, as the product of its dimensions in order, and what is left out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, NamedTuple

from icl_mech.checking import Count, Natural, conformed, shown
from icl_mech.corruption import LabelSetting, check_share
from icl_mech.errors import PromptError, SweepError
from icl_mech.measurements.base import AnyMeasurement, Measurement
from icl_mech.prompts.drawing import PER_CLASS, Demonstrations, Total
from icl_mech.studies.measuring import check_values
from icl_mech.studies.study import DEFAULT, OF_MEASUREMENTS, Study, Takes, is_own, study_named
from icl_mech.studies.until import OF_EVERY, goal_of
from icl_mech.sweeps.item import Item
from icl_mech.sweeps.sources import ModelSource, TaskSource, formats_of, model_sources, task_sources

SHARELESS = ("correct", "half_permuted", "shuffled")
"""Label settings that take no fraction of false labels."""

Measurements = Sequence[AnyMeasurement[Any, Any]]


@dataclass(frozen=True, eq=False)
class Content:
    """What is measured in a run, independent of what varies.

    Attributes:
        study: Name of the study, as in an item.
        pair: True if it compares true with false demonstrations.
        measurements: The measurements, in addition to those of the study if there is one.
        measured: The part that an item records.
        runs: The study as a worker gets it: a value, its address, or a name; None: none, or the default one.
        options: Options that the study knows.
        takes: What it is measured on; None for measurements without a study: tasks and sets of texts.
    """

    study: str
    pair: bool
    measurements: Measurements
    measured: Mapping[str, Any]
    runs: Study | str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    takes: Takes | None = None

    def refuses(self, source: TaskSource) -> str:
        """Why a task or a set of texts is left out; empty if it is measured."""
        if source.is_texts and (self.pair or self.takes in ("prompts", "pair")):
            what = (
                f"the {self.study} study"
                if self.takes
                else "measurements that compare demonstrations"
            )
            return f"The texts {source.name!r} were left out for {what}: tasks are needed there."
        if self.takes == "texts":
            try:
                source.texts()
            except PromptError as error:
                return f"{source.name} was left out for the {self.study} study: {error}"
        return ""


@dataclass(frozen=True, eq=False)
class Planned:
    """An item with what is needed to execute it."""

    item: Item
    model: ModelSource
    task: TaskSource
    content: Content


@dataclass(frozen=True, eq=False)
class Plan:
    """All runs of a sweep.

    Attributes:
        entries: In the order of execution: one model after the other.
        skipped: Omitted runs, with reasons.
    """

    entries: tuple[Planned, ...]
    skipped: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[Item, ...]:
        """The items of the entries."""
        return tuple(entry.item for entry in self.entries)

    def __len__(self) -> int:
        """Number of runs."""
        return len(self.entries)


WRITING = ("score", "chat", "system", "prefill", "template_kwargs", "today", "bos")
"""Options of `build_prompts` that set how prompts are written and scored."""


@dataclass(frozen=True)
class Grid:
    """The values along the dimensions of prompts.

    Attributes:
        labels: Label settings; None: `correct`, and `permuted` for pairs.
        false_share: Probabilities of a false label; None: that of the setting.
        shots: Demonstrations per class; None: 1, or none if `total` is given.
        total: Demonstrations in total; with `shots`, there are runs of both.
        n: Number of prompts.
        seeds: Seeds.
        demonstrations: None: `shared`, and `per_prompt` for pairs.
        balanced: Queries with equally many true answers per class.
        writing: How prompts are written and scored, see `WRITING`.
    """

    labels: Sequence[LabelSetting] | None = None
    false_share: Sequence[float | None] = (None,)
    shots: Sequence[Natural] | None = None
    total: Sequence[Total] | None = None
    n: Sequence[Count] = (50,)
    seeds: Sequence[Natural] = tuple(range(5))
    demonstrations: Demonstrations | None = None
    balanced: bool = True
    revisions: Sequence[str | None] | None = None
    writing: Mapping[str, Any] | None = None

    @property
    def counts(self) -> list[tuple[int | None, int | Literal["max"] | None]]:
        """Demonstrations per class and in total; one of them is None."""
        shots = (PER_CLASS,) if self.shots is None and self.total is None else self.shots or ()
        return [*((count, None) for count in shots), *((None, count) for count in self.total or ())]


def grid_of(**given: Any) -> Grid:
    """The values along the dimensions; a single value stands for a list of one.

    Raises:
        SweepError: invalid values, an empty list, or repeated values.
    """
    hints = Grid.__annotations__
    values: dict[str, Any] = {}
    for name, value in given.items():
        several = name not in ("demonstrations", "balanced", "writing") and value is not None
        single = not isinstance(value, Sequence) or isinstance(value, str)
        listed = [value] if several and single and not hasattr(value, "tolist") else value
        values[name] = conformed(name, listed, hints[name], SweepError)
        if several and not values[name]:
            raise SweepError(f"{name} is empty; give at least one value.")
        if several and len(set(values[name])) < len(values[name]):
            raise SweepError(f"{name}={shown(listed)} holds a value twice; give each value once.")
    if values.get("total") is not None and values.get("demonstrations") == "shared":
        raise SweepError(
            "total= draws classes and texts anew for every prompt, so demonstrations='shared' is not "
            "possible; leave it out, or use shots= instead of total=."
        )
    if strange := {*(values.get("writing") or {})} - {*WRITING}:
        raise SweepError(
            f"writing= holds unknown options: {', '.join(map(repr, sorted(map(str, strange))))}; choose from "
            f"{', '.join(WRITING)}."
        )
    return Grid(**values)


def contents_of(
    study: Any, measurements: Any, options: Mapping[str, Any], run: Mapping[str, Any]
) -> list[Content]:
    """What is measured: studies, or measurements on single prompt sets and on pairs.

    Args:
        study: One study, several, or None.
        measurements: Measured in addition to a study, or alone.
        options: Options of the studies.
        run: Plain values of the run options that change numbers.

    Raises:
        SweepError: an unknown study.
        RunError: something that is not a measurement.
    """
    measurements = () if measurements is None else measurements
    if isinstance(measurements, AnyMeasurement):
        measurements = (measurements,)
    check_values(measurements)
    if study is None and measurements:
        if options:
            raise SweepError(
                f"Options of studies were given ({', '.join(options)}), but no study; give study=, or leave them out."
            )
        return _of_measurements(measurements, run)
    several = isinstance(study, Iterable) and not isinstance(study, str)
    chosen = {}
    for given in study if several else [study]:
        named = study_named(given, SweepError)
        chosen[named.name] = (named, given)
    contents = [
        _of_study(named, given, measurements, options, run) for named, given in chosen.values()
    ]
    if not contents:
        raise SweepError("study is empty; leave it out, or name a study.")
    # Measurements on prompts that no chosen study uses get separate runs.
    studied = {content.pair for content in contents}
    return contents + [
        content for content in _of_measurements(measurements, run) if content.pair not in studied
    ]


def _of_study(
    study: Study,
    given: object,
    besides: Measurements,
    options: Mapping[str, Any],
    run: Mapping[str, Any],
) -> Content:
    """The measurements of a study, and further ones on the same prompts."""
    extra = [measurement for measurement in besides if _is_pair(measurement) is study.pair]
    names = {measurement.name for measurement in extra}
    variants = [
        {"measurement": measurement.name, **measurement.variants()} for measurement in besides
    ]
    known = {key: value for key, value in options.items() if key in (*study.options, *OF_EVERY)}
    goal_of(study, extra, known.get("until"), known.get("most"))
    measured = {
        "study": study.name,
        "options": known,
        "measurements": [variant for variant in variants if variant["measurement"] in names],
        **run,
    }
    runs = study.name if is_own(study) else given if isinstance(given, str) else study
    if not is_own(study):
        measured["of_study"] = study.variants()
    return Content(
        study.name,
        study.pair,
        tuple(extra),
        measured,
        None if runs == DEFAULT else runs,
        known,
        study.takes,
    )


def _of_measurements(measurements: Measurements, run: Mapping[str, Any]) -> list[Content]:
    contents = []
    for pair in (False, True):
        chosen = [given for given in measurements if _is_pair(given) is pair]
        variants = [{"measurement": given.name, **given.variants()} for given in chosen]
        if chosen:
            measured = {"measurements": variants, **run}
            contents.append(Content(OF_MEASUREMENTS, pair, tuple(chosen), measured))
    return contents


def _is_pair(measurement: AnyMeasurement[Any, Any]) -> bool:
    return not isinstance(measurement, Measurement) or measurement.side is not None


def planned(
    models: object, tasks: object, formats: object, grid: Grid, contents: Sequence[Content]
) -> Plan:
    """The product of all dimensions, in their order.

    Raises:
        IclMechError: invalid values, before anything runs.
    """
    sources, forms = task_sources(tasks), formats_of(formats)
    entries: list[Planned] = []
    skipped: dict[str, None] = {}
    chosen = model_sources(models, grid.revisions or (None,))
    settled: dict[tuple[str, str], TaskSource | str] = {}
    for source, (name, form) in product(sources, forms.items()):
        settled[source.name, name] = source if source.is_texts else _formatted(source, name, form)
    refused = {
        (source.name, content.study, content.pair): content.refuses(source)
        for source, content in product(sources, contents)
    }
    for model, source, content in product(chosen, sources, contents):
        if why := refused[source.name, content.study, content.pair]:
            skipped[why] = None
            continue
        of_texts = source.is_texts or content.takes == "texts"
        cells = _texts(grid) if of_texts else _cells(grid, content, list(forms), skipped)
        for cell in cells:
            task = source if of_texts else settled[source.name, cell.format]
            if isinstance(task, str):
                skipped[task] = None
                continue
            identity = {"model": model.identity, "task": task.identity}
            usual = "per_prompt" if content.pair or cell.total is not None else "shared"
            item = Item(
                model=model.name,
                task=source.name,
                study=content.study,
                **cell._asdict(),
                demonstrations="" if of_texts else grid.demonstrations or usual,
                pair=content.pair,
                balanced=grid.balanced,
                measured=content.measured,
                sources={key: value for key, value in identity.items() if value},
                revision=model.revision,
                writing=None if of_texts else grid.writing or None,
            )
            entries.append(Planned(item, model, task, content))
    if not entries:
        raise SweepError(f"The sweep has nothing to run: {' '.join(skipped)}")
    return Plan(tuple(entries), tuple(skipped))


def _formatted(source: TaskSource, name: str, form: Any) -> TaskSource | str:
    """The task in a format, or why this is not possible."""
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


class Cell(NamedTuple):
    """A setting of prompts, as fields of an item."""

    labels: str
    false_share: float | None
    shots: int | None
    total: int | Literal["max"] | None
    format: str
    n: int
    seed: int


def _texts(grid: Grid) -> list[Cell]:
    """Settings of texts, which have neither labels nor demonstrations."""
    return [Cell("", None, None, None, "", n, seed) for n, seed in product(grid.n, grid.seeds)]


def _cells(
    grid: Grid, content: Content, forms: Sequence[str], skipped: dict[str, None]
) -> list[Cell]:
    """Settings of the prompts that make sense for what is measured."""
    usual: tuple[LabelSetting, ...] = ("permuted",) if content.pair else ("correct",)
    cells: dict[Cell, None] = {}
    every = product(grid.labels or usual, grid.false_share, grid.counts, forms, grid.n, grid.seeds)
    for labels, share, (shots, total), form, n, seed in every:
        none = 0 in (shots, total)
        if content.pair and labels == "correct":
            skipped[
                "Pairs with false labels 'correct' were left out: their sides do not differ."
            ] = None
            continue
        if content.study != OF_MEASUREMENTS and none:
            count = "shots" if total is None else "total"
            skipped[f"Studies without demonstrations ({count} 0) were left out."] = None
            continue
        # Without demonstrations, or with true ones, no label is false: one run instead of many.
        if share is not None and labels not in SHARELESS:
            check_share(share, labels)
        dose = None if labels in SHARELESS else share
        if none:
            labels, dose = usual[0], None
        cells[Cell(labels, dose, shots, total, form, n, seed)] = None
    return list(cells)

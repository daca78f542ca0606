"""Run measurements together: passes they have in common are run once."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from typing_extensions import Unpack

from icl_mech.engine import (
    AnyReading,
    GradientReading,
    cost,
    expect,
    is_watched,
    price,
    run,
    run_variants,
)
from icl_mech.errors import IclMechError, RunError
from icl_mech.interventions import Intervention
from icl_mech.interventions.cut import NamedCut
from icl_mech.measurements.any_answer import as_demonstrations, as_texts, check_kind
from icl_mech.measurements.passes import How, Options, Pass, Runnable, Steps, Variants
from icl_mech.measurements.passes import Prompts as Prompts
from icl_mech.measurements.provenance import provenance
from icl_mech.measurements.whole_words import Change, check_first_tokens_differ, whole_words
from icl_mech.models import LanguageModel, adapt, exclusive
from icl_mech.models.rehearsal import stage
from icl_mech.prompts import PromptBatch, check_batch
from icl_mech.results import Result

R = TypeVar("R", bound=Result)


@dataclass(frozen=True, eq=False)
class Item:
    """One checked measurement of one set of prompts, ready to run.

    Attributes:
        measurement: The measurement, with its defaults filled in.
        data: The prompts it measures: the given ones, with texts converted to demonstrations.
        given: The prompts it selects from the input.
    """

    measurement: Runnable[Any]
    data: Any
    given: Any

    @classmethod
    def checked(
        cls,
        measurement: Runnable[Any],
        model: LanguageModel,
        data: Prompts,
        options: Options,
        texts: dict[tuple[int, ...], Any] | None = None,
    ) -> "Item":
        """Check a measurement and make an item for it; `texts` caches texts converted to demonstrations.

        Raises:
            IclMechError: prompts or interventions that the measurement rejects.
        """
        given = measurement.chosen(data)
        sets = given if isinstance(given, tuple) else (given,)
        for prompts in sets:
            check_kind(prompts, measurement.takes, type(measurement).__name__, measurement.why_not)
            if measurement.reads_first_tokens():
                check_first_tokens_differ(prompts, type(measurement).__name__)
        for intervention in options.interventions:
            intervention.check(model.info)
            for prompts in sets:
                intervention.check_prompts(prompts)
        converted = given
        if measurement.reads_spans and sets[0].answer_kind != "vocabulary":
            converted = as_texts(given)
        if sets[0].answer_kind == "vocabulary" and not measurement.reads_texts:
            known = {} if texts is None else texts
            key = tuple(map(id, sets))
            if key not in known:
                known[key] = as_demonstrations(model, sets, options)
            made = known[key]
            converted = made if isinstance(given, tuple) else made[0]
        if converted is not given:
            for prompts, laid in zip(
                sets, converted if isinstance(converted, tuple) else (converted,), strict=True
            ):
                check_same_edges(options.interventions, prompts, laid)
        filled = measurement.filled(model, converted)
        filled.check(model, converted)
        filled.check_options(model, converted, options)
        # Passes that depend on earlier values are checked when they are run.
        if filled.asks_at_once and any(
            intervention.by_number for intervention in options.interventions
        ):
            for job in filled.passes(model, converted):
                check_numbers(job.prompts, converted, options.interventions)
        if filled.asks_at_once and model.without_pattern:
            for job in filled.passes(model, converted):
                for reading in job.readings:
                    model.refuse_missing(reading.sites(model.info))
        return cls(filled, converted, given)


def check_same_edges(
    interventions: Sequence[Intervention], given: PromptBatch, own: PromptBatch
) -> None:
    """Reject attention knockouts that select different tokens once the prompts are converted.

    Raises:
        RunError: names the cut, and the names that select the same tokens in both layouts.
    """
    for intervention in interventions:
        if isinstance(intervention, NamedCut) and intervention.edges(given) != intervention.edges(
            own
        ):
            raise RunError(
                f"{intervention!r} names tokens by roles that these prompts have in only one of "
                "two layouts: here, spans of texts are measured as demonstrations, or "
                "demonstrations as spans. Name 'anchors', 'units', 'spans', 'query', 'target' or "
                "positions."
            )


def check_data(data: object) -> Prompts:
    """The prompts, if they are a batch or a pair of batches.

    Raises:
        PromptError: says what was given and how to build prompts from it.
    """
    if isinstance(data, tuple) and len(data) == 2 and {PromptBatch} & set(map(type, data)):
        true, false = (
            check_batch(batch, f"{name} prompts")
            for batch, name in zip(data, ("true", "false"), strict=True)
        )
        return true, false
    return check_batch(data)


@exclusive
def measured(measurement: Runnable[R], model: Any, data: Prompts, **how: Unpack[How]) -> R:
    """The result of one measurement, as the public functions return it.

    Raises:
        IclMechError: input that the measurement or the engine rejects.
    """
    adapted, options = adapt(model), Options(**how)
    item = Item.checked(measurement, adapted, data, options)
    result: R
    ((_, result),) = completed(adapted, [item], options)
    return result


@dataclass(eq=False)
class _Task:
    """A measurement in progress.

    Attributes:
        item: The item being measured.
        model: The model.
        options: How to run.
        steps: The generator of its passes.
        asked: Passes it is waiting for.
        values: Values of these passes so far.
    """

    item: Item
    model: LanguageModel
    options: Options
    steps: Steps[Any]
    asked: Sequence[Pass] = ()
    values: dict[int, Any] = field(default_factory=dict)
    outcome: Result | None = None

    def advance(self) -> None:
        """Continue with the values of the requested passes, up to the next request or the end."""
        try:
            if self.asked:
                read = [self.values[number] for number in range(len(self.asked))]
                self.asked, self.values = self.steps.send(read), {}
            else:
                self.asked = next(self.steps)
            while self.asked in ([], ()):
                self.asked = self.steps.send([])
        except StopIteration as end:
            self.asked, self.outcome = (), end.value
            name = type(self.item.measurement).__name__
            if not isinstance(self.outcome, Result):
                raise RunError(
                    f"{name} returned a {type(self.outcome).__name__}; its result() must return a "
                    "Result."
                ) from None
        asked: Any = self.asked
        if not isinstance(asked, Sequence) or not all(isinstance(job, Pass) for job in asked):
            raise RunError(
                f"{type(self.item.measurement).__name__} requested {asked!r}; passes() must return "
                "a list of Pass or Variants."
            )
        if is_watched():
            expect(sum((_work(job, self.model, self.options) for job in asked), 0.0))

    @property
    def waiting(self) -> list[int]:
        """Indices of the passes that have not been run."""
        return [number for number in range(len(self.asked)) if number not in self.values]


def completed(
    model: LanguageModel, items: Sequence[Item], options: Options
) -> Iterator[tuple[Item, Any]]:
    """Yield each item with its result, as soon as it is available.

    A pass is run when the first measurement needs it; others that asked for the same prompts and
    interventions also get their readings from it.
    """
    if (rehearsal := stage()) is not None:
        measurements = (item.measurement for item in items if not item.measurement.asks_at_once)
        rehearsal.depends |= {type(measurement).__name__: None for measurement in measurements}
    weights = model.fingerprint()
    tasks = [
        _Task(item, model, options, item.measurement.steps(model, item.data, options))
        for item in items
    ]
    for task in tasks:
        task.advance()
    left = list(tasks)
    while left:
        for task in list(left):
            if task.outcome is not None:
                left.remove(task)
                yield task.item, recorded(task.outcome, model, task.item, options, weights)
        if not left:
            return
        number = left[0].waiting[0]
        job = left[0].asked[number]
        together = [(left[0], number), *_mergeable(job, left[0], number, left)]
        for (task, place), value in zip(together, _made(model, together, options), strict=True):
            task.values[place] = value
        for task in left:
            if not task.waiting:
                task.advance()


def _mergeable(
    job: Pass, owner: _Task, place: int, tasks: Sequence[_Task]
) -> list[tuple[_Task, int]]:
    if isinstance(job, Variants):
        return []
    merged = []
    losses = _losses(job.readings)
    for task in tasks:
        for number in task.waiting:
            candidate = task.asked[number]
            if (task is owner and number == place) or isinstance(candidate, Variants):
                continue
            if (
                candidate.prompts.digest == job.prompts.digest
                and _same(candidate.interventions, job.interventions)
                and len(losses | _losses(candidate.readings)) < 2
            ):
                losses |= _losses(candidate.readings)
                merged.append((task, number))
    return merged


def _work(job: Pass, model: LanguageModel, options: Options) -> float:
    """Cost of a pass, in forward passes over 100 tokens."""
    before = (*options.interventions, *job.interventions)
    how: Any = {name: getattr(options, name) for name in ("batch_size", "memory", "path")}
    layout, variants = (job.layout, job.variants) if isinstance(job, Variants) else (None, ((),))
    sets = [(*before, *variant) for variant in variants]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run gives them
            return price(model, job.prompts, job.readings, sets, layout=layout, **how)
    except IclMechError:  # the run may still be possible, and raises if it is not
        gradient = bool(_losses(job.readings))
        each = cost(job.prompts.lengths.tolist(), gradient=gradient, variants=len(sets))
        return each * len(job.prompts) * len(sets)


def work_of(item: Item, model: LanguageModel, options: Options) -> float:
    """Cost of the passes that a measurement asks for first, in forward passes over 100 tokens."""
    steps = item.measurement.steps(model, item.data, options)
    try:
        return sum((_work(job, model, options) for job in next(steps, ())), 0.0)
    finally:
        steps.close()


def _losses(readings: Sequence[AnyReading]) -> set[str]:
    return {reading.loss for reading in readings if isinstance(reading, GradientReading)}


def _same(first: Sequence[Intervention], second: Sequence[Intervention]) -> bool:
    return [value.to_dict() for value in first] == [value.to_dict() for value in second]


def _made(
    model: LanguageModel, together: Sequence[tuple[_Task, int]], options: Options
) -> list[Any]:
    """The values of passes that are run as one."""
    passes = [task.asked[number] for task, number in together]
    job = passes[0]
    for task, number in together:
        # This matters only for passes that are not known earlier; the others were checked before anything ran.
        check_numbers(task.asked[number].prompts, task.item.data, options.interventions)
    how = {option.name: getattr(options, option.name) for option in fields(options)} | {
        "title": job.title
    }
    before = tuple(how.pop("interventions"))
    whole = [not task.item.measurement.reads_first_tokens() for task, _ in together]
    if isinstance(job, Variants):
        variants = [(*before, *job.interventions, *variant) for variant in job.variants]

        def varied(part: Pass, change: Change | None = None) -> list[list[Any]]:
            layout = job.layout.over(change) if job.layout and change else job.layout
            return run_variants(model, part.prompts, part.readings, variants, layout=layout, **how)

        read = varied(job)
        if not whole[0]:
            return [read]
        apart = _needs_all(*variants) or job.layout is not None
        return [whole_words(job.prompts, job.readings, read, varied, apart=apart)]
    # Merged passes cost as much as the most expensive of them.
    if is_watched():
        works = [_work(part, model, options) for part in passes]
        expect(max(works) - sum(works))
    readings: list[AnyReading] = []
    places = [[_placed(reading, readings) for reading in part.readings] for part in passes]

    def plain(part: Pass, change: Change | None = None) -> list[list[Any]]:
        return [run(model, part.prompts, part.readings, (*before, *job.interventions), **how)]

    (values,) = read = plain(replace(job, readings=readings))
    scored = values
    if any(whole):
        apart = _needs_all((*before, *job.interventions))
        (scored,) = whole_words(job.prompts, readings, read, plain, apart=apart)
    return [
        [(scored if by_word else values)[place] for place in positions]
        for positions, by_word in zip(places, whole, strict=True)
    ]


def _needs_all(*variants: Sequence[Intervention]) -> bool:
    """True if an intervention depends on the numbers of prompts, or on a mean over all of them."""
    return any(
        change.by_number or (change.missing() and change.taken_from() is None)
        for variant in variants
        for change in variant
    )


def check_numbers(
    prompts: PromptBatch, data: Prompts, interventions: Sequence[Intervention]
) -> None:
    """Reject interventions that depend on a prompt's index where indices differ.

    Raises:
        RunError: names the intervention.
    """
    sides = data if isinstance(data, tuple) else (data,)
    for intervention in interventions:
        if intervention.by_number and not any(_same_numbers(prompts, side) for side in sides):
            raise RunError(
                f"{intervention!r} may depend on the index of a prompt, but some passes run other "
                "prompts (a subset, or separate contexts), whose indices differ. Measure those "
                "prompts separately, or set the intervention's by_number to False if it does "
                "not depend on the index."
            )


def _same_numbers(prompts: PromptBatch, data: PromptBatch) -> bool:
    """True if every prompt equals the prompt with the same number up to the target."""
    return len(prompts) <= len(data) and all(
        prompt.tokens[: given.target + 1] == given.tokens[: given.target + 1]
        for prompt, given in zip(prompts, data, strict=False)
    )


def _placed(reading: AnyReading, readings: list[AnyReading]) -> int:
    """Index of a reading among those of a pass; equal readings are merged."""
    for place, earlier in enumerate(readings):
        if earlier is reading or (type(earlier) is type(reading) and earlier == reading):
            return place
    readings.append(reading)
    return len(readings) - 1


def recorded(result: R, model: LanguageModel, item: Item, options: Options, weights: str) -> R:
    """The result with its provenance; entries it recorded itself take precedence."""
    origin = provenance(model, item.measurement, item.given, options.interventions, weights=weights)
    sets = item.given if isinstance(item.given, tuple) else (item.given,)
    if sets[0].score != "first" and item.measurement.reads_first_tokens():
        origin["label_words"] = "read by their first tokens"
    return replace(result, provenance={**origin, **result.provenance})

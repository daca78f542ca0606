"""`Study`: the measurements made on one model and one set of prompts, and the claims they test, as a value."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from icl_mech.checking import check_fields, shown
from icl_mech.errors import IclMechError, PromptError, RunError, near_matches
from icl_mech.measurements.base import AnyMeasurement
from icl_mech.measurements.running import Prompts
from icl_mech.names import at_address, is_address
from icl_mech.results import Result
from icl_mech.results.judging import OPENINGS
from icl_mech.studies.bench import Bench
from icl_mech.studies.claim import Claim, Effect, Run
from icl_mech.studies.judge import Verdict, of_run

Takes = Literal["prompts", "pair", "texts"]

Headline = Callable[[Mapping[str, Result], Sequence[Verdict], str, str], tuple[str, str]]
"""Question and answer, from results, verdicts, and the names of model and task."""

DEFAULT = "default"
"""Name of the study that `analyze` runs by default."""

OF_MEASUREMENTS = "measurements"
"""Replaces the name of a study when measurements were chosen one by one."""

FEW = "how other tasks or seeds would behave, if there are fewer than about ten of them."
SEEDS = "variation over independent queries: seeds draw theirs from the same examples."


@dataclass(frozen=True)
class Mean:
    """A figure on the page of a sweep: a quantity averaged over tasks and seeds.

    Attributes:
        question: Its heading.
        short: Its entry in the table of contents.
        key: Its key in links, which begins with the name of the result.
        quantity: The averaged quantity: an effect or its name, or `part.quantity`.
        over: Dimensions that are averaged.
        by_task: One curve or panel per task; left out if there is only one task.
        limits: Conclusions that do not follow from it.
        options: Options of the drawing.
        told: Quantities that the sentence above it reports.
        always: Drawn if there is anything to draw, independent of the results that the runs hold.
    """

    question: str
    short: str
    key: str
    quantity: str | Effect
    over: Sequence[str] = ("task", "seed")
    by_task: bool = False
    limits: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    told: Sequence[str] = ()
    always: bool = False


@dataclass(frozen=True)
class Study:
    """The measurements of a study, their reading order, and the claims they test.

    Creating a study registers it by name, for `analyze`, sweeps and saved runs. A custom study may also be a
    subclass of this class.

    Attributes:
        name: Lower-case letters, digits and `_`.
        measurements: Measured together, before everything else.
        claims: Tested on the pages of runs and sweeps.
        headline: The question of its page, such as `"Does {model} look back on {task}?"`, answered by the
            first claim; or a function of results, verdicts, model and task that gives question and answer.
        optional: Further measurements, left out with a note if they are not possible.
        steps: `steps(bench, data, **options)` for measurements that depend on earlier results. Its
            keyword parameters are options, which `analyze` passes on.
        takes: One set of prompts, a pair (true, false) of `build_prompt_pairs`, or texts.
        kicker: The line above the heading.
        source: The paper or authors behind the claims.
        gives: Types of the results it gives, by name, in reading order; others follow.
        sections: Results that are shown on the page; empty: all of them.
        first: Results whose first figures appear on the first level of the page; empty: the first two.
        omits: Figures (`result.show`) that the page leaves out because another one shows the same.
        quantities: Quantities that `Sweep.average` knows by name, in addition to the effects of the claims.
        means: Figures of a sweep's page; empty: the effects of the claims.
        known_by: True if a run that does not name its study belongs to this one, given the types of its results.
    """

    name: str
    measurements: Sequence[AnyMeasurement[Any, Any]] = ()
    claims: Sequence[Claim] = ()
    headline: str | Headline = ""
    optional: Sequence[AnyMeasurement[Any, Any]] = ()
    steps: Callable[..., None] | None = None
    takes: Takes = "prompts"
    kicker: str = ""
    source: str = ""
    gives: Mapping[str, type[Result]] = field(default_factory=dict)
    sections: Sequence[str] = ()
    first: Sequence[str] = ()
    omits: Sequence[str] = ()
    quantities: Sequence[Effect] = ()
    means: Sequence[Mean] = ()
    known_by: Callable[[set[type[Result]]], bool] | None = None

    def __post_init__(self) -> None:
        """Check the fields against their types, and register the study.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name) or self.name == OF_MEASUREMENTS:
            raise RunError(
                f"name={shown(self.name)} cannot be the name of a study; use lower-case letters, digits and _, "
                f"beginning with a letter, and not {OF_MEASUREMENTS!r}."
            )
        if self.name in _OWN:
            raise RunError(
                f"name={self.name!r} is already the name of an icl_mech study; give your study another name."
            )
        known = {effect.name: effect for name in _OWN for effect in _KNOWN[name].effects}
        for effect in self.effects:
            if known.get(effect.name, effect) != effect:
                raise RunError(
                    f"{effect.name!r} is already the name of an icl_mech effect or quantity, which averages of sweeps "
                    "would use instead of yours; give yours another name."
                )
        _KNOWN[self.name] = self

    @property
    def pair(self) -> bool:
        """True if it compares true and false demonstrations."""
        return self.takes == "pair"

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects of its claims, and its further quantities."""
        of_claims = (effect for claim in self.claims for effect in claim.effects)
        return (*of_claims, *self.quantities)

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options of its steps."""
        if self.steps is None:
            return ()
        parameters = inspect.signature(self.steps).parameters.values()
        return tuple(
            parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the results it gives, as far as they are known before it runs."""
        return (
            *self.gives,
            *(measurement.name for measurement in (*self.measurements, *self.optional)),
        )

    def check(self, data: Prompts) -> None:
        """Reject prompts of the wrong kind.

        Raises:
            PromptError: one set instead of a pair, or the reverse.
        """
        pair = isinstance(data, tuple)
        if self.pair and not pair:
            raise PromptError(
                f"The {self.name} study compares true and false demonstrations; give the pair that "
                "build_prompt_pairs returns."
            )
        if pair and not self.pair:
            paired = [repr(study.name) for study in known_studies().values() if study.pair]
            raise PromptError(
                f"The {self.name} study takes one set of prompts, but a pair was given; give one set, or use "
                f"study={' or '.join(paired)}."
            )

    def run(
        self,
        bench: Bench,
        data: Prompts,
        besides: Sequence[AnyMeasurement[Any, Any]] = (),
        **options: Any,
    ) -> None:
        """Measure everything that these prompts allow.

        Args:
            bench: Measures and keeps results.
            data: The prompts.
            besides: Further measurements.
            **options: Options of `analyze`; those that the steps know are passed on.

        Raises:
            RunError: it measures nothing.
            IclMechError: the study or a measurement rejects the model, prompts or options.
        """
        if self.steps is None and not (self.measurements or self.optional):
            raise RunError(
                f"The {self.name} study measures nothing; give it measurements or steps."
            )
        step_options = {name: options[name] for name in self.options if name in options}
        if "besides" in self.options:  # they share its passes
            step_options["besides"], besides = besides, ()
        if self.measurements or self.optional:
            bench.measure(data, *self.measurements, *besides, optional=self.optional)
            besides = ()
        if self.steps is not None:
            self.steps(bench, data, **step_options)
        if besides:
            bench.measure(data, *besides)
        bench.order(tuple(self.gives))

    def verdicts(self, run: Run) -> tuple[Verdict, ...]:
        """One verdict per claim that the results bear on, corrected for multiple testing (Holm)."""
        return of_run(self.claims, run)

    def heading(
        self, run: Run, verdicts: Sequence[Verdict], model: str, task: str
    ) -> tuple[str, str]:
        """The question of its page, and the answer to it; empty if it has none."""
        if callable(self.headline):
            question, answer = self.headline(run.results, verdicts, model, task)
            if verdicts and verdicts[0].lacking:
                answer = f"{OPENINGS['cannot be judged']}: {verdicts[0].line}"
            return question, answer
        if not self.headline:
            return "", ""
        first = self.claims[0].text if self.claims else ""
        first_verdict = next((verdict for verdict in verdicts if verdict.claim == first), None)
        answer = (
            ""
            if first_verdict is None
            else f"{OPENINGS[first_verdict.status]}: {first_verdict.finding}"
        )
        return self.headline.format(model=model, task=task), answer

    def variants(self) -> dict[str, Any]:
        """The measurements and added fields as plain values, by which sweeps recognise custom studies."""
        measured = (*self.measurements, *self.optional)
        known = {item.name for item in fields(Study)}
        values = {item.name: shown(getattr(self, item.name)) for item in fields(self)}
        return {
            "measurements": [
                {"measurement": measurement.name, **measurement.variants()}
                for measurement in measured
            ],
            **{name: value for name, value in values.items() if name not in known},
        }


_KNOWN: dict[str, Study] = {}
_OWN: set[str] = set()
_TRIED: set[type[Study]] = set()
"""Subclasses of `Study` that were instantiated to learn their name."""


def settle(*studies: Study) -> None:
    """Register the studies of this package, in this order, and reserve their names."""
    _KNOWN.clear()
    _KNOWN.update({study.name: study for study in studies})
    _OWN.update(_KNOWN)


def known_studies() -> dict[str, Study]:
    """All studies by name: built-in studies, then custom ones in the order they were created."""
    for study_class in _derived(Study):
        if study_class not in _TRIED and all(
            type(study) is not study_class for study in _KNOWN.values()
        ):
            _TRIED.add(study_class)
            with suppress(TypeError, IclMechError):  # fields without defaults: not known by name
                study_class()  # type: ignore[call-arg]
    return dict(_KNOWN)


def quantities() -> dict[str, Effect]:
    """Quantities that `Sweep.average` knows by name: effects of claims, and further quantities of studies."""
    return {effect.name: effect for study in known_studies().values() for effect in study.effects}


def is_own(study: Study) -> bool:
    """True for studies of this package."""
    return study.name in _OWN


def _derived(study_class: type[Study]) -> list[type[Study]]:
    return [
        derived for child in study_class.__subclasses__() for derived in (child, *_derived(child))
    ]


def study_named(
    given: Study | type[Study] | str | None, error: type[IclMechError] = RunError
) -> Study:
    """The study of a name or an address (`my_module:MY_STUDY`), or the study that was given.

    Raises:
        IclMechError: of the type given; there is no such study.
    """
    if isinstance(given, Study):
        return given
    if isinstance(given, str) and is_address(given):
        study: Study = at_address(given, Study, error)
        return study
    if isinstance(given, type) and issubclass(given, Study):
        return given()  # type: ignore[call-arg]
    known = known_studies()
    name: Any = DEFAULT if given is None else given
    if not isinstance(name, str) or name not in known:
        raise error(f"study={shown(given)} is not a known study. {near_matches(name, known)}")
    return known[name]

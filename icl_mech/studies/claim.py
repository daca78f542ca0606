"""`Claim`: a statement about models, the effects it requires, and how much of the answer depends on it.

Nothing is decided here: `icl_mech.studies.judge` computes status and p-value, from one run or from means.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from icl_mech._typing import Tensor
from icl_mech.checking import check_fields
from icl_mech.errors import MissingResult
from icl_mech.metrics import Interval
from icl_mech.names import key_now
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.results.judging import Required, combined, required

DIFFERENCE = (-1.0, 1.0)
"""Range of differences of fractions."""

LEAST = 0.1
"""Default minimum fraction of the answer's gain that must depend on the claimed mechanism."""


@runtime_checkable
class Run(Protocol):
    """The evidence for claims: an `Analysis`."""

    @property
    def results(self) -> Mapping[str, Result]:
        """Results by name."""

    @property
    def prompts(self) -> Sequence[PromptBatch]:
        """One batch, or true and false ones; none if they were not kept."""

    def __getitem__(self, key: Any) -> Any:
        """A result by its name or type.

        Raises:
            MissingResult: there is none.
        """


class Evidence(NamedTuple):
    """The evidence on one effect, in a run or on average.

    Attributes:
        interval: Estimate with its 95 % interval, and its controls.
        prompts: Number of prompts behind it; None if not known.
        sample: Number of units (prompts, seeds, tasks) that the interval averages, used for its p-value.
        units: Number of units to which more could be added, see `would_do`.
    """

    interval: Interval
    prompts: int | None = None
    sample: int | None = None
    units: int | None = None


@dataclass(frozen=True)
class Effect:
    """A number computed from a run, with its interval over prompts.

    Attributes:
        name: Its name in tables and for `Sweep.average`.
        of: `part.quantity`, such as `flow.share`, or a function of an `Analysis` that gives a number, an
            interval (value, low, high) or labelled samples, or None if the run does not hold it.
        null: Its value if there is no effect.
        rising: True if the claim says that it lies above `null`, False if below.
        ends: Its range by definition, if known.
        measure: Effects with the same measure compare it with several controls, or estimate it in several ways: it
            is clear if all of them are. Empty: a separate measure.
        opposite: Threshold on the other side beyond which it shows the opposite of the claim; None: `null`.
        prompts: Number of prompts behind it; None: all prompts of the result.
        parts: For a ratio of means, its numerator and denominator for each prompt of a run; None if it has none.
            Its mean over runs is the ratio of the means of both.
        instead: An effect that may be clear instead, if a claim needs this one.
        unclear: Message if a claim needs it and it is not clear; `{}` is its interval.
        unknown: Message if a claim needs it and it was not measured.
    """

    name: str
    of: str | Callable[[Any], Any]
    null: float = 0.0
    rising: bool = True
    ends: tuple[float, float] | None = None
    measure: str = ""
    opposite: float | None = None
    prompts: Callable[[Any], int | None] | None = None
    parts: Callable[[Any], tuple[Tensor, Tensor] | None] | None = None
    instead: "Effect | None" = None
    unclear: str = ""
    unknown: str = ""

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)

    def interval(self, run: Run) -> Interval | None:
        """Its value in one run; None if the run does not hold it, or it has no interval."""
        try:
            if callable(self.of):
                value = self.of(run)
            else:
                part, _, name = self.of.partition(".")
                value = getattr(run[part], name)
                value = value() if callable(value) else value
        except MissingResult:
            return None
        if isinstance(value, Interval):
            return value
        return Interval(*value) if isinstance(value, tuple) and len(value) == 3 else None

    def count(self, run: Run) -> int | None:
        """Number of prompts behind it; None unless the effect defines it."""
        try:
            return None if self.prompts is None else self.prompts(run)
        except MissingResult:
            return None

    def evidence(self, run: Run, part: str = "") -> Evidence | None:
        """Its evidence in one run; None if there is none."""
        interval = self.interval(run)
        if interval is None:
            return None
        count = self.count(run) or prompts_of(run, part)
        return Evidence(interval, count, count, count)

    def required(
        self,
        interval: Interval | None,
        prompts: int | None = None,
        sample: int | None = None,
        units: int | None = None,
        *,
        null: float | None = None,
    ) -> Required:
        """What its interval shows about a claim; see `Evidence`.

        Args:
            interval: Estimate with its 95 % interval; None if there is none.
            prompts: Number of prompts behind it.
            sample: Number of units that it averages; None: the prompts.
            units: Number of units to which more could be added; None: the prompts.
            null: Replaces the null of the effect, on both sides.
        """
        level, opposite = (self.null, self.opposite) if null is None else (null, None)
        how: dict[str, Any] = {"null": level, "rising": self.rising, "opposite": opposite}
        measure = required(self.name, interval, prompts=prompts, sample=sample, **how)
        return measure._replace(n=units or prompts)


class Words(NamedTuple):
    """The sentences of a claim about one run.

    Attributes:
        finding: Effects, intervals, comparisons and number of prompts, in one or two sentences.
        brief: The same in one line; empty: the first sentence of the finding.
    """

    finding: str
    brief: str = ""


@dataclass(frozen=True)
class Claim:
    """A statement about models that effects test.

    Attributes:
        text: The claim in words: a name, a colon, a sentence.
        effects: Effects it requires: every measure must be clear.
        part: Result that it uses, or section of the page of a sweep.
        needs: Effects that must be clear for the claim to be meaningful; otherwise it cannot be judged. An example is
            `DOES` of `icl_mech.studies.competence` for claims on how the model does the task.
        share: How much of the answer depends on the claimed mechanism, as a fraction of what demonstrations add. A
            claim whose effects are clear is supported if this lies above `least`, and *present, not used* below it.
        least: The minimum of this fraction.
        unless: An effect that must not be clear together with those required: if it is, the claim is mixed.
        one: All its effects are one measure, see `Effect.measure`.
        words: Sentences about one run, if they say more than effects and intervals.
        averaged: The claim for means over tasks and seeds, if different.
    """

    text: str
    effects: Sequence[Effect] = ()
    part: str = ""
    needs: Effect | Sequence[Effect] | None = None
    share: Effect | None = None
    least: float = LEAST
    unless: Effect | None = None
    one: bool = False
    words: Callable[[Any], Words | None] | None = None
    averaged: str = ""

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)

    @property
    def needed(self) -> tuple[Effect, ...]:
        """The effects it needs, in the order in which they are checked."""
        if self.needs is None:
            return ()
        return (self.needs,) if isinstance(self.needs, Effect) else tuple(self.needs)

    @property
    def required_effects(self) -> tuple[Effect, ...]:
        """All effects that determine its status, except its needs."""
        return (
            *self.effects,
            *(effect for effect in (self.share, self.unless) if effect is not None),
        )

    def result_in(self, run: Run) -> str:
        """Name of the result of a run that it uses; empty if the run does not hold it."""
        names = (self.part, self.part.partition("-")[0])
        return next(
            (key for name in names if (key := key_now(name, run.results)) in run.results), ""
        )

    def measures(self, each: Sequence[Required]) -> list[Required]:
        """The measures it requires, combined from its effects."""
        names = (
            effect.measure or (self.part if self.one else effect.name) for effect in self.effects
        )
        groups: dict[str, list[Required]] = {}
        for name, requirement in zip(names, each, strict=True):
            groups.setdefault(name, []).append(requirement)
        return [combined(name, requirements) for name, requirements in groups.items()]


def prompts_of(run: Run, part: str) -> int | None:
    """Number of prompts behind a result."""
    part = key_now(part, run.results)
    origin = run.results[part].provenance if part in run.results else {}
    count = origin.get("prompts", {}).get("count")
    if count is None and run.prompts:
        return len(run.prompts[0])
    return None if count is None else int(count)

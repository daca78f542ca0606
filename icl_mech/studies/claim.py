"""`Claim`: what is said of models, the effects that bear on it, and the verdict on it.

A page judges a claim by one run, the page of a sweep by the means of its effects over tasks and seeds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from icl_mech.checking import check_fields
from icl_mech.errors import MissingResult
from icl_mech.metrics import Interval
from icl_mech.names import key_now
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.results.judging import (
    ROUNDING,
    Required,
    Status,
    combined,
    disagreeing,
    holm,
    of_statement,
    required,
    together,
    would_do,
)
from icl_mech.results.wording import counted, said

DIFFERENCE = (-1.0, 1.0)
"""Between which differences of shares lie."""


@runtime_checkable
class Run(Protocol):
    """What a claim is judged by: an `Analysis`."""

    @property
    def results(self) -> Mapping[str, Result]:
        """By name."""

    @property
    def prompts(self) -> Sequence[PromptBatch]:
        """One batch, or true and false ones; none if they were not kept."""

    def __getitem__(self, key: Any) -> Any:
        """A result by its name or kind.

        Raises:
            MissingResult: there is none.
        """


@dataclass(frozen=True)
class Verdict:
    """One claim beside what was found.

    Attributes:
        claim: In words.
        status: What the measures it requires say of it, among all claims of the study (Holm).
        finding: Effect, interval, comparison and number of prompts, in one or two sentences.
        result: Name of the result it rests on, which is a section of the page.
        measures: Those it requires.
        alone: Its status if it were the only claim.
        brief: Effect with interval and number of prompts in one line; empty: the first sentence of the finding.
        more: How many prompts would do, where it is not shown or cannot be judged for lack of prompts.
    """

    claim: str
    status: Status
    finding: str
    result: str
    measures: tuple[Required, ...] = ()
    alone: Status = "cannot be judged"
    brief: str = ""
    more: str = ""

    @property
    def line(self) -> str:
        """What was found, in one line."""
        return self.brief or self.finding.partition(". ")[0].rstrip(".") + "."

    @property
    def p(self) -> float | None:
        """One-sided p-value of the claim, the largest of the measures it requires.

        None where it cannot be judged; 1 where they disagree.
        """
        return of_statement(self.alone, (own.p for own in self.measures))


@dataclass(frozen=True)
class Effect:
    """A number of a run, with its interval over prompts.

    Attributes:
        name: By which tables show it and `Sweep.average` takes it.
        of: `part.quantity`, such as `flow.share`, or a function of an `Analysis` that gives a number, an
            interval (value, low, high) or labelled samples, and None where it cannot.
        null: What no effect would give.
        rising: The claim says that it lies above `null`; else below.
        ends: Between which it lies by its definition, as far as that is known.
        measure: Effects of one measure are it beside several controls, or taken in several ways: it is clear where
            all of them are. Empty: a measure of its own.
        opposite: Beyond which, on the other side, the claim has it the other way; None: `null`.
        prompts: On how many it rests; None: all of the result.
    """

    name: str
    of: str | Callable[[Any], Any]
    null: float = 0.0
    rising: bool = True
    ends: tuple[float, float] | None = None
    measure: str = ""
    opposite: float | None = None
    prompts: Callable[[Any], int | None] | None = None

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)

    def interval(self, run: Run) -> Interval | None:
        """Its value in one run; None where the run does not hold it, or it has no interval."""
        try:
            if callable(self.of):
                found = self.of(run)
            else:
                part, _, name = self.of.partition(".")
                found = getattr(run[part], name)
                found = found() if callable(found) else found
        except MissingResult:
            return None
        return Interval(*found) if isinstance(found, tuple) and len(found) == 3 else None

    def count(self, run: Run) -> int | None:
        """On how many prompts it rests, where that is said of it."""
        try:
            return None if self.prompts is None else self.prompts(run)
        except MissingResult:
            return None

    def required(self, interval: Interval | None, prompts: int | None) -> Required:
        """What an interval of it says of a claim."""
        how: dict[str, Any] = {"null": self.null, "rising": self.rising, "opposite": self.opposite}
        return required(self.name, interval, prompts=prompts, **how)


@dataclass(frozen=True)
class Claim:
    """Something said of models that effects bear on.

    Attributes:
        text: In words: a name, a colon, a sentence.
        effects: What it requires: every measure must be clear.
        part: Result it rests on, or section of the page of a sweep.
        judge: Verdicts from the results of one run, where more is said than effects and intervals.
            A claim without it is judged by its effects.
        needs: Effect that must lie above 0 for the claim to mean anything, else it cannot be judged:
            `ABOVE_CONSTANT` for what is said of how the model does the task.
        one: All its effects are one measure, see `Effect.measure`.
        averaged: What is said of means over tasks and seeds, where that is not the same.
    """

    text: str
    effects: Sequence[Effect] = ()
    part: str = ""
    judge: Callable[[Mapping[str, Result]], Iterable[Verdict]] | None = None
    needs: Effect | None = None
    one: bool = False
    averaged: str = ""

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)

    def verdicts(self, run: Run) -> list[Verdict]:
        """What one run says of it; nothing if none of its results bears on it."""
        if self.judge is not None:
            return list(self.judge(run.results))
        found = {own: own.interval(run) for own in self.effects}
        if not any(found.values()):
            return []
        n = _prompts(run, self.part)
        each = [own.required(interval, own.count(run) or n) for own, interval in found.items()]
        words = "; ".join(
            f"{own.name} {said(value, sign=True)}" for own, value in found.items() if value
        )
        over = f" (n = {counted(n, 'prompt')})" if n else ""
        text = f"{words[0].upper()}{words[1:]}{over}."
        return [claimed(self.text, self.measures(each), text, self.part)]

    def measures(self, each: Sequence[Required]) -> list[Required]:
        """Those it requires, from what each of its effects says."""
        names = (own.measure or (self.part if self.one else own.name) for own in self.effects)
        groups: dict[str, list[Required]] = {}
        for name, own in zip(names, each, strict=True):
            groups.setdefault(name, []).append(own)
        return [combined(name, own) for name, own in groups.items()]


def _prompts(run: Run, part: str) -> int | None:
    """On how many prompts a result rests."""
    part = key_now(part, run.results)
    origin = run.results[part].provenance if part in run.results else {}
    count = origin.get("prompts", {}).get("count")
    if count is None and run.prompts:
        return len(run.prompts[0])
    return None if count is None else int(count)


def of_each(
    kind: type[Result], judge: Callable[[str, Any], Verdict | None]
) -> Callable[[Mapping[str, Result]], Iterable[Verdict]]:
    """Verdicts on every result of a kind, from its name and itself."""

    def judged_each(results: Mapping[str, Result]) -> Iterable[Verdict]:
        found = (judge(name, own) for name, own in results.items() if isinstance(own, kind))
        return [own for own in found if own is not None]

    return judged_each


def claimed(
    claim: str, measures: Sequence[Required], finding: str, result: str, brief: str = ""
) -> Verdict:
    """A verdict on a claim that requires all these measures; says which disagree or are lacking."""
    status = together(*(own.status for own in measures))
    several = len(measures) > 1
    if several and status in ("mixed", "cannot be judged"):
        why = disagreeing(measures)
        finding = f"{why[0].upper()}{why[1:]}. {finding}"
        brief = brief and f"{why[0].upper()}{why[1:]}. {brief}"
    return Verdict(claim, status, finding, result, tuple(measures), status, brief)


def meaningful(claim: Claim, verdict: Verdict, run: Run) -> Verdict:
    """The same verdict where what the claim needs is clear or not known; else it cannot be judged."""
    needed = claim.needs.interval(run) if claim.needs else None
    if needed is None or needed.low > ROUNDING or verdict.status == "cannot be judged":
        return verdict
    assert claim.needs is not None
    why = f"{claim.needs.name[0].upper()}{claim.needs.name[1:]} is not clear, {said(needed, sign=True)}, so this cannot be judged."
    lacking = (Required(claim.needs.name, "cannot be judged", None),)
    return Verdict(
        verdict.claim,
        "cannot be judged",
        f"{why} {verdict.finding}",
        verdict.result,
        lacking,
        brief=why,
    )


def stated_together(verdicts: Sequence[Verdict], run: Run | None = None) -> tuple[Verdict, ...]:
    """The verdicts of one page: a claim stands if it stands among all that can be judged (Holm).

    Of a run they say how many prompts would do.

    Of networks in which nothing is to be found, one page in forty then shows anything, as with one
    claim alone.
    """
    p_values = [own.p for own in verdicts]
    count = sum(own is not None for own in p_values)
    found = []
    for verdict, stands in zip(verdicts, holm(p_values), strict=True):
        if verdict.status in ("supported", "opposite") and not stands and verdict.p is not None:
            own = f"{verdict.finding} Alone it would be {verdict.status} (p = {verdict.p:.2g}, one-sided), "
            own += f"but not among {counted(count, 'claim')} (Holm)."
            brief = f"{verdict.line} Alone {verdict.status}, not among {counted(count, 'claim')} (Holm)."
            verdict = replace(verdict, status="not shown", finding=own, brief=brief)
        if run is not None and verdict.status in ("not shown", "cannot be judged"):
            verdict = replace(verdict, more=_more(verdict, run))
        found.append(verdict)
    return tuple(found)


def _more(verdict: Verdict, run: Run) -> str:
    """How many prompts would do; of one set of demonstrations that it holds given these."""
    more, own = would_do(verdict.measures), run.results.get(key_now(verdict.result, run.results))
    if more and own is not None and own.provenance.get("conditional_on_demonstrations"):
        more += " That holds given these demonstrations: for others it takes more seeds."
    return more

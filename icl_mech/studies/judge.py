"""The only judge: it turns the evidence on a claim's effects into its status and p-value, wherever it is shown.

The page of a run uses the evidence of that run, the page of a sweep uses means over tasks and seeds; a sweep of a
single run uses the run. Missing evidence has one meaning everywhere:

* an effect that a run does not hold, or whose interval is not finite: it cannot be judged;
* an interval of zero width: all prompts have the same value, and the p-value is that of a sign test;
* fewer than two control networks or draws, or one without a value: the effect compared with them cannot be judged;
* fewer than `FEWEST_PROMPTS` prompts: nothing can be judged;
* an effect that the claim needs and that is not clearly above its null, or was not measured: it cannot be judged.

A claim whose effects are clear is *supported* if the fraction of the answer that depends on it is clearly above the
claim's minimum, *present, not used* if it is clearly below, and *not shown* in between.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

from icl_mech.errors import MissingResult
from icl_mech.metrics import Interval
from icl_mech.names import key_now
from icl_mech.results.judging import (
    Required,
    Status,
    disagreeing,
    holm,
    of_statement,
    together,
    would_do,
)
from icl_mech.results.wording import counted, said
from icl_mech.studies.claim import Claim, Effect, Evidence, Run, Words, prompts_of

STATEMENTS: tuple[Status, ...] = ("supported", "opposite", "present, not used")
"""Statuses that Holm's procedure corrects for the other claims."""

NOTHING = (None,)
"""Evidence on an unknown effect."""

UNMEASURED = "How much of the answer depends on this was not measured."


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim.

    Attributes:
        claim: The claim, in words.
        status: Status of the claim, corrected for all claims tested with it (Holm).
        finding: Effect, interval, comparison and number of prompts, in one or two sentences.
        result: Name of the result it uses, which is a section of the page.
        measures: The measures it requires.
        alone: Its status if it were the only claim.
        p: One-sided p-value, the largest of the measures it requires. None if it cannot be judged; 1 if they
            disagree.
        brief: Effect with interval and number of prompts in one line; empty: the first sentence of the finding.
        more: How many prompts would be enough, if it is not shown or cannot be judged for lack of prompts.
        effects: The known effects, by name.
        lacking: Why it cannot be judged, if an effect it needs is not clear.
        remark: Which measures disagree, in a few words.
    """

    claim: str
    status: Status
    finding: str
    result: str
    measures: tuple[Required, ...] = ()
    alone: Status = "cannot be judged"
    p: float | None = None
    brief: str = ""
    more: str = ""
    effects: dict[str, Interval] = field(default_factory=dict)
    lacking: str = ""
    remark: str = ""

    @property
    def line(self) -> str:
        """The finding in one line."""
        return self.brief or self.finding.partition(". ")[0].rstrip(".") + "."


@dataclass(frozen=True)
class Judgement:
    """The judgement of a claim by its evidence, before it is put in sentences.

    Attributes:
        claim: The claim.
        status: Its status, taken alone.
        p: One-sided p-value; None if it cannot be judged.
        measures: The measures it requires.
        effects: The known effects, by name.
        lacking: Why it cannot be judged, if an effect it needs is not clear.
    """

    claim: Claim
    status: Status
    p: float | None
    measures: tuple[Required, ...]
    effects: dict[str, Interval]
    lacking: str = ""

    @property
    def remark(self) -> str:
        """What the status does not say, in a few words; may be empty."""
        if self.lacking:
            return self.lacking.rstrip(".")
        share = "" if self.claim.share is None else self.claim.share.name
        # The fraction only matters if the effects are clear.
        effects = [measure for measure in self.measures if measure.name != share]
        asked = together(*(measure.status for measure in effects)) == "supported"
        measures = [measure for measure in self.measures if measure.name != share or asked]
        if self.status in ("mixed", "cannot be judged") and len(self.measures) > 1:
            return disagreeing(measures)
        return ""

    @property
    def share(self) -> str:
        """How much of the answer depends on the claimed mechanism, in a sentence."""
        share = self.claim.share
        if share is None or self.lacking:
            return ""
        if share.name not in self.effects:
            return UNMEASURED
        return f"{share.name[:1].upper()}{share.name[1:]}: {said(self.effects[share.name])} (minimum {self.claim.least:g})."


Read = Callable[[Effect], Evidence | None]
"""Evidence on an effect, from a run or from means."""


def judge(claim: Claim, read: Read) -> Judgement:
    """The status and p-value of a claim from the evidence on its effects; computed only here."""
    known = {effect: read(effect) for effect in claim.required_effects}
    share = "" if claim.share is None else claim.share.name
    measures = claim.measures(
        [effect.required(*(known[effect] or NOTHING)) for effect in claim.effects]
    )
    status = together(*(measure.status for measure in measures))
    if claim.share is not None:
        part = claim.share.required(*(known[claim.share] or NOTHING), null=claim.least)
        status, measures = _used(status, part), [*measures, part]
    if claim.unless is not None and status == "supported":
        beside = claim.unless.required(*(known[claim.unless] or NOTHING)).status
        status = {"supported": "mixed", "cannot be judged": beside}.get(beside, status)
    # An unknown fraction does not matter if the effects are not clear.
    known_p = [measure.p for measure in measures if measure.p is not None or measure.name != share]
    p = of_statement(status, known_p)
    effects = {
        effect.name: evidence.interval for effect, evidence in known.items() if evidence is not None
    }
    lacking = _lacking(claim, read)
    if lacking:
        status, p = "cannot be judged", None
    return Judgement(claim, status, p, tuple(measures), effects, lacking)


def _used(status: Status, part: Required) -> Status:
    """Status of a claim, given the fraction of the answer that needs it; unchanged unless its effects are clear."""
    if status != "supported":
        return status
    if part.status == "opposite":
        return "present, not used"
    return part.status


def _lacking(claim: Claim, read: Read) -> str:
    """A sentence on the first effect that a claim needs and that is not clearly above its null; empty if none."""
    for need in claim.needed:
        if _is_clear(need, read) or (need.instead is not None and _is_clear(need.instead, read)):
            continue
        evidence, name = read(need), f"{need.name[:1].upper()}{need.name[1:]}"
        if evidence is None:
            return need.unknown or f"{name} was not measured, so this cannot be judged."
        if not all(map(isfinite, evidence.interval)):
            return f"{name} is undefined here, so this cannot be judged."
        words = need.unclear or f"{name} is not clear ({{}}), so this cannot be judged."
        return words.format(said(evidence.interval, sign=True))
    return ""


def _is_clear(effect: Effect, read: Read) -> bool:
    evidence = read(effect)
    return evidence is not None and effect.required(*evidence).status == "supported"


# --- one run ---


def verdict(claim: Claim, run: Run) -> Verdict | None:
    """The verdict of one run on a claim; None if none of its results bears on it."""
    words = _words(claim, run)
    if words is None:
        return None
    judgement = judge(claim, lambda effect: effect.evidence(run, claim.part))
    if not words.finding:
        words = Words(_effects(claim, judgement, prompts_of(run, claim.part)))
    return replace(of_words(judgement, words), result=claim.result_in(run))


def bears(claim: Claim, run: Run) -> bool:
    """True if a run holds evidence on the claim."""
    return _words(claim, run) is not None


def _words(claim: Claim, run: Run) -> Words | None:
    """The sentences of the claim about a run, empty if its effects are enough; None if no result bears on it."""
    if claim.words is None:
        known = any(effect.interval(run) is not None for effect in claim.effects)
        return Words("") if known else None
    try:
        return claim.words(run)
    except MissingResult:
        return None


def of_words(judgement: Judgement, words: Words) -> Verdict:
    """A judgement in sentences: missing or disagreeing evidence first, the fraction of the answer last."""
    claim, finding, brief = judgement.claim, words.finding, words.brief
    why = judgement.lacking or judgement.remark
    if why:
        why = f"{why[:1].upper()}{why[1:].rstrip('.')}."
        finding = f"{why} {finding}".rstrip()
        brief = why if judgement.lacking else brief and f"{why} {brief}"
    if judgement.share:
        finding = f"{finding} {judgement.share}".lstrip()
        brief = brief and f"{brief} {judgement.share}"
    return Verdict(
        claim.text,
        judgement.status,
        finding,
        "",
        judgement.measures,
        judgement.status,
        judgement.p,
        brief,
        effects=judgement.effects,
        lacking=judgement.lacking,
        remark=judgement.remark,
    )


def _effects(claim: Claim, judgement: Judgement, prompts: int | None) -> str:
    """The effects a claim requires, in a sentence."""
    known = [effect.name for effect in claim.effects if effect.name in judgement.effects]
    words = "; ".join(f"{name} {said(judgement.effects[name], sign=True)}" for name in known)
    over = f" (n = {counted(prompts, 'prompt')})" if prompts and words else ""
    return f"{words[:1].upper()}{words[1:]}{over}." if words else ""


# --- claims that are tested together ---


def among_all(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts after Holm's correction over all claims that can be judged.

    If there is no effect at all, one family of claims in forty then shows one by chance, as with a single claim.
    """
    count = sum(judged.p is not None for judged in verdicts)
    stand = holm([judged.p for judged in verdicts])
    return tuple(
        judged if stands else _demoted(judged, count)
        for judged, stands in zip(verdicts, stand, strict=True)
    )


def _demoted(judged: Verdict, count: int) -> Verdict:
    """The verdict on a claim that does not survive the correction for `count` claims."""
    if judged.p is None or judged.status not in STATEMENTS:
        return judged
    among = f"after correction for {counted(count, 'claim')} (Holm)"
    finding = f"{judged.finding} Alone it would be {judged.status} (p = {judged.p:.2g}, one-sided), but not {among}."
    brief = f"{judged.line} Alone {judged.status}, but not {among}."
    remark = ", ".join([*filter(None, [judged.remark]), f"{judged.status} alone, but not {among}"])
    return replace(judged, status="not shown", finding=finding, brief=brief, remark=remark)


def of_run(claims: Sequence[Claim], run: Run) -> tuple[Verdict, ...]:
    """The verdicts of a run on the claims it bears on, which are tested together."""
    verdicts = [judged for claim in claims if (judged := verdict(claim, run)) is not None]
    return tuple(
        replace(judged, more=_more(judged, run))
        if judged.status in ("not shown", "cannot be judged")
        else judged
        for judged in among_all(verdicts)
    )


def _more(judged: Verdict, run: Run) -> str:
    """How many prompts would be enough, and a note that this is conditional on shared demonstrations, if so."""
    advice = "" if judged.lacking else would_do(judged.measures)
    result = run.results.get(key_now(judged.result, run.results))
    if advice and result is not None and result.provenance.get("conditional_on_demonstrations"):
        advice += (
            " This is conditional on these demonstrations: other demonstrations need more seeds."
        )
    return advice

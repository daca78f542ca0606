"""What *Label Words are Anchors* claims, beside what a run found."""

from collections.abc import Mapping
from typing import NamedTuple

from icl_mech.measurements.compression.numbers import ANCHORS
from icl_mech.measurements.compression.table import CompressionTable
from icl_mech.measurements.compression.texts import constant, name_of
from icl_mech.measurements.confusion.diagnosis import ConfusionDiagnosis
from icl_mech.measurements.confusion.texts import matrices
from icl_mech.measurements.extraction.label_words import ExtractionResult
from icl_mech.measurements.isolation import texts as isolation
from icl_mech.measurements.isolation.agreement import LOYALTIES
from icl_mech.measurements.isolation.loyalty import IsolationResult
from icl_mech.measurements.reweighting.result import ReweightingResult, halves
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.metrics import Interval
from icl_mech.results import Result
from icl_mech.results.judging import Required, disagreeing, p_value
from icl_mech.results.wording import counted, listed, said, told
from icl_mech.studies.untrained import UntrainedFlow, beside, flow_required
from icl_mech.studies.verdicts import Verdict, claimed, stated_together

EARLY = "Shallow aggregation: label words collect the demonstrations in early layers"
LATE = "Deep extraction: the answer is read from the label words in late layers"
ANCHORING = "Anchors suffice: label words' states can replace the demonstrations"
FACTORS = "Re-weighting: other weights of attention to label words give better answers"
NEARNESS = "Confusion: classes whose label words lie close together are confused"


class Found(NamedTuple):
    """The results that bear on the claims, by kind, with their names."""

    flow: tuple[str, FlowScores] | None
    isolation: tuple[str, IsolationResult] | None
    extraction: tuple[str, ExtractionResult] | None
    nulls: UntrainedFlow | None


def verdicts(results: Mapping[str, Result]) -> tuple[Verdict, ...]:
    """One per claim, as far as the results bear on it.

    Shallow aggregation and deep extraction require two measures each: isolation against random
    tokens and flow beyond untrained networks; flow beyond untrained networks and attention.
    """
    of = _found(results)
    found = []
    if of.isolation or of.flow:
        found.append(_early(of))
    if of.extraction or of.flow:
        found.append(_late(of))
    for name, result in results.items():
        if isinstance(result, CompressionTable):
            found.append(_anchors(name, result))
        elif isinstance(result, ReweightingResult):
            found.append(_factors(name, result))
        elif isinstance(result, ConfusionDiagnosis):
            found.append(_confusion(name, result))
    return stated_together(found)


def headline(results: Mapping[str, Result], model: str, task: str) -> tuple[str, str]:
    """The question of the study, and its answer in at most two sentences, doubt included."""
    question = f"Do label words anchor {model} on {task}?"
    of = _found(results)
    if not any(of[:3]):
        return question, "The results at hand do not bear on this question."
    found = {own.claim: own for own in verdicts(results)}
    sentences = [_early_words(of, found[EARLY])] if EARLY in found else []
    if LATE in found:
        sentences.append(_late_words(found[LATE]))
    return question, " ".join(sentences)


def _found(results: Mapping[str, Result]) -> Found:
    flow = extraction = isolated = nulls = None
    for name, result in results.items():
        if isinstance(result, FlowScores):
            flow = flow or (name, result)
        elif isinstance(result, IsolationResult):
            isolated = isolated or (name, result)
        elif isinstance(result, ExtractionResult):
            extraction = extraction or (name, result)
        elif isinstance(result, UntrainedFlow):
            nulls = nulls or result
    return Found(flow, isolated, extraction, nulls)


# Early layers


def _early(of: Found) -> Verdict:
    parts = []
    if of.isolation:
        parts.append(_isolated(of.isolation[1]))
    if of.flow:
        parts.append(_flow(of.flow[1], of.nulls, "first"))
    name = of.isolation[0] if of.isolation else of.flow[0] if of.flow else ""
    flow = of.flow[1] if of.flow else None
    isolated = of.isolation[1] if of.isolation else None
    measures = [
        _lacking("isolation") if isolated is None else isolation.required_of(isolated),
        flow_required(flow, of.nulls, "wp", "first"),
    ]
    return claimed(EARLY, measures, " ".join(parts), name)


def _lacking(name: str) -> Required:
    return Required(name, "cannot be judged", None)


def _isolated(result: IsolationResult) -> str:
    n = counted(len(result.predicted), "prompt")
    windows = isolation.compared(result)
    if windows is None:
        return f"Isolation of label words in the first layers was not compared with anything (n = {n})."
    against = {"random tokens": "random tokens cut off there", "last layers": "the last layers"}
    parts = listed(
        f"{told(result.loyalty(key).value)} with {against[name]} "
        f"(difference {said(result.difference(windows.early, key), sign=True)})"
        for name, key in windows.others.items()
    )
    text = (
        f"With label words cut off in the first {counted(windows.early[1], 'layer')}, "
        f"{said(result.loyalty(windows.early))} of the answers stay, against {parts} (n = {n})."
    )
    labels, words = (isolation.status_of(result, own) for own in LOYALTIES)
    if labels != words:
        text += f" By the likely next words alone: {words}."
    became = isolation.became(result)
    return f"{text} {became}" if became else text


def _flow(result: FlowScores, nulls: UntrainedFlow | None, third: str) -> str:
    n = counted(len(result.per_prompt), "prompt")
    score, runs = ("wp", "into") if third == "first" else ("pq", "from")
    above = result.above_null(score, third)
    share = said(result.share(score, third))
    text = (
        f"Saliency per edge in the {third} third of the layers: {share} of it runs {runs} label "
        f"words{' to the target' if third == 'last' else ''} (n = {n})"
    )
    if above is None:
        return f"{text}; no random tokens could be put in their place."
    return (
        f"{text}, {said(above[1], sign=True)} more than with random tokens in their place; "
        f"{beside(nulls, third)}."
    )


def _early_words(of: Found, verdict: Verdict) -> str:
    why = disagreeing(verdict.measures)
    fact = ""
    windows = isolation.compared(of.isolation[1]) if of.isolation else None
    if of.isolation and windows:
        kept = told(of.isolation[1].loyalty(windows.early).value)
        fact = f" (cut off in the first {counted(windows.early[1], 'layer')}, {kept} of the answers stay)"
    return {
        "supported": f"In the early layers, yes: label words must collect the demonstrations there{fact}.",
        "mixed": f"Whether label words collect the demonstrations early is mixed: {why}{fact}.",
        "not shown": f"It is not shown that label words collect the demonstrations early{fact}.",
        "opposite": f"In the early layers, no: label words are not where demonstrations are collected{fact}.",
        "cannot be judged": "Whether label words collect the demonstrations early cannot be judged: "
        f"{why}{fact}.",
    }[verdict.status]


# Late layers


def _late(of: Found) -> Verdict:
    parts = []
    if of.flow:
        parts.append(_flow(of.flow[1], of.nulls, "last"))
    if of.extraction:
        parts.append(_attended(of.extraction[1]))
    name = of.extraction[0] if of.extraction else of.flow[0] if of.flow else ""
    measures = [
        flow_required(of.flow[1] if of.flow else None, of.nulls, "pq", "last"),
        of.extraction[1].required if of.extraction else _lacking("attention"),
    ]
    return claimed(LATE, measures, " ".join(parts), name)


def _attended(result: ExtractionResult) -> str:
    n = counted(len(result.truth_classes), "prompt")
    if not result.defined:
        return f"Attention cannot tell: {'; '.join(result.notes) or 'one class only'} (n = {n})."
    text = (
        f"Attention to label words tells the {result.truth} class in the last third with AUC "
        f"{said(result.last_third)}, chance 0.5; change since the first third "
        f"{said(result.rise, sign=True)} (n = {n})."
    )
    if result.left_out:
        last, change, prompts = result.judged_on
        text += (
            f" Without {listed(result.left_out)}, of too few prompts to be resampled: {said(last)}, change "
            f"{said(change, sign=True)} (n = {prompts})."
        )
    elif result.status == "cannot be judged" and result.rare:
        text += f" Too few prompts of {listed(result.rare)} to judge that."
    return text


def _late_words(verdict: Verdict) -> str:
    why = disagreeing(verdict.measures)
    return {
        "supported": "Late layers then read the answer from them: saliency and attention both say so, "
        "beyond what untrained networks show.",
        "mixed": f"Whether late layers read the answer from them is mixed: {why}.",
        "not shown": "It is not shown that late layers read the answer from them.",
        "opposite": "Late layers do not read the answer from them.",
        "cannot be judged": "Whether late layers read the answer from them cannot be judged: "
        f"{why}.",
    }[verdict.status]


# Uses of anchors


def _anchors(name: str, result: CompressionTable) -> Verdict:
    n = counted(len(result.full_predicted), "prompt")
    if ANCHORS not in result.methods or not result.controls:
        text = f"Anchor states were not compared with other stand-ins (n = {n})."
        return Verdict(ANCHORING, "cannot be judged", text, name)
    parts = [
        f"{said(result.difference(ANCHORS, other), sign=True)} answers and "
        f"{said(result.difference(ANCHORS, other, 'word_loyalty'), sign=True)} of the likely next words "
        f"more than {name_of(other)}"
        for other in result.controls
    ]
    text = f"They keep {said(result.label_loyalty(ANCHORS))} of the answers: {listed(parts)} (n = {n})."
    if result.label_loyalty(ANCHORS).low <= result.constant_loyalty:
        text += f" But {constant(result)} keeps {told(result.constant_loyalty)}."
    return claimed(ANCHORING, [result.required], text, name)


def _factors(name: str, result: ReweightingResult) -> Verdict:
    status = result.status
    if not {"plain", "reweighted"} <= set(result.conditions):
        return Verdict(FACTORS, status, "Plain and re-weighted were not both run.", name)
    gain: Interval = result.difference()
    text = (
        f"Accuracy changes by {said(gain, sign=True)}, from {said(result.accuracy('plain'))} to "
        f"{said(result.accuracy('reweighted'))} ({halves(result)})"
    )
    if result.seen_in_training:
        text += f"; {result.seen_in_training} of these were also learned from"
    elif status == "not shown":
        text += "; the interval includes or touches 0"
    measure = Required("accuracy", status, p_value(gain, prompts=len(result.answers)))
    return claimed(FACTORS, [measure], f"{text}.", name)


def _confusion(name: str, result: ConfusionDiagnosis) -> Verdict:
    _, _, text = matrices(result).answer.partition(
        ". " if result.status != "cannot be judged" else ": "
    )
    return claimed(NEARNESS, [result.required], f"{text[:1].upper()}{text[1:]}", name)

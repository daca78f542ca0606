"""The page of an analysis: its results as sections, what it found of a paper's claims, its origin."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from icl_mech.errors import ResultError
from icl_mech.measurements.accuracy.layers import LayerAccuracy
from icl_mech.measurements.anchors.agreement import AgreementOfAnchors
from icl_mech.measurements.anchors.suppression_result import SuppressionEffects
from icl_mech.measurements.causal.comparing import HeadComparison
from icl_mech.measurements.causal.induction import InductionScores
from icl_mech.measurements.causal.mediation import HeadMediation
from icl_mech.measurements.extraction.curves import AucCurves
from icl_mech.measurements.heads.tokens import MARKS, HeadAttention
from icl_mech.measurements.isolation.loyalty import IsolationResult
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.measurements.saliency.maps import SaliencyMaps
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.reports import Finding, Origin, Page, PromptText, Section, TokenValues
from icl_mech.results import Figure, Result
from icl_mech.results.judging import HOLM
from icl_mech.results.prompts import doubtful
from icl_mech.studies.facts import facts, model_name, origin_of, task_name
from icl_mech.studies.null_bands import with_band
from icl_mech.studies.verdicts import Verdict

if TYPE_CHECKING:
    import pandas as pd

KICKERS = {
    "label_words": "Label-words study · Wang et al. 2023, Label Words are Anchors (EMNLP)",
    "overthinking": "Overthinking study · Halawi et al. 2023, Overthinking the Truth (ICLR 2024)",
    "causal": "Causal study · after Todd et al. 2024, Olsson et al. 2022, Halawi et al. 2023 and Yin and "
    "Steinhardt 2025",
}


def page_of(
    results: Mapping[str, Result],
    title: str,
    notes: Sequence[str] = (),
    prompts: Sequence[PromptBatch] = (),
    made: Mapping[str, Any] | None = None,
) -> Page:
    """Everything that is shown of a run.

    Args:
        results: By name, in reading order.
        title: Model, task and number of prompts; the heading where there is no better one.
        notes: What was left out and why.
        prompts: The prompts, or true and false ones; none of runs that kept none.
        made: Date, call and command, as far as they are known.
    """
    made = made or {}
    study = study_of(results)
    verdicts, heading, lead = _claims(study, results) if study else ((), *_plain(results, title))
    origin = Origin(
        findings=[Finding(own.claim, own.status, own.finding, own.result) for own in verdicts],
        facts=facts(results, prompts, made),
        command=_command(made),
        limits=[*_limits(results, notes), *([f"{HOLM}."] if len(verdicts) > 1 else [])],
    )
    return Page(
        heading,
        sections_of(results, prompts),
        kicker=KICKERS.get(study, title if heading != title else ""),
        lead=lead,
        origin=origin,
        prompt=prompt_of(results, prompts),
    )


def study_of(results: Mapping[str, Result]) -> str:
    """The study these results are of; empty if they were chosen one by one."""
    kinds = {type(result) for result in results.values()}
    if {IsolationResult, FlowScores} <= kinds:
        return "label_words"
    if {HeadComparison, HeadMediation, InductionScores} <= kinds and LayerAccuracy not in kinds:
        return "causal"
    return "overthinking" if LayerAccuracy in kinds and len(kinds) > 1 else ""


def _claims(study: str, results: Mapping[str, Result]) -> tuple[Sequence[Verdict], str, str]:
    """Verdicts, heading and the answer to it."""
    from icl_mech.studies.claims import causal, label_words, overthinking

    claims: Any = {"label_words": label_words, "overthinking": overthinking, "causal": causal}[
        study
    ]
    origin = origin_of(results)
    heading, lead = claims.headline(results, model_name(origin), task_name(origin))
    return claims.verdicts(results), heading, lead


def _plain(results: Mapping[str, Result], title: str) -> tuple[str, str]:
    """Heading and answer of what belongs to no paper."""
    flow = next((own for own in results.values() if isinstance(own, FlowScores)), None)
    origin = origin_of(results)
    hidden = next((own for own in results.values() if isinstance(own, SuppressionEffects)), None)
    if hidden is not None and model_name(origin):
        heading = f"Which parts of a text does {model_name(origin)} depend on?"
        agreed = next(
            (own for own in results.values() if isinstance(own, AgreementOfAnchors)), hidden
        )
        return heading, agreed.figures()[0].answer
    if flow is None or not model_name(origin):
        return title, ""
    answers = [figure.answer for figure in flow.figures() if figure.question]
    heading = f"How does information flow in {model_name(origin)} on {task_name(origin)}?"
    return heading, answers[0] if answers else ""


def _command(made: Mapping[str, Any]) -> str:
    if made.get("command"):
        return str(made["command"])
    return "\n".join([*map(str, made.get("setup", ())), str(made.get("call", ""))]).strip()


def _limits(results: Mapping[str, Result], notes: Sequence[str]) -> list[str]:
    held = "Square brackets hold 95 % intervals over prompts."
    given = [note for note in notes if note.strip()]
    shared = any(own.provenance.get("conditional_on_demonstrations") for own in results.values())
    if shared and not any("share" in note for note in given):
        held = held[:-1] + "; all prompts share one set of demonstrations, so they hold given it."
    return [held, *doubtful(results), *given]


def sections_of(
    results: Mapping[str, Result], prompts: Sequence[PromptBatch] = ()
) -> list[Section]:
    """Figures with what each one shows, for a page."""
    sections = []
    for name, result in results.items():
        numbers = _numbers(result)
        figures = result.figures()
        sections += [
            _section(
                name,
                result,
                figure,
                numbers,
                prompts,
                several=len(figures) > 1,
                behind=partial(with_band, results, name, figure.show),
            )
            for figure in figures
        ]
    return sections


def _section(
    name: str,
    result: Result,
    figure: Figure,
    numbers: "pd.DataFrame | None",
    prompts: Sequence[PromptBatch],
    *,
    several: bool,
    behind: Callable[[Any], Any],
) -> Section:
    title = result.page_title
    if several and figure.show:
        title += f": {figure.show.replace('_', ' ')}"
    drawing: Any = None
    if figure.drawn:
        if isinstance(result, HeadAttention):
            drawing = _attention(result, prompts)
        else:
            drawing = behind(_drawing(result, figure.show))
    return Section(
        figure.question or title,
        figure.answer,
        drawing,
        result.provenance | _remarks(result),
        caption=_caption(figure, drawing),
        establishes=figure.establishes,
        limits=figure.limits,
        short=figure.short or title,
        key=name,
        numbers=numbers,
        definitions=result.definitions,
        layered=isinstance(result, FlowScores),
    )


def _caption(figure: Figure, drawing: Any) -> str:
    """What is drawn, with the grey areas of untrained networks where there are some."""
    if not figure.caption:
        return getattr(drawing, "note", "")
    grey = (
        getattr(drawing, "note", "").rpartition("; ")[2] if getattr(drawing, "behind", ()) else ""
    )
    return f"{figure.caption} {grey[:1].upper()}{grey[1:]}." if grey else figure.caption


def _remarks(result: Result) -> dict[str, Any]:
    """How numbers came about, for the origin."""
    notes = getattr(result, "notes", ()) if isinstance(result, AucCurves) else ()
    return {"notes": list(notes)} if notes else {}


def _drawing(result: Result, show: str) -> Any:
    """The shape; None for results that have none."""
    try:
        if not show:
            return result.drawing()
        result.check_show(show)
        return result.drawing(show=show)  # type: ignore[call-arg]
    except ResultError:
        return None


def _numbers(result: Result) -> "pd.DataFrame | None":
    try:
        return result.to_pandas()
    except ResultError:
        return None


# --- one prompt as text ---


def prompt_of(
    results: Mapping[str, Result], prompts: Sequence[PromptBatch] = ()
) -> PromptText | None:
    """The prompt of which the run knows most; None if it knows none."""
    attention = next((r for r in results.values() if isinstance(r, HeadAttention)), None)
    if attention is not None and attention.tokens:
        return _attention(attention, prompts, marked=False)
    maps = next((own for own in results.values() if isinstance(own, SaliencyMaps)), None)
    if maps is not None and maps.tokens:
        found = _matching(maps.tokens[0], prompts)
        more = " Choose a token to see which tokens it reads from, and how much that matters for the answer."
        lead = _which(found, prompts, len(maps.tokens)) + more
        if found:
            return _text(found[0], lead)
        return PromptText(lead, maps.tokens[0], maps.roles[0])
    if prompts and prompts[0][0].pieces:
        return _text(prompts[0][0], _which((prompts[0][0], 0), prompts, len(prompts[0])))
    return None


def _attention(
    result: HeadAttention, prompts: Sequence[PromptBatch], *, marked: bool = True
) -> PromptText:
    """The first prompt with the attention of heads from its target."""
    tokens = result.tokens[0]
    values = TokenValues(
        tuple(f"{layer}.{head}" for layer, head in result.heads), result.values[0], "attention",
        result.heads,
    )  # fmt: skip
    marks = tuple(MARKS.get(mark, "") for mark in result.marks[0]) if marked else ()
    found = _matching(tokens, prompts)
    lead = (
        _which(found, prompts, len(result.tokens))
        + " Choose a head to see where it looks from the last token."
    )
    if found:
        own = _text(found[0], lead)
        end = len(tokens)
        return PromptText(
            lead, tokens, own.roles[:end], own.ids[:end], own.demos[:end], marks, values
        )
    roles = tuple("label_word" if mark else "unknown" for mark in result.marks[0])
    return PromptText(lead, tokens, roles, marks=marks, coloured=values)


def _matching(tokens: tuple[str, ...], prompts: Sequence[PromptBatch]) -> tuple[Prompt, int] | None:
    """The first prompt of a batch that begins with these tokens, and which batch it is of."""
    for number, batch in enumerate(prompts):
        first = batch[0]
        pieces = first.pieces or tuple(map(str, first.tokens))
        if pieces[: len(tokens)] == tokens:
            return first, number
    return None


def _which(found: tuple[Prompt, int] | None, prompts: Sequence[PromptBatch], count: int) -> str:
    if found is None:
        return "The first prompt." if count > 1 else "One prompt."
    number = len(prompts[found[1]]) if found[1] < len(prompts) else count
    kind = (
        (" with true demonstrations", " with false demonstrations")[found[1]]
        if len(prompts) > 1
        else ""
    )
    return f"The first of the {number} prompts{kind}." if number > 1 else f"The only prompt{kind}."


def _text(prompt: Prompt, lead: str) -> PromptText:
    spans = [span for span in prompt.spans for _ in range(span.start, span.stop)]
    return PromptText(
        lead,
        prompt.pieces or tuple(map(str, prompt.tokens)),
        tuple(span.role for span in spans),
        tuple(prompt.tokens),
        tuple(span.demo for span in spans),
    )

"""The page of an analysis: its results as sections, its findings on a paper's claims, its origin."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from icl_mech.errors import ResultError
from icl_mech.looks.head_attention import strips
from icl_mech.measurements.extraction.extraction import ExtractionResult
from icl_mech.measurements.heads.head_attention import HeadAttentionResult
from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.measurements.saliency.saliency_maps import SaliencyMapsResult
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.reports import Finding, Origin, Page, PromptText, Section
from icl_mech.reports.prompts import strips_text
from icl_mech.results import Figure, Result
from icl_mech.results.figures import FEW
from icl_mech.results.half_precision import half_precision
from icl_mech.results.judging import FEWEST_PROMPTS, HOLM
from icl_mech.results.prompts import doubtful, kinds_of_ends
from icl_mech.studies.claim import Run
from icl_mech.studies.competence import answered, competence, helped
from icl_mech.studies.facts import facts, model_name, origin_of, task_name, weights_name
from icl_mech.studies.judge import Verdict
from icl_mech.studies.nulls import with_band
from icl_mech.studies.study import DEFAULT, Study, known_studies

if TYPE_CHECKING:
    import pandas as pd


@runtime_checkable
class Shown(Run, Protocol):
    """A run that can be shown: an `Analysis`."""

    @property
    def title(self) -> str:
        """Model, task and number of prompts; the heading if there is no better one."""

    @property
    def notes(self) -> Sequence[str]:
        """Omitted measurements, with reasons."""

    @property
    def made(self) -> Mapping[str, Any]:
        """Date, call, command and study, if known."""


ABOUT = {"Model": "{}", "Task": "{}", "Prompts": "{}", "Demonstrations": "demonstrations: {}"}
"""Facts in the line below the heading."""

MOST_FIRST = 2
"""Maximum number of figures on the first level."""

_MODEL = (
    '# The run does not record how this model was loaded: load it here.\nmodel = load_model("{}")'
)
_PROMPTS = '# Custom prompts: "run" is the folder written by report.save("run").\nprompts = load("run").prompts'
"""Placeholder lines for a model or prompts if the run does not record how to make them."""


def page_of(run: Shown) -> Page:
    """The page of a run."""
    results, made = run.results, run.made
    study = study_of(results, made)
    verdicts: Sequence[Verdict] = () if study is None else study.verdicts(run)
    heading, lead = _heading(study, run, verdicts)
    notes = [*run.notes, *unknown(made)]
    known, questions = facts(results, run.prompts, made), [competence(run), helped(run)]
    able = questions[0]
    findings = [
        Finding(
            verdict.claim,
            verdict.status,
            f"{verdict.finding} {verdict.more}".strip(),
            verdict.result,
            verdict.line,
        )
        for verdict in verdicts
    ]
    findings[:0] = [
        Finding(
            verdict.claim,
            verdict.status,
            verdict.finding,
            verdict.result,
            word=answered(verdict.claim, verdict.status),
        )
        for verdict in questions
        if verdict is not None
    ]
    origin = Origin(
        findings=findings,
        facts=known,
        command=_command(made, origin_of(results)),
        limits=[*_limits(results, notes), *([f"{HOLM}."] if len(verdicts) > 1 else [])],
    )
    kicker = "" if study is None else study.kicker
    return Page(
        heading,
        levels(
            sections_of(run), () if study is None else study.first, [able.result] if able else []
        ),
        kicker=kicker,
        lead=lead,
        about=" · ".join(
            ABOUT[fact.name].format(fact.value) for fact in known if fact.name in ABOUT
        ),
        origin=origin,
        prompt=prompt_of(results, run.prompts),
    )


def study_of(results: Mapping[str, Result], made: Mapping[str, Any]) -> Study | None:
    """The study of a run: the one it names, or else the first whose results it holds.

    None if measurements were chosen one by one, or the study is not known here.
    """
    known, kinds = known_studies(), {type(result) for result in results.values()}
    name = made.get("study", DEFAULT)
    # With further measurements, the default study may hold all results of another one.
    if name != DEFAULT:
        return known.get(name)
    matching = (
        study for study in known.values() if study.known_by is not None and study.known_by(kinds)
    )
    return next(matching, None)


def unknown(made: Mapping[str, Any]) -> list[str]:
    """A note on a run whose study is not known here; empty if it is known."""
    name = made.get("study", DEFAULT)
    if name in known_studies():
        return []
    place = f" ({made['study_at']})" if made.get("study_at") else ""
    return [
        f"The study {name!r} is not defined in this session, so its claims were not judged; import the module that "
        f"defines it{place} and load the run again."
    ]


def _heading(study: Study | None, run: Shown, verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """The question of the page and its answer; a title if there is no question."""
    origin = origin_of(run.results)
    heading = ("", "")
    if study is not None:
        heading = study.heading(run, verdicts, weights_name(origin), task_name(origin))
    shown = run.title.replace(model_name(origin) or "\n", weights_name(origin))
    return heading if heading[0] else (shown, heading[1])


def _command(made: Mapping[str, Any], origin: Mapping[str, Any]) -> str:
    """The command line, or a runnable script with comments for the parts that are not recorded."""
    if made.get("command") or not made.get("call"):
        return str(made.get("command", ""))
    setup, call = list(map(str, made.get("setup", ()))), str(made["call"])
    lacking = {"model": _MODEL.format(origin.get("model", {}).get("name", "")), "prompts": _PROMPTS}
    lacking["prompts"] += "" if "false_prompts" in origin else "[0]"
    for number, (name, line) in enumerate(lacking.items()):
        if not any(setup_line.startswith(f"{name} = ") for setup_line in setup):
            setup.insert(number, line)
    used = set(re.findall(r"(?<![.\w\"'])[A-Za-z_]\w*(?=\()", "\n".join([*setup, call])))
    lines = []
    for place in ("icl_mech", "icl_mech.measurements", "icl_mech.interventions"):
        names = sorted(used & set(import_module(place).__all__))
        lines += [f"from {place} import {', '.join(names)}"] if names else []
        used -= {*names}
    lines += [f"from your_module import {', '.join(sorted(used))}  # yours"] if used else []
    return "\n".join([*lines, "", *setup, f"report = {call}", 'report.to_html("page.html")'])


def _limits(results: Mapping[str, Result], notes: Sequence[str]) -> list[str]:
    intervals = "Square brackets hold 95 % intervals over prompts."
    given = [note for note in notes if note.strip()]
    shared = any(
        result.provenance.get("conditional_on_demonstrations") for result in results.values()
    )
    if shared and not any("share" in note for note in given):
        intervals = (
            intervals[:-1]
            + "; all prompts share one set of demonstrations, so they are conditional on it."
        )
    ends = kinds_of_ends(results)
    halves = half_precision(result.provenance for result in results.values())
    return [intervals, *([ends] if ends else []), *halves, *doubtful(results), *given]


def sections_of(run: Shown) -> list[Section]:
    """The sections of a page: figures with their texts."""
    results, prompts, sections = run.results, run.prompts, []
    study = study_of(results, run.made)
    chosen = study.sections if study is not None and study.sections else tuple(results)
    for name, result in ((name, results[name]) for name in chosen if name in results):
        numbers = _numbers(result)
        omitted = () if study is None else study.omits
        figures = [figure for figure in result.figures() if f"{name}.{figure.show}" not in omitted]
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
    first = {section.short: section.key for section in reversed(sections)}
    repeated = [
        first[section.short] != section.key for section in sections
    ]  # another section has this short name
    suffixes = [
        f": {section.key.replace('_', ' ')}" * is_repeated
        for section, is_repeated in zip(sections, repeated, strict=True)
    ]
    return [
        replace(section, short=section.short + suffix)
        for section, suffix in zip(sections, suffixes, strict=True)
    ]


def levels(
    sections: Sequence[Section], named: Sequence[str], last: Sequence[str] = ()
) -> list[Section]:
    """The sections with two figures first, from the named results or else the first available; `last` comes last."""
    drawn = [i for i, section in enumerate(sections) if section.figure is not None]
    drawn.sort(key=lambda i: sections[i].key in last)
    of_named = [i for name in named for i in [i for i in drawn if sections[i].key == name][:1]]
    chosen = list(dict.fromkeys([*of_named, *drawn]))[:MOST_FIRST]
    others = [section for i, section in enumerate(sections) if i not in chosen]
    return [replace(sections[i], first=True) for i in chosen] + others


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
        if isinstance(result, HeadAttentionResult) and figure.show != "grid":
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
        definitions=result.page_definitions,
        layered=isinstance(result, FlowScores),
    )


NOT_DRAWN = f"No intervals are drawn: there are fewer than {FEWEST_PROMPTS} prompts or texts."
_PROMISED = re.compile(r"[;,] (?:band|bar)s?: 95 % [^.;]*(?=[.;])| Bands: 95 % [^.;]*\.")
"""Phrases in captions that describe intervals."""


def _caption(figure: Figure, drawing: object) -> str:
    """The caption, with the range of untrained networks if it is drawn."""
    if not figure.caption:
        return getattr(drawing, "note", "")
    note = getattr(drawing, "note", "")
    range_note = note.rpartition("; ")[2] if getattr(drawing, "behind", ()) else ""
    range_note = f" {range_note[:1].upper()}{range_note[1:]}." * bool(range_note)
    caption = f"{_PROMISED.sub('', figure.caption)} {NOT_DRAWN}" if FEW in note else figure.caption
    return caption + range_note


def _remarks(result: Result) -> dict[str, Any]:
    """Notes on how the numbers were computed, for the origin."""
    notes = getattr(result, "notes", ()) if isinstance(result, ExtractionResult) else ()
    return {"notes": list(notes)} if notes else {}


def _drawing(result: Result, show: str) -> Any:
    """The drawing; None for results that have none."""
    try:
        if not show:
            return result.drawn()
        result.check_show(show)
        return result.drawn(show=show)
    except ResultError:
        return None


def _numbers(result: Result) -> "pd.DataFrame | None":
    try:
        # Answers are shown prompt by prompt.
        return result.by_prompt() if isinstance(result, Predictions) else result.to_pandas()
    except ResultError:
        return None


# --- one prompt as text ---


def prompt_of(
    results: Mapping[str, Result], prompts: Sequence[PromptBatch] = ()
) -> PromptText | None:
    """The prompt about which the run holds most; None if it holds none."""
    attention = next(
        (result for result in results.values() if isinstance(result, HeadAttentionResult)), None
    )
    if attention is not None and attention.tokens and attention.shape is None:
        return _attention(attention, prompts, marked=False)
    maps = next(
        (result for result in results.values() if isinstance(result, SaliencyMapsResult)), None
    )
    if maps is not None and maps.tokens:
        match = _matching(maps.tokens[0], prompts)
        more = " Choose a token to see which tokens it reads from, and how much that matters for the answer."
        lead = _which(match, prompts, len(maps.tokens)) + more
        if match:
            return _text(match[0], lead)
        return PromptText(lead, maps.tokens[0], maps.roles[0])
    if prompts and prompts[0][0].pieces:
        return _text(prompts[0][0], _which((prompts[0][0], 0), prompts, len(prompts[0])))
    return None


def _attention(
    result: HeadAttentionResult, prompts: Sequence[PromptBatch], *, marked: bool = True
) -> PromptText:
    """The first prompt, with the attention of heads from its target."""
    prompt_text, match = strips_text(strips(result)), _matching(result.tokens[0], prompts)
    lead = (
        _which(match, prompts, len(result.tokens))
        + f" Choose a head to see where it attends from {result.row}."
    )
    if match:
        text, end = _text(match[0], lead), len(prompt_text.tokens)
        prompt_text = replace(
            text,
            tokens=prompt_text.tokens,
            roles=text.roles[:end],
            ids=text.ids[:end],
            demos=text.demos[:end],
            marks=prompt_text.marks,
            coloured=prompt_text.coloured,
        )
    return replace(prompt_text, lead=lead, marks=prompt_text.marks if marked else ())


def _matching(tokens: tuple[str, ...], prompts: Sequence[PromptBatch]) -> tuple[Prompt, int] | None:
    """The first prompt of a batch that begins with these tokens, and the index of the batch."""
    for number, batch in enumerate(prompts):
        first = batch[0]
        pieces = first.pieces or tuple(map(str, first.tokens))
        if pieces[: len(tokens)] == tokens:
            return first, number
    return None


def _which(match: tuple[Prompt, int] | None, prompts: Sequence[PromptBatch], count: int) -> str:
    if match is None:
        return "The first prompt." if count > 1 else "One prompt."
    number = len(prompts[match[1]]) if match[1] < len(prompts) else count
    side = (
        (" with true demonstrations", " with false demonstrations")[match[1]]
        if len(prompts) > 1
        else ""
    )
    return f"The first of the {number} prompts{side}." if number > 1 else f"The only prompt{side}."


def _text(prompt: Prompt, lead: str) -> PromptText:
    spans = [span for span in prompt.spans for _ in range(span.start, span.stop)]
    return PromptText(
        lead,
        prompt.pieces or tuple(map(str, prompt.tokens)),
        tuple(span.role for span in spans),
        tuple(prompt.tokens),
        tuple(span.demo for span in spans),
        shared=prompt.shared_tokens,
    )

"""The study of *Label Words are Anchors*, §§2-3, on the user's own model and prompts.

Wang et al. 2023 (EMNLP, arXiv 2305.14160): early layers collect the demonstrations in their label words,
late layers read the answer from them. What that is good for: `label_words_used`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from icl_mech.checking import Natural
from icl_mech.engine import Loss
from icl_mech.measurements.accuracy.gain import Gain, GainResult
from icl_mech.measurements.compression import compare_compression as compression
from icl_mech.measurements.confusion.confusion import Confusion, ConfusionResult
from icl_mech.measurements.extraction.extraction import Extraction, ExtractionResult
from icl_mech.measurements.isolation.agreement import LOYALTIES
from icl_mech.measurements.isolation.edge_cuts import EdgeCuts, EdgeCutsResult
from icl_mech.measurements.isolation.isolation import Isolation, IsolationResult
from icl_mech.measurements.isolation.isolation_map import IsolationMap, IsolationMapResult
from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.reweighting.evaluate_reweighting import ReweightingResult
from icl_mech.measurements.reweighting.reweighting import Reweighting
from icl_mech.measurements.saliency.flow import Flow, FlowScores
from icl_mech.measurements.saliency.reduction import Reduction
from icl_mech.measurements.saliency.saliency_maps import SaliencyMapsResult
from icl_mech.metrics import Interval
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.results.wording import counted, listed, said, told
from icl_mech.results.words import Words as Sentences
from icl_mech.studies import label_words_used as used
from icl_mech.studies.bench import Bench
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run, Words
from icl_mech.studies.competence import DOES
from icl_mech.studies.flow import FLOW, GIVEN, measurements
from icl_mech.studies.judge import Verdict
from icl_mech.studies.nulls import PROMPTS, Wanted, add_untrained
from icl_mech.studies.published import PublishedNumbers, label_words_numbers
from icl_mech.studies.shares import by_windows, carried, lost
from icl_mech.studies.study import FEW, SEEDS, Mean, Study
from icl_mech.studies.untrained import UntrainedFlow, beside, beyond_untrained

# --- what is measured ---


def _steps(
    bench: Bench,
    prompts: PromptBatch,
    *,
    maps: Natural = 1,
    reduction: Reduction = "sum_then_abs",
    loss: Loss | None = None,
    seed: int = 0,
    nulls: int | None = None,
) -> None:
    """Everything the paper measures; what prompts cannot give is left out with a note."""
    width = max(1, bench.model.info.n_layers // 6)
    bench.measure(
        prompts,
        *measurements(maps, reduction, loss),
        Isolation(seed=seed),
        IsolationMap(widths=(width,), step=width, seed=seed),
        Extraction(),
        optional=(
            Gain(seed=seed),
            EdgeCuts(edges=("collect", "anchors"), rows="target", seed=seed),
            compression.CompareCompression(seed=seed, measure_speed=False),
            Confusion(),
            Reweighting(seed=seed),
        ),
    )
    untrained: Wanted = {
        "flow": (Flow(loss, reduction), PROMPTS),
        "isolation": (Isolation(seed=seed), PROMPTS),
        "extraction": (Extraction(), 3 * PROMPTS),
    }
    add_untrained(bench, prompts, untrained, nulls)
    if prompts.has_answers:
        bench.keep("published", label_words_numbers(bench.results))
    if prompts.source.get("demonstrations") == "shared":
        bench.notes.append(GIVEN)


Kind = TypeVar("Kind", bound=Result)


def _result(results: Mapping[str, Result], kind: type[Kind]) -> Kind | None:
    """The first result of a kind."""
    return next((own for own in results.values() if isinstance(own, kind)), None)


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


def _beyond_untrained(score: str, third: str) -> Effect:
    """Flow above random tokens, beyond what one more untrained network would show; None without these."""

    def effect(run: Run) -> Interval | None:
        return beyond_untrained(run["flow"], _result(run.results, UntrainedFlow), score, third)

    name = {"first": "early", "last": "late"}[third]
    return Effect(f"{name} flow beyond untrained", effect, ends=DIFFERENCE)


INTO, FROM = _beyond_untrained("wp", "first"), _beyond_untrained("pq", "last")

# --- early layers: isolation against random tokens, and flow beyond untrained networks ---

EARLY = "Shallow aggregation: label words collect the demonstrations in early layers"


def _early(run: Run) -> Words | None:
    isolated, flow = _result(run.results, IsolationResult), _result(run.results, FlowScores)
    if isolated is None and flow is None:
        return None
    parts = [] if isolated is None else [_isolated(isolated)]
    if flow is not None:
        parts.append(_flow(flow, _result(run.results, UntrainedFlow), "first"))
    return Words(" ".join(parts), _brief_early(isolated))


def _brief_early(result: IsolationResult | None) -> str:
    windows = result.compared if result else None
    if result is None or windows is None or "random tokens" not in windows.others:
        return ""
    lost = said(result.difference(windows.early, windows.others["random tokens"]), sign=True)
    return f"Answers kept with label words cut off in the first {counted(windows.early[1], 'layer')}, minus with random tokens cut off: {lost} (n = {len(result.predicted)})."


METHOD = Sentences("isolation")


def _isolated(result: IsolationResult) -> str:
    n = counted(len(result.predicted), "prompt")
    windows = result.compared
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
    labels, words = (result.status_of(own) for own in LOYALTIES)
    if labels != words:
        text += f" By the likely next words alone: {words}."
    became = METHOD.say("became", result=result)
    return f"{text} {became}" if became else text


def _early_words(results: Mapping[str, Result], verdict: Verdict) -> str:
    why = verdict.remark
    fact, isolated = "", _result(results, IsolationResult)
    windows = isolated.compared if isolated else None
    if isolated and windows:
        kept = told(isolated.loyalty(windows.early).value)
        fact = f" (cut off in the first {counted(windows.early[1], 'layer')}, {kept} of the answers stay)"
    return {
        "supported": f"In the early layers, yes: label words must collect the demonstrations there{fact}.",
        "present, not used": "In the early layers, hardly: label words collect the demonstrations there, but little of "
        f"the answer depends on it{fact}.",
        "mixed": f"Whether label words collect the demonstrations early is mixed: {why}{fact}.",
        "not shown": f"It is not shown that label words collect the demonstrations early{fact}.",
        "opposite": f"In the early layers, no: label words are not where demonstrations are collected{fact}.",
        "cannot be judged": "Whether label words collect the demonstrations early cannot be judged: "
        f"{why}{fact}.",
    }[verdict.status]


def _isolation_lost(name: str, against: str) -> Effect:
    """Label loyalty with label words cut off early, minus that of what it is compared with."""

    def effect(run: Run) -> Interval | None:
        result: IsolationResult = run[IsolationResult]
        windows = result.compared
        if windows is None or against not in windows.others:
            return None
        return result.difference(windows.early, windows.others[against])

    return Effect(name, effect, rising=False, ends=DIFFERENCE, measure="the change of answers")


AGGREGATION = Claim(
    EARLY,
    (
        _isolation_lost("isolation effect", "random tokens"),
        *lost("lost with label words cut off early", "collect", "early"),
    ),
    "isolation",
    needs=DOES,
    share=carried(
        "share of what demonstrations add that label words must collect early", "collect", "early"
    ),
    words=_early,
)

# --- the target, in any layer: what the answer loses without its edges to label words ---

READ = "Reading: the target reads the answer from label words"


def _reading(run: Run) -> Words | None:
    cuts = _cuts(run)
    if cuts is None or "all" not in cuts.windows:
        return None
    text = _cut_off(cuts, "all")
    shares = by_windows(run, "anchors") if _result(run.results, GainResult) else ""
    more = f" Of what demonstrations add, the target loses {shares}." if shares else ""
    return Words(text + more, text)


READING = Claim(
    READ,
    lost("lost with the target cut off from label words", "anchors", "all"),
    "edge_cuts",
    needs=DOES,
    share=carried(
        "share of what demonstrations add that the target reads from label words", "anchors", "all"
    ),
    words=_reading,
)

# --- late layers: flow beyond untrained networks, and attention ---

LATE = "Deep extraction: the answer is read from the label words in late layers"


def _late(run: Run) -> Words | None:
    flow, extraction = _result(run.results, FlowScores), _result(run.results, ExtractionResult)
    if flow is None and extraction is None and _cuts(run) is None:
        return None
    parts, brief = [], ""
    if flow is not None:
        parts.append(_flow(flow, _result(run.results, UntrainedFlow), "last"))
    if extraction is not None:
        parts.append(_attended(extraction))
    cuts = _cuts(run)
    if cuts is not None and "late" in cuts.windows:
        brief = _cut_off(cuts, "late")
        parts.append(brief)
    return Words(" ".join(parts), brief)


def _cuts(run: Run) -> EdgeCutsResult | None:
    """What cutting label words off costs, where log-probabilities were kept."""
    cuts = _result(run.results, EdgeCutsResult)
    known = cuts is not None and cuts.log_prob is not None and "anchors" in cuts.edges
    return cuts if known else None


def _cut_off(cuts: EdgeCutsResult, window: str) -> str:
    """What the right answer loses in a window of layers, and beyond random edges."""
    losses = (cuts.lost("anchors", window), cuts.lost_beside("anchors", window))
    plain, beyond = (said(own) if own else "not known" for own in losses)
    lost = cuts.right_answers("anchors", window)
    right = f", accuracy changes by {said(lost, sign=True)}" if lost else ""
    return (
        f"Cut off from label words in {window} layers, the target loses {plain} nats of the right answer, {beyond} beyond "
        f"as many random edges{right} (n = {counted(len(cuts.kept), 'prompt')})."
    )


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
    why = verdict.remark
    return {
        "supported": "Late layers then read the answer from them: cut off from them there, the target loses it.",
        "present, not used": "Late layers look at them, but little of the answer depends on it.",
        "mixed": f"Whether late layers read the answer from them is mixed: {why}.",
        "not shown": "It is not shown that late layers read the answer from them.",
        "opposite": "Late layers do not read the answer from them.",
        "cannot be judged": "Whether late layers read the answer from them cannot be judged: "
        f"{why}.",
    }[verdict.status]


def _read(run: Run) -> tuple[Interval | None, Interval | None, int]:
    """AUC in the last third, its change since the first, and prompts; without classes of too few of them."""
    result: ExtractionResult = run[ExtractionResult]
    last, change, prompts = result.judged_on
    return (None, None, prompts) if result.status == "cannot be judged" else (last, change, prompts)


ATTENTION: Any = {"measure": "attention", "prompts": lambda run: _read(run)[2]}

TELLS = (
    FROM,
    Effect("late extraction", lambda run: _read(run)[0], 0.5, ends=(0.0, 1.0), **ATTENTION),
    Effect("rise of extraction", lambda run: _read(run)[1], ends=DIFFERENCE, **ATTENTION),
)
"""How strong the path looks: saliency and attention. The claim rests on what the answer loses without it."""

EXTRACTION = Claim(
    LATE,
    lost("lost with the target cut off from label words late", "anchors", "late"),
    "edge_cuts",
    needs=DOES,
    share=carried(
        "share of what demonstrations add that the target reads from label words late",
        "anchors",
        "late",
    ),
    words=_late,
)

# --- the study ---


def _headline(
    results: Mapping[str, Result], verdicts: Sequence[Verdict], model: str, task: str
) -> tuple[str, str]:
    """The question of the study, and its answer in at most two sentences, doubt included."""
    question = f"Do label words anchor {model} on {task}?"
    by_claim = {own.claim: own for own in verdicts}
    sentences = [_early_words(results, by_claim[EARLY])] if EARLY in by_claim else []
    if LATE in by_claim:
        sentences.append(_late_words(by_claim[LATE]))
    return question, " ".join(sentences) or "The results at hand do not bear on this question."


def _above_random(name: str, score: str, third: str) -> Effect:
    """Flow of label words minus that of random tokens in their place."""

    def effect(run: Run) -> Interval | None:
        flow: FlowScores = run["flow"]
        above = flow.above_null(score, third)
        return None if above is None else above[1]

    return Effect(name, effect, ends=DIFFERENCE)


QUANTITIES = (
    INTO,
    *TELLS,
    Effect("mean flow", "flow.share"),
    *FLOW.quantities,
    _above_random("early flow above random tokens", "wp", "first"),
    _above_random("late flow above random tokens", "pq", "last"),
    Effect("isolation loyalty", "isolation.label_loyalty"),
    _isolation_lost("isolation early and late", "last layers"),
    Effect("extraction AUC", "extraction.auc"),
    Effect("extraction R", "extraction.cumulative"),
    *used.QUANTITIES,
)

MEANS = (
    Mean(
        "How does information flow on average?", "Mean flow", "flow", "mean flow", limits=FEW,
        options={"curves": "score"}, told=("early flow", "late flow"),
    ),
    Mean(
        "Does the flow look the same on all tasks?", "Flow by task", "flow-tasks", "mean flow", ("seed",),
        by_task=True, limits=SEEDS, options={"panels": "task", "curves": "score"},
    ),
    Mean(
        "Do label words collect the demonstrations early?", "Isolation", "isolation", "isolation effect",
        ("seed",), limits=SEEDS,
    ),
    Mean(
        "Does attention to label words tell the answer?", "Extraction", "extraction", "extraction AUC",
        limits=FEW, told=("late extraction", "rise of extraction"),
    ),
    Mean(
        "From which layer on is it informative?", "Share of extraction", "extraction-share", "extraction R",
        limits=FEW,
    ),
    *used.MEANS,
)  # fmt: skip

LABEL_WORDS = Study(
    "label_words",
    claims=(AGGREGATION, READING, EXTRACTION, used.SUFFICE, used.CONFUSED, used.REWEIGHTED),
    headline=_headline,
    steps=_steps,
    kicker="Label-words study · Wang et al. 2023, Label Words are Anchors (EMNLP)",
    source="Label Words are Anchors",
    gives={
        "predictions": Predictions,
        "flow": FlowScores,
        "untrained": UntrainedFlow,
        "saliency_maps": SaliencyMapsResult,
        "isolation": IsolationResult,
        "isolation_map": IsolationMapResult,
        "extraction": ExtractionResult,
        "gain": GainResult,
        "edge_cuts": EdgeCutsResult,
        "compare_compression": compression.CompareCompressionResult,
        "confusion": ConfusionResult,
        "reweighting": ReweightingResult,
        "published": PublishedNumbers,
    },
    first=("isolation", "flow"),
    quantities=QUANTITIES,
    means=MEANS,
    known_by=lambda kinds: {IsolationResult, FlowScores} <= kinds,
)

"""The study of *Label Words are Anchors*, §§2-3, on any model and prompts.

Wang et al. 2023 (EMNLP, arXiv 2305.14160): early layers collect the demonstrations in their label words,
late layers read the answer from them. Applications: compression, re-weighting, predicting confused classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from icl_mech.checking import Natural
from icl_mech.engine import Loss
from icl_mech.measurements.accuracy.gain import Gain, GainResult
from icl_mech.measurements.compression.compare_compression import (
    ANCHORS,
    CompareCompression,
    CompareCompressionResult,
)
from icl_mech.measurements.confusion.confusion import Confusion, ConfusionResult
from icl_mech.measurements.extraction.extraction import Extraction, ExtractionResult
from icl_mech.measurements.isolation.agreement import LOYALTIES, Loyalty
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
from icl_mech.studies.bench import Bench
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run
from icl_mech.studies.competence import DOES
from icl_mech.studies.flow import FLOW, GIVEN, measurements
from icl_mech.studies.judge import Verdict
from icl_mech.studies.nulls import PROMPTS, add_untrained, announce_untrained
from icl_mech.studies.published import PublishedNumbers, label_words_numbers
from icl_mech.studies.sentences import Facts, headline, sentences
from icl_mech.studies.shares import by_windows, carried, lost
from icl_mech.studies.study import FEW, SEEDS, Mean, Study
from icl_mech.studies.untrained import UntrainedFlow, beyond_untrained

# --- measurements ---


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
    """Measure everything in the paper; measurements that the prompts do not allow are left out with a note."""
    bench.for_nulls = {
        "flow": (Flow(loss, reduction), PROMPTS),
        "isolation": (Isolation(seed=seed), PROMPTS),
        "extraction": (Extraction(), 3 * PROMPTS),
    }
    announce_untrained(bench, prompts, nulls)
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
            CompareCompression(seed=seed),
            Confusion(),
            Reweighting(seed=seed),
        ),
    )
    add_untrained(bench, prompts, nulls)
    if prompts.has_answers:
        bench.keep("published", label_words_numbers(bench.results))
    if prompts.source.get("demonstrations") == "shared":
        bench.notes.append(GIVEN)


Kind = TypeVar("Kind", bound=Result)


def _result(results: Mapping[str, Result], kind: type[Kind]) -> Kind | None:
    """The first result of a type."""
    return next((result for result in results.values() if isinstance(result, kind)), None)


def _beyond_untrained(score: str, third: str) -> Effect:
    """Flow above random tokens, beyond the prediction interval of untrained networks; None without them."""

    def effect(run: Run) -> Interval | None:
        return beyond_untrained(run["flow"], _result(run.results, UntrainedFlow), score, third)

    name = {"first": "early", "last": "late"}[third]
    return Effect(f"{name} flow beyond untrained", effect, ends=DIFFERENCE)


INTO, FROM = _beyond_untrained("wp", "first"), _beyond_untrained("pq", "last")

# --- early layers: isolation against random tokens, and flow beyond untrained networks ---

EARLY = "Shallow aggregation: label words collect the demonstrations in early layers"


def _early(run: Run) -> Facts | None:
    isolated, flow = _result(run.results, IsolationResult), _result(run.results, FlowScores)
    if isolated is None and flow is None:
        return None
    untrained = _result(run.results, UntrainedFlow)
    return {"isolated": isolated, "flow": flow, "untrained": untrained, "third": "first"}


def _isolation_lost(name: str, against: str) -> Effect:
    """Label loyalty with label words isolated early, minus label loyalty under the control."""

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
        "fraction of what demonstrations add that label words must collect early",
        "collect",
        "early",
    ),
    words=sentences("label_words", "shallow_aggregation", _early),
)

# --- the target, in any layer: what the answer loses without its edges to label words ---

READ = "Reading: the target reads the answer from label words"


def _reading(run: Run) -> Facts | None:
    cuts = _cuts(run)
    if cuts is None or "all" not in cuts.windows:
        return None
    shares = by_windows(run, "anchors") if _result(run.results, GainResult) else {}
    return {"cuts": cuts, "window": "all", "shares": shares}


READING = Claim(
    READ,
    lost("lost with the target cut off from label words", "anchors", "all"),
    "edge_cuts",
    needs=DOES,
    share=carried(
        "fraction of what demonstrations add that the target reads from label words",
        "anchors",
        "all",
    ),
    words=sentences("label_words", "reading", _reading),
)

# --- late layers: flow beyond untrained networks, and attention ---

LATE = "Deep extraction: the answer is read from the label words in late layers"


def _late(run: Run) -> Facts | None:
    flow, extraction = _result(run.results, FlowScores), _result(run.results, ExtractionResult)
    cuts, untrained = _cuts(run), _result(run.results, UntrainedFlow)
    if flow is None and extraction is None and cuts is None:
        return None
    read = {"flow": flow, "untrained": untrained, "third": "last", "extraction": extraction}
    return {**read, "cuts": cuts, "window": "late"}


def _cuts(run: Run) -> EdgeCutsResult | None:
    """The result of cutting off label words, if it holds log-probabilities."""
    cuts = _result(run.results, EdgeCutsResult)
    known = cuts is not None and cuts.log_prob is not None and "anchors" in cuts.edges
    return cuts if known else None


def _read(run: Run) -> tuple[Interval | None, Interval | None, int]:
    """AUC in the last third, its change from the first, and number of prompts; rare classes are left out."""
    result: ExtractionResult = run[ExtractionResult]
    last, change, prompts = result.judged_on
    return (None, None, prompts) if result.status == "cannot be judged" else (last, change, prompts)


ATTENTION: Any = {"measure": "attention", "prompts": lambda run: _read(run)[2]}

TELLS = (
    FROM,
    Effect("late extraction", lambda run: _read(run)[0], 0.5, ends=(0.0, 1.0), **ATTENTION),
    Effect("rise of extraction", lambda run: _read(run)[1], ends=DIFFERENCE, **ATTENTION),
)
"""How strong the path looks in saliency and attention. The claim itself tests what the answer loses without it."""

EXTRACTION = Claim(
    LATE,
    lost("lost with the target cut off from label words late", "anchors", "late"),
    "edge_cuts",
    needs=DOES,
    share=carried(
        "fraction of what demonstrations add that the target reads from label words late",
        "anchors",
        "late",
    ),
    words=sentences("label_words", "deep_extraction", _late),
)

# === §3: applications of label words, if they are anchors ===

# --- their states replace the demonstrations ---

ANCHORING = "Anchors suffice: label words' states can replace the demonstrations"


def _stand_ins(run: Run) -> Facts:
    return {"result": run[CompareCompressionResult], "anchors": ANCHORS}


def _above(method: str, loyalty: Loyalty) -> Effect:
    """Loyalty with the anchors' states minus loyalty with another compression."""

    def effect(run: Run) -> Interval | None:
        table: CompareCompressionResult = run[CompareCompressionResult]
        if not {ANCHORS, method} <= set(table.methods):
            return None
        return table.difference(ANCHORS, method, loyalty)

    names = {"text_anchor": "anchors above text", "hidden_random": "anchors above random tokens"}
    kept = ", likely next words" * (loyalty == "word_loyalty")
    return Effect(f"{names[method]}{kept}", effect, ends=DIFFERENCE)


SUFFICE = Claim(
    ANCHORING,
    [
        _above(method, loyalty)
        for loyalty in LOYALTIES
        for method in ("text_anchor", "hidden_random")
    ],
    "compare_compression",
    needs=DOES,
    one=True,
    words=sentences("label_words", "anchors_suffice", _stand_ins),
)

# --- their weights can be learned ---

FACTORS = "Re-weighting: re-weighted attention to label words gives better answers"


def _factors(run: Run) -> Facts:
    return {"result": run[ReweightingResult]}


def _reweighted(run: Run) -> Interval | None:
    """Gain of accuracy; None on prompts that the factors were trained on, or without both conditions."""
    result: ReweightingResult = run[ReweightingResult]
    return result.difference() if result.compared and not result.seen_in_training else None


def _tested(run: Run) -> int:
    result: ReweightingResult = run[ReweightingResult]
    return len(result.answers)


GAIN = Effect("re-weighting gain", _reweighted, ends=DIFFERENCE, prompts=_tested)
REWEIGHTED = Claim(
    FACTORS, (GAIN,), "reweighting", words=sentences("label_words", "re_weighting", _factors)
)

# --- confusion of classes whose label words lie close together ---

NEARNESS = "Confusion: classes whose label words lie close together are confused"


def _confusion(run: Run) -> Facts:
    return {"result": run[ConfusionResult]}


def _nearness(run: Run) -> Interval:
    """Rank correlation of distances and confusion, compared with relabelled classes."""
    result: ConfusionResult = run[ConfusionResult]
    return result.beside_relabelled


CONFUSED = Claim(
    NEARNESS,
    [Effect("distances and confusion", _nearness, ends=DIFFERENCE)],
    "confusion",
    words=sentences("label_words", "confusion", _confusion),
)

# --- the study ---


def _answers(results: Mapping[str, Result], verdicts: Sequence[Verdict]) -> Facts:
    """Verdicts on both claims of §2, and the isolation result for the first."""
    known = {verdict.claim: verdict for verdict in verdicts}
    isolated = _result(results, IsolationResult)
    return {"early": known.get(EARLY), "late": known.get(LATE), "isolated": isolated}


def _above_random(name: str, score: str, third: str) -> Effect:
    """Flow of label words minus flow of random tokens in their place."""

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
    Effect("compression label loyalty", "compare_compression.label_loyalty"),
    Effect("compression word loyalty", "compare_compression.word_loyalty"),
    Effect("compression accuracy", "compare_compression.accuracy"),
    Effect("re-weighting", "reweighting.accuracy"),
)

MEANS = (
    Mean(
        "How does information flow on average?", "Mean flow", "flow", "mean flow", limits=FEW,
        options={"curves": "score"}, told=("early flow above random tokens", "late flow above random tokens"),
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
        "Does attention to label words predict the answer?", "Extraction", "extraction", "extraction AUC",
        limits=FEW, told=("late extraction", "rise of extraction"),
    ),
    Mean(
        "From which layer on is it informative?", "Fraction of extraction", "extraction-share", "extraction R",
        limits=FEW,
    ),
    Mean(
        "Can label words' states replace the demonstrations?", "Compression", "compare_compression",
        "compression label loyalty", limits=FEW,
        told=("anchors above text", "anchors above random tokens"),
    ),
    Mean(
        "Does re-weighting label words help?", "Re-weighting", "reweighting", "re-weighting",
        limits=FEW, told=("re-weighting gain",),
    ),
)  # fmt: skip

LABEL_WORDS = Study(
    "label_words",
    claims=(AGGREGATION, READING, EXTRACTION, SUFFICE, CONFUSED, REWEIGHTED),
    headline=headline("label_words", _answers),
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
        "compare_compression": CompareCompressionResult,
        "confusion": ConfusionResult,
        "reweighting": ReweightingResult,
        "published": PublishedNumbers,
    },
    first=("isolation", "flow"),
    quantities=QUANTITIES,
    means=MEANS,
    known_by=lambda kinds: {IsolationResult, FlowScores} <= kinds,
)

"""The study of *Overthinking the Truth*, §§3-5, on any model and prompts.

Halawi et al. 2023 (ICLR 2024, arXiv 2307.09476): false demonstrations do harm, from a critical layer on, so
that earlier layers answer better. For the heads responsible, see `overthinking_heads`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from icl_mech.errors import IclMechError
from icl_mech.interventions import Intervention
from icl_mech.measurements.accuracy.context_accuracy import ContextAccuracy, ContextAccuracyResult
from icl_mech.measurements.accuracy.early_exit import EarlyExit, EarlyExitResult
from icl_mech.measurements.accuracy.gain import Gain, GainResult
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracy, LayerAccuracyResult
from icl_mech.measurements.base import Pair
from icl_mech.measurements.demonstrations import SIDES
from icl_mech.measurements.heads.ablation import Ablation, AblationResult
from icl_mech.measurements.heads.false_induction import (
    FalseInduction,
    FalseInductionResult,
    false_prompts,
)
from icl_mech.measurements.heads.head_attention import HeadAttention, HeadAttentionResult
from icl_mech.measurements.heads.head_scores import HeadScores, HeadScoresResult
from icl_mech.measurements.heads.matching_by_layer import MatchingByLayer, MatchingByLayerResult
from icl_mech.measurements.isolation.edge_cuts import EdgeCuts, EdgeCutsResult
from icl_mech.measurements.lens.top_words import TopWords, TopWordsResult
from icl_mech.measurements.running import Item
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.layers import HALF
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.studies import overthinking_heads as heads
from icl_mech.studies.bench import Bench
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run
from icl_mech.studies.competence import ABOVE_CONSTANT
from icl_mech.studies.judge import Verdict
from icl_mech.studies.nulls import PROMPTS, add_untrained, announce_untrained
from icl_mech.studies.published import PublishedNumbers, overthinking_numbers
from icl_mech.studies.sentences import Facts, headline, sentences
from icl_mech.studies.study import FEW, SEEDS, Mean, Study
from icl_mech.tasks import Task

HeadsFrom = str | Task | PromptBatch | None

CHOSEN_ON = ("unnatural", "headlines")
"""Task on which heads are chosen by default; the second if the first is the one studied."""

LATE = "late_ablation"
"""Name of the result of zeroing late layers; it uses other prompts than the ablation of heads."""

HEADS = 5
"""Number of heads that are chosen and ablated (the paper's number)."""

# --- measurements ---


def _steps(
    bench: Bench,
    pair: Pair,
    *,
    heads_from: HeadsFrom = None,
    seed: int = 0,
    nulls: int | None = None,
    threshold: float = HALF,
) -> None:
    """Measure everything in the paper; measurements that the prompts do not allow are left out with a note."""
    bench.for_nulls = {"layer_accuracy": (LayerAccuracy(), 3 * PROMPTS)}
    announce_untrained(bench, pair, nulls)
    own_weights = not bench.model.info.processed_weights
    if own_weights:
        _announce(bench, pair, seed)
    of_heads = (HeadScores(seed=seed), MatchingByLayer()) if own_weights else ()
    bench.measure(
        pair,
        LayerAccuracy(threshold=threshold),
        EarlyExit(seed=seed),
        optional=(ContextAccuracy(), TopWords(), *of_heads),
    )
    bench.measure(pair[0], optional=[Gain(seed=seed)])
    bench.measure(pair[1], optional=[EdgeCuts("aggregate", "after", rows="target", draws=0)])
    if own_weights:
        _heads(bench, pair, heads_from, seed)
    else:
        bench.notes.append(
            "Heads and ablations left out: they are defined for the checkpoint's original weights, but "
            f"the weights of {bench.model.info.name!r} are processed (norms folded or weights centred)."
        )
    add_untrained(bench, pair, nulls)
    if pair[0].has_classes:
        bench.keep("published", overthinking_numbers(bench.results))
    else:
        bench.notes.append(
            "Published numbers left out: they are calibrated accuracies, which only tasks with classes have."
        )


def _announce(bench: Bench, pair: Pair, seed: int) -> None:
    """Let progress count what is measured once heads and an exit are chosen, with others in their place."""
    info = bench.model.info
    heads = [(info.n_layers // 2, head) for head in range(min(HEADS, info.n_heads))]
    half = tuple(side[: max(1, len(side) // 2)] for side in pair)
    bench.announce(pair, HeadAttention(heads, first=1), FalseInduction(HEADS, seed))
    bench.announce(pair, Ablation(heads=heads, seed=seed))
    bench.announce((half[0], half[1]), Ablation(start=info.n_layers * 3 // 4, seed=seed))


def _heads(bench: Bench, pair: Pair, heads_from: HeadsFrom, seed: int) -> None:
    """Measure the attention of the top heads, and the effect of ablating heads chosen on another task."""
    scores = bench.results.get("head_scores")
    if isinstance(scores, HeadScoresResult):
        bench.measure(pair, HeadAttention(scores.top(HEADS), first=1))
    studied = pair[0].source.get("task", {}).get("name")
    source = heads_from or next(name for name in CHOSEN_ON if name != studied)
    by_number = [edit for edit in bench.options.interventions if edit.by_number]
    try:
        others = false_prompts(bench.model, source, n=len(pair[0]), seed=seed)
    except IclMechError as error:
        bench.notes.append(f"No heads were chosen or ablated: {error}")
    else:
        if by_number:
            bench.notes.append(
                f"No heads were chosen or ablated: {by_number[0]!r} may depend on the index of a "
                "prompt, but heads are chosen on prompts of another task."
            )
        else:
            bench.measure(others, optional=[FalseInduction(HEADS, seed)])
    false_induction, leaving = bench.results.get("false_induction"), bench.results["early_exit"]
    chosen = false_induction.top if isinstance(false_induction, FalseInductionResult) else ()
    if chosen:
        bench.measure(pair, Ablation(heads=chosen, seed=seed))
    if isinstance(leaving, EarlyExitResult):
        _late(bench, pair, leaving, by_number, seed)


def _late(
    bench: Bench, pair: Pair, leaving: EarlyExitResult, by_number: list[Intervention], seed: int
) -> None:
    """Zero the layers after the exit, on the prompts that were not used to choose it."""
    if by_number:
        bench.notes.append(
            f"No late layers were ablated: {by_number[0]!r} may depend on the index of a prompt, but "
            "late layers are tested on one half of the prompts."
        )
        return
    if without := bench.model.without_pattern:
        bench.notes.append(
            f"No late layers were ablated: blocks {[*without]} of {bench.model.info.name!r} have no attention "
            "that could be ablated apart from the MLP."
        )
        return
    part = leaving.held_out()
    held_out = (pair[0][part], pair[1][part])
    late = Ablation(start=leaving.layer, seed=seed)
    try:
        item = Item.checked(late, bench.model, held_out, bench.options)
    except IclMechError as error:
        bench.notes.append(f"No late layers were ablated: {error}")
    else:
        bench.run({LATE: item})


# --- false demonstrations do harm ---

HARM = "Harm: false demonstrations lower accuracy"


def _harm(run: Run) -> Facts:
    return {"result": run[LayerAccuracyResult]}


HARMFUL = Claim(
    HARM, (heads.FINAL_GAP,), "layer_accuracy", words=sentences("overthinking", "harm", _harm)
)

# --- from a layer on ---

CRITICAL = "Critical layer: true and false demonstrations diverge further after the first quarter of the layers"


def _growth(run: Run) -> Interval | None:
    """Growth of the gap from the first quarter of the layers to the end; None without a critical layer."""
    result: LayerAccuracyResult = run[LayerAccuracyResult]
    gaps = result.pair_scores[:, 0] - result.pair_scores[:, 1]
    if result.critical is None:
        return None
    return mean_interval(gaps[:, -1] - gaps[:, (gaps.shape[1] - 1) // 4], "contrast")


def _critical(run: Run) -> Facts:
    """The critical layer, and the gap after the first quarter of the layers and at the end."""
    result: LayerAccuracyResult = run[LayerAccuracyResult]
    quarter, gaps = result.last // 4, result.pair_scores[:, 0] - result.pair_scores[:, 1]
    early = mean_interval(gaps[:, quarter], "change")
    known = {"layers": result.last, "quarter": quarter, "early": early, "growth": _growth(run)}
    return {"result": result, **known}


def _still_read(run: Run) -> Interval | None:
    """Fraction of answers that change with the target cut off from false demonstrations after the first quarter."""
    cuts: EdgeCutsResult = run[EdgeCutsResult]
    window = "last ¾"
    if "aggregate" not in cuts.edges or window not in cuts.windows:
        return None
    kept = cuts.kept[:, cuts.edges.index("aggregate"), cuts.windows.index(window)]
    return mean_interval((~kept).double(), "outcome")


STILL_READ = Effect(
    "fraction of answers that change with the target cut off from false demonstrations after the first quarter",
    _still_read,
    ends=(0.0, 1.0),
)

PARTING = Claim(
    CRITICAL,
    [Effect("gap gained after the first quarter", _growth, ends=(-2.0, 2.0), prompts=heads.pairs)],
    "layer_accuracy",
    needs=(ABOVE_CONSTANT, heads.FINAL_GAP),
    share=STILL_READ,
    words=sentences("overthinking", "critical_layer", _critical),
)

# --- so an earlier exit is better ---

LEAVING = "Overthinking: with false demonstrations, earlier layers answer better"


def _overthinking(run: Run) -> Facts:
    return {"result": run[EarlyExitResult]}


def _weakest(result: EarlyExitResult, side: str) -> int:
    """The task whose change of accuracy has the smallest lower end of its interval."""
    return min(range(len(result.tasks)), key=lambda task: result.overthinking(task, side).low)


def _change(side: str) -> Effect:
    """Change of accuracy by early exit, on prompts not used to choose the layer; the weakest of tasks that share it."""

    def effect(run: Run) -> Interval | None:
        result: EarlyExitResult = run[EarlyExitResult]
        if result.same or result.changes is None:
            return None
        return result.overthinking(_weakest(result, side), side)

    def tested(run: Run) -> int | None:
        result: EarlyExitResult = run[EarlyExitResult]
        halves = result.halves(_weakest(result, side))
        return halves[1] if halves else None

    return Effect(f"early exit, {side}", effect, ends=DIFFERENCE, prompts=tested)


def _exit_above_chance(run: Run) -> Interval | None:
    """Calibrated accuracy after the exit above chance, with false demonstrations, on prompts not used to choose it.

    None at the embedding, which is the same for all prompts, and if accuracy by layer comes from other pairs.
    """
    result: EarlyExitResult = run[EarlyExitResult]
    layers: LayerAccuracyResult = run[LayerAccuracyResult]
    if result.same or result.changes is None or not result.layer or len(result.tasks) > 1:
        return None
    if result.changes.shape[-1] != len(layers.answers):
        return None
    tested, side = result.held_out(), SIDES.index("false")
    scores = layers.pair_scores[tested, side, result.layer]
    chance = 1 / layers.true_probs.shape[-1]
    return Interval(*(end - chance for end in mean_interval(scores, "outcome")))


OVERTHINKS = Claim(
    LEAVING,
    (
        _change("false"),
        Effect(
            "accuracy at the exit above chance",
            _exit_above_chance,
            ends=DIFFERENCE,
            prompts=_change("false").prompts,
        ),
    ),
    "early_exit",
    needs=(ABOVE_CONSTANT, heads.FINAL_GAP),
    words=sentences("overthinking", "overthinking", _overthinking),
)

# --- the study ---


def _answers(results: Mapping[str, Result], verdicts: Sequence[Verdict]) -> Facts:
    """Both results, and the status of harm and of early exit.

    `better` says whether answers are better or worse there, even if the claim is mixed because accuracy is at chance.
    """
    kinds = {type(result): result for result in results.values()}
    layers, leaving = kinds.get(LayerAccuracyResult), kinds.get(EarlyExitResult)
    known = {verdict.claim: verdict for verdict in verdicts}
    facts: dict[str, Any] = {"layers": layers, "leaving": leaving}
    if layers is not None:
        facts["harm"] = known[HARM].status
    if leaving is not None:
        verdict = known[LEAVING]
        mixed = verdict.status == "mixed" and verdict.measures[0].status != "supported"
        better = verdict.measures[0].status if mixed else verdict.status
        facts |= {"status": verdict.status, "better": better}
    return facts


QUANTITIES = (
    Effect("accuracy by layer", "layer_accuracy.calibrated"),
    Effect("gap by layer", "layer_accuracy.gap"),
    Effect("accuracy by demonstrations", "context_accuracy.calibrated"),
    _change("true"),
    *heads.QUANTITIES,
)

MEANS = (
    Mean(
        "Where do true and false demonstrations diverge?", "Accuracy by layer", "layer_accuracy",
        "accuracy by layer", limits=FEW, told=("final gap",),
    ),
    Mean(
        "Do they diverge on all tasks?", "Accuracy by layer and task", "layer_accuracy-tasks",
        "accuracy by layer", ("seed",), by_task=True, limits=SEEDS, options={"panels": "task"},
    ),
    Mean(
        "How does the gap grow with the fraction of false labels?", "Gap by dose", "dose", "gap by dose",
        limits=FEW, options={"x": "false_share"}, always=True,
    ),
    Mean(
        "How many demonstrations are needed?", "Accuracy by demonstrations", "context_accuracy",
        "accuracy by demonstrations, last layer", limits=SEEDS,
    ),
    Mean(
        "Would exiting early be better?", "Early exit", "early_exit", "early exit, false", ("seed",),
        limits=SEEDS,
    ),
    Mean(
        "Does one exit layer work for all tasks?", "Early exit, one layer", "fixed_exit",
        "fixed exit", limits=SEEDS, always=True,
    ),
    *heads.MEANS,
)  # fmt: skip

OVERTHINKING = Study(
    "overthinking",
    claims=(HARMFUL, PARTING, OVERTHINKS, heads.COPY, heads.REMOVE, heads.LATE_ATTENDS),
    headline=headline("overthinking", _answers),
    steps=_steps,
    takes="pair",
    kicker="Overthinking study · Halawi et al. 2023, Overthinking the Truth (ICLR 2024)",
    source="Overthinking the Truth",
    gives={
        "layer_accuracy": LayerAccuracyResult,
        "gain": GainResult,
        "edge_cuts": EdgeCutsResult,
        "context_accuracy": ContextAccuracyResult,
        "early_exit": EarlyExitResult,
        "top_words": TopWordsResult,
        "head_scores": HeadScoresResult,
        "matching_by_layer": MatchingByLayerResult,
        "head_attention": HeadAttentionResult,
        "false_induction": FalseInductionResult,
        "ablation": AblationResult,
        LATE: AblationResult,
        "published": PublishedNumbers,
    },
    first=("layer_accuracy", "early_exit"),
    omits=("ablation.accuracy", f"{LATE}.accuracy"),
    quantities=QUANTITIES,
    means=MEANS,
    known_by=lambda kinds: LayerAccuracyResult in kinds and len(kinds) > 1,
)

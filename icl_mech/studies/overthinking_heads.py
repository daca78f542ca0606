"""False induction heads (*Overthinking the Truth*, §5): chosen on another task, and the effect of removing them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.heads.ablation import AblationResult
from icl_mech.measurements.heads.chosen import both, ends_by_head, of_heads
from icl_mech.measurements.heads.conditions import CHOSEN
from icl_mech.measurements.heads.false_induction import FalseInductionResult
from icl_mech.measurements.heads.head_scores import HeadScoresResult
from icl_mech.metrics import Interval, mean_interval
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run
from icl_mech.studies.competence import ABOVE_CONSTANT
from icl_mech.studies.sentences import Facts, sentences
from icl_mech.studies.study import FEW, Mean

# --- some heads copy the false label ---

COPYING = "False induction heads: some heads copy the false label"


class Tested(NamedTuple):
    """Scores of the chosen heads on prompts that did not choose them.

    Attributes:
        heads: The heads.
        above: Prefix matching above shuffled labels.
        promoting: Logit of the false minus the right label that each head writes.
        task: Task of these prompts if it also chose the heads; empty: the task studied.
    """

    heads: tuple[tuple[int, int], ...]
    above: Float[Tensor, "batch head"]
    promoting: Float[Tensor, "batch head"]
    task: str = ""


def _tested(run: Run) -> Tested | None:
    """Scores on the studied task of heads that another task chose; else on one half of that task's prompts."""
    result: FalseInductionResult = run[FalseInductionResult]
    if not result.top:
        return None
    scores = next(
        (
            candidate
            for candidate in run.results.values()
            if isinstance(candidate, HeadScoresResult)
        ),
        None,
    )
    if scores is not None and scores.promoting is not None and _other_task(scores, result.task):
        above = scores.matching - scores.shuffled_matching
        above, promoting = (of_heads(tensor, result.top) for tensor in (above, scores.promoting))
        return Tested(result.top, above, promoting)
    half = result.second_half()
    if half is None:
        return None
    return Tested(*half, result.task)


def _of_chosen(score: str) -> Callable[[Run], Interval | None]:
    """A score of the chosen heads, mean over heads."""

    def effect(run: Run) -> Interval | None:
        tested = _tested(run)
        return None if tested is None else mean_interval(getattr(tested, score).mean(1))

    return effect


def _tested_on(run: Run) -> int | None:
    tested = _tested(run)
    return None if tested is None else len(tested.above)


def _heads(run: Run) -> Facts:
    """Facts on which of the chosen heads match prefixes and promote the false label, on other prompts."""
    facts: dict[str, Any] = {"result": run[FalseInductionResult], "tested": _tested(run)}
    tested: Tested | None = facts["tested"]
    if tested is None:
        return facts
    ends = ends_by_head(tested.above, tested.promoting, tested.heads)
    sure = both(ends, len(tested.above))
    best = max(sure or ends, key=lambda head: ends[head][0].value)
    means = {score: _of_chosen(score)(run) for score in ("above", "promoting")}
    return {**facts, **means, "ends": ends, "sure": sure, "best": best}


def _other_task(scores: HeadScoresResult, task: str) -> bool:
    """True if the scores come from another task than the one that chose the heads."""
    studied = scores.provenance.get("prompts", {}).get("task", {}).get("name")
    return bool(studied != task)


def pairs(run: Run) -> int:
    """Number of pairs of prompts that accuracy by layer rests on."""
    result: LayerAccuracyResult = run[LayerAccuracyResult]
    return len(result.answers)


UNTESTED = "The chosen heads were not scored on prompts that did not choose them, so this cannot be judged."

FINAL_GAP = Effect(
    "final gap",
    lambda run: run[LayerAccuracyResult].final_gap,
    ends=DIFFERENCE,
    prompts=pairs,
    unclear="There is no clear harm, a final gap of {}, so this cannot be judged.",
    unknown="What false demonstrations do to accuracy was not measured, so this cannot be judged.",
)


def _closed(run: Run) -> Interval | None:
    """Share of the gap that closes without the chosen heads."""
    result: AblationResult = run["ablation"]
    return result.reduction(CHOSEN) if CHOSEN in result.conditions else None


CLOSED = Effect("fraction of the harm that these heads carry", _closed)

MATCHING = Effect(
    "matching of the chosen heads",
    _of_chosen("above"),
    prompts=_tested_on,
    unclear="Prefix matching of the chosen heads on other prompts, {}, is not clearly above shuffled labels, "
    "so their removal says nothing about false induction heads.",
    unknown=UNTESTED,
)
PROMOTING = Effect(
    "promoting of the chosen heads, logits",
    _of_chosen("promoting"),
    prompts=_tested_on,
    unclear="The chosen heads do not clearly promote the false label on other prompts ({} logits), "
    "so their removal says nothing about false induction heads.",
    unknown=UNTESTED,
)

COPY = Claim(
    COPYING,
    (MATCHING, PROMOTING),
    "false_induction",
    needs=(ABOVE_CONSTANT, FINAL_GAP),
    share=CLOSED,
    words=sentences("overthinking", "false_induction_heads", _heads),
)

# --- without them false demonstrations do less harm ---

REMOVING = (
    "Removing these heads closes part of the gap, with no clear loss with true demonstrations"
)


def _gap_of(part: str) -> Effect:
    """The gap that an ablation could close, on its prompts."""

    def gap(run: Run) -> Interval:
        result: AblationResult = run[part]
        return result.gap

    return Effect(
        "gap between true and false demonstrations",
        gap,
        ends=DIFFERENCE,
        unclear="There is no clear gap to close: {}.",
    )


def _without_set(part: str, condition: str) -> Callable[[Run], Facts | None]:
    """Facts on an ablation, if it ablated these heads or layers."""

    def facts(run: Run) -> Facts | None:
        result: AblationResult = run[part]
        known = condition in result.conditions
        return {"result": result, "chosen": condition} if known else None

    return facts


def _loss(part: str, condition: str) -> Effect:
    """Change of accuracy with true demonstrations under an ablation: moving all answers towards chance is no remedy."""

    def loss(run: Run) -> Interval | None:
        result: AblationResult = run[part]
        if condition not in result.conditions:
            return None
        return result.interval("change", condition=condition, side="true")

    return Effect("loss with true demonstrations", loss, rising=False, ends=DIFFERENCE)


def _without(side: str) -> Effect:
    """Change of accuracy without the heads that another task chose."""

    def effect(run: Run) -> Interval | None:
        result: AblationResult = run["ablation"]
        if CHOSEN not in result.conditions:
            return None
        return result.interval("change", condition=CHOSEN, side=side)

    return Effect(f"without chosen heads, {side}", effect, ends=DIFFERENCE)


BESIDE_RANDOM = Effect(
    "chosen above random heads", lambda run: run["ablation"].beside_random(), ends=DIFFERENCE
)

REMOVE = Claim(
    REMOVING,
    (_without("false"), BESIDE_RANDOM),
    "ablation",
    needs=(_gap_of("ablation"), MATCHING, PROMOTING),
    unless=_loss("ablation", CHOSEN),
    one=True,
    words=sentences("overthinking", "removing_these_heads", _without_set("ablation", CHOSEN)),
    averaged="False induction heads: without a few heads false demonstrations do less harm",
)

# --- the same without late attention ---

LATE_ATTENTION = "late attention"
LATE = "Late attention: without it false demonstrations do less harm, with no clear loss with true ones"


def _late_change(run: Run) -> Interval | None:
    """Change of accuracy with false demonstrations without late attention."""
    result: AblationResult = run["late_ablation"]
    if LATE_ATTENTION not in result.conditions:
        return None
    return result.interval("change", condition=LATE_ATTENTION, side="false")


LATE_ATTENDS = Claim(
    LATE,
    [Effect("without late attention, false", _late_change, ends=DIFFERENCE)],
    "late_ablation",
    needs=_gap_of("late_ablation"),
    unless=_loss("late_ablation", LATE_ATTENTION),
    words=sentences(
        "overthinking", "late_attention", _without_set("late_ablation", LATE_ATTENTION)
    ),
)


def _highest(run: Run) -> Interval | None:
    """Prefix matching of the head with the highest score."""
    result: FalseInductionResult = run["false_induction"]
    ends = (result.prefix_matching, result.matching_low, result.matching_high)
    return Interval(*(float(end[0]) for end in ends))


QUANTITIES = (
    Effect("ablation", "ablation.change"),
    _without("true"),
    Effect("highest prefix matching", _highest),
)

MEANS = (
    Mean(
        "How much does ablation recover?", "Ablation", "ablation", "ablation", limits=FEW,
        told=("without chosen heads, false", "without chosen heads, true"),
    ),
    Mean(
        "How much of the gap do the chosen heads account for?", "Gap reduction", "gap_reduction",
        "gap reduction", limits=FEW, always=True,
    ),
)  # fmt: skip

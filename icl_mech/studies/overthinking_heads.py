"""False induction heads (ibid., §5): chosen on another task, what removing them gives back."""

from collections.abc import Callable
from typing import NamedTuple

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.heads.ablation import AblationResult
from icl_mech.measurements.heads.chosen import both, ends_by_head, head_name, of_heads
from icl_mech.measurements.heads.conditions import CHOSEN
from icl_mech.measurements.heads.false_induction import FalseInductionResult
from icl_mech.measurements.heads.head_scores import HeadScoresResult
from icl_mech.metrics import Interval, mean_interval
from icl_mech.results.wording import counted, listed, said
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run, Words
from icl_mech.studies.competence import ABOVE_CONSTANT
from icl_mech.studies.study import FEW, Mean

# --- some heads copy the false label ---

COPYING = "False induction heads: some heads copy the false label"


class Tested(NamedTuple):
    """Scores of the chosen heads on prompts that did not choose them.

    Attributes:
        heads: The heads.
        above: Prefix matching above shuffled labels.
        promoting: Logit of the false above the right label that each writes.
        where: On which prompts, in words.
    """

    heads: tuple[tuple[int, int], ...]
    above: Float[Tensor, "batch head"]
    promoting: Float[Tensor, "batch head"]
    where: str


def _tested(run: Run) -> Tested | None:
    """The studied task tests the heads that another task chose; else one half of that task's prompts does."""
    result: FalseInductionResult = run[FalseInductionResult]
    if not result.top:
        return None
    scores = next((own for own in run.results.values() if isinstance(own, HeadScoresResult)), None)
    if scores is not None and scores.promoting is not None and _other_task(scores, result.task):
        above = scores.matching - scores.shuffled_matching
        above, promoting = (of_heads(own, result.top) for own in (above, scores.promoting))
        return Tested(result.top, above, promoting, "on the task studied")
    half = result.second_half()
    if half is None:
        return None
    return Tested(*half, f"on the half of {result.task} that did not choose them")


def _of_chosen(score: str) -> Callable[[Run], Interval | None]:
    """A score of the chosen heads, mean over heads."""

    def effect(run: Run) -> Interval | None:
        tested = _tested(run)
        return None if tested is None else mean_interval(getattr(tested, score).mean(1))

    return effect


def _tested_on(run: Run) -> int | None:
    tested = _tested(run)
    return None if tested is None else len(tested.above)


def _heads(run: Run) -> Words:
    """Which of the chosen heads match prefixes and promote the false label, on other prompts."""
    result: FalseInductionResult = run[FalseInductionResult]
    chosen, tested = listed(map(head_name, result.top)), _tested(run)
    if tested is None:
        return Words(f"Chosen on {result.task}: {chosen}; single prompts were not kept.")
    together = ends_by_head(tested.above, tested.promoting, tested.heads)
    n, sure = len(tested.above), both(together, len(tested.above))
    best = max(sure or together, key=lambda head: together[head][0].value)
    above, promoting = (said(own, sign=True) for own in together[best])
    means = (_of_chosen(score)(run) for score in ("above", "promoting"))
    matching, writing = (said(own, sign=True) for own in means if own is not None)
    return Words(
        f"Chosen on {result.task}: {chosen}. {tested.where[0].upper()}{tested.where[1:]} (n = {counted(n, 'prompt')}) "
        f"they match prefixes {matching} beyond shuffled labels and promote the false label by {writing} on average; "
        f"{listed(sure) if sure else 'none of them'} {'does' if len(sure) < 2 else 'do'} both alone, highest {best}: "
        f"{above}, promoting {promoting}.",
        f"Matching {matching} above its control, promoting {writing}, mean of {counted(len(tested.heads), 'head')} "
        f"(n = {counted(n, 'prompt')}).",
    )


def _other_task(scores: HeadScoresResult, task: str) -> bool:
    """True if scores are of another task than the one that chose the heads."""
    studied = scores.provenance.get("prompts", {}).get("task", {}).get("name")
    return bool(studied != task)


def pairs(run: Run) -> int:
    """How many pairs of prompts accuracy by layer rests on."""
    result: LayerAccuracyResult = run[LayerAccuracyResult]
    return len(result.answers)


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


CLOSED = Effect("share of the harm that these heads carry", _closed)

COPY = Claim(
    COPYING,
    (
        Effect("matching of the chosen heads", _of_chosen("above"), prompts=_tested_on),
        Effect(
            "promoting of the chosen heads, logits", _of_chosen("promoting"), prompts=_tested_on
        ),
    ),
    "false_induction",
    needs=(ABOVE_CONSTANT, FINAL_GAP),
    share=CLOSED,
    words=_heads,
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


def _chosen(run: Run) -> Words | None:
    result: AblationResult = run["ablation"]
    if CHOSEN not in result.conditions:
        return None
    n, heads = result.scores.shape[-1], result.heads()
    false, true = (
        result.interval("change", condition=CHOSEN, side=side) for side in ("false", "true")
    )
    brief = (
        f"Accuracy changes by {said(false, sign=True)} with false and by {said(true, sign=True)} with true "
        f"demonstrations (n = {counted(n, 'pair')})."
    )
    count = counted(len(heads), "head") if heads else "the chosen heads"
    text = (
        f"Without {count}{f' ({listed(map(head_name, heads))})' if heads else ''} accuracy changes by "
        f"{said(false, sign=True)} with false and by {said(true, sign=True)} with true demonstrations"
    )
    share, beside = result.reduction(CHOSEN), result.beside_random()
    text += f", which closes {said(share)} of the gap" if share is not None else ""
    text += f"; beyond random heads {said(beside, sign=True)}" if beside is not None else ""
    return Words(f"{text} (n = {counted(n, 'pair')}).", brief)


def _loss(part: str, condition: str) -> Effect:
    """Accuracy with true demonstrations that an ablation costs: what moves all answers towards chance is no remedy."""

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
    needs=_gap_of("ablation"),
    unless=_loss("ablation", CHOSEN),
    one=True,
    words=_chosen,
    averaged="False induction heads: without a few heads false demonstrations do less harm",
)

# --- nor without late attention ---

LATE_ATTENTION = "late attention"
LATE = "Late attention: without it false demonstrations do less harm, with no clear loss with true ones"


def _late_attention(run: Run) -> Words | None:
    result: AblationResult = run["late_ablation"]
    if LATE_ATTENTION not in result.conditions:
        return None
    change, true = (
        result.interval("change", condition=LATE_ATTENTION, side=side) for side in ("false", "true")
    )
    return Words(
        f"Without it accuracy changes by {said(change, sign=True)} with false and by {said(true, sign=True)} with true "
        f"demonstrations, of a gap of {said(result.gap)} (n = {counted(result.scores.shape[-1], 'pair')})."
    )


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
    words=_late_attention,
)


def _highest(run: Run) -> Interval | None:
    """Prefix matching of the head that has most of it."""
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

"""False induction heads (ibid., §5): chosen on another task, what removing them gives back."""

from collections.abc import Iterable, Mapping
from math import inf

from icl_mech.measurements.heads.ablation import AblationResult
from icl_mech.measurements.heads.chosen import both, head_name, status_of, tested_together
from icl_mech.measurements.heads.conditions import CHOSEN, heads_close
from icl_mech.measurements.heads.false_induction import FalseInductionResult
from icl_mech.measurements.heads.head_scores import HeadScoresResult
from icl_mech.metrics import Interval
from icl_mech.results import Result
from icl_mech.results.judging import judged, required
from icl_mech.results.wording import counted, listed, said
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run, Verdict, claimed, of_each
from icl_mech.studies.competence import ABOVE_CONSTANT
from icl_mech.studies.study import FEW, Mean

# --- some heads copy the false label ---

COPYING = "False induction heads: some heads copy the false label"


def _judged_heads(results: Mapping[str, Result]) -> Iterable[Verdict]:
    for name, result in results.items():
        if isinstance(result, FalseInductionResult):
            yield _heads(name, result, results)


def _heads(name: str, result: FalseInductionResult, results: Mapping[str, Result]) -> Verdict:
    """Do some of the chosen heads match prefixes and promote the false label, on other prompts?

    The studied task tests the heads that another task chose; without its scores one half of the
    prompts chooses and the other tests.
    """
    chosen = listed(map(head_name, result.top))
    scores = next((own for own in results.values() if isinstance(own, HeadScoresResult)), None)
    if scores is not None and scores.promoting is not None and _other_task(scores, result.task):
        above = scores.matching - scores.shuffled_matching
        held_out = tested_together(above, scores.promoting, result.top)
        n, where = len(scores.matching), "on the task studied"
    else:
        found = result.held_out()
        held_out, n = found or {}, 0 if result.scores is None else len(result.scores) // 2
        where = f"on the half of {result.task} that did not choose them"
    status = status_of(held_out, n)
    if not held_out:
        finding = f"Chosen on {result.task}: {chosen}; single prompts were not kept."
        return Verdict(COPYING, status, finding, name)
    sure = both(held_out, n)
    best = max(sure or held_out, key=lambda own: held_out[own][0].value)
    above_best, promoting_best = held_out[best]
    # The intervals hold for all these heads at once, so the best of them needs no correction.
    each = [required("heads", *own, prompts=n) for own in held_out.values()]
    least = max(each, key=lambda own: -inf if own.far is None else own.far)
    return claimed(
        COPYING,
        [least._replace(status=status)],
        f"Chosen on {result.task}: {chosen}. {where[0].upper()}{where[1:]} (n = {counted(n, 'prompt')}) "
        f"{listed(sure) if sure else 'none of them'} both match{'es' * (len(sure) < 2)} beyond shuffled labels "
        f"and promote{'s' * (len(sure) < 2)} the false label; highest {best}: {said(above_best, sign=True)} above "
        f"its control, promoting {said(promoting_best, sign=True)}.",
        name,
        f"{counted(len(sure), 'head')} of {len(result.top)}; highest {best}: matching {said(above_best, sign=True)} above its "
        f"control, promoting {said(promoting_best, sign=True)} (n = {counted(n, 'prompt')}).",
    )


def _other_task(scores: HeadScoresResult, task: str) -> bool:
    """True if scores are of another task than the one that chose the heads."""
    studied = scores.provenance.get("prompts", {}).get("task", {}).get("name")
    return bool(studied != task)


COPY = Claim(COPYING, part="false_induction", judge=_judged_heads, needs=ABOVE_CONSTANT)

# --- without them false demonstrations do less harm ---

REMOVING = (
    "Removing these heads closes part of the gap, with no clear loss with true demonstrations"
)


def _no_gap(result: AblationResult) -> str:
    n = result.scores.shape[-1]
    return f"There is no clear gap to close: {said(result.gap)} (n = {counted(n, 'pair')})"


def _chosen(name: str, result: AblationResult) -> Verdict | None:
    if CHOSEN not in result.conditions:
        return None
    n, heads = result.scores.shape[-1], result.heads()
    false, true = (
        result.interval("change", condition=CHOSEN, side=side) for side in ("false", "true")
    )
    beside = result.beside_random()
    status = heads_close(false, beside, result.gap, n)
    # Harm with true demonstrations speaks against the claim as much as no effect does.
    if status == "supported" and _hurts(true, n):
        status = "mixed"
    brief = (
        f"Accuracy changes by {said(false, sign=True)} with false and by {said(true, sign=True)} with true "
        f"demonstrations (n = {counted(n, 'pair')})."
    )
    count = counted(len(heads), "head") if heads else "the chosen heads"
    effect = (
        f"without {count}{f' ({listed(map(head_name, heads))})' if heads else ''} accuracy changes by "
        f"{said(false, sign=True)} with false and by {said(true, sign=True)} with true demonstrations"
    )
    if result.gap.low <= 0:
        text, brief = f"{_no_gap(result)}; {effect}.", f"{_no_gap(result)}."
    else:
        share = result.reduction(CHOSEN)
        closed = f", which closes {said(share)} of the gap" if share is not None else ""
        text = f"{effect[0].upper()}{effect[1:]}{closed}"
        if beside is not None:
            text += f"; beyond random heads {said(beside, sign=True)}"
        text += f" (n = {counted(n, 'pair')})."
    measure = required("ablation", false, beside, prompts=n)
    return claimed(REMOVING, [measure._replace(status=status)], text, name, brief)


def _hurts(true: Interval, prompts: int) -> bool:
    """True if accuracy with true demonstrations falls."""
    return judged(true, rising=False, prompts=prompts) == "supported"


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
FINAL_GAP = Effect("final gap", lambda run: run["layer_accuracy"].final_gap, ends=DIFFERENCE)

REMOVE = Claim(
    REMOVING,
    (_without("false"), BESIDE_RANDOM),
    "ablation",
    of_each(AblationResult, _chosen),
    needs=FINAL_GAP,
    one=True,
    averaged="False induction heads: without a few heads false demonstrations do less harm",
)

# --- nor without late attention ---

LATE_ATTENTION = "late attention"
LATE = "Late attention: without it false demonstrations do less harm, with no clear loss with true ones"


def _late_attention(name: str, result: AblationResult) -> Verdict | None:
    if LATE_ATTENTION not in result.conditions:
        return None
    n, gap = result.scores.shape[-1], result.gap
    change, true = (
        result.interval("change", condition=LATE_ATTENTION, side=side) for side in ("false", "true")
    )
    status = "cannot be judged" if gap.low <= 0 else judged(change, prompts=n)
    # What moves all answers towards chance is no remedy.
    if status == "supported" and _hurts(true, n):
        status = "mixed"
    effect = f"without it accuracy changes by {said(change, sign=True)} with false and by {said(true, sign=True)} with true demonstrations"
    return claimed(
        LATE,
        [required("ablation", change, prompts=n)._replace(status=status)],
        f"{_no_gap(result)}; {effect}."
        if gap.low <= 0
        else f"{effect[0].upper()}{effect[1:]}, of a gap of {said(gap)} (n = {counted(n, 'pair')}).",
        name,
        f"{_no_gap(result)}." if gap.low <= 0 else "",
    )


LATE_ATTENDS = Claim(LATE, part="late_ablation", judge=of_each(AblationResult, _late_attention))


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

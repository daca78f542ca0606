"""What *Overthinking the Truth* claims, beside what a run found."""

from collections.abc import Mapping

from icl_mech.measurements.accuracy.early_exit import EarlyExit
from icl_mech.measurements.accuracy.exit_texts import exit_status
from icl_mech.measurements.accuracy.layers import LayerAccuracy
from icl_mech.measurements.accuracy.pairs import SIDES
from icl_mech.measurements.heads.ablation import CHOSEN, Ablation
from icl_mech.measurements.heads.ablation_texts import heads_close
from icl_mech.measurements.heads.false_heads import both, status_of, tested_together
from icl_mech.measurements.heads.false_induction import FalseInductionHeads
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.heads.texts import head_name
from icl_mech.metrics import Interval, mean_interval
from icl_mech.results import Result
from icl_mech.results.judging import Required, judged, largest, p_value, required
from icl_mech.results.wording import counted, listed, said
from icl_mech.studies.verdicts import Verdict, claimed, stated_together

LATE_ATTENTION = "late attention"
HARM = "Harm: false demonstrations lower accuracy"
CRITICAL = "Critical layer: early layers answer alike, later the two sides part"
LEAVING = "Overthinking: with false demonstrations, earlier layers answer better"


def verdicts(results: Mapping[str, Result]) -> tuple[Verdict, ...]:
    """One per claim, as far as the results bear on it: harm, critical layer, overthinking, heads."""
    found: list[Verdict] = []
    for name, result in results.items():
        if isinstance(result, LayerAccuracy):
            found += [_harm(name, result), _critical(name, result)]
        elif isinstance(result, EarlyExit):
            found.append(_overthinking(name, result))
        elif isinstance(result, FalseInductionHeads):
            found.append(_heads(name, result, results))
        elif isinstance(result, Ablation):
            found += _ablations(name, result)
    return stated_together(found)


def headline(results: Mapping[str, Result], model: str, task: str) -> tuple[str, str]:
    """The question of the study, and its answer in at most two sentences."""
    question = f"Does {model} overthink false demonstrations on {task}?"
    own = {type(result): result for result in results.values()}
    layers, leaving = own.get(LayerAccuracy), own.get(EarlyExit)
    status = {verdict.claim: verdict.status for verdict in verdicts(results)}
    parts = []
    if isinstance(layers, LayerAccuracy):
        n = len(layers.answers)
        gap = f"gap {said(layers.final_gap)}"
        parts.append(
            {
                "supported": f"False demonstrations lower its accuracy ({gap})",
                "opposite": f"False demonstrations do not lower its accuracy, they raise it ({gap})",
                "not shown": f"It is not shown that false demonstrations lower its accuracy ({gap})",
            }.get(
                status[HARM],
                f"Whether false demonstrations lower its accuracy cannot be judged ({gap})",
            )
            + f" on {counted(n, 'pair')} of prompts"
        )
    if isinstance(leaving, EarlyExit):
        change = leaving.overthinking()
        size = said(change, sign=True)
        parts.append(
            {
                "supported": f"reading it out after layer {leaving.layer} gives better answers ({size})",
                "opposite": f"reading it out early makes answers worse, not better ({size})",
                "not shown": f"reading it out early does not clearly help ({size})",
            }.get(status[LEAVING], f"whether reading it out early helps cannot be judged ({size})")
        )
    if not parts:
        return question, "The results at hand do not bear on this question."
    if len(parts) == 1:
        return question, f"{parts[0][0].upper()}{parts[0][1:]}."
    agree = (status[HARM] == "supported") is (status[LEAVING] == "supported")
    return question, f"{parts[0]}{', and' if agree else '; but'} {parts[1]}."


def _harm(name: str, result: LayerAccuracy) -> Verdict:
    n, last = len(result.answers), result.scores.shape[-1] - 1
    true, false = (result.interval(side=side, layer=last) for side in SIDES)
    gap = result.final_gap
    measure = required("accuracy", gap, prompts=n)
    return claimed(
        HARM,
        [measure],
        f"Calibrated accuracy is {said(true)} with true and {said(false)} with false demonstrations; gap "
        f"{said(gap)} (n = {counted(n, 'pair')}){'; it includes 0' * (measure.status == 'not shown')}.",
        name,
    )


def _critical(name: str, result: LayerAccuracy) -> Verdict:
    """Is the gap wider at the end than after the first quarter of the layers?"""
    n, layers = len(result.answers), result.scores.shape[-1] - 1
    quarter = layers // 4
    gaps = result.pair_scores[:, 0] - result.pair_scores[:, 1]
    growth = mean_interval(gaps[:, -1] - gaps[:, quarter], "contrast")
    critical = result.critical
    if critical is None:
        return Verdict(
            CRITICAL,
            "cannot be judged",
            f"No critical layer can be given while the final gap, {said(result.final_gap)}, includes 0 "
            f"(n = {counted(n, 'pair')}).",
            name,
        )
    where = f"{critical.value:.0f} [{critical.low:.0f}, {critical.high:.0f}]"
    return claimed(
        CRITICAL,
        [required("accuracy", growth, prompts=n)],
        f"From layer {where} of {layers} on the gap stays at half its final value, {said(result.final_gap)}, "
        f"or more; from layer {quarter} to the last it changes by {said(growth, sign=True)} "
        f"(n = {counted(n, 'pair')}).",
        name,
    )


def _exit_required(result: EarlyExit) -> Required:
    changes = [
        (result.overthinking(task), result.halves(task)) for task in range(len(result.tasks))
    ]
    p_values = [p_value(own, prompts=sizes[1] if sizes else None) for own, sizes in changes]
    return Required("accuracy", exit_status(changes, same=result.same), largest(p_values))


def _overthinking(name: str, result: EarlyExit) -> Verdict:
    parts = []
    for task, of in enumerate(result.tasks):
        sizes = result.halves(task)
        held = f"n = {counted(sizes[1], 'pair')}" if sizes else "n not known"
        held += " that also chose the layer" if result.same else " that did not choose the layer"
        own = f"{said(result.overthinking(task), sign=True)} with false and "
        own += f"{said(result.overthinking(task, 'true'), sign=True)} with true demonstrations ({held})"
        parts.append(f"{of}: {own}" if len(result.tasks) > 1 else own)
    return claimed(
        LEAVING,
        [_exit_required(result)],
        f"Reading out after layer {result.layer} changes accuracy by {'; '.join(parts)}.",
        name,
    )


def _heads(name: str, result: FalseInductionHeads, results: Mapping[str, Result]) -> Verdict:
    """Do some of the chosen heads match prefixes and promote the false label, on other prompts?

    The studied task tests the heads that another task chose; without its scores one half of the
    prompts chooses and the other tests.
    """
    claim = "False induction heads: some heads copy the false label"
    chosen = listed(map(head_name, result.top))
    scores = next((own for own in results.values() if isinstance(own, HeadScores)), None)
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
        return Verdict(claim, status, f"Chosen on {result.task}: {chosen}; single prompts were not kept.", name)  # fmt: skip
    sure = both(held_out, n)
    best = max(sure or held_out, key=lambda own: held_out[own][0].value)
    above_best, promoting_best = held_out[best]
    # The intervals hold for all these heads at once, so the best of them needs no correction.
    p_values = [largest(p_value(one, prompts=n) for one in own) for own in held_out.values()]
    p = min((own for own in p_values if own is not None), default=None)
    return claimed(
        claim,
        [Required("heads", status, p)],
        f"Chosen on {result.task}: {chosen}. {where[0].upper()}{where[1:]} (n = {counted(n, 'prompt')}) "
        f"{listed(sure) if sure else 'none of them'} both match{'es' * (len(sure) < 2)} beyond shuffled labels "
        f"and promote{'s' * (len(sure) < 2)} the false label; highest {best}: {said(above_best, sign=True)} above "
        f"its control, promoting {said(promoting_best, sign=True)}.",
        name,
    )


def _other_task(scores: HeadScores, task: str) -> bool:
    """True if scores are of another task than the one that chose the heads."""
    studied = scores.provenance.get("prompts", {}).get("task", {}).get("name")
    return bool(studied != task)


def _ablations(name: str, result: Ablation) -> list[Verdict]:
    n, gap = result.scores.shape[-1], result.gap
    found = []
    no_gap = f"There is no clear gap to close: {said(gap)} (n = {counted(n, 'pair')})"
    if LATE_ATTENTION in result.conditions:
        change = result.interval("change", condition=LATE_ATTENTION, side="false")
        status = "cannot be judged" if gap.low <= 0 else judged(change, prompts=n)
        effect = (
            f"without it accuracy with false demonstrations changes by {said(change, sign=True)}"
        )
        found.append(
            claimed(
                "Late attention: without it false demonstrations do less harm",
                [Required("ablation", status, p_value(change, prompts=n))],
                f"{no_gap}; {effect}."
                if gap.low <= 0
                else f"{effect[0].upper()}{effect[1:]}, of a gap of {said(gap)} (n = {counted(n, 'pair')}).",
                name,
            )
        )
    if CHOSEN in result.conditions:
        found.append(_chosen(name, result, no_gap))
    return found


def _chosen(name: str, result: Ablation, no_gap: str) -> Verdict:
    n, heads = result.scores.shape[-1], result.heads()
    false, true = (
        result.interval("change", condition=CHOSEN, side=side) for side in ("false", "true")
    )
    beside = result.beside_random()
    status = heads_close(false, beside, result.gap, n)
    # Harm with true demonstrations speaks against the claim as much as no effect does.
    if status == "supported" and _hurts(true, n):
        status = "mixed"
    count = counted(len(heads), "head") if heads else "the chosen heads"
    effect = (
        f"without {count}{f' ({listed(map(head_name, heads))})' if heads else ''} accuracy changes by "
        f"{said(false, sign=True)} with false and by {said(true, sign=True)} with true demonstrations"
    )
    if result.gap.low <= 0:
        text = f"{no_gap}; {effect}."
    else:
        share = result.reduction(CHOSEN)
        closed = f", which closes {said(share)} of the gap" if share is not None else ""
        text = f"{effect[0].upper()}{effect[1:]}{closed}"
        if beside is not None:
            text += f"; beyond random heads {said(beside, sign=True)}"
        text += f" (n = {counted(n, 'pair')})."
    p_values = [p_value(own, prompts=n) for own in (false, beside) if own is not None]
    return claimed(
        "Removing these heads closes part of the gap and does not hurt with true demonstrations",
        [Required("ablation", status, largest(p_values))],
        text,
        name,
    )


def _hurts(true: Interval, prompts: int) -> bool:
    """True if accuracy with true demonstrations falls."""
    return judged(true, rising=False, prompts=prompts) == "supported"

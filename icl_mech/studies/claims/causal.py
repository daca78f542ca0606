"""What the field says of sets of heads, beside what a run found."""

from collections.abc import Mapping

from icl_mech.measurements.alignment.semantic import AlignmentResult
from icl_mech.measurements.calibration.label_prior import CalibrationResult
from icl_mech.measurements.causal.comparing import HeadComparison
from icl_mech.measurements.causal.sets import EXPECTED, Expected
from icl_mech.measurements.causal.steering import VectorEffect
from icl_mech.results import Result
from icl_mech.results.judging import required
from icl_mech.results.wording import counted, listed, said
from icl_mech.studies.verdicts import Verdict, claimed, stated_together


def verdicts(results: Mapping[str, Result]) -> tuple[Verdict, ...]:
    """One per claim, as far as the results bear on it: sets of heads, vectors, priors, calibration."""
    found: list[Verdict] = []
    for name, result in results.items():
        if isinstance(result, HeadComparison):
            found += _sets(name, result)
        elif isinstance(result, VectorEffect) and result.kind == "add":
            found.append(_vector(name, result))
        elif isinstance(result, AlignmentResult):
            found.append(_alignment(name, result))
        elif isinstance(result, CalibrationResult):
            found.append(_calibration(name, result))
    return stated_together(found)


def headline(results: Mapping[str, Result], model: str, task: str) -> tuple[str, str]:
    """The question of the study, and its answer in one sentence."""
    question = f"Which heads of {model} act on {task}?"
    own = next(result for result in results.values() if isinstance(result, HeadComparison))
    sets = {one.claim: one.name for one in _known(own)}
    found = {sets[one.claim]: one for one in verdicts(results) if one.claim in sets}
    acting = [name for name, verdict in found.items() if verdict.status == "supported"]
    known = [name for name, verdict in found.items() if verdict.status != "cannot be judged"]
    n = counted(len(own.plain), "pair")
    if not known:
        return question, f"No set of heads can be judged ({n})."
    if not acting:
        return question, (
            f"Of {counted(len(known), 'set')} of heads that can be judged, none is shown to do alone what is said of "
            f"it, beyond random heads of the same layers ({n})."
        )
    return question, (
        f"Removed alone, the {listed(acting)} heads change the answer as is said of them, beyond random heads of "
        f"the same layers ({n})."
    )


def _known(result: HeadComparison) -> list[Expected]:
    return [own for own in EXPECTED if own.name in result.sets]


def _sets(name: str, result: HeadComparison) -> list[Verdict]:
    n, found = len(result.plain), []
    for own in _known(result):
        if own.name not in result.ablated:
            finding = "Every one of these heads is in another set too, so none was removed alone."
            found.append(Verdict(own.claim, "cannot be judged", finding, name))
            continue
        change = result.interval("change", measure="difference", side=own.side, set=own.name)
        beyond = result.beside_random(own.name, own.side)
        assert beyond is not None
        place = result.sets.index(own.name)
        alone, all_heads = len(result.alone[place]), len(result.heads[place])
        found.append(
            claimed(
                own.claim,
                [required("removal", change, beyond, rising=own.rising, prompts=n)],
                f"Without the {alone} of {counted(all_heads, 'head')} that no other set has, the logit of the right "
                f"above the taught false label changes by {said(change, sign=True)} with {own.side} "
                f"demonstrations; beyond random heads {said(beyond, sign=True)} (n = {counted(n, 'pair')}).",
                name,
            )
        )
    return found


def _vector(name: str, result: VectorEffect) -> Verdict:
    layer, n = result.third, len(result.plain_correct)
    effect = result.interval("difference_change", layer=layer)
    return claimed(
        "Function vector: added to a bare query it raises the right answer",
        [required("steering", effect, prompts=n)],
        f"Added behind block {layer}, a third of the way, it changes the logit of the right answer above the "
        f"others by {said(effect, sign=True)} (n = {counted(n, 'prompt')}).",
        name,
    )


def _alignment(name: str, result: AlignmentResult) -> Verdict:
    n, lead = len(result.answers), result.taught_above_truth
    return claimed(
        "Override: answers follow false demonstrations rather than the truth",
        [required("alignment", lead, prompts=n)],
        f"Label taught minus true label {said(lead, sign=True)}; against the zero-shot answer "
        f"{said(result.interval('override'))} of the prompts follow the demonstrations (n = {counted(n, 'pair')}).",
        name,
    )


def _calibration(name: str, result: CalibrationResult) -> Verdict:
    n, gain = len(result.answers), result.interval("gain", method="contextual")
    return claimed(
        "Calibration: without the label prior answers are better",
        [required("accuracy", gain, prompts=n)],
        f"Contextual calibration changes accuracy by {said(gain, sign=True)}, from "
        f"{said(result.interval('accuracy', method='plain'))} (n = {counted(n, 'prompt')}).",
        name,
    )

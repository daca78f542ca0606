"""What label words are good for, if they are anchors: compression, re-weighting, confusion (ibid., §3)."""

from icl_mech.measurements.compression.compare_compression import ANCHORS, CompareCompressionResult
from icl_mech.measurements.compression.kept import name_of
from icl_mech.measurements.confusion.confusion import ConfusionResult
from icl_mech.measurements.isolation.agreement import LOYALTIES, Loyalty
from icl_mech.measurements.reweighting.evaluate_reweighting import ReweightingResult
from icl_mech.metrics import Interval
from icl_mech.results.wording import counted, listed, said, told
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run, Words
from icl_mech.studies.competence import DOES
from icl_mech.studies.study import FEW, Mean

# --- their states stand for the demonstrations ---

ANCHORING = "Anchors suffice: label words' states can replace the demonstrations"


def _anchors(run: Run) -> Words:
    result: CompareCompressionResult = run[CompareCompressionResult]
    n = counted(len(result.full_predicted), "prompt")
    if ANCHORS not in result.methods or not result.controls:
        return Words(f"Anchor states were not compared with other stand-ins (n = {n}).")
    parts = [
        f"{said(result.difference(ANCHORS, other), sign=True)} answers and "
        f"{said(result.difference(ANCHORS, other, 'word_loyalty'), sign=True)} of the likely next words "
        f"more than {name_of(other)}"
        for other in result.controls
    ]
    text = f"They keep {said(result.label_loyalty(ANCHORS))} of the answers: {listed(parts)} (n = {n})."
    if result.no_better_than_constant:
        text += f" But {result.sentences.say('constant', result=result)} keeps {told(result.constant_loyalty)}."
    beyond = result.difference(ANCHORS, result.controls[-1])
    brief = f"They keep {said(result.label_loyalty(ANCHORS))} of the answers, {said(beyond, sign=True)} more than "
    brief += f"{name_of(result.controls[-1])} (n = {len(result.full_predicted)})."
    return Words(text, brief)


def _above(other: str, loyalty: Loyalty) -> Effect:
    """Loyalty with the anchors' states minus that of another stand-in."""

    def effect(run: Run) -> Interval | None:
        table: CompareCompressionResult = run[CompareCompressionResult]
        if not {ANCHORS, other} <= set(table.methods):
            return None
        return table.difference(ANCHORS, other, loyalty)

    names = {"text_anchor": "anchors above text", "hidden_random": "anchors above random tokens"}
    kept = ", likely next words" * (loyalty == "word_loyalty")
    return Effect(f"{names[other]}{kept}", effect, ends=DIFFERENCE)


SUFFICE = Claim(
    ANCHORING,
    [_above(other, loyalty) for loyalty in LOYALTIES for other in ("text_anchor", "hidden_random")],
    "compare_compression",
    needs=DOES,
    one=True,
    words=_anchors,
)

# --- their weights can be learned ---

FACTORS = "Re-weighting: other weights of attention to label words give better answers"


def _factors(run: Run) -> Words:
    result: ReweightingResult = run[ReweightingResult]
    if not result.compared:
        return Words("Plain and re-weighted were not both run.")
    gain: Interval = result.difference()
    text = (
        f"Accuracy changes by {said(gain, sign=True)}, from {said(result.accuracy('plain'))} to "
        f"{said(result.accuracy('reweighted'))} ({result.sentences.say('halves', result=result)})"
    )
    if result.seen_in_training:
        text += f"; {result.seen_in_training} of these were also learned from"
    elif result.status == "not shown":
        text += "; the interval includes or touches 0"
    return Words(f"{text}.")


def _reweighted(run: Run) -> Interval | None:
    """Accuracy gained; None on prompts that the factors were learned from, or without both conditions."""
    result: ReweightingResult = run[ReweightingResult]
    return result.difference() if result.compared and not result.seen_in_training else None


def _tested(run: Run) -> int:
    result: ReweightingResult = run[ReweightingResult]
    return len(result.answers)


GAIN = Effect("re-weighting gain", _reweighted, ends=DIFFERENCE, prompts=_tested)
REWEIGHTED = Claim(FACTORS, (GAIN,), "reweighting", words=_factors)

# --- where they lie close together ---

NEARNESS = "Confusion: classes whose label words lie close together are confused"


def _confusion(run: Run) -> Words:
    result: ConfusionResult = run[ConfusionResult]
    _, _, text = result.sentences.say("matrices_answer", result=result).partition(
        ". " if result.status != "cannot be judged" else ": "
    )
    text = f"{text[:1].upper()}{text[1:]}"
    brief = f"{text.partition(' (')[0]}." if result.status == "cannot be judged" else ""
    return Words(text, brief)


def _nearness(run: Run) -> Interval:
    """Rank correlation of distances and confusion, beside relabelled classes."""
    result: ConfusionResult = run[ConfusionResult]
    return result.beside_relabelled


CONFUSED = Claim(
    NEARNESS,
    [Effect("distances and confusion", _nearness, ends=DIFFERENCE)],
    "confusion",
    words=_confusion,
)

QUANTITIES = (
    Effect("compression label loyalty", "compare_compression.label_loyalty"),
    Effect("compression word loyalty", "compare_compression.word_loyalty"),
    Effect("compression accuracy", "compare_compression.accuracy"),
    Effect("re-weighting", "reweighting.accuracy"),
)

MEANS = (
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

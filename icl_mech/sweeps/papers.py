"""The papers' quantities by name, and their claims as effects that can be averaged.

Beside those of the two papers stand what others say of heads, vectors and priors (the causal study).

Every function takes an `Analysis` and gives a number with its interval over prompts; one of a part
that is not there is left out by whoever averages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from icl_mech.measurements.causal.comparing import HeadComparison
from icl_mech.measurements.causal.sets import EXPECTED
from icl_mech.measurements.causal.steering import VectorEffect
from icl_mech.measurements.compression.numbers import ANCHORS
from icl_mech.measurements.heads.definitions import CHOSEN
from icl_mech.measurements.isolation.texts import compared
from icl_mech.metrics import Interval
from icl_mech.studies import Analysis
from icl_mech.studies.untrained import UntrainedFlow

Effect = Callable[[Analysis], Any]


def isolated(against: str) -> Effect:
    """Label loyalty of label words cut off early, minus that of what it is compared with."""

    def effect(analysis: Analysis) -> Interval | None:
        result = analysis.isolation
        windows = compared(result)
        if windows is None or against not in windows.others:
            return None
        return result.difference(windows.early, windows.others[against])

    return effect


def beyond_untrained(score: str, third: str) -> Effect:
    """Flow above random tokens, beyond what one more untrained network would show.

    None where no untrained networks were measured.
    """

    def effect(analysis: Analysis) -> Interval | None:
        above = analysis.flow.above_null(score, third)
        kinds = analysis.results.values()
        nulls = next((own for own in kinds if isinstance(own, UntrainedFlow)), None)
        if above is None or nulls is None:
            return None
        bound = max(0.0, nulls.bound(third))
        return Interval(*(end - bound for end in above[1]))

    return effect


def above_random(score: str, third: str) -> Effect:
    """Flow of label words minus that of random tokens in their place."""

    def effect(analysis: Analysis) -> Interval | None:
        above = analysis.flow.above_null(score, third)
        return None if above is None else above[1]

    return effect


def anchors_above(other: str, quantity: Any = "label_loyalty") -> Effect:
    """Loyalty with the anchors' states minus that of another stand-in."""

    def effect(analysis: Analysis) -> Interval | None:
        table = analysis.compression
        if not {ANCHORS, other} <= set(table.methods):
            return None
        return table.difference(ANCHORS, other, quantity)

    return effect


def exit_change(side: str) -> Effect:
    """Change of accuracy by leaving early, on prompts that did not choose the layer."""

    def effect(analysis: Analysis) -> Interval | None:
        result = analysis.early_exit
        return None if result.same or result.changes is None else result.overthinking(side=side)

    return effect


def without_heads(side: str) -> Effect:
    """Change of accuracy without the heads that another task chose."""

    def effect(analysis: Analysis) -> Interval | None:
        result = analysis.ablation
        if CHOSEN not in result.conditions:
            return None
        return result.interval("change", condition=CHOSEN, side=side)

    return effect


def without_set(name: str, side: str, *, beside: bool = False) -> Effect:
    """Change of the right above the taught false label without the heads that only this set has.

    With `beside`, minus that of random heads. None where it has no head of its own.
    """

    def effect(analysis: Analysis) -> Interval | None:
        result = analysis[HeadComparison]
        if name not in result.ablated:
            return None
        if beside:
            return result.beside_random(name, side)
        return result.interval("change", measure="difference", side=side, set=name)

    return effect


def vector_gain(analysis: Analysis) -> Interval:
    """Change of the right answer's logit by a function vector a third of the way."""
    result = analysis[VectorEffect]
    return result.interval("difference_change", layer=result.third)


def calibration_gain(method: str) -> Effect:
    """Accuracy of a calibration minus plain accuracy."""

    def effect(analysis: Analysis) -> Interval:
        return analysis["calibration"].interval("gain", method=method)

    return effect


def _attribute(part: str, name: str, *given: Any) -> Effect:
    def effect(analysis: Analysis) -> Any:
        own = getattr(analysis[part], name)
        return own(*given) if callable(own) else own

    return effect


QUANTITIES: Mapping[str, str | Effect] = {
    # Label Words are Anchors
    "mean flow": "flow.share",
    "early flow": _attribute("flow", "difference", "first"),
    "late flow": _attribute("flow", "difference", "last"),
    "early flow above random tokens": above_random("wp", "first"),
    "late flow above random tokens": above_random("pq", "last"),
    "early flow beyond untrained": beyond_untrained("wp", "first"),
    "late flow beyond untrained": beyond_untrained("pq", "last"),
    "isolation loyalty": "isolation.label_loyalty",
    "isolation effect": isolated("random tokens"),
    "isolation early and late": isolated("last layers"),
    "extraction AUC": "extraction.auc",
    "extraction R": "extraction.cumulative",
    "late extraction": _attribute("extraction", "last_third"),
    "rise of extraction": _attribute("extraction", "rise"),
    "compression label loyalty": "compression.label_loyalty",
    "compression word loyalty": "compression.word_loyalty",
    "compression accuracy": "compression.accuracy",
    "anchors above text": anchors_above("text_anchor"),
    "anchors above random tokens": anchors_above("hidden_random"),
    "re-weighting": "reweighting.accuracy",
    "re-weighting gain": _attribute("reweighting", "difference"),
    # Overthinking the Truth
    "accuracy by layer": "layer_accuracy.calibrated",
    "gap by layer": "layer_accuracy.gap",
    "final gap": _attribute("layer_accuracy", "final_gap"),
    "accuracy by demonstrations": "context_accuracy.calibrated",
    "early exit, false": exit_change("false"),
    "early exit, true": exit_change("true"),
    "ablation": "ablation.change",
    "without chosen heads, false": without_heads("false"),
    "without chosen heads, true": without_heads("true"),
    "chosen above random heads": _attribute("ablation", "beside_random"),
    # What acts
    **{f"without {own.name} heads, logits": without_set(own.name, own.side) for own in EXPECTED},
    **{
        f"{own.name} above random heads, logits": without_set(own.name, own.side, beside=True)
        for own in EXPECTED
    },
    "function vector effect": "vector_effect.difference_change",
    "function vector gain, logits": vector_gain,
    "taught above truth": _attribute("alignment", "taught_above_truth"),
    **{
        f"{own} calibration gain": calibration_gain(own)
        for own in ("contextual", "domain", "batch")
    },
    "calibration accuracy": "calibration.accuracy",
    "alignment": "alignment.alignment",
}
"""What the papers report, by names that `Sweep.average` takes."""

IN_LOGITS = (
    "function vector gain, logits",
    *(f"without {own.name} heads, logits" for own in EXPECTED),
    *(f"{own.name} above random heads, logits" for own in EXPECTED),
)
"""Single numbers without ends."""

ENDS: Mapping[str, tuple[float, float]] = {
    name: (0.0, 1.0) if name == "late extraction" else (-1.0, 1.0)
    for name, own in QUANTITIES.items()
    if callable(own) and name not in IN_LOGITS
}
"""Between which the others lie: one is an AUC, the rest are differences of shares."""


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    Attributes:
        paper: Which.
        text: In words.
        effects: Quantities it rests on: name, what no effect would give, and whether it says that
            they lie above that.
        part: Result it rests on.
        needs: Quantity that must lie above 0 for the claim to mean anything; empty: none.
        one: They are one measure beside several controls, which must all be clear; else each is a
            measure of its own.
    """

    paper: str
    text: str
    effects: tuple[tuple[str, float, bool], ...]
    part: str
    needs: str = ""
    one: bool = False


LW, OT = "Label Words are Anchors", "Overthinking the Truth"
OTHERS = "Others on heads, vectors and priors"

CLAIMS = (
    Claim(LW, "Shallow aggregation: label words collect the demonstrations in early layers",
          (("isolation effect", 0.0, False), ("early flow beyond untrained", 0.0, True)),
          "isolation"),
    Claim(LW, "Deep extraction: the answer is read from the label words in late layers",
          (("late flow beyond untrained", 0.0, True), ("late extraction", 0.5, True)),
          "extraction"),
    Claim(LW, "Anchors suffice: label words' states can replace the demonstrations",
          (("anchors above text", 0.0, True), ("anchors above random tokens", 0.0, True)),
          "compression", one=True),
    Claim(LW, "Re-weighting: other weights of attention to label words give better answers",
          (("re-weighting gain", 0.0, True),), "reweighting"),
    Claim(OT, "Harm: false demonstrations lower accuracy", (("final gap", 0.0, True),),
          "layer_accuracy"),
    Claim(OT, "Overthinking: with false demonstrations, earlier layers answer better",
          (("early exit, false", 0.0, True),), "early_exit"),
    Claim(OT, "False induction heads: without a few heads false demonstrations do less harm",
          (("without chosen heads, false", 0.0, True), ("chosen above random heads", 0.0, True)),
          "ablation", "final gap", one=True),
    *(Claim(OTHERS, own.claim,
            ((f"without {own.name} heads, logits", 0.0, own.rising),
             (f"{own.name} above random heads, logits", 0.0, own.rising)),
            f"head_comparison-{own.name.replace(' ', '_')}", one=True) for own in EXPECTED),
    Claim(OTHERS, "Function vector: added to a bare query it raises the right answer",
          (("function vector gain, logits", 0.0, True),), "vector_effect"),
    Claim(OTHERS, "Override: answers follow false demonstrations rather than the truth",
          (("taught above truth", 0.0, True),), "alignment"),
    Claim(OTHERS, "Calibration: without the label prior answers are better",
          (("contextual calibration gain", 0.0, True),), "calibration"),
)  # fmt: skip
"""The four claims of the first paper, the three of the second, and those of others."""

"""What label words are good for, if they are anchors: compression, re-weighting, confusion (ibid., §3)."""

from icl_mech.measurements.compression.compare_compression import ANCHORS, CompareCompressionResult
from icl_mech.measurements.confusion.confusion import ConfusionResult
from icl_mech.measurements.isolation.agreement import LOYALTIES, Loyalty
from icl_mech.measurements.reweighting.evaluate_reweighting import ReweightingResult
from icl_mech.metrics import Interval
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run
from icl_mech.studies.competence import DOES
from icl_mech.studies.sentences import Facts, sentences
from icl_mech.studies.study import FEW, Mean

# --- their states stand for the demonstrations ---

ANCHORING = "Anchors suffice: label words' states can replace the demonstrations"


def _stand_ins(run: Run) -> Facts:
    return {"result": run[CompareCompressionResult], "anchors": ANCHORS}


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
    words=sentences("label_words", "anchors_suffice", _stand_ins),
)

# --- their weights can be learned ---

FACTORS = "Re-weighting: other weights of attention to label words give better answers"


def _factors(run: Run) -> Facts:
    return {"result": run[ReweightingResult]}


def _reweighted(run: Run) -> Interval | None:
    """Accuracy gained; None on prompts that the factors were learned from, or without both conditions."""
    result: ReweightingResult = run[ReweightingResult]
    return result.difference() if result.compared and not result.seen_in_training else None


def _tested(run: Run) -> int:
    result: ReweightingResult = run[ReweightingResult]
    return len(result.answers)


GAIN = Effect("re-weighting gain", _reweighted, ends=DIFFERENCE, prompts=_tested)
REWEIGHTED = Claim(
    FACTORS, (GAIN,), "reweighting", words=sentences("label_words", "re_weighting", _factors)
)

# --- where they lie close together ---

NEARNESS = "Confusion: classes whose label words lie close together are confused"


def _confusion(run: Run) -> Facts:
    return {"result": run[ConfusionResult]}


def _nearness(run: Run) -> Interval:
    """Rank correlation of distances and confusion, beside relabelled classes."""
    result: ConfusionResult = run[ConfusionResult]
    return result.beside_relabelled


CONFUSED = Claim(
    NEARNESS,
    [Effect("distances and confusion", _nearness, ends=DIFFERENCE)],
    "confusion",
    words=sentences("label_words", "confusion", _confusion),
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

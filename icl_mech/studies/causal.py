"""The causal study: sets of heads, function vectors, calibration, and whether answers follow demonstrated labels.

After Todd et al. 2024, Olsson et al. 2022, Halawi et al. 2023 and Yin and Steinhardt 2025.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from icl_mech.errors import IclMechError, PromptError, RunError
from icl_mech.measurements.accuracy.gain import Gain, GainResult
from icl_mech.measurements.alignment.alignment import Alignment, AlignmentResult
from icl_mech.measurements.base import Pair
from icl_mech.measurements.calibration.calibration import Calibration, CalibrationResult
from icl_mech.measurements.causal.compare_heads import CompareHeads, CompareHeadsResult
from icl_mech.measurements.causal.function_vector import function_vector
from icl_mech.measurements.causal.head_mediation import HeadMediation, HeadMediationResult
from icl_mech.measurements.causal.induction_scores import InductionScores, InductionScoresResult
from icl_mech.measurements.causal.steer import Steer, SteerResult
from icl_mech.measurements.demonstrations import check_pairs, halves, without_demonstrations
from icl_mech.measurements.heads.head_scores import HeadScores, HeadScoresResult
from icl_mech.measurements.same_model import check_own_weights
from icl_mech.metrics import Interval, mean_interval
from icl_mech.results import Result
from icl_mech.studies.bench import Bench
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run
from icl_mech.studies.competence import DOES
from icl_mech.studies.hand_over import HAND_OVER
from icl_mech.studies.judge import Verdict
from icl_mech.studies.sentences import Facts, headline, sentences
from icl_mech.studies.shares import Parts, ratio
from icl_mech.studies.study import FEW, SEEDS, Mean, Study

HEADS = 5
"""Number of heads in each set; fewer in models with fewer than 40 heads."""

SETS = 4
"""Function-vector, induction, false induction and label-promoting heads."""

VECTOR_HEADS = 10
"""Number of heads whose outputs make the function vector (the paper's number)."""

DRAWS = 5
"""Texts of random words after each context; contexts differ, so a few are enough for the mean."""

Sets = Mapping[str, tuple[tuple[int, int], ...]]

# --- the sets of heads in the literature ---

FUNCTION_VECTOR = "function vector"
INDUCTION = "induction"
FALSE_INDUCTION = "false induction"
LABEL_PROMOTING = "label promoting"


class Expected(NamedTuple):
    """The claim on a set of heads.

    Attributes:
        name: Name of the set.
        claim: The claim, in words.
        side: Demonstrations with which it is tested.
        rising: True if removing these heads should raise the right answer, and more than removing random ones.
    """

    name: str
    claim: str
    side: Literal["true", "false"]
    rising: bool


EXPECTED = (
    Expected(
        FUNCTION_VECTOR,
        "Function-vector heads: without them, the right answer falls with true demonstrations",
        "true",
        False,
    ),
    Expected(
        INDUCTION,
        "Induction heads: without them, the right answer falls with true demonstrations",
        "true",
        False,
    ),
    Expected(
        FALSE_INDUCTION,
        "False induction heads: without them, the right answer rises with false demonstrations",
        "false",
        True,
    ),
    Expected(
        LABEL_PROMOTING,
        "Label-promoting heads: without them, the right answer rises with false demonstrations",
        "false",
        True,
    ),
)

# --- measurements ---


def _steps(bench: Bench, pair: Pair, *, seed: int = 0) -> None:
    """Choose heads by four measures on one half of the pairs, and ablate them on the other.

    Raises:
        PromptError: sets that are not pairs, queries that occur twice or all have one class, too few
            pairs to choose heads on one half and test them on the other, or interventions that may
            depend on the index of a prompt.
        RunError: processed weights, or too few heads.
    """
    check_own_weights(bench.model, "The causal study")
    check_pairs(*pair)
    total = bench.model.info.n_layers * bench.model.info.n_heads
    # As many other heads must remain for the random controls.
    count = min(HEADS, total // (2 * SETS))
    if not count:
        raise RunError(
            f"The causal study compares {SETS} sets of heads with random heads, but {bench.model.info.name!r} "
            f"has only {total} heads; use a model with at least {2 * SETS}."
        )
    by_number = [edit for edit in bench.options.interventions if edit.by_number]
    if by_number:
        raise PromptError(
            f"{by_number[0]!r} may depend on the index of a prompt, but the causal study chooses heads on "
            "one half of the prompts and tests them on the other; leave this intervention out."
        )
    choosing, testing = halves(pair, seed)
    _announce(bench, pair, testing, count, seed)
    mediation, scores, induction = (
        HeadMediation("class"),
        HeadScores(seed=seed),
        InductionScores(seed=seed),
    )
    if pair[0].has_classes:
        bench.measure(choosing, mediation, scores, induction)
    else:
        bench.measure(choosing, mediation, induction, optional=[scores])
    sets = chosen(bench.results, count)
    bench.measure(testing, CompareHeads(sets, seed=seed))
    _vector(bench, testing)
    bench.measure(pair, optional=[Alignment()])
    bench.measure(pair[0], optional=[Gain(seed=seed)])
    bench.measure(pair[0], optional=[Calibration(draws=DRAWS, seed=seed)])
    bench.notes.append(
        f"Heads were chosen on {len(choosing[0])} pairs and ablated on the other {len(testing[0])}. Function-vector "
        "heads are those that raise the right answer under the other labels of these pairs when patched with their "
        f"mean over other queries{' of the class' * pair[0].has_classes}; the vector is the sum of their means over all queries."
    )


def _announce(bench: Bench, pair: Pair, testing: Pair, count: int, seed: int) -> None:
    """Let progress count what is measured once heads are chosen, with others in their place."""
    info = bench.model.info
    anywhere = [(layer, head) for layer in range(info.n_layers) for head in range(info.n_heads)]
    spread = anywhere[:: max(1, len(anywhere) // (SETS * count))]
    sets = {expected.name: spread[place::SETS][:count] for place, expected in enumerate(EXPECTED)}
    bench.announce(testing, CompareHeads(sets, seed=seed))
    bench.announce(pair, Alignment())
    bench.announce(pair[0], Gain(seed=seed), Calibration(draws=DRAWS, seed=seed))


def _vector(bench: Bench, testing: Pair) -> None:
    """Add the function vector of the choosing half to queries of the other half, without demonstrations."""
    mediation, bare = bench.results["head_mediation"], without_demonstrations(testing[0])
    assert isinstance(mediation, HeadMediationResult)
    info = bench.model.info
    if bare is None:
        bench.notes.append(
            "The function vector was left out: the queries cannot be separated from these prompts."
        )
        return
    try:
        k = min(VECTOR_HEADS, info.n_layers * info.n_heads)
        vector = function_vector(bench.model, mediation, k, by="difference").vector
    except IclMechError as error:
        bench.notes.append(f"The function vector was left out: {error}")
        return
    bench.measure(bare, Steer(vector.expand(info.n_layers, -1)))


def chosen(results: Mapping[str, Result], count: int) -> Sets:
    """The top `count` heads by each measure."""
    mediation, induction = (results[name] for name in ("head_mediation", "induction_scores"))
    assert isinstance(mediation, HeadMediationResult)
    assert isinstance(induction, InductionScoresResult)
    sets = {FUNCTION_VECTOR: mediation.top(count, "difference"), INDUCTION: induction.top(count)}
    # Prefix matching is not defined for free-form answers.
    scores = results.get("head_scores")
    if not isinstance(scores, HeadScoresResult):
        return sets
    sets[FALSE_INDUCTION] = scores.top(count)
    if scores.promoting is not None:
        sets[LABEL_PROMOTING] = scores.top(count, "label_promoting")
    return sets


# --- ablations of sets of heads, each without the heads of the other sets ---


def _compared(run: Run) -> int:
    """Number of pairs on which heads are ablated."""
    result: CompareHeadsResult = run[CompareHeadsResult]
    return len(result.plain)


REMOVAL: Any = {"measure": "removal", "prompts": _compared}
"""Common measure and number of prompts of effects of removing heads."""


def _set_claim(expected: Expected) -> Claim:
    """The claim on one set of heads."""

    def effect(run: Run, *, beside: bool) -> Interval | None:
        result: CompareHeadsResult = run[CompareHeadsResult]
        if expected.name not in result.ablated:
            return None
        if beside:
            return result.beside_random(expected.name, expected.side)
        return result.interval("change", side=expected.side, set=expected.name)

    def facts(run: Run) -> Facts | None:
        result: CompareHeadsResult = run[CompareHeadsResult]
        known = {"result": result, "set": expected.name, "side": expected.side}
        return known if expected.name in result.sets else None

    names = {
        f"without {expected.name} heads, logits": False,
        f"{expected.name} above random heads, logits": True,
    }
    effects = [
        Effect(name, partial(effect, beside=beside), rising=expected.rising, **REMOVAL)
        for name, beside in names.items()
    ]
    if expected.side == "true":
        effects.append(_beyond_bare(expected))
    return Claim(
        expected.claim,
        effects,
        f"compare_heads-{expected.name.replace(' ', '_')}",
        needs=NEEDS[expected.name],
        share=_carried(expected),
        words=sentences("causal", "heads", facts),
    )


def _beyond_bare(expected: Expected) -> Effect:
    """Effect of a set of heads with demonstrations minus without: heads that read the query have it in both."""

    def effect(run: Run) -> Interval | None:
        result: CompareHeadsResult = run[CompareHeadsResult]
        changes = result.changes_of(expected.name, expected.side)
        if changes is None or result.bare_change is None:
            return None
        return mean_interval(changes - result.bare_change[:, result.sets.index(expected.name)])

    name = f"without {expected.name} heads, beyond the same without demonstrations, logits"
    return Effect(name, effect, rising=expected.rising, **REMOVAL)


def _carried(expected: Expected) -> Effect:
    """Fraction of demonstrations' effect on right minus demonstrated label, in logits, that a set of heads carries."""
    true = expected.side == "true"

    def parts(run: Run) -> Parts | None:
        result: CompareHeadsResult = run[CompareHeadsResult]
        changes = result.changes_of(expected.name, expected.side)
        with_true, with_false = result.plain[:, 0].unbind(1)
        without = result.bare if true else with_false
        if changes is None or without is None:
            return None
        return (-changes if true else changes), with_true - without

    what = "what true demonstrations add" if true else "the harm of false demonstrations"
    return ratio(f"fraction of {what} that the {expected.name} heads carry, logits", parts)


def _harm(run: Run) -> Interval:
    """How much false demonstrations lower the right minus the demonstrated label's logit."""
    result: CompareHeadsResult = run[CompareHeadsResult]
    return mean_interval(result.plain[:, 0, 0] - result.plain[:, 0, 1])


# --- the function vector in bare queries ---

STEERING = "Function vector: added to a bare query, it raises the right answer"


def _steered(run: Run) -> Facts | None:
    result: SteerResult = run[SteerResult]
    return {"result": result} if result.kind == "add" else None


def _vector_gain(run: Run) -> Interval | None:
    """Change of the right answer's logit when a function vector is added after a third of the layers."""
    result: SteerResult = run[SteerResult]
    return result.gain if result.kind == "add" else None


def _vector_tested(run: Run) -> int:
    result: SteerResult = run[SteerResult]
    return len(result.plain_correct)


VECTOR_GAIN = Effect(
    "function vector gain, logits",
    _vector_gain,
    prompts=_vector_tested,
    unclear="The function vector of these heads has no clear effect: added to a bare query, it changes the right "
    "answer by {} logits, so this cannot be judged.",
    unknown="The function vector of these heads was not tested in bare queries, so this cannot be judged.",
)
VECTOR = Claim(
    STEERING, [VECTOR_GAIN], "steer", words=sentences("causal", "function_vector", _steered)
)

# --- the sets of heads ---

HARM = Effect(
    "harm of false demonstrations, logits",
    _harm,
    prompts=_compared,
    unclear="False demonstrations do no clear harm ({} logits), so this cannot be judged.",
)
NEEDS = {
    FUNCTION_VECTOR: (*DOES, VECTOR_GAIN),
    INDUCTION: DOES,
    FALSE_INDUCTION: (HARM,),
    LABEL_PROMOTING: (HARM,),
}
"""Effects that must be clear before the claim on a set can be judged."""

SET_CLAIMS = tuple(map(_set_claim, EXPECTED))

# --- which labels answers follow ---

OVERRIDE = "Override: answers follow false demonstrations rather than the truth"


def _alignment(run: Run) -> Facts:
    return {"result": run[AlignmentResult]}


FOLLOWED = Claim(
    OVERRIDE,
    [
        Effect("taught above truth", "alignment.taught_above_truth", ends=DIFFERENCE),
        Effect(
            "taught above truth, beyond answers without demonstrations",
            "alignment.above_undemonstrated",
            ends=(-2.0, 2.0),
        ),
        Effect(
            "taught above the other wrong labels", "alignment.taught_above_others", ends=DIFFERENCE
        ),
    ],
    "alignment",
    one=True,
    words=sentences("causal", "override", _alignment),
)

# --- label priors ---

CALIBRATED = "Calibration: removing the label prior improves answers"


def _calibration(run: Run) -> Facts:
    return {"result": run[CalibrationResult]}


def _calibration_gain(method: str) -> Effect:
    """Accuracy of a calibration minus plain accuracy."""
    return Effect(
        f"{method} calibration gain",
        lambda run: run["calibration"].interval("gain", method=method),
        ends=DIFFERENCE,
    )


PRIOR = Claim(
    CALIBRATED,
    [_calibration_gain("contextual")],
    "calibration",
    words=sentences("causal", "calibration", _calibration),
)

# --- the study ---


def _answers(results: Mapping[str, Result], verdicts: Sequence[Verdict]) -> Facts:
    """Sets of heads that can be judged, and sets whose claim is supported."""
    result = next(result for result in results.values() if isinstance(result, CompareHeadsResult))
    names = {expected.claim: expected.name for expected in _known(result)}
    judged = {
        names[verdict.claim]: verdict.status for verdict in verdicts if verdict.claim in names
    }
    known = [name for name, status in judged.items() if status != "cannot be judged"]
    acting = [name for name, status in judged.items() if status == "supported"]
    return {"pairs": len(result.plain), "known": known, "acting": acting}


def _known(result: CompareHeadsResult) -> list[Expected]:
    return [expected for expected in EXPECTED if expected.name in result.sets]


def _set_mean(expected: Expected) -> Mean:
    without = f"without {expected.name} heads, logits"
    return Mean(
        f"What happens without the {expected.name} heads?",
        f"{expected.name.capitalize()} heads",
        f"compare_heads-{expected.name.replace(' ', '_')}",
        without,
        ("seed",),
        limits=f"the effect of heads that two sets share, which are left out of both; {SEEDS}",
        told=(without, f"{expected.name} above random heads, logits"),
    )


MEANS = (
    *map(_set_mean, EXPECTED),
    Mean(
        "Does a function vector replace demonstrations?", "Function vector", "steer",
        "function vector effect", limits=FEW, told=("function vector gain, logits",),
    ),
    Mean(
        "What do answers follow?", "Alignment", "alignment", "alignment", limits=FEW,
        told=("taught above truth",),
    ),
    Mean(
        "Does calibration help?", "Calibration", "calibration", "calibration accuracy", limits=FEW,
        told=("contextual calibration gain", "domain calibration gain", "batch calibration gain"),
    ),
)  # fmt: skip

CAUSAL = Study(
    "causal",
    claims=(*SET_CLAIMS, VECTOR, FOLLOWED, PRIOR, HAND_OVER),
    headline=headline("causal", _answers),
    steps=_steps,
    takes="pair",
    kicker="Causal study · after Todd et al. 2024, Olsson et al. 2022, Halawi et al. 2023 and Yin and "
    "Steinhardt 2025",
    source="Other work on heads, vectors and priors",
    gives={
        "compare_heads": CompareHeadsResult,
        "head_mediation": HeadMediationResult,
        "head_scores": HeadScoresResult,
        "induction_scores": InductionScoresResult,
        "steer": SteerResult,
        "alignment": AlignmentResult,
        "gain": GainResult,
        "calibration": CalibrationResult,
    },
    quantities=(
        Effect("function vector effect", "steer.difference_change"),
        Effect("alignment", "alignment.alignment"),
        Effect("calibration accuracy", "calibration.accuracy"),
        _calibration_gain("domain"),
        _calibration_gain("batch"),
    ),
    means=MEANS,
    known_by=lambda kinds: (
        {CompareHeadsResult, HeadMediationResult, InductionScoresResult} <= kinds
    ),
)

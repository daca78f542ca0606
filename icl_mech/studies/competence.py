"""Does the model do the task at all? What is said of *how* it does it means nothing where it does not.

A model does a task if more of its answers are right than a constant answer would get. Claims that
name `ABOVE_CONSTANT` as what they need cannot be judged where that is not clear. Of pairs it is calibrated
accuracy with true demonstrations beside one over the number of classes; of open answers, right answers beside
one over the number of choices. False demonstrations, a changed model and a lens that is not the model's own
answer (`variant="reference"`) do not tell.
"""

from collections.abc import Mapping
from typing import Any

from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.alignment.alignment import AlignmentResult
from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.right_answers import RightAnswers
from icl_mech.metrics import Interval
from icl_mech.results import Result
from icl_mech.results.judging import judged
from icl_mech.results.prompts import answer_kind, given
from icl_mech.results.wording import counted, said, told
from icl_mech.studies.claim import DIFFERENCE, Effect, Run, Verdict

QUESTION = "Does the model do the task?"


def competence(results: Mapping[str, Result]) -> Verdict | None:
    """The answer, from right answers to true demonstrations; None where nothing tells.

    Supported if the interval of right answers lies above what a constant answer gets.
    """
    found = _found(results)
    if found is None:
        return None
    name, right, constant, n, text = found
    status = judged(right, null=constant, prompts=n)
    return Verdict(QUESTION, status, text, name, alone=status)


def _found(results: Mapping[str, Result]) -> tuple[str, Interval, float, int, str] | None:
    """Name of the result, share of right answers, that of a constant one, prompts, and a sentence."""
    for name, own in results.items():
        if not _tells(own.provenance):
            continue
        if isinstance(own, LayerAccuracyResult):
            n, chance = len(own.answers), 1 / own.true_probs.shape[-1]
            right = own.interval("calibrated", side="true", layer=own.scores.shape[-1] - 1)
            kinds = ("Calibrated accuracy", "a constant answer gets"), ("Accuracy", "chance is")
            kind, level = kinds[bool(own.own_choices)]
            text = f"{kind} with true demonstrations is {said(right)}; {level} {told(chance)} (n = {counted(n, 'pair')})."
            return name, right, chance, n, text
        if not isinstance(own, Predictions | AlignmentResult) or own.answers is None:
            continue
        predicted = own.predicted if isinstance(own, Predictions) else own.predicted[:, 0]
        answers, n, kind = (
            RightAnswers(predicted, own.answers, own.labels),
            len(predicted),
            answer_kind(own),
        )
        if kind == "classes" and own.labels:
            text = answers.beside_constant(given(own)).answer.partition(": ")[2]
            return name, answers.accuracy, float(answers.base_rates.max()), n, text
        if kind == "choices":
            right, chance = answers.accuracy, 1 / len(own.labels)
            return (
                name,
                right,
                chance,
                n,
                f"{said(right)} of the answers are right, chance is {told(chance)} (n = {n}).",
            )
    return None


def _tells(origin: Mapping[str, Any]) -> bool:
    """Whether a result is of the model as it is, with true demonstrations where it has any."""
    prompts, variant = origin.get("prompts", {}), (origin.get("variants") or {}).get("variant")
    true = prompts.get("labels", "correct") == "correct" and prompts.get("false_share") is None
    return true and not origin.get("interventions") and variant != "reference"


def _above(run: Run) -> Interval | None:
    found = _found(run.results)
    return None if found is None else Interval(*(end - found[2] for end in found[1]))


ABOVE_CONSTANT = Effect("accuracy above a constant answer", _above, ends=DIFFERENCE)

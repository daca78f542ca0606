"""Preconditions of a claim on *how* a model does a task: it does the task, and demonstrations help it.

A model does a task if its accuracy exceeds the majority-class baseline on the prompts of the run, including any
shuffled or false labels and interventions; in part if it never answers classes that hold more than `MOST_UNSAID` of the
prompts. Pairs are judged by calibrated accuracy with true demonstrations, compared
with one over the number of classes; free-form answers by accuracy, compared with one over the number of choices. A lens
that is not the model's answer (`variant="reference"`) does not count.

Demonstrations help if the right answer is more likely with them than zero-shot (what is *used*), and more likely than
with the same demonstrations under shuffled labels (what is *learnt from labels*). A claim needs a large enough gain:
`LEAST_GAIN` of the loss without demonstrations, or more right answers. Any text before a query changes its answer a
little, and any path may carry a large fraction of a tiny gain. Effects that were not measured are not clear.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from icl_mech.measurements.accuracy.gain import GainResult
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.alignment.alignment import AlignmentResult
from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.right_answers import RightAnswers
from icl_mech.metrics import Interval, wilson_interval
from icl_mech.results import Result
from icl_mech.results.judging import OPENINGS, Status
from icl_mech.results.prompts import answer_kind
from icl_mech.results.words import Words as File
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run, Words
from icl_mech.studies.judge import Verdict, verdict
from icl_mech.studies.shares import Parts, ratio

QUESTION = "Does the model do the task?"
HELP = "Do demonstrations help it?"

MOST_UNSAID = 0.1
"""Maximum fraction of prompts whose class the model never answers."""

LEAST_GAIN = 0.1
"""Minimum fraction of the loss (minus log-probability of the right answer) that demonstrations must remove, unless they
give more right answers."""


class Competence(NamedTuple):
    """Accuracy compared with a baseline.

    Attributes:
        result: Name of the result that holds the answers.
        right: Fraction of right answers.
        constant: Accuracy of the majority-class baseline, or chance.
        prompts: Number of prompts.
        block: Name of the text block that states it.
        answers: Right answers of each class, if answers are classes.
    """

    result: str
    right: Interval
    constant: float
    prompts: int
    block: str
    answers: RightAnswers | None = None

    @property
    def unsaid(self) -> float:
        """Fraction of prompts whose class is never answered; 0 where answers are not classes, or were not kept."""
        if self.answers is None:
            return 0.0
        never = [self.answers.labels.index(name) for name in self.answers.never]
        return float(self.answers.base_rates[never].sum())

    @property
    def text(self) -> str:
        """Accuracy and baseline in a sentence."""
        about = {"right": self.right, "constant": self.constant, "n": self.prompts}
        return File("competence").say(self.block, answers=self.answers, **about)


def competence(run: Run) -> Verdict | None:
    """Whether the model does the task, by its accuracy; None if no result holds it.

    Supported if the interval of its accuracy lies above the majority-class baseline; mixed if there are classes that
    it never answers.
    """
    known, answer = _competence(run.results), verdict(ABLE, run)
    return None if answer is None or known is None else replace(answer, result=known.result)


def helped(run: Run) -> Verdict | None:
    """Whether the right answer is more likely with demonstrations than zero-shot, and what their labels teach.

    None if it was not measured.
    """
    return verdict(ADDS, run)


def _competence(results: Mapping[str, Result]) -> Competence | None:
    """The competence shown by the first result that holds answers."""
    for name, result in results.items():
        if (result.provenance.get("variants") or {}).get("variant") == "reference":
            continue
        if isinstance(result, LayerAccuracyResult):
            return _of_pairs(name, result)
        if isinstance(result, Predictions | AlignmentResult) and result.answers is not None:
            known = _of_answers(name, result)
            if known is not None:
                return known
    gains = ((name, gain) for name, gain in results.items() if isinstance(gain, GainResult))
    return next((_of_gain(name, gain) for name, gain in gains if gain.labels), None)


def _of_pairs(name: str, result: LayerAccuracyResult) -> Competence:
    right = result.interval("calibrated", side="true", layer=result.last)
    block = "pairs_choices" if result.own_choices else "pairs"
    return Competence(name, right, result.chance, result.pairs, block)


def _of_answers(name: str, result: Predictions | AlignmentResult) -> Competence | None:
    predicted = result.predicted if isinstance(result, Predictions) else result.predicted[:, 0]
    assert result.answers is not None
    answers, n = RightAnswers(predicted, result.answers, result.labels), len(predicted)
    kind, right = answer_kind(result), answers.accuracy
    if kind == "classes" and result.labels:
        return Competence(name, right, float(answers.base_rates.max()), n, "classes", answers)
    if kind == "choices":
        return Competence(name, right, 1 / len(result.labels), n, "choices")
    return None


def _of_gain(name: str, result: GainResult) -> Competence | None:
    """Competence from the right answers of `Gain`, if no other result holds them."""
    n, kind = len(result.right), answer_kind(result)
    if kind not in ("classes", "choices"):
        return None
    right = wilson_interval(result.right[:, 0] > 0.5)
    if kind == "choices":
        return Competence(name, right, 1 / len(result.labels), n, "choices")
    counts = result.answers.bincount(minlength=len(result.labels))
    return Competence(name, right, float(counts.max()) / n, n, "constant")


def _above(run: Run) -> Interval | None:
    known = _competence(run.results)
    return None if known is None else Interval(*(end - known.constant for end in known.right))


def _unsaid(run: Run) -> Interval | None:
    known = _competence(run.results)
    return None if known is None else Interval(*[known.unsaid] * 3)


def _prompts(run: Run) -> int | None:
    known = _competence(run.results)
    return None if known is None else known.prompts


def _said(run: Run) -> Words | None:
    known = _competence(run.results)
    return None if known is None else Words(known.text)


def _added(run: Run) -> Words:
    result: GainResult = run[GainResult]
    return Words(result.figures()[0].answer)


def _gain(over: str) -> Any:
    def gain(run: Run) -> Interval | None:
        gained = getattr(run[GainResult], over)
        return None if gained is None else Interval(gained.value, gained.low, gained.high)

    return gain


ABOVE_CONSTANT = Effect(
    "accuracy above a constant answer",
    _above,
    ends=DIFFERENCE,
    prompts=_prompts,
    unclear="The model does not clearly do this task (accuracy minus baseline {}), so this cannot be judged.",
    unknown="Whether the model does this task was not measured, so this cannot be judged.",
)
UNSAID = Effect(
    "prompts of classes never answered",
    _unsaid,
    null=MOST_UNSAID,
    ends=(0.0, 1.0),
    prompts=_prompts,
)
ABLE = Claim(QUESTION, (ABOVE_CONSTANT,), unless=UNSAID, words=_said)

ANSWERS: Mapping[str, Mapping[Status, str]] = {
    QUESTION: {"supported": "above baseline", "mixed": "in part"},
    HELP: {},
}
"""Answers to the questions that pages begin with, where they are not the usual opening words."""


def answered(question: str, status: Status) -> str:
    """The answer to one of these questions in a word or two, by its status; empty for other claims."""
    answers = ANSWERS.get(question)
    return "" if answers is None else answers.get(status, OPENINGS[status].lower())


def _removed(run: Run, baseline: str) -> Parts | None:
    """Gain of each prompt's right answer from demonstrations, and the loss of the baseline; None if not measured."""
    result: GainResult = run[GainResult]
    added = result.added(baseline)
    if added is None:
        return None
    return added.double(), -result.log_prob[:, result.contexts.index(baseline)].double()


def _more_right(over: str) -> Callable[[Run], Interval | None]:
    def gain(run: Run) -> Interval | None:
        gained = getattr(run[GainResult], over)
        return None if gained is None else gained.accuracy

    return gain


def _enough(baseline: str, over: str, loss: str) -> Effect:
    """The effect that demonstrations remove enough of a baseline's loss, or give more right answers than it."""
    return ratio(
        f"fraction of the {loss} that demonstrations remove",
        lambda run: _removed(run, baseline),
        null=LEAST_GAIN,
        opposite=0.0,
        instead=Effect(f"right answers gained {over}", _more_right(f"over_{baseline}")),
        unclear=f"Demonstrations remove {{}} of the {loss}, which is too little to judge this "
        f"(at least {LEAST_GAIN:g}, or more right answers, is needed).",
    )


OVER_ZERO_SHOT = Effect(
    "gain over zero-shot, nats",
    _gain("over_zero_shot"),
    unclear="Demonstrations have no clear gain over zero-shot here ({} nats), so this cannot be judged.",
    unknown="The gain of demonstrations over zero-shot was not measured (Gain), so this cannot be judged.",
)
OVER_SHUFFLED = Effect(
    "gain over shuffled labels, nats",
    _gain("over_shuffled"),
    unclear="Demonstrations have no clear gain over shuffled labels here ({} nats), so this cannot be judged.",
    unknown="The gain of demonstrations over shuffled labels was not measured (Gain), so this cannot be judged.",
)

ADDS = Claim(HELP, (OVER_ZERO_SHOT,), "gain", words=_added)

HELPED = (OVER_ZERO_SHOT, _enough("zero_shot", "over zero-shot", "zero-shot loss"))
"""Demonstrations help, and enough."""
TAUGHT = (OVER_SHUFFLED, _enough("shuffled", "over shuffled labels", "loss with shuffled labels"))
"""The model learns something from the labels of demonstrations, and enough."""

DOES = (ABOVE_CONSTANT, *HELPED)
"""Needed by claims on how demonstrations are used."""

OF_TASKS = (*DOES, *TAUGHT)
"""If one of these is not clear, a task gives no evidence for or against a claim that needs it."""

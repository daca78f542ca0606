"""From one prompt to the set: the reference and the present experiment over all queries, with intervals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Bar, Overall
from icl_mech.explorer.asking import Asker, rounded
from icl_mech.explorer.experiment import Experiment
from icl_mech.measurements.lens.logit_lens import LogitLens, LogitLensResult
from icl_mech.measurements.predictions import Predict, Predictions
from icl_mech.metrics import Interval, mean_interval, wilson_interval
from icl_mech.results.answer_words import answer_kind, in_words_of
from icl_mech.results.wording import counted, said, told
from icl_mech.studies import Analysis, measure

TOGETHER = 4
"""Prompts between two looks whether to stop."""

Tell = Callable[[float, str], None]
"""Hears which share is done, and how far that is in words."""


class StoppedError(Exception):
    """The run was stopped from outside; nothing of it is kept."""


class _Telling(Bar):
    """Passes progress on, of the first or second half, and looks whether to stop."""

    def __init__(self, tell: Tell, stop: Callable[[], bool], half: int) -> None:
        self._tell, self._stop, self._half = tell, stop, half

    def show(self, title: str, share: float, words: str) -> None:
        """After every batch.

        Raises:
            StoppedError: it is to stop.
        """
        if self._stop():
            raise StoppedError
        self._tell((self._half + share) / 2, words)


@dataclass(frozen=True, eq=False)
class OverAll:
    """An experiment beside its reference, over all queries.

    Attributes:
        before: Predictions and lens of the reference.
        after: Those of the experiment.
        number: Which of the different changes tried on these queries it is; 0: none, or not counted.
        tried: How many were tried by then.
    """

    before: Analysis
    after: Analysis
    number: int = 0
    tried: int = 0

    @property
    def gain(self) -> Interval:
        """Probability of the true label, after minus before, paired by query; the prompts may differ."""
        before, after = (self._true(own) for own in (self.before, self.after))
        return mean_interval(after - before, "change")

    @property
    def accuracy_gain(self) -> Interval:
        """Accuracy, after minus before, paired by query, with Tango's interval."""
        before, after = (self._answers(own).right for own in (self.before, self.after))
        was, now = ((own.predicted == own.answers).double() for own in (before, after))
        return mean_interval(now - was, "change")

    @staticmethod
    def _true(of: Analysis) -> Float[Tensor, " batch"]:
        lens: LogitLensResult = of[LogitLensResult]
        return lens.quantities()["true_label"].per_prompt[:, -1].double()

    @property
    def same(self) -> Interval:
        """Share of the answers that stay, with Wilson interval."""
        before, after = (self._answers(own).predicted for own in (self.before, self.after))
        return wilson_interval(before == after)

    @staticmethod
    def _answers(of: Analysis) -> Predictions:
        found: Predictions = of[Predictions]
        return found

    def sentence(self, here: float | None = None) -> str:
        """What came out, in words.

        Args:
            here: The difference in the present prompt, said beside that of all.
        """
        gain, n = self.gain, len(self._answers(self.after).predicted)
        clear = gain.low > 0 or gain.high < 0
        change = "More" if gain.value > 0 else "Less"
        what = in_words_of(answer_kind(self.after[Predictions].provenance), "the true label")
        opening = f"{change} of {what}" if clear else f"No clear change of {what}"
        one = "" if here is None else f" In this prompt alone: {told(here, sign=True)}."
        return (
            f"{opening}: probability {said(gain, sign=True)}, accuracy {said(self.accuracy_gain, sign=True)}, "
            f"paired, over {counted(n, 'prompt')} with these demonstrations.{one}{self.counted and ' '}{self.counted}"
        )

    @property
    def counted(self) -> str:
        """Which change on these queries it is, in words, with what follows of several."""
        if not self.number:
            return ""
        warning = " The best of several looks better than it is; take fresh queries (another seed) for the last word."
        return f"Change {self.number} of {self.tried} tried on these queries.{warning * (self.tried > 2)}"

    def figures(self) -> dict[str, Any]:
        """For the page."""
        return {
            "n": len(self._answers(self.after).predicted),
            "before": self._side(self.before),
            "now": self._side(self.after),
            "same": [*self.same],
            "difference": [*self.gain],
        }

    def _side(self, of: Analysis) -> dict[str, Any]:
        answers, lens = self._answers(of), of[LogitLensResult].sel("true_label")
        shares = answers.predicted.bincount(minlength=len(answers.labels)) / len(answers.predicted)
        if answer_kind(answers.provenance) != "classes":  # every prompt has choices of its own
            shares = shares[:0]
        return {
            "accuracy": [*answers.accuracy],
            "shares": rounded(shares),
            "lens": rounded(lens.values),
            "low": rounded(lens.low),
            "high": rounded(lens.high),
        }


def over_all(
    asker: Asker,
    before: Experiment,
    after: Experiment,
    tell: Tell = lambda share, words: None,
    stop: Callable[[], bool] = lambda: False,
) -> OverAll:
    """Two experiments over all queries of the set.

    Args:
        asker: Model, task and queries.
        before: The reference.
        after: The present one.
        tell: Hears how far it is.
        stop: Asked after every batch whether to stop.

    Raises:
        StoppedError: it was.
        IclMechError: a query that a demonstration answers, a token that not every prompt has.
    """
    sides = []
    for number, own in enumerate((before, after)):
        with Overall("all queries", True, _Telling(tell, stop, number)):
            sides.append(_measured(asker, own))
    return OverAll(sides[0], sides[1])


def _measured(asker: Asker, experiment: Experiment) -> Analysis:
    queries = asker.stage.queries
    prompts = experiment.prompts(asker.stage.task, asker.model, queries)
    changes = asker.changes(experiment, prompts, queries)
    return measure(
        asker.model, prompts, Predict(), LogitLens(), interventions=changes, batch_size=TOGETHER
    )

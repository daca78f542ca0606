"""The reference and the present experiment over all queries of the set, with intervals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Overall
from icl_mech.explorer.asking import Asker, rounded
from icl_mech.explorer.board import Telling
from icl_mech.explorer.experiment import Experiment
from icl_mech.measurements.lens.logit_lens import LogitLens, LogitLensResult
from icl_mech.measurements.predictions import Predict, Predictions
from icl_mech.metrics import Interval, mean_interval, wilson_interval
from icl_mech.results.answer_words import answer_kind, in_words_of
from icl_mech.results.wording import counted, said, told
from icl_mech.studies import Analysis, measure

TOGETHER = 4
"""Prompts per batch; after each batch the run can be stopped."""

Tell = Callable[[float, str], None]
"""Receives the fraction done, and the progress in words."""


@dataclass(frozen=True, eq=False)
class OverAll:
    """An experiment compared with its reference, over all queries.

    Attributes:
        before: Predictions and lens of the reference.
        after: Predictions and lens of the experiment.
        number: Number of this change among those tried on these queries; 0: no change, or not counted.
        tried: How many had been tried by then.
    """

    before: Analysis
    after: Analysis
    number: int = 0
    tried: int = 0

    @property
    def gain(self) -> Interval:
        """Probability of the true label, after minus before, paired by query; the prompts may differ."""
        before, after = (self._true(side) for side in (self.before, self.after))
        return mean_interval(after - before, "change")

    @property
    def accuracy_gain(self) -> Interval:
        """Accuracy, after minus before, paired by query, with Tango's interval."""
        before, after = (self._answers(side).right for side in (self.before, self.after))
        was, now = (
            (predictions.predicted == predictions.answers).double()
            for predictions in (before, after)
        )
        return mean_interval(now - was, "change")

    @staticmethod
    def _true(analysis: Analysis) -> Float[Tensor, " batch"]:
        lens: LogitLensResult = analysis[LogitLensResult]
        return lens.quantities()["true_label"].per_prompt[:, -1].double()

    @property
    def same(self) -> Interval:
        """Fraction of answers that stay the same, with Wilson interval."""
        before, after = (self._answers(side).predicted for side in (self.before, self.after))
        return wilson_interval(before == after)

    @staticmethod
    def _answers(analysis: Analysis) -> Predictions:
        predictions: Predictions = analysis[Predictions]
        return predictions

    def sentence(self, here: float | None = None) -> str:
        """The result in words.

        Args:
            here: The difference in the present prompt, reported next to that over all queries.
        """
        gain, n = self.gain, len(self._answers(self.after).predicted)
        clear = gain.low > 0 or gain.high < 0
        change = "rises" if gain.value > 0 else "falls"
        what = in_words_of(answer_kind(self.after[Predictions].provenance), "the true label")
        of = f"probability of {what}"
        opening = f"The {of} {change}" if clear else f"No clear change in the {of}"
        alone = "" if here is None else f" In this prompt alone: {told(here, sign=True)}."
        return (
            f"{opening}: {said(gain, sign=True)}, accuracy {said(self.accuracy_gain, sign=True)}, "
            f"paired, over {counted(n, 'prompt')} with these demonstrations.{alone}{self.counted and ' '}{self.counted}"
        )

    @property
    def counted(self) -> str:
        """The number of this change on these queries in words, with a warning if several were tried."""
        if not self.number:
            return ""
        warning = " The best of several looks better than it is; confirm it on fresh queries (another seed)."
        return f"Change {self.number} of {self.tried} tried on these queries.{warning * (self.tried > 2)}"

    def figures(self) -> dict[str, Any]:
        """Numbers for the page."""
        return {
            "n": len(self._answers(self.after).predicted),
            "before": self._side(self.before),
            "now": self._side(self.after),
            "same": [*self.same],
            "difference": [*self.gain],
        }

    def _side(self, analysis: Analysis) -> dict[str, Any]:
        answers, lens = self._answers(analysis), analysis[LogitLensResult].sel("true_label")
        shares = answers.predicted.bincount(minlength=len(answers.labels)) / len(answers.predicted)
        if answer_kind(answers.provenance) != "classes":  # every prompt has its own choices
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
        tell: Receives the progress.
        stop: Asked after every batch whether to stop.

    Raises:
        StoppedError: a stop was requested.
        IclMechError: a demonstration has the text of a query, not every prompt has the token of a change, or texts
            have no right answers.
    """
    asker.stage.check_answers()
    sides: list[Analysis] = []

    def half(share: float, words: str) -> None:
        tell((len(sides) + share) / 2, words)

    for experiment in (before, after):
        with Overall("all queries", True, Telling(half, stop)):
            sides.append(_measured(asker, experiment))
    return OverAll(sides[0], sides[1])


def _measured(asker: Asker, experiment: Experiment) -> Analysis:
    queries = asker.stage.queries
    prompts = experiment.prompts(asker.stage.task, asker.model, queries)
    changes = asker.changes(experiment, prompts, queries)
    lens = LogitLens(lens=asker.stage.lens)
    return measure(
        asker.model, prompts, Predict(), lens, interventions=changes, batch_size=TOGETHER
    )

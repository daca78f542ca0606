"""What judging re-weighting gives: its figures and what they say."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from icl_mech.errors import ResultError
from icl_mech.measurements.reweighting import texts
from icl_mech.measurements.reweighting.drawings import accuracy_dots, factor_grid, training_curve
from icl_mech.measurements.reweighting.numbers import NAMES, ReweightingNumbers
from icl_mech.results import Definition, Figure, basis
from icl_mech.results.wording import counted, said
from icl_mech.shapes import Bars, Grid, LayerCurves

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class ReweightingResult(ReweightingNumbers):
    """Accuracy of plain and re-weighted in-context learning on the same test prompts.

    Attributes:
        label_logits: Logits of the label words' first tokens under each condition.
        answers: True class of each query.
        beta: Logarithm of the factors.
        losses: Loss of each training step, if the factors were learned here.
        held_out_losses: Mean loss on held-out prompts, at the start and after each epoch.
        conditions: `plain`, `reweighted` and, if asked for, `more_shots`.
        demonstrations: Number of demonstrations under each condition.
        labels: Names of the classes.
        seen_in_training: How many of the test prompts the factors were learned from.
    """

    title: ClassVar[str] = "Anchor re-weighting"
    shows: ClassVar[tuple[str, ...]] = ("accuracy", "beta", "training")
    definitions: ClassVar[tuple[Definition, ...]] = texts.DEFINITIONS

    def drawing(
        self, show: str = "accuracy", *, label: str | None = None
    ) -> Bars | Grid | LayerCurves:
        """Accuracies, the factors by layer and head, or the training curve.

        Args:
            show: `accuracy`, `beta` or `training`.
            label: Class whose factors are shown (default: their mean over classes).

        Raises:
            ResultError: unknown choice, or no training to show.
        """
        self.check_show(show)
        if show == "beta":
            return factor_grid(self.beta, self.labels, label)
        if show == "training":
            return self._training_curve()
        return accuracy_dots(
            {
                f"{NAMES[name]} ({count} demonstrations)": self.accuracy(name)
                for name, count in zip(self.conditions, self.demonstrations, strict=True)
            },
            f"re-weighted − plain: {said(self.difference(), sign=True)}; {basis(self)}{self._seen()}",
            1 / len(self.labels),
        )

    def _training_curve(self) -> LayerCurves:
        if self.losses is None:
            raise ResultError(
                "These factors were given, not learned; there is no training to show."
            )
        epochs = int(self.training.get("epochs_run", 1))
        return training_curve(self.losses, self.held_out_losses, epochs, len(self.labels))

    def figures(self) -> list[Figure]:
        """The accuracies, the factors and, if they were learned here, their training."""
        return texts.figures(self)

    def summary(self) -> str:
        """Accuracies, the paired difference and whether it can be told from 0."""
        gain = self.difference()
        verdict = "" if gain.low > 0 or gain.high < 0 else " (not clearly different from 0)"
        more = (
            f"; {self.demonstrations[2]} demonstrations {said(self.accuracy('more_shots'))}"
            if "more_shots" in self.conditions
            else ""
        )
        shared = bool(self.provenance.get("conditional_on_demonstrations"))
        given = "; intervals given the shared demonstrations" * shared
        return (
            f"re-weighted {said(self.accuracy('reweighted'))}, plain {said(self.accuracy('plain'))} on "
            f"{counted(len(self.answers), 'prompt')}: difference {said(gain, sign=True)}{verdict}{more}{self._seen()}{given}"
        )

    def _seen(self) -> str:
        count = self.seen_in_training
        return f"; {count} of them seen in training" if count else ""

    def to_pandas(self) -> "pd.DataFrame":
        """One row per condition: condition, accuracy, low, high."""
        return super().to_pandas().rename(columns={"value": "accuracy"})

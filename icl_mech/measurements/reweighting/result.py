"""What judging re-weighting gives: accuracies of both conditions, the factors and their training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.reweighting.drawings import accuracy_bars, factor_grid, training_curve
from icl_mech.metrics import Interval, mean_interval
from icl_mech.results import Figure, Quantity, Result, basis
from icl_mech.shapes import Bars, Grid, LayerCurves

if TYPE_CHECKING:
    import pandas as pd

Condition = Literal["plain", "reweighted", "more_shots"]
NAMES: dict[Condition, str] = {
    "plain": "plain ICL",
    "reweighted": "re-weighted",
    "more_shots": "plain ICL, more shots",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class ReweightingResult(Result):
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

    label_logits: Float[Tensor, "condition batch label"]
    answers: Int[Tensor, " batch"]
    beta: Float[Tensor, "layer head label"]
    losses: Float[Tensor, " step"] | None = None
    held_out_losses: Float[Tensor, " epoch"] | None = None
    conditions: tuple[Condition, ...]
    demonstrations: tuple[int, ...]
    labels: tuple[str, ...]
    seen_in_training: int = 0

    @property
    def predicted(self) -> Int[Tensor, "condition batch"]:
        """Class with the largest label logit."""
        return self.label_logits.argmax(-1)

    @property
    def correct(self) -> Bool[Tensor, "condition batch"]:
        """Whether the predicted class is the true one."""
        return self.predicted == self.answers

    def quantities(self) -> dict[str, Quantity]:
        """Whether each prediction is right, under each condition."""
        return {"accuracy": Quantity(("condition",), self.correct.T)}

    def coordinates(self) -> dict[str, tuple[Condition, ...]]:
        """Names of the conditions."""
        return {"condition": self.conditions}

    @checked(ResultError)
    def accuracy(self, condition: Condition) -> Interval:
        """Accuracy under one condition, with Wilson interval.

        Raises:
            ResultError: unknown condition.
        """
        return self.interval("accuracy", condition=condition)

    @checked(ResultError)
    def difference(
        self, condition: Condition = "reweighted", reference: Condition = "plain"
    ) -> Interval:
        """Accuracy under one condition minus another, paired bootstrap over prompts.

        Raises:
            ResultError: unknown condition.
        """
        one, other = (
            self.sel("accuracy", condition=name).quantities()["accuracy"].per_prompt
            for name in (condition, reference)
        )
        return mean_interval(one.double() - other.double())

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
        return accuracy_bars(
            {
                f"{NAMES[name]} ({count} demonstrations)": self.accuracy(name)
                for name, count in zip(self.conditions, self.demonstrations, strict=True)
            },
            f"re-weighted − plain: {self.difference()}; {basis(self)}{self._seen()}",
        )

    def _training_curve(self) -> LayerCurves:
        if self.losses is None:
            raise ResultError(
                "These factors were given, not learned; there is no training to show."
            )
        # Files of before name the factors among the interventions.
        origins = [self.provenance, *self.provenance.get("interventions", ())]
        training: dict[str, Any] = next(
            (own["training"] for own in origins if "training" in own), {}
        )
        epochs = int(training.get("epochs_run", 1))
        return training_curve(self.losses, self.held_out_losses, epochs, len(self.labels))

    def figures(self) -> list[Figure]:
        """The accuracies, then the factors."""
        low, high = float(self.beta.min()), float(self.beta.max())
        sentence = (
            f"Logarithms of the learned factors, from {low:.2f} to {high:.2f}; above 0 the target "
            "attends more to label words."
        )
        return [
            Figure("accuracy", "", self.summary()),
            Figure("beta", "learned factors", sentence),
        ]

    def summary(self) -> str:
        """Accuracies, the paired difference and whether it can be told from 0."""
        gain = self.difference()
        verdict = "" if gain.low > 0 or gain.high < 0 else " (not clearly different from 0)"
        more = (
            f"; {self.demonstrations[2]} demonstrations {self.accuracy('more_shots')}"
            if "more_shots" in self.conditions
            else ""
        )
        shared = bool(self.provenance.get("conditional_on_demonstrations"))
        given = "; intervals given the shared demonstrations" * shared
        return (
            f"re-weighted {self.accuracy('reweighted')}, plain {self.accuracy('plain')} on "
            f"{len(self.answers)} prompts: difference {gain}{verdict}{more}{self._seen()}{given}"
        )

    def _seen(self) -> str:
        count = self.seen_in_training
        return f"; {count} of them seen in training" if count else ""

    def to_pandas(self) -> "pd.DataFrame":
        """One row per condition: condition, accuracy, low, high."""
        return super().to_pandas().rename(columns={"value": "accuracy"})

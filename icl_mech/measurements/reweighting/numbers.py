"""The numbers of judging re-weighting: accuracies, their paired difference, factors, training."""

from dataclasses import dataclass
from typing import Any, Literal

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.metrics import Interval, mean_interval
from icl_mech.results import Quantity, Result
from icl_mech.results.judging import Status, judged

Condition = Literal["plain", "reweighted", "more_shots"]
NAMES: dict[Condition, str] = {
    "plain": "plain ICL",
    "reweighted": "re-weighted",
    "more_shots": "plain ICL, more shots",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class ReweightingNumbers(Result):
    """Accuracy of plain and re-weighted in-context learning on the same prompts, as numbers.

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
        """Accuracy under one condition minus another, paired score interval over prompts.

        Raises:
            ResultError: unknown condition.
        """
        one, other = (
            self.sel("accuracy", condition=name).quantities()["accuracy"].per_prompt
            for name in (condition, reference)
        )
        return mean_interval(one.double() - other.double(), "change")

    @property
    def training(self) -> dict[str, Any]:
        """How the factors were learned, as far as it is known."""
        # Files of before name the factors among the interventions.
        origins = [self.provenance, *self.provenance.get("interventions", ())]
        return next((own["training"] for own in origins if "training" in own), {})

    @property
    def learned_from(self) -> int | None:
        """Number of prompts the factors were learned from, if it is known."""
        seen = self.training.get("seen")
        if seen:
            return len(seen)
        whole = self.provenance.get("prompts", {}).get("count")
        return whole - len(self.answers) if whole and "tested_on" in self.provenance else None

    @property
    def status(self) -> Status:
        """Of the claim that re-weighting helps; not judged on prompts it was learned from."""
        if self.seen_in_training or not {"plain", "reweighted"} <= set(self.conditions):
            return "cannot be judged"
        return judged(self.difference(), prompts=len(self.answers))

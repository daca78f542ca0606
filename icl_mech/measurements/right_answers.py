"""Accuracy compared with the majority-class baseline, and the confusion of classes."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.metrics import Interval, wilson_interval
from icl_mech.results import Definition
from icl_mech.results.judging import Status, judged

MOST_CLASSES = 12
"""Largest number of classes shown; of more, only the most frequent ones are."""

DEFINITIONS = (
    Definition(
        "accuracy",
        r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\arg\max_{c} z_{n,c} = y_n\right]",
        "Fraction of the N prompts for which the true class y has the largest logit z among the "
        "label words.",
    ),
    Definition(
        "constant answer",
        r"\max_{c} \frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[y_n = c\right]",
        "Accuracy of always answering the most frequent class: the majority-class baseline.",
    ),
)


class Confused(NamedTuple):
    """A class that is mistaken for another one.

    Attributes:
        right: The true class.
        answer: The answer of the model.
        prompts: Number of prompts.
    """

    right: str
    answer: str
    prompts: int


@dataclass(frozen=True)
class RightAnswers:
    """Predicted classes compared with the true ones.

    Attributes:
        predicted: Class the model predicts for each prompt.
        answers: True class of each.
        labels: Names of the classes.
    """

    predicted: Int[Tensor, " batch"]
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.predicted)

    @property
    def accuracy(self) -> Interval:
        """Fraction of right answers, with Wilson interval."""
        return wilson_interval(self.predicted == self.answers)

    def of_class(self, label: int) -> Interval:
        """Accuracy on the prompts of one class."""
        inside = self.answers == label
        if not bool(inside.any()):
            return Interval(math.nan, math.nan, math.nan)
        return wilson_interval(self.predicted[inside] == label)

    @property
    def base_rates(self) -> Float[Tensor, " label"]:
        """Fraction of prompts with each true class: the accuracy of always answering it."""
        counts: Tensor = self.answers.bincount(minlength=len(self.labels))
        return counts.double() / len(self.answers)

    @property
    def given(self) -> Int[Tensor, " label"]:
        """Number of prompts for which the model answers each class."""
        return self.predicted.bincount(minlength=len(self.labels))

    @property
    def commonest(self) -> int:
        """The most frequent true class, the first one on ties."""
        return int(self.base_rates.argmax())

    @property
    def favourite(self) -> int:
        """The class that the model answers most, the first one on ties."""
        return int(self.given.argmax())

    @property
    def constant(self) -> float:
        """Accuracy of the majority-class baseline."""
        return float(self.base_rates[self.commonest])

    @property
    def even(self) -> bool:
        """True if all classes are equally frequent, so that all constant answers have the same accuracy."""
        shares = self.base_rates
        return bool((shares == shares[0]).all())

    @property
    def status(self) -> Status:
        """Status of the claim that accuracy is above the majority-class baseline."""
        return judged(self.accuracy, null=self.constant, prompts=self.count)

    def classes(self) -> list[int]:
        """Classes that have prompts, at most the `MOST_CLASSES` most frequent ones."""
        shares = self.base_rates
        present: list[int] = shares.nonzero()[:, 0].tolist()
        return sorted(sorted(present, key=lambda c: -float(shares[c]))[:MOST_CLASSES])

    @property
    def table(self) -> Int[Tensor, "label answer"]:
        """Confusion matrix: number of prompts by true class and answer."""
        n = len(self.labels)
        counts = torch.bincount(self.answers * n + self.predicted, minlength=n * n)
        return counts.reshape(n, n)

    @property
    def wrong(self) -> int:
        """Number of wrong answers."""
        table = self.table
        return int(table.sum() - table.diagonal().sum())

    @property
    def confused(self) -> Confused | None:
        """The most frequent confusion, the first one on ties; None if all answers are right."""
        table = self.table
        mistakes = table - torch.diag(table.diagonal())
        row, column = divmod(int(mistakes.argmax()), len(self.labels))
        prompts = int(mistakes[row, column])
        return Confused(self.labels[row], self.labels[column], prompts) if prompts else None

    @property
    def never(self) -> list[str]:
        """Classes that are the right answer for some prompts but are never predicted."""
        table = self.table
        unsaid = (table.sum(0) == 0) & (table.sum(1) > 0)
        return [self.labels[c] for c in unsaid.nonzero()[:, 0].tolist()]

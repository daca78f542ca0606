"""Right answers: how many, beside constant answers, and which classes are taken for which."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.metrics import Interval, wilson_interval
from icl_mech.results import Definition
from icl_mech.results.judging import Status, judged

MOST_CLASSES = 12
"""Of more classes only those of most prompts have a line of their own."""

DEFINITIONS = (
    Definition(
        "accuracy",
        r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\arg\max_{c} z_{n,c} = y_n\right]",
        "Share of the N prompts for which the true class y has the largest logit z among the label words.",
    ),
    Definition(
        "constant answer",
        r"\max_{c} \frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[y_n = c\right]",
        "Accuracy of answering the commonest class whatever the prompt says: the base rate.",
    ),
)


class Confused(NamedTuple):
    """A class that is taken for another one.

    Attributes:
        right: The true class.
        answer: What the model answers.
        prompts: How often.
    """

    right: str
    answer: str
    prompts: int


@dataclass(frozen=True)
class RightAnswers:
    """Predicted classes beside the true ones.

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
        """Share of right answers, with Wilson interval."""
        return wilson_interval(self.predicted == self.answers)

    def of_class(self, label: int) -> Interval:
        """The same for the prompts of one class."""
        inside = self.answers == label
        if not bool(inside.any()):
            return Interval(math.nan, math.nan, math.nan)
        return wilson_interval(self.predicted[inside] == label)

    @property
    def base_rates(self) -> Float[Tensor, " label"]:
        """Share of each class among the true ones: what always answering it scores."""
        counts: Tensor = self.answers.bincount(minlength=len(self.labels))
        return counts.double() / len(self.answers)

    @property
    def given(self) -> Int[Tensor, " label"]:
        """How often each class is the answer of the model."""
        return self.predicted.bincount(minlength=len(self.labels))

    @property
    def commonest(self) -> int:
        """The commonest true class, the first of equals."""
        return int(self.base_rates.argmax())

    @property
    def favourite(self) -> int:
        """The class that the model answers most, the first of equals."""
        return int(self.given.argmax())

    @property
    def constant(self) -> float:
        """Accuracy of always answering the commonest class."""
        return float(self.base_rates[self.commonest])

    @property
    def even(self) -> bool:
        """True if every class is equally common, so that all constant answers score alike."""
        shares = self.base_rates
        return bool((shares == shares[0]).all())

    @property
    def status(self) -> Status:
        """Of the claim that more answers are right than constant ones would be."""
        return judged(self.accuracy, null=self.constant, prompts=self.count)

    def classes(self) -> list[int]:
        """Classes that have prompts, at most `MOST_CLASSES`: those with most."""
        shares = self.base_rates
        present: list[int] = shares.nonzero()[:, 0].tolist()
        return sorted(sorted(present, key=lambda c: -float(shares[c]))[:MOST_CLASSES])

    @property
    def table(self) -> Int[Tensor, "label answer"]:
        """How often each true class was predicted as which."""
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
        """The commonest confusion, the first of equals; None if all answers are right."""
        table = self.table
        mistakes = table - torch.diag(table.diagonal())
        row, column = divmod(int(mistakes.argmax()), len(self.labels))
        prompts = int(mistakes[row, column])
        return Confused(self.labels[row], self.labels[column], prompts) if prompts else None

    @property
    def never(self) -> list[str]:
        """Classes that are right for some prompts and never the answer."""
        table = self.table
        unsaid = (table.sum(0) == 0) & (table.sum(1) > 0)
        return [self.labels[c] for c in unsaid.nonzero()[:, 0].tolist()]

"""Right answers: how many, beside constant answers, and which classes are taken for which."""

import math
from dataclasses import dataclass

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.metrics import Interval, wilson_interval
from icl_mech.results import Definition, Figure
from icl_mech.results.judging import judged, opening
from icl_mech.results.wording import counted, listed, said, told
from icl_mech.shapes import Bars, LabelMatrix

ALL = "all prompts"

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
    def accuracy(self) -> Interval:
        """Share of right answers, with Wilson interval."""
        return wilson_interval(self.predicted == self.answers)

    def of_class(self, own: int) -> Interval:
        """The same for the prompts of one class."""
        inside = self.answers == own
        if not bool(inside.any()):
            return Interval(math.nan, math.nan, math.nan)
        return wilson_interval(self.predicted[inside] == own)

    @property
    def base_rates(self) -> Float[Tensor, " label"]:
        """Share of each class among the true ones: what always answering it scores."""
        counts: Tensor = self.answers.bincount(minlength=len(self.labels))
        return counts.double() / len(self.answers)

    @property
    def given(self) -> Int[Tensor, " label"]:
        """How often each class is the answer of the model."""
        return self.predicted.bincount(minlength=len(self.labels))

    def classes(self) -> list[int]:
        """Classes that have prompts, at most `MOST_CLASSES`: those with most."""
        shares = self.base_rates
        own: list[int] = shares.nonzero()[:, 0].tolist()
        return sorted(sorted(own, key=lambda c: -float(shares[c]))[:MOST_CLASSES])

    def _always(self, own: int) -> str:
        return f"always “{self.labels[own]}”"

    def levels(self) -> list[tuple[float, str]]:
        """What constant answers and chance reach over all prompts, those of one height once."""
        shares = self.base_rates
        most, favourite = int(shares.argmax()), int(self.given.argmax())
        every = bool((shares == shares[0]).all())
        parts = [(float(shares[most]), "any constant answer" if every else self._always(most))]
        if not every and favourite != most:
            parts.append((float(shares[favourite]), self._always(favourite)))
        parts.append((1 / len(self.labels), "chance"))
        texts: dict[float, list[str]] = {}
        for height, text in parts:
            texts.setdefault(round(height, 9), []).append(text)
        return [(height, f"{listed(own)} {told(height)}") for height, own in texts.items()]

    def by_class(self, note: str) -> Bars:
        """Accuracy of all prompts and of those of each class, beside constant answers and chance.

        Args:
            note: What the intervals rest on.
        """
        classes, counts = self.classes(), self.answers.bincount(minlength=len(self.labels)).tolist()
        each = [self.accuracy, *map(self.of_class, classes)]
        value, low, high = torch.tensor([list(own) for own in each]).double()[..., None].unbind(1)
        return Bars(
            "Share of right answers, by true class",
            (f"{ALL} ({len(self.answers)})", *(f"{self.labels[c]} ({counts[c]})" for c in classes)),
            ("accuracy",),
            *(value, low, high),
            y_title="share of right answers",
            note=note,
            meanings=("target",),
            levels=tuple(self.levels()),
        )

    def confusion(self) -> LabelMatrix:
        """How often each true class was predicted as which."""
        n = len(self.labels)
        counts = torch.bincount(self.answers * n + self.predicted, minlength=n * n)
        return LabelMatrix(
            "True and predicted classes",
            counts.reshape(n, n).double(),
            *(self.labels, self.labels),
            *("true class", "predicted class", "prompts"),
            note=counted(len(self.answers), "prompt"),
            counts=True,
            diagonal=True,
        )

    def beside_constant(self, given: str) -> Figure:
        """Whether more answers are right than constant ones would be.

        Args:
            given: What the intervals take as given, with a comma before it, or nothing.
        """
        prompts, right, shares = (
            counted(len(self.predicted), "prompt"),
            self.accuracy,
            self.base_rates,
        )
        most, favourite = int(shares.argmax()), int(self.given.argmax())
        constant = float(shares[most])
        status = judged(right, null=constant, prompts=len(self.predicted))
        every = bool((shares == shares[0]).all())
        whose = "any constant answer" if every else f"{self._always(most)}, the commonest class,"
        shown, total = self.classes(), len(self.labels)
        left_out = f" The {len(shown)} classes of most prompts of {total} have a line."
        return Figure(
            "accuracy",
            "Does the model answer better than a constant answer would?",
            f"{opening(status, prompts)} {said(right)} of the answers are right, {whose} gets "
            f"{told(constant)}. The model answers “{self.labels[favourite]}” for "
            f"{int(self.given[favourite])} of {prompts}.",
            "**Share of right answers, over all prompts and by true class** (in brackets: prompts). "
            f"Bars: 95 % Wilson intervals{given}. Dashes: what constant answers and chance get over all "
            "prompts; of one class a constant answer gets all or nothing."
            f"{left_out * (len(shown) < total)}",
            "that the prompts tell the model more than which class is common."
            * (status == "supported"),
            "what the model knows of a class whose label word it rarely says: a preference for one word "
            "hides it.",
            "Right answers",
        )

    def mistakes(self) -> Figure:
        """Which classes are taken for which."""
        n, labels, table = len(self.predicted), self.labels, self.confusion().values
        wrong = table - torch.diag(table.diagonal())
        total = int(wrong.sum())
        answer = f"None: all {counted(n, 'answer')} are right."
        if total:
            row, column = divmod(int(wrong.argmax()), len(labels))
            answer = (
                f"Most often it answers “{labels[column]}” where “{labels[row]}” is right: "
                f"{int(wrong[row, column])} of {counted(total, 'wrong answer')}."
            )
            asked = (table.sum(0) == 0) & (table.sum(1) > 0)
            never = [f"“{labels[c]}”" for c in asked.nonzero()[:, 0].tolist()]
            if never and len(never) <= 4:
                answer += f" It never answers {listed(never, 'or')}."
        return Figure(
            "confusion",
            "Which classes does it confuse?",
            answer,
            "**Prompts by true class (rows) and predicted class (columns)**, "
            f"{counted(n, 'prompt')}; framed: right answers. A model that always gave one answer would "
            "fill one column.",
            limits="how sure the answers are: only the likeliest label word is counted.",
            short="Confusions",
            drawn=bool(total),
        )

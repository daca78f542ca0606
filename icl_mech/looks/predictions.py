"""Figures of predictions: the confusion matrix, accuracy by class, and fractions of answers."""

import torch

from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.right_answers import RightAnswers
from icl_mech.results import basis
from icl_mech.results.wording import counted, listed, told
from icl_mech.shapes import Bars, LabelMatrix

ALL = "all prompts"


def drawing(result: Predictions, show: str = "confusion") -> LabelMatrix | Bars:
    """The confusion matrix, mean probabilities if the true classes are not known, or accuracy by class.

    Args:
        result: The result to draw.
        show: `confusion`, or `accuracy`: accuracy by class compared with constant answers. If answers
            are not classes, fractions of answers are shown in either case.

    Raises:
        ResultError: `accuracy` without known answers.
    """
    if result.open_answers:
        return _shares(result)
    if show == "accuracy":
        return _by_class(result.right, basis(result))
    if result.answers is not None:
        return _confusion(result.right)
    return LabelMatrix(
        "Mean label probabilities",
        result.label_probs.mean(0, keepdim=True),
        *((ALL,), result.labels),
        *("", "label word", "probability"),
    )


def _shares(result: Predictions) -> Bars:
    """Fractions of answers as dots, compared with chance if answers are choices."""
    shares = result.shares
    value, low, high = torch.tensor([list(share) for share in shares.values()]).double().unbind(1)
    chance = 1 / len(result.labels)
    return Bars(
        "Answers given",
        tuple(shares),
        ("share",),
        *(value[:, None], low[:, None], high[:, None]),
        y_title="fraction of prompts",
        note=basis(result),
        meanings=("target",),
        levels=((chance, f"chance {told(chance)}"),) if result.labels[0] == "right" else (),
    )


def _by_class(right: RightAnswers, note: str) -> Bars:
    """Accuracy of all prompts and of each class, compared with constant answers and chance."""
    labels, classes = right.labels, right.classes()
    counts = right.answers.bincount(minlength=len(labels)).tolist()
    each = [right.accuracy, *map(right.of_class, classes)]
    value, low, high = torch.tensor([list(share) for share in each]).double()[..., None].unbind(1)
    return Bars(
        "Fraction of right answers, by true class",
        (f"{ALL} ({right.count})", *(f"{labels[c]} ({counts[c]})" for c in classes)),
        ("accuracy",),
        *(value, low, high),
        y_title="fraction of right answers",
        note=note,
        meanings=("target",),
        levels=tuple(levels(right)),
    )


def levels(right: RightAnswers) -> list[tuple[float, str]]:
    """Accuracies of constant answers and chance over all prompts; levels at the same height are merged."""
    most, favourite = right.commonest, right.favourite
    name = "any constant answer" if right.even else f"always “{right.labels[most]}”"
    parts = [(right.constant, name)]
    if not right.even and favourite != most:
        share = float(right.base_rates[favourite])
        parts.append((share, f"always “{right.labels[favourite]}”"))
    parts.append((1 / len(right.labels), "chance"))
    texts: dict[float, list[str]] = {}
    for height, text in parts:
        texts.setdefault(round(height, 9), []).append(text)
    return [(height, f"{listed(names)} {told(height)}") for height, names in texts.items()]


def _confusion(right: RightAnswers) -> LabelMatrix:
    """The confusion matrix of true and predicted classes."""
    return LabelMatrix(
        "True and predicted classes",
        right.table.double(),
        *(right.labels, right.labels),
        *("true class", "predicted class", "prompts"),
        note=counted(right.count, "prompt"),
        counts=True,
        diagonal=True,
    )

"""Figures of predictions: which classes are taken for which, right answers by class, what is answered."""

import torch

from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.right_answers import RightAnswers
from icl_mech.results import basis
from icl_mech.results.wording import counted, listed, told
from icl_mech.shapes import Bars, LabelMatrix

ALL = "all prompts"


def drawing(result: Predictions, show: str = "confusion") -> LabelMatrix | Bars:
    """How often each true class was predicted as which (or mean probabilities).

    Args:
        result: What came out.
        show: `confusion`, or `accuracy`: right answers by class beside constant answers. Answers that
            are no classes have shares by what is answered, whatever is asked for.

    Raises:
        ResultError: accuracy without answers.
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
    """The shares as dots, beside chance where answers are choices."""
    shares = result.shares
    value, low, high = torch.tensor([list(share) for share in shares.values()]).double().unbind(1)
    chance = 1 / len(result.labels)
    return Bars(
        "What is answered",
        tuple(shares),
        ("share",),
        *(value[:, None], low[:, None], high[:, None]),
        y_title="share of prompts",
        note=basis(result),
        meanings=("target",),
        levels=((chance, f"chance {told(chance)}"),) if result.labels[0] == "right" else (),
    )


def _by_class(right: RightAnswers, note: str) -> Bars:
    """Accuracy of all prompts and of those of each class, beside constant answers and chance."""
    labels, classes = right.labels, right.classes()
    counts = right.answers.bincount(minlength=len(labels)).tolist()
    each = [right.accuracy, *map(right.of_class, classes)]
    value, low, high = torch.tensor([list(share) for share in each]).double()[..., None].unbind(1)
    return Bars(
        "Share of right answers, by true class",
        (f"{ALL} ({right.count})", *(f"{labels[c]} ({counts[c]})" for c in classes)),
        ("accuracy",),
        *(value, low, high),
        y_title="share of right answers",
        note=note,
        meanings=("target",),
        levels=tuple(levels(right)),
    )


def levels(right: RightAnswers) -> list[tuple[float, str]]:
    """What constant answers and chance reach over all prompts, those of one height once."""
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
    """How often each true class was predicted as which."""
    return LabelMatrix(
        "True and predicted classes",
        right.table.double(),
        *(right.labels, right.labels),
        *("true class", "predicted class", "prompts"),
        note=counted(right.count, "prompt"),
        counts=True,
        diagonal=True,
    )

"""What a page shows of predictions: how many are right, beside constant answers, and which are not."""

import math
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.metrics import Interval, wilson_interval
from icl_mech.results import Definition, Figure, basis
from icl_mech.results.judging import FEWEST_PROMPTS, OPENINGS, judged
from icl_mech.results.prompts import given
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


def confusion(found: Any) -> LabelMatrix:
    """How often each true class was predicted as which; without answers mean probabilities."""
    n = len(found.labels)
    if found.answers is None:
        return LabelMatrix(
            "Mean label probabilities", found.label_probs.mean(0, keepdim=True), (ALL,),
            found.labels, "", "label word", "probability",
        )  # fmt: skip
    counts = torch.bincount(found.answers * n + found.predicted, minlength=n * n)
    return LabelMatrix(
        "True and predicted classes", counts.reshape(n, n).double(), found.labels, found.labels,
        "true class", "predicted class", "prompts", counts=True, diagonal=True,
    )  # fmt: skip


def by_class(found: Any) -> Bars:
    """Accuracy of all prompts and of those of each class, beside constant answers and chance.

    Raises:
        ResultError: the true classes are not known.
    """
    if found.answers is None:
        raise ResultError("These prompts have no answers; accuracy needs them.")
    classes = _classes(found)
    each = [found.accuracy, *(_of_class(found, own) for own in classes)]
    counts = found.answers.bincount(minlength=len(found.labels)).tolist()
    names = [f"{found.labels[own]} ({counts[own]})" for own in classes]
    value, low, high = torch.tensor([list(own) for own in each]).double()[..., None].unbind(1)
    return Bars(
        title="Share of right answers, by true class",
        groups=(f"{ALL} ({len(found.answers)})", *names),
        names=("accuracy",),
        values=value,
        low=low,
        high=high,
        y_title="share of right answers",
        note=basis(found),
        meanings=("target",),
        levels=tuple(levels(found)),
    )


def levels(found: Any) -> list[tuple[float, str]]:
    """What constant answers and chance reach over all prompts, those of one height once."""
    shares = _base_rates(found)
    most, favourite = int(shares.argmax()), _favourite(found)
    every = bool((shares == shares[0]).all())
    parts = [(float(shares[most]), "any constant answer" if every else _always(found, most))]
    if not every and favourite != most:
        parts.append((float(shares[favourite]), _always(found, favourite)))
    parts.append((1 / len(found.labels), "chance"))
    texts: dict[float, list[str]] = {}
    for height, text in parts:
        texts.setdefault(round(height, 9), []).append(text)
    return [(height, f"{listed(own)} {told(height)}") for height, own in texts.items()]


def answered(found: Any) -> list[Figure]:
    """Right answers beside constant ones, and which classes are taken for which."""
    if found.answers is None or not found.labels:
        return [_given_answers(found)]
    return [_accuracy(found), _confused(found)]


def _accuracy(found: Any) -> Figure:
    n, right, shares = len(found.predicted), found.accuracy, _base_rates(found)
    most = int(shares.argmax())
    constant = float(shares[most])
    status = judged(right, null=constant, prompts=n)
    every = bool((shares == shares[0]).all())
    whose = "any constant answer" if every else f"{_always(found, most)}, the commonest class,"
    few = f" from {counted(n, 'prompt')}" if n < FEWEST_PROMPTS else ""
    answered = found.predicted.bincount(minlength=len(found.labels))
    favourite = _favourite(found)
    shown, total = _classes(found), len(found.labels)
    left_out = f" The {len(shown)} classes of most prompts of {total} have a line." * (
        len(shown) < total
    )
    return Figure(
        "accuracy",
        "Does the model answer better than a constant answer would?",
        f"{OPENINGS[status]}{few}: {said(right)} of the answers are right, {whose} gets {told(constant)}. "
        f"The model answers “{found.labels[favourite]}” for {int(answered[favourite])} of "
        f"{counted(n, 'prompt')}.",
        f"**Share of right answers, over all prompts and by true class** (in brackets: prompts). Bars: 95 % "
        f"Wilson intervals{given(found)}. Dashes: what constant answers and chance get over all "
        f"prompts; of one class a constant answer gets all or nothing.{left_out}",
        establishes="that the prompts tell the model more than which class is common."
        if status == "supported"
        else "",
        limits="what the model knows of a class whose label word it rarely says: a preference for one "
        "word hides it.",
        short="Right answers",
    )


def _confused(found: Any) -> Figure:
    n, labels = len(found.predicted), found.labels
    table = confusion(found).values
    wrong = table - torch.diag(table.diagonal())
    total = int(wrong.sum())
    answer = f"None: all {counted(n, 'answer')} are right."
    if total:
        row, column = divmod(int(wrong.argmax()), len(labels))
        never = [
            label
            for c, label in enumerate(labels)
            if not int(table[:, c].sum()) and int(table[c].sum())
        ]
        answer = (
            f"Most often it answers “{labels[column]}” where “{labels[row]}” is right: "
            f"{int(wrong[row, column])} of {counted(total, 'wrong answer')}."
        )
        if never and len(never) <= 4:
            answer += f" It never answers {listed((f'“{own}”' for own in never), 'or')}."
    return Figure(
        "confusion",
        "Which classes does it take for which?",
        answer,
        f"**Prompts by true class (rows) and predicted class (columns)**, {counted(n, 'prompt')}; framed: "
        "right answers. A model that always gave one answer would fill one column.",
        limits="how sure the answers are: only the likeliest label word is counted.",
        short="Confusions",
        drawn=bool(total),
    )


def _given_answers(found: Any) -> Figure:
    n = len(found.predicted)
    answered = found.predicted.bincount(minlength=max(1, len(found.labels)))
    favourite = int(answered.argmax())
    name = found.labels[favourite] if favourite < len(found.labels) else f"class {favourite}"
    return Figure(
        "confusion",
        "Which answers does the model give?",
        f"“{name}” for {int(answered[favourite])} of {counted(n, 'prompt')}; what would be right is not known.",
        f"**Mean probability of each label word among the label words**, {counted(n, 'prompt')}.",
        limits="whether the answers are right.",
        short="Answers",
    )


def _classes(found: Any) -> list[int]:
    """Classes that have prompts, at most `MOST_CLASSES`: those with most."""
    shares = _base_rates(found)
    own = shares.nonzero()[:, 0].tolist()
    if len(own) <= MOST_CLASSES:
        return list(own)
    return sorted(sorted(own, key=lambda c: -float(shares[c]))[:MOST_CLASSES])


def _base_rates(found: Any) -> Float[Tensor, " label"]:
    assert found.answers is not None
    counts: Tensor = found.answers.bincount(minlength=len(found.labels))
    return counts.double() / len(found.answers)


def _of_class(found: Any, own: int) -> Interval:
    assert found.answers is not None
    inside = found.answers == own
    if not bool(inside.any()):
        return Interval(math.nan, math.nan, math.nan)
    return wilson_interval(found.predicted[inside] == own)


def _favourite(found: Any) -> int:
    return int(found.predicted.bincount(minlength=len(found.labels)).argmax())


def _always(found: Any, own: int) -> str:
    return f"always “{found.labels[own]}”"

"""The figures of isolation in the first or last layers, from its numbers."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.measurements.isolation.agreement import (
    SHOWN,
    TITLES,
    Key,
    Loyalty,
    class_name,
    constants,
)
from icl_mech.measurements.isolation.values import LoyaltyByWindow
from icl_mech.results.prompts import basis
from icl_mech.results.wording import counted
from icl_mech.shapes import LabelMatrix, LayerCurves, Meaning, Panel, Table

APART = 0.13
"""Points of label words and random tokens stand this part of a step from the middle."""

MOST_CLASSES = 12
"""So many classes have a column of their own; the others share one."""

MEANINGS: dict[str, Meaning] = {"label": "label", "random": "other"}


def loyalties(result: LoyaltyByWindow, measures: Sequence[Loyalty]) -> LayerCurves:
    """A panel for each side and measure; label words and random tokens are its curves."""
    sides = tuple(dict.fromkeys(side for side, *_ in result.windows))
    kinds = tuple(dict.fromkeys(tokens for *_, tokens in result.windows))
    names: list[str] = []
    meanings: list[Meaning] = []
    rows: list[Tensor] = []
    panels: list[Panel] = []
    for measure in measures:
        for side in sides:
            own = [_curve(result, measure, side, kind) for kind in kinds]
            curves = range(len(rows), len(rows) + len(own))
            rows += own
            names += [SHOWN[kind] for kind in kinds]
            meanings += [MEANINGS[kind] for kind in kinds]
            panels.append(
                Panel(
                    f"{TITLES[measure]}, {side} k layers",
                    tuple(curves),
                    TITLES[measure].lower(),
                    levels=tuple(levels(result)) if measure == "label_loyalty" else (),
                    remark=_remark(torch.stack([values for values, *_ in own]), len(kinds)),
                    y_range=(-0.06, 1.1),
                )
            )
    value, low, high = (torch.stack(own) for own in zip(*rows, strict=True))
    gaps = [b - a for a, b in pairwise(result.depths)]
    drawn = f"; random tokens: mean of {counted(result.draws, 'draw')}" * ("random" in kinds)
    return LayerCurves(
        title="Loyalty with tokens isolated in some layers",
        names=tuple(names),
        values=value,
        low=low,
        high=high,
        y_title="loyalty",
        note=basis(result) + drawn,
        x=tuple(float(depth) for depth in result.depths),
        x_title="number of isolated layers k",
        meanings=tuple(meanings),
        panels=tuple(panels),
        columns=len(sides),
        apart=APART * min(gaps, default=1) if len(kinds) > 1 else 0.0,
    )


def levels(result: LoyaltyByWindow) -> list[tuple[float, str]]:
    """Label loyalty that constant answers keep."""
    own = [i for i, (*_, tokens) in enumerate(result.windows) if tokens == "label"]
    isolated = None if result.isolated is None else result.isolated[own, 0]
    return constants(result.predicted, isolated, result.labels)


def answers(result: LoyaltyByWindow) -> LabelMatrix:
    """How often each class is predicted without isolation and with that of each window.

    Raises:
        ResultError: a file of before does not hold it.
    """
    if result.isolated is None:
        raise ResultError(
            "This result does not hold what the isolated model predicts, which earlier versions did "
            "not keep; measure again."
        )
    n_labels = max(
        len(result.labels), int(result.isolated.max()) + 1, int(result.predicted.max()) + 1
    )
    counts = [result.predicted.bincount(minlength=n_labels).double()]
    rows = ["no isolation"]
    for key, own in zip(result.windows, result.isolated, strict=True):
        counts.append(own.flatten().bincount(minlength=n_labels) / len(own))
        rows.append(condition(key))
    table = torch.stack(counts)
    names = [class_name(result.labels, c) for c in range(n_labels)]
    if n_labels > MOST_CLASSES:
        chosen = sorted(table.sum(0).topk(MOST_CLASSES - 1).indices.tolist())
        others = [c for c in range(n_labels) if c not in chosen]
        table = torch.cat([table[:, chosen], table[:, others].sum(1, keepdim=True)], dim=1)
        names = [*(names[c] for c in chosen), f"{len(others)} others"]
    mean = f"; random tokens: mean of {result.draws} draws" * (result.draws > 1)
    return LabelMatrix(
        title="Predicted classes with and without isolation",
        values=table,
        rows=tuple(rows),
        columns=tuple(names),
        row_title="",
        column_title="predicted class",
        quantity="prompts",
        note=f"{counted(len(result.predicted), 'prompt')} in each row{mean}",
        counts=True,
    )


def next_words(result: LoyaltyByWindow) -> Table:
    """The likeliest next words of the first prompts, without isolation and with it.

    Raises:
        ResultError: a file of before does not hold them, or the model has no tokenizer.
    """
    if not result.words:
        raise ResultError(
            "This result holds no next words: earlier versions did not keep them, or the model has no "
            "tokenizer. Measure again with its tokenizer."
        )
    depth = result.usual_depth
    shown = [(-1, "no isolation")]
    shown += [
        (place, condition(key)) for place, key in enumerate(result.windows) if key[1] == depth
    ]
    rows = []
    for prompt in range(len(result.words[0])):
        for place, name in shown:
            words = " · ".join(visible(word) for word in result.words[place + 1][prompt])
            rows.append((str(prompt + 1), name, words))
    plain = tuple(i for i, (_, name, _) in enumerate(rows) if name == "no isolation")
    return Table(
        "Likeliest next words with and without isolation",
        ("prompt", "isolated", f"{result.top_k} likeliest next tokens, best first"),
        tuple(rows),
        "␣ stands for a space at the start, ↵ for a line break; random tokens: first draw",
        bold=plain,
    )


def condition(key: Key) -> str:
    """A window in words."""
    side, depth, tokens = key
    return f"{SHOWN[tokens]}, {side} {'layer' if depth == 1 else f'{depth} layers'}"


def visible(word: str) -> str:
    """A token with signs for its spaces and line breaks."""
    return word.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥") or "∅"


def _curve(result: LoyaltyByWindow, measure: Loyalty, side: str, kind: str) -> Float[Tensor, "3 x"]:
    """Value, low and high at each depth; a window that was not run leaves a gap."""
    found = result.by_window(measure)
    gap = torch.full((3,), math.nan, dtype=torch.float64)
    return torch.stack(
        [
            found[:, result.windows.index(key)] if key in result.windows else gap
            for k in result.depths
            for key in [(side, k, kind)]
        ],
        dim=1,
    )


def _remark(values: Float[Tensor, "curve x"], kinds: int) -> str:
    known = values[values.isfinite()]
    if not known.numel() or bool((known != 1).any()):
        return ""
    return "both exactly 1" if kinds > 1 else "exactly 1"

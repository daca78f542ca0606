"""Figures of isolation: curves by number of isolated layers, classes as a matrix, next words as a table."""

from itertools import product

import torch

from icl_mech.errors import ResultError
from icl_mech.looks.constant_answers import constants
from icl_mech.measurements.isolation.agreement import Key, class_name
from icl_mech.measurements.isolation.isolation import IsolationResult
from icl_mech.results import basis
from icl_mech.results.prompts import answer_kind
from icl_mech.results.wording import counted
from icl_mech.shapes import LabelMatrix, LayerCurves, Meaning, Table

SHOWN = {"label": "label words", "random": "random tokens"}
TITLES = {"label_loyalty": "Label loyalty", "word_loyalty": "Word loyalty"}
MEANINGS: dict[str, Meaning] = {"first": "label", "last": "text"}
"""Of the sides; random tokens share the colour of the label words with which they are compared."""

MOST_CLASSES = 12
"""Maximum number of columns for classes; further classes share the last one."""


def drawing(
    result: IsolationResult, show: str = "label_loyalty"
) -> LayerCurves | LabelMatrix | Table:
    """Loyalty by number of isolated layers; or the answers under isolation.

    Args:
        result: The result to draw.
        show: `label_loyalty` or `word_loyalty`; `answers`, how often each class is predicted
            with and without isolation; `words`, the top next words of the first prompts.

    Raises:
        ResultError: the result, of an earlier version, does not contain predictions or words.
    """
    if show == "answers":
        return _classes(result)
    if show == "words":
        return _words(result)
    return _curves(result, show)


def _curves(result: IsolationResult, loyalty: str) -> LayerCurves:
    """A curve for each side and kind of token."""
    samples = result.sel(loyalty)
    kinds, sides, depths = samples.labels
    label = [i for i, (*_, tokens) in enumerate(result.windows) if tokens == "label"]
    isolated = None if result.isolated is None else result.isolated[label, 0]
    levels = constants(result.predicted, isolated, result.labels, answer_kind(result))
    curves = tuple(product(sides, kinds))
    values, low, high = (
        end.movedim(1, 0).flatten(0, 1) for end in (samples.values, samples.low, samples.high)
    )
    drawn = f"; random tokens: mean of {counted(result.draws, 'draw')}" * ("random" in kinds)
    return LayerCurves(
        f"{TITLES[loyalty]} with tokens isolated in some layers",
        tuple(f"{SHOWN[kind]}, {side} k" for side, kind in curves),
        values=values,
        low=low,
        high=high,
        y_title=TITLES[loyalty].lower(),
        note=basis(result) + drawn,
        x=tuple(map(float, depths)),
        x_title="number of isolated layers k",
        meanings=tuple(MEANINGS[side] for side, _ in curves),
        levels=tuple(levels) if loyalty == "label_loyalty" else (),
        y_range=(-0.06, 1.1),
        nulls=tuple(i for i, (_, kind) in enumerate(curves) if kind == "random"),
    )


def condition(key: Key) -> str:
    """A window in words."""
    side, depth, tokens = key
    return f"{SHOWN[tokens]}, {side} {'layer' if depth == 1 else f'{depth} layers'}"


def _classes(result: IsolationResult) -> LabelMatrix:
    """Number of predictions of each class without isolation and with each isolated window."""
    predicted, isolated, labels = result.predicted, result.isolated, result.labels
    if isolated is None:
        raise ResultError(
            "This result contains no predictions under isolation, which earlier versions did "
            "not keep; measure again."
        )
    n_labels = max(len(labels), int(isolated.max()) + 1, int(predicted.max()) + 1)
    counts = [predicted.bincount(minlength=n_labels).double()]
    counts += [window.flatten().bincount(minlength=n_labels) / len(window) for window in isolated]
    table, names = torch.stack(counts), [class_name(labels, c) for c in range(n_labels)]
    if n_labels > MOST_CLASSES:
        chosen = sorted(table.sum(0).topk(MOST_CLASSES - 1).indices.tolist())
        others = [c for c in range(n_labels) if c not in chosen]
        table = torch.cat([table[:, chosen], table[:, others].sum(1, keepdim=True)], dim=1)
        names = [*(names[c] for c in chosen), f"{len(others)} others"]
    draws = isolated.shape[1]
    mean = f"; random tokens: mean of {draws} draws" * (draws > 1)
    return LabelMatrix(
        title="Predicted classes with and without isolation",
        values=table,
        rows=("no isolation", *map(condition, result.windows)),
        columns=tuple(names),
        row_title="",
        column_title="predicted class",
        quantity="prompts",
        note=f"{counted(len(predicted), 'prompt')} in each row{mean}",
        counts=True,
    )


def _words(result: IsolationResult) -> Table:
    """The top next words of the first prompts in each condition, the one without isolation first."""
    from icl_mech.plots.pieces import alone

    if not result.words:
        raise ResultError(
            "This result contains no next words: earlier versions did not keep them, or the model has no "
            "tokenizer. Measure again with its tokenizer."
        )
    plain, *isolated = result.words
    pairs = zip(result.windows, isolated, strict=True)
    rows = [("no isolation", plain)]
    rows += [(condition(key), words) for key, words in pairs if key[1] == result.usual_depth]
    lines = [
        (str(prompt + 1), name, " · ".join(alone(word) for word in words[prompt]))
        for prompt in range(len(plain))
        for name, words in rows
    ]
    return Table(
        "Most probable next words with and without isolation",
        ("prompt", "isolated", f"{result.top_k} most probable next tokens, best first"),
        tuple(lines),
        "␣ marks a space at the start, ↵ a line break; random tokens: first draw",
        bold=tuple(range(0, len(lines), len(rows))),
    )

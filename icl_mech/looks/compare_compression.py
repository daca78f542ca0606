"""Figures of compression methods side by side: loyalties and accuracies as dots, speed-up by length, a table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from icl_mech.errors import ResultError
from icl_mech.measurements.compression.compare_compression import CompareCompressionResult
from icl_mech.measurements.compression.quality import check_known
from icl_mech.metrics import Interval
from icl_mech.results import basis
from icl_mech.results.wording import said, told
from icl_mech.shapes import Bars, Scatter, Table

TITLE = "Demonstrations replaced by a stand-in"


def drawing(result: CompareCompressionResult, show: str = "loyalty") -> Bars | Scatter | Table:
    """Loyalties or accuracies by method, speed-up against length, or all numbers as a table.

    Args:
        result: The result to draw.
        show: `loyalty`, `accuracy`, `speed` or `table`.

    Raises:
        ResultError: `accuracy` without known answers, or `speed` if it was not measured.
    """
    if show == "speed":
        return _speed(result)
    note = f"{basis(result)}; {result.sentences.say('costs', result=result)}"
    if show == "table":
        return _table(result, note)
    return _accuracies(result, note) if show == "accuracy" else _loyalties(result, note)


def _loyalties(result: CompareCompressionResult, note: str) -> Bars:
    """Both loyalties of every method, compared with the majority-class baseline."""
    kept, constant = result.constant_loyalty, result.sentences.say("constant", result=result)
    return dots(
        {
            result.names[method]: [result.label_loyalty(method), result.word_loyalty(method)]
            for method in result.methods
        },
        ["label loyalty", "word loyalty"],
        "fraction of answers, overlap of top next words",
        note,
        meanings=("label", "label"),
        apart=("label loyalty: fraction of answers", "word loyalty: overlap of top next words"),
        levels=() if math.isnan(kept) else ((kept, f"{constant} {told(kept)}"),),
    )


def _accuracies(result: CompareCompressionResult, note: str) -> Bars:
    """Accuracy of every method and of full prompts."""
    check_known(result.correct)
    rows = {result.names[method]: [result.accuracy(method)] for method in result.methods}
    rows["full prompts"] = [result.full_accuracy]
    chance = 1 / result.label_logits.shape[-1]
    levels = ((chance, f"chance {told(chance)}"),)
    return dots(rows, ["accuracy"], "accuracy", note, meanings=("label",), levels=levels)


def _table(result: CompareCompressionResult, note: str) -> Table:
    """A table of all numbers for every method and for full prompts."""
    names = tuple(result.found(result.methods[0]))
    rows = [
        (result.names[method], *map(said, result.found(method).values()))
        for method in result.methods
    ]
    if result.correct is not None:
        same = ["0", "0", "1"] if result.kl is not None else []
        rows.append(("full prompts", "1", "1", said(result.full_accuracy), *same))
    return Table(TITLE, ("stand-in", *names), tuple(rows), note)


def _speed(result: CompareCompressionResult) -> Scatter:
    """Speed-up of each timed prompt against its length."""
    speed = result.timed
    if not speed:
        raise ResultError(
            "This result does not contain the time of each prompt; measure again with "
            "timing=True, on a model that accepts position ids."
        )
    full, cached, compressed = speed["each"]
    tokens = speed["tokens"]
    ways = {
        "full prompt without cache ÷ compressed": full,
        "query on full cache ÷ compressed": cached,
    }
    ratios = [a / b for way in ways.values() for a, b in zip(way, compressed, strict=True)]
    return Scatter(
        title="Speed-up by compressed demonstrations",
        x=torch.tensor(tokens * len(ways), dtype=torch.float64),
        y=torch.tensor(ratios, dtype=torch.float64),
        names=tuple(f"prompt {i}" for _ in ways for i in range(len(tokens))),
        groups=tuple(name for name in ways for _ in tokens),
        x_title="length of the prompt (tokens)",
        y_title="speed-up (times as fast)",
        note=f"medians of {len(speed['full'])} repeats on this machine, one prompt at a time",
        order=tuple(ways),
        meanings=("label", "other"),
        levels=((1.0, "equally fast"),),
    )


def dots(
    rows: Mapping[str, Sequence[Interval]], names: Sequence[str], unit: str, note: str, **more: Any
) -> Bars:
    """Several numbers of each row, as dots with their intervals."""
    ends = torch.tensor([[list(number) for number in row] for row in rows.values()]).double()
    value, low, high = ends.unbind(-1)
    return Bars(TITLE, tuple(rows), tuple(names), value, low, high, unit, note=note, **more)

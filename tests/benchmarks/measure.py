"""Interleaved timing of several ways to do the same thing."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch


class Other(NamedTuple):
    """Another way, and what the ratio is called.

    `inverse` makes the ratio ours / other (at most so much) instead of other / ours (at
    least so much). `times` says how often the timed work would have to be done.
    """

    name: str
    run: Callable[[], object]
    target: str
    inverse: bool = False
    times: int = 1


@dataclass
class Row:
    """One comparison: the median of paired ratios, their range, and the aim."""

    name: str
    ratio: float
    low: float
    high: float
    target: str
    seconds: dict[str, float]
    repeats: int

    def __str__(self) -> str:
        return f"{self.name:<70} {self.ratio:6.2f} [{self.low:.2f}, {self.high:.2f}]  {self.target}"

    def document(self) -> dict:
        return asdict(self)


def compare(
    ours: Callable[[], object],
    others: Sequence[Other],
    *,
    repeats: int,
    late: Callable[[], bool] = lambda: False,
) -> list[Row]:
    """One row per other way.

    All ways take turns within each repetition, in alternating order, so that a machine that
    drifts slows all alike. Both sides ran before, where they were checked to be equal. Once it
    is `late` no further repetition begins.
    """
    ways = [ours, *(other.run for other in others)]
    times: list[list[float]] = [[] for _ in ways]
    for repeat in range(repeats):
        if repeat and late():
            break
        numbers = list(range(len(ways)))
        for number in numbers if repeat % 2 else reversed(numbers):
            times[number].append(seconds(ways[number]))
    rows = []
    for other, own in zip(others, times[1:], strict=True):
        own = [other.times * value for value in own]
        ratios = [b / a for a, b in zip(times[0], own, strict=True)]
        if other.inverse:
            ratios = [1 / ratio for ratio in ratios]
        medians = {"ours": statistics.median(times[0]), "other": statistics.median(own)}
        rows.append(
            Row(
                other.name,
                statistics.median(ratios),
                min(ratios),
                max(ratios),
                other.target,
                medians,
                len(ratios),
            )
        )
    return rows


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call, the device's work included."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start

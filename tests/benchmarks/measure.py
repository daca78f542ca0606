"""Interleaved timing of several ways to do the same thing, after checking they agree."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import torch


@dataclass
class Row:
    """One comparison: how many times longer the baseline takes."""

    name: str
    ratio: float
    low: float
    high: float
    target: str
    seconds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name:<58} {self.ratio:6.2f} [{self.low:.2f}, {self.high:.2f}]  {self.target}"

    def document(self) -> dict:
        return asdict(self)


def compare(
    name: str,
    ours: Callable[[], object],
    baseline: Callable[[], object],
    *,
    target: str,
    repeats: int = 5,
    inverse: bool = False,
) -> Row:
    """Median of baseline / ours (or ours / baseline if `inverse`) over paired repetitions.

    Both sides run once first, uncounted. The order alternates, so that a machine that
    drifts slows both alike.
    """
    ours()
    baseline()
    times: dict[str, list[float]] = {"ours": [], "baseline": []}
    for repeat in range(repeats):
        sides = [("ours", ours), ("baseline", baseline)]
        for side, function in sides if repeat % 2 else reversed(sides):
            times[side].append(seconds(function))
    ratios = [b / o for o, b in zip(times["ours"], times["baseline"], strict=True)]
    if inverse:
        ratios = [1 / ratio for ratio in ratios]
    medians = {side: statistics.median(values) for side, values in times.items()}
    return Row(name, statistics.median(ratios), min(ratios), max(ratios), target, medians)


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call, the device's work included."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start

"""Numbers as one of a few levels of colour, for text: 0 to high, or around 0."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from icl_mech.errors import ResultError
from icl_mech.plots.style import (
    SCALE,
    SCALE_DARK,
    SIGNED_SCALE,
    SIGNED_SCALE_DARK,
)

LEVELS = 20
"""The highest level; the lowest is 0."""


@dataclass(frozen=True)
class Scale:
    """What the levels stand for.

    Attributes:
        low: Value of level 0.
        high: Value of the highest level.
        signed: Values lie around 0, which is the level in the middle.
    """

    low: float
    high: float
    signed: bool = False

    @classmethod
    def of(
        cls, values: Sequence[float], low: float | None = None, high: float | None = None
    ) -> "Scale":
        """From 0 to the largest value; with negative values as far to both sides of 0.

        Args:
            values: What is shown; NaN has no place on a scale.
            low: Value of the lowest level, if another one.
            high: Value of the highest level, if another one.

        Raises:
            ResultError: `low` is not below `high`, or they are no numbers.
        """
        finite = [value for value in values if math.isfinite(value)]
        most = max((abs(value) for value in finite), default=0.0) or 1.0
        signed = low is None and any(value < 0 for value in finite)
        if signed:
            reach = most if high is None else high
            low, high = -reach, reach
        low = 0.0 if low is None else low
        high = (most if most > low else low + 1.0) if high is None else high
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ResultError(f"low={low} and high={high}; give two numbers, low below high.")
        return cls(float(low), float(high), signed)

    def level(self, value: float) -> int | None:
        """Level of a value, None for NaN; beyond its ends the scale goes no further."""
        if math.isnan(value):
            return None
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(LEVELS * share)

    def beyond(self, values: Sequence[float]) -> int:
        """How many values lie outside of it."""
        return sum(value < self.low or value > self.high for value in values)

    def name(self, level: int) -> str:
        """CSS class of a level."""
        return f"icl-{'s' if self.signed else 'v'}{level}"


def level_colours(*, signed: bool, dark: bool) -> list[tuple[str, str]]:
    """Background and text of each level; the text is whatever reads best on it."""
    stops: tuple[str, ...]
    if signed:
        stops = SIGNED_SCALE_DARK if dark else SIGNED_SCALE
    else:
        stops = SCALE_DARK if dark else SCALE
    grounds = [_between(stops, level / LEVELS) for level in range(LEVELS + 1)]
    # Between black and white one always reaches 4.5 : 1.
    return [
        (ground, max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, ground)))
        for ground in grounds
    ]


def contrast(one: str, other: str) -> float:
    """Contrast of two colours by WCAG 2, 1 to 21."""
    low, high = sorted(_luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _rgb(colour: str) -> list[float]:
    return [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]


def _between(stops: Sequence[str], share: float) -> str:
    steps = list(pairwise(stops))
    place = min(int(share * len(steps)), len(steps) - 1)
    rest = share * len(steps) - place
    first, second = (_rgb(colour) for colour in steps[place])
    mixed = (a + (b - a) * rest for a, b in zip(first, second, strict=True))
    return "#" + "".join(f"{round(255 * part):02x}" for part in mixed)

"""Formatting of numbers and lists in the texts of a page, the same for all results."""

from collections.abc import Iterable
from math import ceil, isfinite
from typing import TypeVar

from icl_mech.metrics import Interval

T = TypeVar("T", float, Interval)

MINUS = "\N{MINUS SIGN}"

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

SHARES = {0.25: "a quarter of", 0.5: "half", 0.75: "three quarters of"}


RESOLVED = 1e-4
"""Fraction of the larger end of an interval below which a number beside it reads as 0."""


def told(value: float, *, sign: bool = False, digits: int = 2, beside: float = 0.0) -> str:
    """A number with two decimals and a true minus sign, in sentences and in tables.

    More decimals if two would read as exactly 0 or exactly 1, which could mislead; a power of ten from a million on.

    Args:
        value: The number; NaN reads `undefined`.
        sign: Also write the sign of positive numbers, as for differences.
        digits: Number of decimals.
        beside: Size of the numbers that stand beside it: what cannot be told from 0 among them reads as 0.
    """
    if not isfinite(value):
        return "undefined" if value != value else ("∞" if value > 0 else f"{MINUS}∞")
    value = round(value, 9)  # rounding error of computed ends
    if abs(value) < RESOLVED * beside:
        value = 0.0
    if abs(value) >= 1e6:
        return power_of_ten(value)
    while digits < 5 and _misleads(value, digits):
        digits += 1
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0 and value != 0:
        return power_of_ten(value)
    before = MINUS if value < 0 else "+" if sign and value > 0 else ""
    return before + text


def power_of_ten(value: float) -> str:
    """A number with two digits and a power of ten, without leading zeros in its exponent."""
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}e{int(exponent)}".replace("-", MINUS)


def told_bound(value: float) -> str:
    """A bound that numbers must exceed: rounded up, with more decimals if two would shift it by a fifth."""
    if not isfinite(value):
        return told(value)
    ups = {digits: float(ceil(round(value * 10**digits, 6)) / 10**digits) for digits in range(2, 7)}
    digits = next((places for places, up in ups.items() if up - value <= abs(value) / 5), 6)
    return told(ups[digits], digits=digits)


def percent(share: float) -> str:
    """A fraction as a whole percentage, `43 %`."""
    return f"{100 * share:.0f} %"


NATURAL = 0.05
"""Scale of effects in logits, nats or probabilities: below 0.000005 they read as 0."""


def said(interval: Interval, *, sign: bool = False, scale: float = 0.0) -> str:
    """A number with its interval, such as `0.25 [0.09, 0.53]`.

    Args:
        interval: The number and its ends.
        sign: Also write the sign of positive numbers, as for differences.
        scale: Size beside which numbers that cannot be told from 0 read as 0, if the interval's ends are smaller.
    """
    beside = max(scale, largest(*interval))
    value, low, high = (told(end, sign=sign, beside=beside) for end in interval)
    return f"{value} [{low}, {high}]"


def resolved(fraction: T) -> T:
    """A fraction or its interval, without what cannot be distinguished from 0 or 1 in a sentence: three decimals."""
    if isinstance(fraction, Interval):
        return type(fraction)(*(round(end, 3) for end in fraction))
    return round(fraction, 3)


def largest(*values: float) -> float:
    """The size of the largest of these numbers; 0 if none is finite."""
    return max((abs(value) for value in values if isfinite(value)), default=0.0)


def counted(count: int, one: str, many: str = "") -> str:
    """`1 prompt`, `12 prompts`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def share_of(share: float) -> str:
    """A fraction in words before a noun: `half`, `a quarter of`."""
    return SHARES.get(share, f"{share:g} of")


def spelled(count: int) -> str:
    """Small numbers as words."""
    return NUMBERS[count] if 0 <= count < len(NUMBERS) else str(count)


def listed(names: Iterable[str], last: str = "and") -> str:
    """`a, b and c`."""
    *first, end = names
    return f"{', '.join(first)} {last} {end}" if first else end


def layers_named(first: int, last: int) -> str:
    """`layer 3`, `layers 0–4`."""
    return f"layer {first}" if first == last else f"layers {first}–{last}"


def _misleads(value: float, digits: int) -> bool:
    shown = round(abs(value), digits)
    return (shown == 0 and value != 0) or (shown == 1 and abs(value) < 1)

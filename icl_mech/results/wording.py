"""Formatting of numbers and lists in the texts of a page, the same for all results."""

from collections.abc import Iterable
from math import ceil, isfinite

from icl_mech.metrics import Interval

MINUS = "\N{MINUS SIGN}"

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

SHARES = {0.25: "a quarter of", 0.5: "half", 0.75: "three quarters of"}


def told(value: float, *, sign: bool = False, digits: int = 2) -> str:
    """A number with two decimals and a true minus sign.

    More decimals if two would read as exactly 0 or exactly 1, which could mislead.

    Args:
        value: The number; NaN reads `undefined`.
        sign: Also write the sign of positive numbers, as for differences.
        digits: Number of decimals.
    """
    if not isfinite(value):
        return "undefined" if value != value else ("∞" if value > 0 else f"{MINUS}∞")
    value = round(value, 9)  # rounding error of computed ends
    while digits < 5 and _misleads(value, digits):
        digits += 1
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0 and value != 0:
        return f"{MINUS if value < 0 else ''}{abs(value):.0e}"
    before = MINUS if value < 0 else "+" if sign and value > 0 else ""
    return before + text


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


def said(interval: Interval, *, sign: bool = False) -> str:
    """A number with its interval, such as `0.25 [0.09, 0.53]`."""
    ends = f"[{told(interval.low, sign=sign)}, {told(interval.high, sign=sign)}]"
    return f"{told(interval.value, sign=sign)} {ends}"


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

"""Sizes of the names of curves and levels, and their places at the ends of lines, where they cover nothing."""

from collections.abc import Sequence
from textwrap import wrap

CHARACTER = 6.7
"""Width of a character at the font size of names, in pixels."""

LINE = 16.0
"""Height of a line of text, in pixels."""


def wrapped(text: str, width: int) -> list[str]:
    """A name wrapped into lines."""
    return wrap(text, width) or [""]


def size(lines: Sequence[str]) -> tuple[float, float]:
    """Width and height of a text in pixels."""
    return CHARACTER * max(map(len, lines)) + 4, LINE * len(lines)


def pushed_apart(wanted: Sequence[float], heights: Sequence[float], top: float) -> list[float]:
    """Centres of stacked texts, as close to their preferred positions as possible without overlap.

    Args:
        wanted: Preferred centre of each text.
        heights: Heights of the texts.
        top: Upper end of the range from 0, within which the texts lie if they fit.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    # Texts that touch move as a group, to the mean of their preferred positions.
    groups: list[tuple[list[int], float]] = []
    for i in order:
        groups.append(([i], wanted[i]))
        while True:
            groups[-1] = (groups[-1][0], _held(groups[-1], heights, top))
            if len(groups) < 2 or _apart(groups[-2], groups[-1], heights):
                break
            upper, lower = groups.pop()[0], groups.pop()[0]
            members = lower + upper
            groups.append((members, _middle(members, wanted, heights)))
    places = [0.0] * len(wanted)
    for members, middle in groups:
        at = middle - sum(heights[i] for i in members) / 2
        for i in members:
            places[i] = at + heights[i] / 2
            at += heights[i]
    return places


Group = tuple[list[int], float]


def _middle(members: list[int], wanted: Sequence[float], heights: Sequence[float]) -> float:
    """Centre of a group at which its texts are closest to their preferred positions."""
    total, below, off = sum(heights[i] for i in members), 0.0, 0.0
    for i in members:
        off += wanted[i] - (below + heights[i] / 2 - total / 2)
        below += heights[i]
    return off / len(members)


def _held(group: Group, heights: Sequence[float], top: float) -> float:
    """Centre of a group, moved into the frame."""
    half = sum(heights[i] for i in group[0]) / 2
    return max(half, min(group[1], top - half)) if 2 * half <= top else top / 2


def _apart(lower: Group, upper: Group, heights: Sequence[float]) -> bool:
    half = sum(heights[i] for i in lower[0]) / 2 + sum(heights[i] for i in upper[0]) / 2
    return upper[1] - lower[1] >= half - 1e-9

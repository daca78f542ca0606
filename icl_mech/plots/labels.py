"""Placement of the names of curves and reference levels, so that they cover nothing.

Positions are computed in pixels for a plot of the usual size; names are anchored to data, so that
they stay with their curves at other sizes.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]

CHARACTER = 6.7
"""Width of a character at the font size of names, in pixels."""

LINE = 16.0
"""Height of a line of text, in pixels."""

LONGEST = 30
"""Maximum characters of a line of a name."""

_STEP = 4.0
"""Distance at which curves are sampled, in pixels."""


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels, measured from the lower left corner of the plot."""

    left: float
    bottom: float
    right: float
    top: float

    @classmethod
    def around(cls, x: float, y: float, width: float, height: float) -> "Box":
        """The box of this size centred at a point."""
        return cls(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    @property
    def middle(self) -> tuple[float, float]:
        """Centre of the box, (x, y)."""
        return (self.left + self.right) / 2, (self.bottom + self.top) / 2

    def meets(self, other: "Box") -> bool:
        """True if the two boxes overlap."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def distances(self, points: Points) -> Points:
        """Distance of each point from the box; 0 inside."""
        x = np.maximum(np.maximum(self.left - points[:, 0], points[:, 0] - self.right), 0)
        y = np.maximum(np.maximum(self.bottom - points[:, 1], points[:, 1] - self.top), 0)
        return np.hypot(x, y)


def wrapped(text: str, width: int = LONGEST) -> list[str]:
    """A name wrapped into lines."""
    return wrap(text, width) or [""]


def size(lines: Sequence[str]) -> tuple[float, float]:
    """Width and height of a text in pixels."""
    return CHARACTER * max(map(len, lines)) + 4, LINE * len(lines)


@dataclass
class Room:
    """The plot area of one panel: what is drawn there, and which space is taken.

    Attributes:
        x: Range of the horizontal axis.
        y: Range of the vertical axis.
        width: Width of the plot area in pixels.
        height: Height of the plot area in pixels.
        curves: Drawn curves, as densely sampled points.
        taken: Boxes of texts already placed.
        across: Heights of horizontal lines, in pixels.
        upright: Positions of vertical lines, in pixels.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    width: float
    height: float
    curves: list[Points] = field(default_factory=list)
    taken: list[Box] = field(default_factory=list)
    across: list[float] = field(default_factory=list)
    upright: list[float] = field(default_factory=list)

    def pixels(self, x: Sequence[float], y: Sequence[float]) -> Points:
        """Points in data coordinates, converted to pixels."""
        across = (np.array(x, dtype=float) - self.x[0]) / (self.x[1] - self.x[0]) * self.width
        up = (np.array(y, dtype=float) - self.y[0]) / (self.y[1] - self.y[0]) * self.height
        return np.stack([across, up], axis=1)

    def data(self, x: float, y: float) -> tuple[float, float]:
        """A point in pixels, converted to data coordinates."""
        return (
            self.x[0] + x / self.width * (self.x[1] - self.x[0]),
            self.y[0] + y / self.height * (self.y[1] - self.y[0]),
        )

    def draw(
        self,
        x: Sequence[float],
        y: Sequence[float],
        bars: Sequence[tuple[float, float, float]] = (),
    ) -> None:
        """Register a curve with its gaps and interval bars (x, low, high)."""
        points = self.pixels(x, y)
        parts = [points[np.isfinite(points).all(1)]]
        parts += [_filled(*pair) for pair in itertools.pairwise(points)]
        parts += [_filled(*self.pixels([where] * 2, [low, high])) for where, low, high in bars]
        self.curves.append(np.concatenate(parts))

    def beside(self, curve: int, width: float, height: float) -> Box | None:
        """A box of this size next to its curve, clear of everything else; or None.

        The named curve is then clearly the nearest.
        """
        line = self.curves[curve]
        others = [points for i, points in enumerate(self.curves) if i != curve and len(points)]
        rest = np.concatenate(others) if others else np.empty((0, 2))
        best, place = -np.inf, None
        for box in self._along(line, width, height):
            if any(box.meets(text) for text in self.taken):
                continue
            if self._crossed(box):
                continue
            near = float(box.distances(line).min())
            free = float(box.distances(rest).min()) if len(rest) else np.inf
            if near < 3 or free < near + 8:
                continue
            # Far from other curves, not at the very edge, close to the named curve.
            edge = min(box.left, self.width - box.right)
            score = min(free, 60.0) + min(edge, 30.0) / 2 - 2 * near
            if score > best + 1e-9:
                best, place = score, box
        return place

    def _along(self, line: Points, width: float, height: float) -> Iterator[Box]:
        """Candidate boxes above and below a curve, inside the frame."""
        middles = np.arange(width / 2 + 4, self.width - width / 2 - 3, 12.0)
        for x in middles:
            under = line[np.abs(line[:, 0] - x) <= width / 2 + 2]
            if not len(under):
                continue
            for side in (1, -1):
                edge = float(under[:, 1].max() if side > 0 else under[:, 1].min())
                y = edge + side * (height / 2 + 6)
                if height / 2 + 1 <= y <= self.height - height / 2 - 1:
                    yield Box.around(float(x), y, width, height)

    def _crossed(self, box: Box) -> int:
        """Number of straight reference lines that cross a box."""
        return sum(box.bottom - 1 < y < box.top + 1 for y in self.across) + sum(
            box.left - 1 < x < box.right + 1 for x in self.upright
        )

    def least_covering(self, places: Sequence[Box]) -> Box:
        """Select and reserve the box that covers least, the first of equals."""
        points = np.concatenate([*self.curves, np.empty((0, 2))])

        def covered(box: Box) -> float:
            over = sum(box.meets(text) for text in self.taken)
            outside = max(0.0, -box.left, box.right - self.width)
            outside += max(0.0, -box.bottom, box.top - self.height)
            crossed = 20.0 * self._crossed(box)
            near = int((box.distances(points) < 2).sum())
            return 1000.0 * over + 3 * outside + crossed + near

        best = min(places, key=covered)
        self.taken.append(best)
        return best


def _filled(start: Points, stop: Points) -> Points:
    """Points that interpolate between two, or none if one of them is missing."""
    if not (np.isfinite(start).all() and np.isfinite(stop).all()):
        return np.empty((0, 2))
    count = max(2, int(np.hypot(*(stop - start)) / _STEP))
    between: Points = start + np.linspace(0, 1, count)[:, None] * (stop - start)
    return between


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

"""Power: how often a claim is supported at an effect of some size, measured on planted circuits.

`power.json` holds what `tests/benchmarks/graded_power.py` counted: planted anchors of graded strength, by
number of prompts. Between measured effects rates are interpolated, never falling with the effect; beyond
them nothing is said.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from icl_mech.errors import RunError, near_matches

UNITS = {
    "isolation": "label loyalty lost beyond random tokens",
    "attention": "AUC above chance in the last third",
}
"""Of effects, by measure."""


@dataclass(frozen=True)
class Cell:
    """Planted models of one strength, on so many prompts.

    Attributes:
        effect: Mean size of the effect, in the unit of its measure.
        n: Prompts.
        supported: Models of which the claim was supported.
        of: Models.
    """

    effect: float
    n: int
    supported: int
    of: int


@dataclass(frozen=True)
class Power:
    """What can be seen of one claim.

    Attributes:
        claim: Its name.
        measure: Whose effect is told; the claim requires others, too.
        cells: What was measured.
    """

    claim: str
    measure: str
    cells: tuple[Cell, ...]

    @property
    def prompts(self) -> tuple[int, ...]:
        """Numbers of prompts that were measured."""
        return tuple(sorted({cell.n for cell in self.cells}))

    def at(self, effect: float, n: int) -> float | None:
        """Share of runs that support the claim at this effect, with the largest measured number up to n.

        None where the effect is larger than any that was measured, or n smaller.
        """
        known = [own for own in self.prompts if own <= n]
        if not known:
            return None
        points = sorted(
            (own.effect, own.supported / own.of) for own in self.cells if own.n == known[-1]
        )
        if effect > points[-1][0]:
            return None
        best, before = 0.0, points[0]
        for place, rate in points:
            best = max(best, rate)
            if place >= effect:
                width = place - before[0]
                share = (effect - before[0]) / width if width > 0 and effect > before[0] else 0.0
                return before[1] + share * (best - before[1])
            before = (place, best)
        return best

    def needed(self, effect: float, power: float) -> int | None:
        """The smallest measured number of prompts with this power; None if none has it."""
        enough = (n for n in self.prompts if (self.at(effect, n) or 0.0) >= power - 1e-9)
        return next(enough, None)


@cache
def powers() -> tuple[Power, ...]:
    """What was measured, one value for each claim."""
    rows = json.loads(Path(__file__).with_name("power.json").read_text(encoding="utf-8"))
    return _powers(rows)


def power_of(claim: str) -> Power:
    """That of one claim.

    Raises:
        RunError: a claim that none was measured for.
    """
    found = {own.claim: own for own in powers()}
    if claim not in found:
        raise RunError(f"Power was not measured for {claim!r}. {near_matches(claim, found)}")
    return found[claim]


def _powers(rows: Sequence[dict[str, Any]]) -> tuple[Power, ...]:
    names = dict.fromkeys((row["claim"], row["measure"]) for row in rows)
    return tuple(
        Power(
            claim,
            measure,
            tuple(
                Cell(row["effect"], row["n"], row["supported"], row["of"])
                for row in rows
                if row["claim"] == claim
            ),
        )
        for claim, measure in names
    )

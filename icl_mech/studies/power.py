"""Power, measured on planted circuits: how often a claim is supported at an effect of some size.

`power.json` holds what `tests/benchmarks/graded_power.py` counted: planted circuits of graded strength, by
number of prompts (of pairs, where true and false demonstrations are compared). Between measured effects rates
are interpolated, never falling with the effect; beyond them nothing is said.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

UNITS = {
    "isolation": "label loyalty lost beyond random tokens",
    "attention": "AUC above chance in the last third",
    "harm": "accuracy lost to false demonstrations",
    "growth": "growth of the gap since the first quarter of the layers",
    "leaving": "accuracy gained by leaving early",
    "matching": "prefix matching above shuffled labels, of the best head",
    "ablation": "accuracy gained without the heads",
    "late": "accuracy gained without late attention",
    "removal": "share of pairs whose right logit moves by 1 or more against the taught one",
    "steering": "share of queries whose right logit rises by 1 or more above the others",
    "override": "answers that follow the label taught minus those that follow the truth",
    "moved": "share of pairs whose answer is moved with the label words early",
    "needed": "share of prompts whose right logit falls by 1 or more against the others",
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
        study: That judges it.
        claim: Its name.
        measure: Whose effect is told; the claim may require others, too.
        cells: What was measured.
    """

    study: str
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


def _powers(rows: Sequence[dict[str, Any]]) -> tuple[Power, ...]:
    names = dict.fromkeys((row["study"], row["claim"], row["measure"]) for row in rows)
    return tuple(
        Power(
            study,
            claim,
            measure,
            tuple(
                Cell(row["effect"], row["n"], row["supported"], row["of"])
                for row in rows
                if row["claim"] == claim
            ),
        )
        for study, claim, measure in names
    )

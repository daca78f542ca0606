"""Power, measured on planted networks (synthetic, with a known circuit): rates of support by effect size.

`power.json` holds the counts of `tests/benchmarks/graded_power.py`: planted circuits of graded strength, by
number of prompts (or pairs, if true and false demonstrations are compared). Rates are fitted so that they never
fall with the effect, and interpolated between measured effects, not extrapolated.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

UNITS = {
    "isolation": "label loyalty lost beyond random tokens",
    "share": "fraction of what demonstrations add that the target reads from label words",
    "harm": "accuracy lost to false demonstrations",
    "growth": "growth of the gap after the first quarter of the layers",
    "leaving": "accuracy gained by exiting early",
    "matching": "prefix matching above shuffled labels, of the best head",
    "ablation": "accuracy gained without the heads",
    "late": "accuracy gained without late attention",
    "removal": "fraction of pairs whose right logit moves by 1 or more relative to the demonstrated label's",
    "steering": "fraction of queries whose right logit rises by 1 or more relative to the others",
    "override": "answers that follow the demonstrated label minus answers that follow the truth",
    "moved": "fraction of pairs whose answer moves with the label words early",
    "needed": "fraction of prompts whose right logit falls by 1 or more relative to the others",
}
"""Units of effects, by measure."""


@dataclass(frozen=True)
class Cell:
    """Planted models of one strength, on one number of prompts.

    Attributes:
        effect: Mean size of the effect, in the unit of its measure.
        n: Number of prompts.
        supported: Number of models on which the claim was supported.
        of: Number of models.
    """

    effect: float
    n: int
    supported: int
    of: int


@dataclass(frozen=True)
class Power:
    """The measured power of one claim.

    Attributes:
        study: Name of its study.
        claim: Its name.
        measure: Measure of the effect; the claim may also require others.
        cells: Measured rates of support.
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
        """Fraction of models that support the claim at this effect, at the largest measured number of prompts up to n.

        None if the effect is larger, or n smaller, than any that was measured.
        """
        known = [count for count in self.prompts if count <= n]
        if not known:
            return None
        cells = sorted(
            (cell for cell in self.cells if cell.n == known[-1]), key=lambda cell: cell.effect
        )
        if effect > cells[-1].effect:
            return None
        return float(np.interp(effect, [cell.effect for cell in cells], fitted(cells)))

    def needed(self, effect: float, power: float) -> int | None:
        """The smallest measured number of prompts from which on the power is reached; None if there is none."""
        fewest = None
        for n in reversed(self.prompts):
            rate = self.at(effect, n)
            if rate is not None and rate < power - 1e-9:
                break
            fewest = fewest if rate is None else n
        return fewest


def fitted(cells: Sequence[Cell]) -> list[float]:
    """Non-decreasing rates of ordered cells, closest to the measured ones in least squares weighted by runs.

    The max-min formula of isotonic regression: for each cell the maximum, over starts up to it, of the minimum mean
    rate from there to it or beyond. It equals pooling adjacent violators (Barlow et al. 1972, *Statistical
    inference under order restrictions*).
    """

    def rate(first: int, last: int) -> float:
        part = cells[first:last]
        return sum(cell.supported for cell in part) / sum(cell.of for cell in part)

    places = range(len(cells))
    return [max(min(rate(a, b + 1) for b in places[i:]) for a in places[: i + 1]) for i in places]


@cache
def powers() -> tuple[Power, ...]:
    """The measured power of each claim."""
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

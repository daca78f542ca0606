"""Cells of averages: a number, or numbers along axes, for every setting of the dimensions not averaged."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from icl_mech._typing import Float, Tensor
from icl_mech.errors import SweepError
from icl_mech.sweeps.item import DIMS

FEW = 5
"""If there are fewer units than this, they are also shown one by one."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One average, or one along named axes.

    Attributes:
        dims: Its values of the dimensions that were not averaged.
        value: Means.
        low: Lower ends of hierarchical 95 % intervals.
        high: Upper ends.
        units: The averaged units at the outermost level that has several.
        points: Value of each unit.
        counts: Number of values of each averaged dimension.
        items: Number of runs.
        prompts: Smallest number of prompts of a run.
    """

    dims: Mapping[str, Any]
    value: Float[Tensor, " *cell"]
    low: Float[Tensor, " *cell"]
    high: Float[Tensor, " *cell"]
    units: tuple[Any, ...]
    points: Float[Tensor, " unit *cell"]
    counts: Mapping[str, int]
    items: int
    prompts: int


@dataclass(frozen=True, eq=False)
class Averaged:
    """A quantity averaged over dimensions of a sweep.

    Attributes:
        name: Name of the quantity.
        unit: Quantity and unit.
        over: Dimensions that were averaged, outermost first.
        fixed: Averaged dimensions whose spread is not part of the intervals.
        axes: Names of the quantity's own axes.
        labels: Labels along each of them.
        cells: One for each setting of the other dimensions.
        minus: What was subtracted.
        missing: Runs that are not part of it, in words.
        heading: Heading of figures.
    """

    name: str
    unit: str
    over: tuple[str, ...]
    fixed: tuple[str, ...]
    axes: tuple[str, ...]
    labels: tuple[tuple[Any, ...], ...]
    cells: tuple[Cell, ...]
    minus: Mapping[str, Any]
    missing: tuple[str, ...] = ()
    heading: str = ""

    @property
    def varied(self) -> tuple[str, ...]:
        """Dimensions along which the cells differ."""
        return tuple(
            dim
            for dim in DIMS
            if dim not in self.over and len({cell.dims[dim] for cell in self.cells}) > 1
        )

    def one(self, **dims: Any) -> Cell:
        """The cell with these values.

        Raises:
            SweepError: none, or several.
        """
        matches = [
            c for c in self.cells if all(c.dims.get(d) == value for d, value in dims.items())
        ]
        if len(matches) != 1:
            raise SweepError(
                f"{len(matches)} cells of {self.name} have {dims or 'no given values'}, but one is needed; cells "
                f"differ in {', '.join(self.varied) or 'nothing'}."
            )
        return matches[0]

    def basis(self, cell: Cell) -> str:
        """What a cell is averaged over: `5 seeds × 48 prompts`; and how many runs have it, if some lack it."""
        parts = [f"{n} {dim if n == 1 else plural(dim)}" for dim, n in cell.counts.items()]
        prompts = "prompt" if cell.prompts == 1 else "prompts"
        text = " × ".join([*parts, f"{cell.prompts} {prompts}"])
        every = prod(cell.counts.values())
        return text if cell.items >= every else f"{text}; {cell.items} of {every} runs have it"

    def summary(self) -> str:
        """The number with its interval, or what the numbers vary over."""
        over = " and ".join(plural(dim) for dim in self.over) or "nothing"
        if len(self.cells) == 1 and not self.axes:
            cell = self.cells[0]
            ends = f"{cell.value:.3g} [{cell.low:.3g}, {cell.high:.3g}]"
            return f"{self.name}: {ends} over {self.basis(cell)}"
        dims = " × ".join([*self.varied, *self.axes])
        return f"{self.name} by {dims}, averaged over {over}: {self.basis(self.cells[0])}"

    def __repr__(self) -> str:
        """The summary."""
        return f"<{type(self).__name__} {self.summary()}>"


def plural(dim: str) -> str:
    """`seeds`, `studies`; `labels` and `shots` are plural already."""
    word = dim.replace("_", " ")
    if word.endswith("s") or dim == "n":
        return word
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"

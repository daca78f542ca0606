"""`Row`: a published number next to the measured one, in words and with its verdict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from icl_mech.metrics import Interval
from icl_mech.recipes.recipe import MEAN, Number
from icl_mech.sweeps.item import Item

INSIDE, OUTSIDE, NEITHER = "within your interval", "differs", "cannot be compared"

UNDEFINED = Interval(math.nan, math.nan, math.nan)
MEAN_OF_TASKS = "mean over tasks"
NAMED = 3
"""Models that a cell names."""

Own = tuple[str, Interval, str, list[str], Sequence[Item]]
"""A label along an axis (or an empty text), the value, what it is averaged over, what it lacks, and runs without it."""


@dataclass(frozen=True)
class Row:
    """A published number next to the measured one, both in the paper's unit.

    Attributes:
        number: The number.
        model: The model measured here.
        task: The task measured here, or `mean`.
        paper_task: Task of the published number, or `mean`; empty where there is none.
        published: Published values by model of the paper.
        own: The measured value with its 95 % interval; not-a-number where there is none.
        basis: What the measured value is averaged over.
        why: Reasons why they cannot be compared.
        label: Label along the axis `number.along`; empty where it has none.
        lost: Runs that have no value.
    """

    number: Number
    model: str
    task: str
    paper_task: str
    published: Mapping[str, float]
    own: Interval
    basis: str
    why: Sequence[str] = ()
    label: str = ""
    lost: Sequence[Item] = ()

    @property
    def name(self) -> str:
        """The number in words, with its label."""
        return f"{self.number.name}, {self.label}" if self.label else self.number.name

    @property
    def here(self) -> str:
        """The measured value with its interval."""
        value, low, high = (decimal(end, self.number.digits) for end in self.own)
        return value if low == "–" else f"{value} [{low}, {high}]"

    @property
    def of_task(self) -> str:
        """The measured task, and the paper's that it replaces."""
        task = MEAN_OF_TASKS if self.task == MEAN else self.task
        return (
            task if self.paper_task in ("", MEAN, self.task) else f"{task} (for {self.paper_task})"
        )

    @property
    def verdict(self) -> str:
        """Whether the measured interval contains the published number of this model."""
        if self.why:
            return NEITHER
        return INSIDE if self.own.low <= self.published[self.model] <= self.own.high else OUTSIDE

    @property
    def difference(self) -> float:
        """The measured value minus the published one; not-a-number where they cannot be compared."""
        return math.nan if self.why else self.own.value - self.published[self.model]

    @property
    def apart(self) -> str:
        """The difference with its sign."""
        return decimal(self.difference, self.number.digits, "+")

    @property
    def beside(self) -> str:
        """The published value of this model, or those of other models with their names."""
        if self.model in self.published:
            return decimal(self.published[self.model], self.number.digits)
        named = [
            f"{decimal(value, self.number.digits)} ({name})"
            for name, value in self.published.items()
        ]
        named[NAMED:] = [f"{len(named) - NAMED} more"] if len(named) > NAMED else []
        return ", ".join(named)


def shared_reasons(rows: Sequence[Row]) -> list[str]:
    """Reasons why no row can be compared, which are said once."""
    first = rows[0].why if rows else ()
    return [why for why in first if all(why in row.why for row in rows)]


def decimal(value: float, digits: int, sign: str = "") -> str:
    """A number with a true minus sign; a dash for not-a-number."""
    return (
        "–"
        if math.isnan(value)
        else f"{round(value, digits) + 0.0:{sign}.{digits}f}".replace("-", "−")
    )

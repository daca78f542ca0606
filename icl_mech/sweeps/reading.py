"""One quantity of one run: a number, or numbers along named axes, each with its interval."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, nan
from numbers import Real
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import MissingResult, SweepError, near_matches
from icl_mech.metrics import Interval
from icl_mech.results import Quantity, Result, Samples
from icl_mech.results.quantities import labels_of
from icl_mech.studies import Analysis
from icl_mech.studies.facts import origin_of
from icl_mech.sweeps.item import Item

MAIN = ("values", "")
"""Names that stand for the main quantity of a part."""

ROUNDING = 1e-9

_SHARES = re.compile(r"\b(share|fraction|accuracy|AUC\w*|overlap|probability|loyalty)\b")
_CHANGES = re.compile(r"\b(difference|change|gap|above|minus)\b")


@dataclass(frozen=True, eq=False)
class Reading:
    """A quantity of one run.

    Attributes:
        item: The run.
        name: Name of the quantity.
        axes: Names of its axes.
        labels: Labels along each of them.
        value: Estimates.
        low: Lower ends of their intervals over prompts.
        high: Upper ends.
        prompts: Number of prompts behind it.
        unit: Quantity and unit.
        quantity: The quantity it was computed from, for pairing; None if it is not known.
        heading: Heading of figures.
        ends: Bounds of the quantity by its definition, if they are known.
        drawn: Fraction of the task's queries that the run draws, so that seeds share them. 0 if their number is
            unknown, as in folders written before it was recorded.
    """

    item: Item
    name: str
    axes: tuple[str, ...]
    labels: tuple[tuple[Any, ...], ...]
    value: Float[Tensor, " *cell"]
    low: Float[Tensor, " *cell"]
    high: Float[Tensor, " *cell"]
    prompts: int
    unit: str = ""
    quantity: Quantity | None = None
    heading: str = ""
    ends: tuple[float, float] | None = None
    drawn: float = 0.0

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Bounds of the quantity: as given in `ends`, else by its unit."""
        return bounds_of(self.unit) if self.ends is None else self.ends

    def within(self, low: float, high: float) -> bool:
        """True if all values and interval ends lie in this range; those of some fractions of sums do not."""
        ends = torch.stack([self.value, self.low, self.high]).nan_to_num(nan=low)
        return bool((ends >= low - ROUNDING).all() and (ends <= high + ROUNDING).all())

    def at(self, labels: Mapping[str, Any]) -> "Reading":
        """The part of it at these labels; one label removes its axis, a list keeps it.

        Raises:
            SweepError: an axis or label that is not there.
        """
        reading = self
        for axis, wanted in labels.items():
            if axis not in reading.axes:
                raise SweepError(
                    f"{self.name} has no axis {axis!r}; its axes are {', '.join(self.axes) or 'none'}."
                )
            reading = reading._cut(axis, wanted)
        return reading

    def _cut(self, axis: str, wanted: Any) -> "Reading":
        place = self.axes.index(axis)
        several = isinstance(wanted, list | range)
        known = list(self.labels[place])
        try:
            index = [known.index(label) for label in (wanted if several else [wanted])]
        except ValueError:
            raise SweepError(
                f"{self.name} has no value at {axis}={wanted!r}; its labels are {known}."
            ) from None
        ends = [
            end.index_select(place, torch.tensor(index))
            for end in (self.value, self.low, self.high)
        ]
        axes, labels = list(self.axes), list(self.labels)
        labels[place] = tuple(known[i] for i in index)
        if not several:
            ends = [end.squeeze(place) for end in ends]
            del axes[place], labels[place]
        value, low, high = ends
        return replace(
            self,
            axes=tuple(axes),
            labels=tuple(labels),
            value=value,
            low=low,
            high=high,
            quantity=None,
        )

    def minus(self, other: "Reading", labels: Mapping[str, Any], paired: bool) -> "Reading":
        """The difference of two runs, paired by prompt if the queries are the same.

        Raises:
            SweepError: the axes differ.
        """
        if (self.axes, self.labels) != (other.axes, other.labels):
            raise SweepError(
                f"{self.name} has different labels in {self.item.title!r} and in {other.item.title!r} along "
                f"{', '.join(self.axes) or 'its axes'}, so no difference can be computed; choose "
                "labels that both have."
            )
        first, second = self.quantity, other.quantity
        if paired and first is not None and second is not None and first.count == second.count:
            value, low, high = first.minus(second)
        else:
            value = self.value - other.value
            below = ((self.value - self.low) ** 2 + (other.high - other.value) ** 2).sqrt()
            above = ((self.high - self.value) ** 2 + (other.value - other.low) ** 2).sqrt()
            low, high = value - below, value + above
        difference = replace(
            self,
            value=value.double(),
            low=low.double(),
            high=high.double(),
            prompts=min(self.prompts, other.prompts),
            drawn=max(self.drawn, other.drawn),
            unit=f"difference of {self.unit or self.name}",
            quantity=None,
            ends=None,
        )
        return difference.at(labels)


def share_drawn(item: Item, analysis: Analysis) -> float:
    """Fraction of the task's queries that a run draws; 0 if their number was not recorded."""
    pool = origin_of(analysis.results).get("prompts", {}).get("pool") or inf
    return min(1.0, (len(analysis.prompts[0]) if analysis.prompts else item.n) / pool)


def reading_of(item: Item, analysis: Analysis, quantity: object, name: str = "") -> Reading | None:
    """A quantity of a run; None if it has no such part.

    Its prompts are those of its numbers or of its result; for a function, all prompts of the run.

    Raises:
        SweepError: a part without that quantity, or a function that returns no number.
    """
    prompts = len(analysis.prompts[0]) if analysis.prompts else item.n
    if callable(quantity):
        called = name or getattr(quantity, "__name__", "quantity").replace("_", " ")
        try:
            measured = quantity(analysis)
        except MissingResult:
            return None
        return None if measured is None else _plain(item, called, measured, prompts)
    if not isinstance(quantity, str):
        raise SweepError(
            f"{quantity!r} is not a quantity; give 'part.quantity', such as 'flow.values', or a function "
            "of an analysis."
        )
    part, _, field = quantity.partition(".")
    if part not in analysis:
        return None
    result = analysis[part]
    prompts = result.provenance.get("prompts", {}).get("count", prompts)
    measured = _of_result(item, result, field, name or quantity, prompts)
    words = "" if field in MAIN else f": {field.replace('_', ' ')}"
    return replace(measured, heading=name or f"{result.page_title}{words}")


def _of_result(item: Item, result: Result, field: str, name: str, prompts: int) -> Reading:
    known = result.quantities()
    chosen = next(iter(known), None) if field in MAIN and field not in known else field
    if chosen in known:
        quantity = known[chosen]
        labels = labels_of({chosen: quantity}, result.coordinates())
        value, low, high = (end.double() for end in (quantity.value(), *quantity.ends()))
        along = tuple(tuple(labels[dim]) for dim in quantity.dims)
        unit, count = quantity.unit or chosen.replace("_", " "), quantity.count
        return Reading(item, name, quantity.dims, along, value, low, high, count, unit, quantity)
    attribute = getattr(result, field, None) if field and not field.startswith("_") else None
    if isinstance(attribute, Interval | Samples | Real) and not isinstance(attribute, bool):
        return _plain(item, name, attribute, prompts)
    raise SweepError(
        f"{type(result).__name__} has no quantity {field!r} with numbers and intervals. "
        f"{near_matches(field, known) if known else 'It has no quantities.'}"
    )


def _plain(item: Item, name: str, given: object, prompts: int) -> Reading:
    """The reading of a function's value; a number alone has no interval."""
    if isinstance(given, Samples):
        value, low, high = (end.double() for end in (given.values, given.low, given.high))
        count = prompts if given.per_prompt is None else len(given.per_prompt)
        return Reading(item, name, given.dims, given.labels, value, low, high, count, given.unit)
    ends = given if isinstance(given, tuple) else (given, nan, nan)
    if len(ends) != 3 or not all(isinstance(end, Real) for end in ends):
        raise SweepError(
            f"{name} returned a {type(given).__name__}; return a number, an interval (value, low, high) or the "
            "Samples of a result."
        )
    value, low, high = (torch.tensor(float(end), dtype=torch.float64) for end in ends)
    return Reading(item, name, (), (), value, low, high, prompts, name)


def bounds_of(unit: str) -> tuple[float, float] | None:
    """Bounds of a quantity of this unit; None if unknown, as for logits and logarithms."""
    if "log" in unit or not _SHARES.search(unit):
        return None
    return (-1.0, 1.0) if _CHANGES.search(unit) else (0.0, 1.0)

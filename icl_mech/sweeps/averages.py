"""`Averages` over the dimensions of a sweep, level by level, with hierarchical intervals: table, LaTeX, figure."""

from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl_mech.export_text import as_bytes, csv_text
from icl_mech.sweeps.cells import Averaged
from icl_mech.sweeps.shown import drawing, latex, rows

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from icl_mech._files import replace_file
from icl_mech._typing import Tensor
from icl_mech.errors import SweepError
from icl_mech.metrics import over_units
from icl_mech.metrics.nested import Estimate
from icl_mech.sweeps.cells import Cell
from icl_mech.sweeps.item import DIMS, Item
from icl_mech.sweeps.reading import Reading


@dataclass(frozen=True, eq=False, repr=False)
class Averages(Averaged):
    """A quantity averaged over dimensions of a sweep, with hierarchical 95 % intervals."""

    def to_pandas(self) -> "pd.DataFrame":
        """One row per number: its settings, value, interval ends and what it is averaged over."""
        import pandas as pd

        return pd.DataFrame(rows(self))

    def to_csv(self, path: Any = None) -> str | None:
        """`to_pandas` as CSV: written to a file, or returned.

        Texts that a spreadsheet would read as formulas begin with `'`.

        Raises:
            SweepError: the file cannot be written.
        """
        text = csv_text(self.to_pandas())
        if path is None:
            return text
        replace_file(Path(expanduser(path)), as_bytes(text), SweepError)
        return None

    def to_latex(self, columns: str | None = None, *, digits: int = 3) -> str:
        """A table as in papers: rows are the cells, columns the values of one dimension or axis.

        Args:
            columns: The dimension or axis that the columns show; None: the last that varies.
            digits: Number of decimals.

        Raises:
            SweepError: no such dimension or axis.
        """
        return latex([self], columns, digits)

    def drawing(self, **options: Any) -> Any:
        """The shape to draw: curves over layers or doses, else dots; see `plot`."""
        return drawing(self, **options)

    def plot(
        self, *, panels: str | None = None, curves: str | None = None, x: str | None = None
    ) -> "go.Figure":
        """Draw small multiples.

        Args:
            panels: Dimension or axis with one pair of axes for each value.
            curves: Dimension or axis with one curve for each value.
            x: Dimension or axis along the horizontal axis; by default layers, or doses.

        Raises:
            SweepError: no such dimension or axis.
        """
        from icl_mech.plots import figure

        return figure(self.drawing(panels=panels, curves=curves, x=x))

    def _ipython_display_(self) -> None:
        from icl_mech.frontend import in_notebook
        from icl_mech.plots import show

        if not in_notebook():
            raise NotImplementedError  # IPython then prints the repr
        show(self.summary(), self.plot())


DEPTHS = tuple(step / 20 for step in range(21))
"""Relative depths at which layers are compared if models differ in their number of layers."""

UNPAIRED = ("task", "n", "seed", "study")
"""Dimensions along which runs have different queries."""


def averaged(
    readings: Sequence[Reading],
    over: Sequence[str],
    minus: Mapping[str, Any],
    labels: Mapping[str, Any],
    relative: bool | None = None,
    fixed: Sequence[str] = (),
) -> Averages:
    """Average readings over dimensions.

    Raises:
        SweepError: readings whose axes or labels differ, or nothing to subtract.
    """
    levels = tuple(dim for dim in DIMS if dim in over)
    missing: list[str] = []
    if minus:
        depths = "layer" not in labels and len({_layers(reading) for reading in readings}) > 1
        readings = list(map(by_depth, readings)) if depths else readings
        readings = differences(readings, minus, labels, missing)
    else:
        readings = [reading.at(labels) for reading in readings]
    readings = on_one_axis(readings, relative)
    groups: dict[tuple[Any, ...], list[Reading]] = defaultdict(list)
    kept = [dim for dim in DIMS if dim not in levels]
    for reading in readings:
        groups[tuple(getattr(reading.item, dim) for dim in kept)].append(reading)
    if any(len({_way(reading.item) for reading in group}) > 1 for group in groups.values()):
        raise SweepError(
            "Demonstrations per class (shots) and in total (total) are two protocols, which are not "
            "averaged together; leave one of the two out of over=, or select one."
        )
    cells = [
        _cell(dict(zip(kept, place, strict=True)), group, levels, fixed)
        for place, group in groups.items()
    ]
    first = readings[0]
    return Averages(
        first.name,
        first.unit,
        levels,
        tuple(dim for dim in levels if dim in fixed),
        first.axes,
        first.labels,
        tuple(cells),
        dict(minus),
        tuple(missing),
        first.heading or first.name,
    )


def _way(item: Item) -> tuple[bool, bool]:
    """How the demonstrations of a run are counted: per class, in total, or neither."""
    return item.shots is not None, item.total is not None


def _cell(
    dims: Mapping[str, Any],
    readings: Sequence[Reading],
    levels: tuple[str, ...],
    fixed: Sequence[str],
) -> Cell:
    nested, units, points = _nest(readings, levels, fixed)
    ends = readings[0].bounds
    if ends is not None and all(reading.within(*ends) for reading in readings):
        nested = Estimate(
            nested.value, nested.low.clamp(min=ends[0]), nested.high.clamp(max=ends[1])
        )
    items = [reading.item for reading in readings]
    apart = of_tasks(items) if "task" in levels else []
    counted = {d: len({getattr(item, d) for item in items}) for d in levels if d not in apart}
    prompts = min(reading.prompts for reading in readings)
    return Cell(dims, *nested, units, points, counted, len(readings), prompts)


def of_tasks(items: Sequence[Item]) -> list[str]:
    """Dimensions whose values are disjoint between some tasks, such as numbers of prompts that each task sets."""
    disjoint = []
    for dim in ("shots", "total", "format", "n"):
        values: dict[str, set[Any]] = defaultdict(set)
        for item in items:
            values[item.task].add(getattr(item, dim))
        if any(left.isdisjoint(right) for left in values.values() for right in values.values()):
            disjoint.append(dim)
    return disjoint


def _nest(
    readings: Sequence[Reading], levels: tuple[str, ...], fixed: Sequence[str]
) -> tuple[Estimate, tuple[Any, ...], Tensor]:
    """The mean over the outermost level of the means over the levels below it."""
    if not levels:
        if len(readings) > 1:
            raise SweepError(
                f"{len(readings)} runs have the same settings ({readings[0].item.title}); select a part of "
                "the sweep first."
            )
        (only,) = readings
        return Estimate(only.value, only.low, only.high), (), only.value[None]
    groups: dict[Any, list[Reading]] = defaultdict(list)
    for reading in readings:
        groups[getattr(reading.item, levels[0])].append(reading)
    if len(groups) == 1 and len(levels) > 1:  # its mean is the mean of the level below
        return _nest(readings, levels[1:], fixed)
    below = [_nest(group, levels[1:], fixed)[0] for group in groups.values()]
    values, low, high = (torch.stack(ends) for ends in zip(*below, strict=True))
    drawn = max(reading.drawn for reading in readings) if levels[0] == "seed" else 0.0
    sampled = levels[0] not in fixed
    return over_units(values, low, high, sampled=sampled, drawn=drawn), tuple(groups), values


def differences(
    readings: Sequence[Reading],
    minus: Mapping[str, Any],
    labels: Mapping[str, Any],
    missing: list[str],
) -> list[Reading]:
    """Every reading minus its reference, which differs from it only in the dimensions of `minus`.

    Raises:
        SweepError: nothing to subtract.
    """
    free = {*minus, *(("false_share",) if "labels" in minus else ())}

    def place(item: Item) -> tuple[Any, ...]:
        return tuple(getattr(item, dim) for dim in DIMS if dim not in free)

    def is_reference(item: Item) -> bool:
        return all(getattr(item, dim) == value for dim, value in minus.items())

    references = {place(r.item): r for r in readings if is_reference(r.item)}
    if not references:
        there = {dim: sorted({str(getattr(r.item, dim)) for r in readings}) for dim in minus}
        raise SweepError(
            f"No run has {dict(minus)}, so there is nothing to subtract; the runs have {there}."
        )
    paired = not {*minus} & {*UNPAIRED}
    results = []
    for reading in readings:
        if is_reference(reading.item):
            continue
        reference = references.get(place(reading.item))
        if reference is None:
            missing.append(f"{reading.item.title}: there is no run to subtract")
        else:
            results.append(reading.minus(reference, labels, paired))
    if not results:
        raise SweepError(
            f"All runs have {dict(minus)}, so there is nothing to subtract it from; add runs with other values."
        )
    return results


# --- common axes ---


def on_one_axis(readings: Sequence[Reading], relative: bool | None) -> list[Reading]:
    """Readings with the same labels along the same axes; layers become relative depths if `relative` says so.

    Raises:
        SweepError: their axes or labels differ.
    """
    first = readings[0]
    for reading in readings:
        if reading.axes != first.axes:
            raise SweepError(
                f"{first.name} has the axes {list(first.axes)} in one run and {list(reading.axes)} in "
                "another; select a part of the sweep."
            )
    if "layer" in first.axes:
        sizes = {*map(_layers, readings)}
        if relative or (relative is None and len(sizes) > 1):
            readings = [by_depth(reading) for reading in readings]
            first = readings[0]
    for reading in readings:
        for axis, labels, expected in zip(first.axes, reading.labels, first.labels, strict=True):
            if labels != expected:
                raise SweepError(
                    f"{first.name} has {list(expected)} along {axis!r} in {first.item.title!r} and "
                    f"{list(labels)} in {reading.item.title!r}; choose labels that both have with {axis}=, or "
                    "select a part of the sweep."
                )
    return list(readings)


def _layers(reading: Reading) -> int:
    return len(reading.labels[reading.axes.index("layer")]) if "layer" in reading.axes else 0


def by_depth(reading: Reading) -> Reading:
    """The reading with its layers on a scale from 0, the first, to 1, the last."""
    place = reading.axes.index("layer")
    layers = (
        np.linspace(0, 1, len(reading.labels[place])) if len(reading.labels[place]) > 1 else [0]
    )
    put = partial(np.interp, DEPTHS, layers)
    ends = [
        torch.from_numpy(np.apply_along_axis(put, place, end.numpy()))
        for end in (reading.value, reading.low, reading.high)
    ]
    axes = tuple("depth" if axis == "layer" else axis for axis in reading.axes)
    labels = (*reading.labels[:place], DEPTHS, *reading.labels[place + 1 :])
    value, low, high = ends
    return replace(
        reading, axes=axes, labels=labels, value=value, low=low, high=high, quantity=None
    )

"""`Result`: per-prompt samples with named axes and everything derived from them, and `Samples` selected from it.

A result is a frozen dataclass of typed tensors and plain values. Its fields are the documented
numbers; the names of their axes are read from their types, so every result has intervals,
selection, tables, differences and a drawing without further code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.at_home import at_home
from icl_mech.errors import ResultError, near_matches
from icl_mech.metrics import Interval
from icl_mech.metrics.means import Kind
from icl_mech.results.answer_words import answer_kind, in_words_of
from icl_mech.results.figures import curves, dots, heatmap, usual
from icl_mech.results.prompts import basis, doubts, paired
from icl_mech.results.quantities import Quantity
from icl_mech.results.shown import Shown
from icl_mech.results.tables import ENDS, across, estimated, listed, per_prompt, table
from icl_mech.results.wording import counted
from icl_mech.shapes import Bars, Grid, LayerCurves, Shape

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


@at_home
@dataclass(frozen=True, eq=False, kw_only=True)
class Result(Shown):
    """Base of all results."""

    # --- labelled samples ---

    def estimates(self) -> "xr.Dataset":
        """Every quantity with its 95 % interval: axes of a cell, then `end` (value, low, high)."""
        import xarray as xr

        return xr.Dataset({name: self._estimate(name) for name in self._all_quantities()})

    def _estimate(self, quantity: str) -> "xr.DataArray":
        """One quantity with its 95 % interval; other quantities are not resampled."""
        array = estimated(quantity, self._all_quantities()[quantity], self.coordinates())
        array.attrs["unit"] = in_words_of(answer_kind(self.provenance), array.attrs["unit"])
        return array

    def to_xarray(self) -> "xr.Dataset":
        """Per-prompt values with named axes and labels, the axis `prompt` first.

        Raises:
            ResultError: a result without per-prompt values of one shape.
        """
        return per_prompt(self._all_quantities(), self.coordinates(), type(self).__name__)

    def sel(self, quantity: str | None = None, **labels: Any) -> "Samples":
        """One quantity (default: the main one) at these labels, with its interval.

        A label may be a single one, a list, or a slice, as in xarray.

        Raises:
            ResultError: an unknown quantity, axis or label.
        """
        return selected(self, self._main(quantity), labels)

    def interval(self, quantity: str | None = None, **labels: Any) -> Interval:
        """One number with its 95 % interval: `result.interval("label_loyalty", method="text_anchor")`.

        Raises:
            ResultError: as `sel`, or labels that leave more than one number.
        """
        return self.sel(quantity, **labels).only()

    def __sub__(self, other: "Result") -> "Samples":
        """Paired differences to another result over the same prompts, with intervals.

        Raises:
            ResultError: a different kind, prompts or axes.
        """
        return difference(self, other)

    def _all_quantities(self) -> dict[str, Quantity]:
        quantities = self.quantities()
        if not quantities:
            raise ResultError(
                f"{type(self).__name__} has no per-prompt values of one shape; read its fields instead."
            )
        return quantities

    def _main(self, quantity: str | None) -> str:
        known = self._all_quantities()
        name: Any = next(iter(known)) if quantity is None else quantity
        if not isinstance(name, str) or name not in known:
            raise ResultError(
                f"{type(self).__name__} has no quantity {name!r}. {near_matches(name, known)}"
            )
        return name

    def to_pandas(self, quantity: str | None = None, *, wide: bool = False) -> "pd.DataFrame":
        """One row per cell: its labels, then `x`, `x_low`, `x_high` of each quantity `x` over these axes.

        Args:
            quantity: Which one; by default the main one and all others over the same axes.
            wide: Labels of the first axis become columns, of one quantity.

        Raises:
            ResultError: an unknown quantity, or a result without per-prompt values of one shape.
        """
        if quantity is None and (plain := self.plain_table()) is not None:
            return plain
        main = self._main(quantity)
        if wide:
            return across(self._estimate(main))
        names = [main] if quantity is not None else self._alike(main)
        frame = table({name: self._estimate(name) for name in names})
        if quantity is None:
            frame = frame.assign(**self.more_columns())
        order = {"ascending": False, "kind": "stable", "ignore_index": True}
        return frame.sort_values(main, **order) if self.ranked else frame

    def plain_table(self) -> "pd.DataFrame | None":
        """The table of a result without per-prompt values; None for all others."""
        return None

    def _alike(self, main: str) -> list[str]:
        """The main quantity, then others over the same axes."""
        known = self._all_quantities()
        main_quantity = known[main]
        alike = [
            name
            for name, quantity in known.items()
            if quantity.dims == main_quantity.dims and name != main
        ]
        return [main, *alike]

    def more_columns(self) -> Mapping[str, Any]:
        """Further columns of the usual table: a value, or one for each row."""
        return {}

    def by_prompt(self, quantity: str | None = None) -> "pd.DataFrame":
        """One row per prompt and cell: `prompt`, the labels, and the value of this prompt.

        Args:
            quantity: Which one; by default the main one.

        Raises:
            ResultError: as `to_pandas`.
        """
        name = self._main(quantity)
        values = self.to_xarray().get(name)
        if values is None:
            raise ResultError(
                f"{name} has no per-prompt values, because it is a function of all prompts; use to_pandas()."
            )
        return values.to_dataframe(name).reset_index()

    # --- showing ---

    def summary(self) -> str:
        """One line with the main outcome."""
        if "summary" in self.sentences:
            return self.sentences.say("summary", result=self)
        quantities = self.quantities()
        if not quantities:
            return type(self).__name__
        name, first = next(iter(quantities.items()))
        parts = [str(self.interval())] if not first.dims else [" x ".join(first.dims)]
        return f"{name.replace('_', ' ')}: {', '.join(parts)}, {counted(first.count, 'prompt')}"

    def usual_drawing(self) -> Shape:
        """The drawing of its main quantity.

        Raises:
            ResultError: for results that have no figure.
        """
        return self.sel().drawing()


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples(Result):
    """One quantity over labelled axes, with 95 % intervals over prompts.

    Attributes:
        name: Name of the quantity.
        dims: Names of the axes of `values`.
        labels: Labels along each axis.
        values: Estimates.
        low: Lower ends of their intervals.
        high: Upper ends.
        per_prompt: Values of each prompt, if the estimates are their means, else None.
        unit: Quantity and unit.
        heading: Heading of the figure.
        note: Prompts and assumptions behind the numbers.
        kind: Kind of the per-prompt values, see `mean_ends`.
    """

    name: str
    dims: tuple[str, ...]
    labels: tuple[tuple[Any, ...], ...]
    values: Float[Tensor, " *cell"]
    low: Float[Tensor, " *cell"]
    high: Float[Tensor, " *cell"]
    per_prompt: Tensor | None = None
    unit: str = ""
    heading: str = ""
    note: str = ""
    kind: Kind = "value"

    def quantities(self) -> dict[str, Quantity]:
        """The one quantity, if its per-prompt values are known."""
        if self.per_prompt is None:
            return {}
        return {self.name: Quantity(self.dims, self.per_prompt, unit=self.unit, kind=self.kind)}

    def coordinates(self) -> Mapping[str, tuple[Any, ...]]:
        """The labels along every axis."""
        return dict(zip(self.dims, self.labels, strict=True))

    def estimates(self) -> "xr.Dataset":
        """The stored values and ends; for a difference they are paired."""
        import xarray as xr

        return xr.Dataset({self.name: self._estimate(self.name)})

    def _estimate(self, quantity: str) -> "xr.DataArray":
        """The stored values and ends."""
        import xarray as xr

        ends = [end.numpy() for end in (self.values, self.low, self.high)]
        # Lists, because xarray reads a tuple of labels as dims, data and attributes.
        coords = {
            "end": list(ENDS),
            **{dim: list(labels) for dim, labels in self.coordinates().items()},
        }
        return xr.DataArray(ends, coords, ("end", *self.dims), attrs={"unit": self.unit})

    def _main(self, quantity: str | None) -> str:
        if quantity not in (None, self.name):
            raise ResultError(f"These samples hold only {self.name!r}, not {quantity!r}.")
        return self.name

    def _alike(self, main: str) -> list[str]:
        """The one quantity."""
        return [main]

    def only(self) -> Interval:
        """The single number of these samples.

        Raises:
            ResultError: there are several numbers.
        """
        if self.values.numel() != 1:
            sizes = ", ".join(
                f"{dim} ({len(labels)})" for dim, labels in zip(self.dims, self.labels, strict=True)
            )
            raise ResultError(f"{self.name} has one number for each {sizes}; select a single one.")
        return Interval(*(float(end.flatten()[0]) for end in (self.values, self.low, self.high)))

    def summary(self) -> str:
        """One line with the number, or the cell farthest from 0."""
        heading = self.heading or self.name.replace("_", " ")
        if self.values.numel() == 1:
            return f"{heading}: {self.only()}"
        if not bool(self.values.isfinite().any()):
            return f"{heading}: undefined"
        cell = int(self.values.nan_to_num().abs().argmax())
        place = torch.unravel_index(torch.tensor(cell), self.values.shape)
        named = ", ".join(
            f"{dim} {labels[int(index)]}"
            for dim, labels, index in zip(self.dims, self.labels, place, strict=True)
        )
        ends = Interval(*(float(end.flatten()[cell]) for end in (self.values, self.low, self.high)))
        return f"{heading}: {ends} at {named}, the largest of {self.values.numel()}"

    def usual_drawing(self) -> Shape:
        """Layers by heads as a map, else curves over layers, a map over two axes, dots, or a table."""
        table = self.to_pandas()
        rows = table.itertuples(index=False)
        return usual(
            self,
            self.heading or self.name.replace("_", " "),
            list(rows),
            list(map(str, table.columns)),
        )

    def curves(
        self, title: str, names: Sequence[str] = (), *, along: str = "layer", **more: Any
    ) -> LayerCurves:
        """One curve for each label of the other axis; see `icl_mech.results.figures.curves`."""
        return curves(self, title, names, along=along, **more)

    def heatmap(self, title: str, **more: Any) -> Grid:
        """A map over both axes; see `icl_mech.results.figures.heatmap`."""
        return heatmap(self, title, **more)

    def dots(
        self, title: str, groups: Sequence[str] = (), names: Sequence[str] = (), **more: Any
    ) -> Bars:
        """Dots with intervals; see `icl_mech.results.figures.dots`."""
        return dots(self, title, groups, names, **more)


def selected(result: Result, name: str, labels: Mapping[str, Any]) -> Samples:
    """One quantity of a result at these labels.

    Raises:
        ResultError: an unknown axis or label.
    """
    estimates, quantity = result._estimate(name), result.quantities().get(name)
    unknown = [dim for dim in labels if dim not in estimates.dims[1:]]
    if unknown:
        near = near_matches(unknown[0], estimates.dims[1:] or ["none"])
        raise ResultError(f"{name} has no axis {unknown[0]!r}. {near}")
    try:
        chosen = estimates.sel(labels)
        samples = None if quantity is None else result.to_xarray().get(name)
        samples = None if samples is None else samples.sel(labels)
        if not chosen.size:
            raise KeyError(labels)
    except (KeyError, TypeError, ValueError) as error:
        asked = ", ".join(f"{dim}={label!r}" for dim, label in labels.items())
        known = "; ".join(f"{dim}: {listed(estimates[dim].values)}" for dim in labels)
        raise ResultError(f"{name} has no value at {asked}; its labels are {known}.") from error
    if samples is not None and samples.dims[1:] != chosen.dims[1:]:
        samples = None
    value, low, high = (torch.tensor(end) for end in chosen.values)
    ends = {d: " to ".join(map(str, chosen[d].values[[0, -1]])) for d in labels if d in chosen.dims}
    places = [
        f"{d} {ends[d] if isinstance(label, slice) else label}" for d, label in labels.items()
    ]
    means = quantity is None or quantity.statistic is None
    prompt_values = torch.tensor(samples.values) if samples is not None and means else None
    dims = tuple(map(str, chosen.dims[1:]))
    shown = [quantity] if quantity and quantity.statistic is not None else []
    if quantity and prompt_values is not None:
        shown = [replace(quantity, dims=dims, per_prompt=prompt_values)]
    return Samples(
        name=name,
        dims=dims,
        labels=tuple(tuple(chosen[dim].values.tolist()) for dim in chosen.dims[1:]),
        values=value,
        low=low,
        high=high,
        per_prompt=prompt_values,
        unit=str(chosen.attrs.get("unit", name)),
        heading=", ".join([name.replace("_", " "), *places]),
        note=basis(result, quantity="") + doubts(shown),
        kind="value" if quantity is None else quantity.kind,
        provenance={**result.provenance, "selected": {"quantity": name, **labels}},
    )


def difference(one: Result, other: Any) -> Samples:
    """Paired differences of the main quantities of two results over the same prompts.

    Raises:
        ResultError: different kinds, prompts or axes.
    """
    if type(one) is not type(other):
        raise ResultError(
            f"A {type(one).__name__} and a {type(other).__name__} measure different quantities; "
            "subtract results of one kind."
        )
    name = one._main(None)
    first, second, labels = paired(name, one, other)
    value, low, high = first.minus(second)
    means = first.statistic is None and second.statistic is None
    changes = first.per_prompt.double() - second.per_prompt.double() if means else None
    kind = first.kind_minus(second)
    shown = [first] if changes is None else [Quantity(first.dims, changes, kind=kind)]
    return Samples(
        name=name,
        dims=first.dims,
        labels=tuple(tuple(labels[dim]) for dim in first.dims),
        values=value,
        low=low,
        high=high,
        per_prompt=changes,
        unit=f"difference of {first.unit or name.replace('_', ' ')}",
        heading=f"difference of {name.replace('_', ' ')}",
        note=f"{basis(one, quantity='')}{doubts(shown)}; paired",
        kind=kind,
        provenance={
            **one.provenance,
            "difference": {"minuend": one.provenance, "subtrahend": other.provenance},
        },
    )

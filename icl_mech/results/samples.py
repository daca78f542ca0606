"""`Samples`: labelled numbers with intervals, cut out of a result or the difference of two."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.metrics import Interval, Kind
from icl_mech.results.base import ENDS, Result
from icl_mech.results.prompts import basis, check_same_prompts, doubts
from icl_mech.results.quantities import Quantity, labels_of
from icl_mech.shapes import Bars, Grid, LayerCurves, Shape, Table

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

MOST_CURVES = 12
"""More rows than this are a heatmap, not curves or bars."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples(Result):
    """One quantity over labelled axes, with 95 % intervals over prompts.

    Attributes:
        name: Of the quantity.
        dims: Names of the axes of `values`.
        labels: Labels along each of them.
        values: Estimates.
        low: Lower ends of their intervals.
        high: Upper ends.
        per_prompt: Values of each prompt, if the estimates are their means, else None.
        unit: Quantity and unit.
        heading: Of the figure.
        note: What the numbers rest on.
        kind: Of the per-prompt values, see `mean_ends`.
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
        """Values and ends as they are: those of a difference are paired."""
        import xarray as xr

        return xr.Dataset({self.name: self._estimate(self.name)})

    def _estimate(self, quantity: str) -> "xr.DataArray":
        """Values and ends as they are."""
        import xarray as xr

        ends = [end.numpy() for end in (self.values, self.low, self.high)]
        # Lists: xarray takes a tuple of labels for dims, data and attributes.
        coords = {"end": list(ENDS), **{dim: list(own) for dim, own in self.coordinates().items()}}
        return xr.DataArray(ends, coords, ("end", *self.dims), attrs={"unit": self.unit})

    def _main(self, quantity: str | None) -> str:
        if quantity not in (None, self.name):
            raise ResultError(f"These samples hold {self.name!r} only, not {quantity!r}.")
        return self.name

    def only(self) -> Interval:
        """The one number these samples are.

        Raises:
            ResultError: there are several.
        """
        if self.values.numel() != 1:
            sizes = ", ".join(
                f"{dim} ({len(own)})" for dim, own in zip(self.dims, self.labels, strict=True)
            )
            raise ResultError(f"{self.name} is one number for each {sizes}; name the one you want.")
        return Interval(*(float(end.flatten()[0]) for end in (self.values, self.low, self.high)))

    def summary(self) -> str:
        """The number, or the cell farthest from 0."""
        heading = self.heading or self.name.replace("_", " ")
        if self.values.numel() == 1:
            return f"{heading}: {self.only()}"
        if not bool(self.values.isfinite().any()):
            return f"{heading}: undefined"
        place = int(self.values.nan_to_num().abs().argmax())
        where = []
        for own, size in zip(self.labels[::-1], self.values.shape[::-1], strict=True):
            place, index = divmod(place, size)
            where.append(own[index])
        named = ", ".join(
            f"{dim} {label}" for dim, label in zip(self.dims, where[::-1], strict=True)
        )
        cell = int(self.values.nan_to_num().abs().argmax())
        ends = Interval(*(float(end.flatten()[cell]) for end in (self.values, self.low, self.high)))
        return f"{heading}: {ends} at {named}, the largest of {self.values.numel()}"

    def to_pandas(self) -> "pd.DataFrame":
        """One row per cell: its labels, value, low and high."""
        from itertools import product

        import pandas as pd

        table = pd.DataFrame(list(product(*self.labels)), columns=list(self.dims))
        for name, end in (("value", self.values), ("low", self.low), ("high", self.high)):
            table[name] = end.flatten().tolist()
        return table

    def drawing(self) -> Shape:
        """Curves over layers, a map over two axes, dots with intervals, or a table."""
        unit, title = self.unit or self.name, self.heading or self.name.replace("_", " ")
        if "layer" in self.dims and self.values.ndim <= 2:
            rows, names = self._rows("layer")
            if len(names) <= MOST_CURVES:
                values, low, high = rows
                return LayerCurves(
                    title=title, names=names, values=values, low=low, high=high, y_title=unit,
                    note=self.note, x=self._numbers("layer"),
                )  # fmt: skip
        if self.values.ndim == 2:
            down, across = self.dims
            return Grid(
                title, self.values, down, across, unit, note=self.note, low=self.low,
                high=self.high, signed=bool((self.values < 0).any()),
            )  # fmt: skip
        if self.values.ndim < 2 and self.values.numel() <= MOST_CURVES:
            values, low, high = (end.reshape(-1, 1) for end in (self.values, self.low, self.high))
            groups = tuple(map(str, self.labels[0])) if self.dims else (self.name,)
            return Bars(title, groups, (unit,), values, low, high, unit, note=self.note)
        table = self.to_pandas()
        texts = tuple(tuple(map(str, row)) for row in table.itertuples(index=False))
        return Table(title, tuple(map(str, table.columns)), texts, self.note)

    def _rows(self, along: str) -> tuple[list[Tensor], tuple[str, ...]]:
        """Values, low and high as `[curve, along]`, and the names of the curves."""
        if len(self.dims) == 1:
            return [end[None] for end in (self.values, self.low, self.high)], (self.name,)
        other = 1 - self.dims.index(along)
        ends = [end.movedim(other, 0) for end in (self.values, self.low, self.high)]
        return ends, tuple(map(str, self.labels[other]))

    def _numbers(self, dim: str) -> tuple[float, ...] | None:
        own = self.labels[self.dims.index(dim)]
        return tuple(map(float, own)) if all(isinstance(x, int | float) for x in own) else None


def selected(result: Result, name: str, labels: Mapping[str, Any]) -> Samples:
    """One quantity of a result at these labels.

    Raises:
        ResultError: an axis or label that is not there.
    """
    estimates, quantity = result._estimate(name), result.quantities().get(name)
    unknown = [dim for dim in labels if dim not in estimates.dims[1:]]
    if unknown:
        axes = ", ".join(map(str, estimates.dims[1:])) or "none"
        raise ResultError(f"{name} has no axis {unknown[0]!r}; its axes: {axes}.")
    try:
        chosen = estimates.sel(labels)
        samples = None if quantity is None else result.to_xarray().get(name)
        samples = None if samples is None else samples.sel(labels)
        if not chosen.size:
            raise KeyError(labels)
    except (KeyError, TypeError, ValueError) as error:
        asked = ", ".join(f"{dim}={label!r}" for dim, label in labels.items())
        known = "; ".join(f"{dim}: {_listed(estimates[dim].values)}" for dim in labels)
        raise ResultError(f"{name} has nothing at {asked}; it has {known}.") from error
    if samples is not None and samples.dims[1:] != chosen.dims[1:]:
        samples = None
    value, low, high = (torch.tensor(end) for end in chosen.values)
    means = quantity is None or quantity.statistic is None
    own = torch.tensor(samples.values) if samples is not None and means else None
    dims = tuple(map(str, chosen.dims[1:]))
    shown = (
        [] if own is None or quantity is None else [replace(quantity, dims=dims, per_prompt=own)]
    )
    return Samples(
        name=name,
        dims=dims,
        labels=tuple(tuple(chosen[dim].values.tolist()) for dim in chosen.dims[1:]),
        values=value,
        low=low,
        high=high,
        per_prompt=own,
        unit=str(chosen.attrs.get("unit", name)),
        heading=", ".join(
            [name.replace("_", " "), *(f"{dim} {label}" for dim, label in labels.items())]
        ),
        note=basis(result, quantity="") + doubts(shown),
        kind="value" if quantity is None else quantity.kind,
        provenance={**result.provenance, "selected": {"quantity": name, **labels}},
    )


def difference(one: Result, other: Any) -> Samples:
    """Paired differences of the main quantities of two results over the same prompts.

    Raises:
        ResultError: other kinds, prompts or axes.
    """
    if type(one) is not type(other):
        raise ResultError(
            f"A {type(one).__name__} and a {type(other).__name__} measure different things; subtract "
            "results of one kind."
        )
    check_same_prompts(one, other)
    name = one._main(None)
    first, second = one.quantities().get(name), other.quantities().get(name)
    if first is None:
        raise ResultError(
            f"These samples of {name!r} hold no per-prompt values, because they are no means; subtract "
            "the whole results first, then select with sel()."
        )
    if second is None:
        raise ResultError(
            f"One side is of {name!r}, the other of {', '.join(map(repr, other.quantities()))}; "
            "subtract samples of one quantity."
        )
    labels = [
        labels_of({name: quantity}, result.coordinates())
        for quantity, result in ((first, one), (second, other))
    ]
    if labels[0] != labels[1] or first.dims != second.dims:
        raise ResultError(
            f"{name} has the axes {_sizes(labels[0])} on one side and {_sizes(labels[1])} on the "
            "other, so cells cannot be paired; select what both have with sel()."
        )
    if first.count != second.count:
        raise ResultError(
            f"{name} rests on {first.count} prompts on one side and {second.count} on the other, so "
            "they cannot be paired; measure both on the same ones."
        )
    value, low, high = first.minus(second)
    means = first.statistic is None and second.statistic is None
    changes = first.per_prompt.double() - second.per_prompt.double() if means else None
    kind = first.kind_minus(second)
    shown = [] if changes is None else [Quantity(first.dims, changes, kind=kind)]
    return Samples(
        name=name,
        dims=first.dims,
        labels=tuple(tuple(labels[0][dim]) for dim in first.dims),
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


def _sizes(labels: Mapping[str, list[Any]]) -> str:
    return ", ".join(f"{dim} ({len(own)})" for dim, own in labels.items()) or "no axes"


def _listed(labels: Any, most: int = 8) -> str:
    shown = [str(label) for label in labels[:most]]
    return ", ".join(shown) + (", ..." if len(labels) > most else "")

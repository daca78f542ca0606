"""Quantities as labelled arrays and as tables."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icl_mech.results.quantities import PROMPT, Quantity, labels_of

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

ENDS = ("value", "low", "high")
"""Labels along the axis `end` of estimates."""


def estimated(
    name: str, quantity: Quantity, coordinates: Mapping[str, Sequence[Any]]
) -> "xr.DataArray":
    """A quantity with its 95 % interval: the axis `end`, then the axes of a cell, with their labels."""
    import xarray as xr

    labels = labels_of({name: quantity}, coordinates)
    ends = [end.numpy() for end in (quantity.value(), *quantity.ends())]
    coords = {"end": list(ENDS), **{dim: labels[dim] for dim in quantity.dims}}
    unit = {"unit": quantity.unit or name.replace("_", " ")}
    return xr.DataArray(ends, coords, ("end", *quantity.dims), attrs=unit)


def per_prompt(
    quantities: Mapping[str, Quantity], coordinates: Mapping[str, Sequence[Any]], kind: str
) -> "xr.Dataset":
    """Values of single prompts with named axes and labels, the axis `prompt` first."""
    import xarray as xr

    labels = labels_of(quantities, coordinates)
    arrays = {
        name: xr.DataArray(quantity.per_prompt.numpy(), dims=(PROMPT, *quantity.dims))
        for name, quantity in quantities.items()
        # A statistic may have other axes than the per-prompt values behind it, or longer ones.
        if quantity.per_prompt.shape[1:] == tuple(len(labels[dim]) for dim in quantity.dims)
    }
    used = {dim for array in arrays.values() for dim in array.dims}
    return xr.Dataset(
        arrays, {dim: values for dim, values in labels.items() if dim in used}, {"kind": kind}
    )


def table(parts: Mapping[str, "xr.DataArray"]) -> "pd.DataFrame":
    """One row per cell: its labels, then `x`, `x_low` and `x_high` of every part `x`."""
    first = next(iter(parts.values()))
    dims = [str(dim) for dim in first.dims[1:]]
    return _columns(dims, first, parts)


def across(found: "xr.DataArray") -> "pd.DataFrame":
    """Labels of the first axis as columns, `x`, `x_low` and `x_high` for each; one row per other cell."""
    first, *rest = (str(dim) for dim in found.dims[1:]) if found.ndim > 1 else ("",)
    if not first:
        return table({str(found.attrs.get("unit", "value")): found})
    parts = {str(label): found.sel({first: label}) for label in found[first].values.tolist()}
    return _columns(rest, found, parts)


def _columns(
    dims: Sequence[str], estimates: "xr.DataArray", parts: Mapping[str, "xr.DataArray"]
) -> "pd.DataFrame":
    import pandas as pd

    columns = {
        f"{name}{suffix}": end.flatten().tolist()
        for name, array in parts.items()
        for end, suffix in zip(array.values, ("", "_low", "_high"), strict=True)
    }
    if not dims:
        return pd.DataFrame(columns)
    cells = [estimates[dim].values.tolist() for dim in dims]
    return pd.DataFrame(columns, pd.MultiIndex.from_product(cells, names=dims)).reset_index()


def sizes(labels: Mapping[str, list[Any]]) -> str:
    """The axes with their numbers of labels, for messages."""
    return ", ".join(f"{dim} ({len(names)})" for dim, names in labels.items()) or "no axes"


def listed(labels: Any, most: int = 8) -> str:
    """The first labels of an axis, for messages."""
    shown = [str(label) for label in labels[:most]]
    return ", ".join(shown) + (", ..." if len(labels) > most else "")

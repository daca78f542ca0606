"""`Result`: per-prompt samples with named axes and what follows from them.

A result is a frozen dataclass of typed tensors and plain values. Its fields are the documented
numbers; the names of their axes are read from their types, so every result has intervals,
selection, tables, differences and a drawing without code of its own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from icl_mech.at_home import at_home
from icl_mech.checking import checked
from icl_mech.errors import ResultError, near_matches
from icl_mech.frontend import in_notebook
from icl_mech.metrics import Interval
from icl_mech.results.figures import Definition, Figure
from icl_mech.results.quantities import PROMPT, Quantity, labels_of, typed_quantities
from icl_mech.shapes import Shape

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import xarray as xr

    from icl_mech.results.samples import Samples

_KINDS: dict[str, type["Result"]] = {}
AnyResult = TypeVar("AnyResult", bound="Result")

ENDS = ("value", "low", "high")
"""Along the axis `end` of estimates."""


@at_home
@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """Base of all results.

    Attributes:
        provenance: Model, task, seed, versions and the variant of every definition used.
    """

    title: ClassVar[str] = ""
    """Heading on a page; by default the words of the class name."""

    shows: ClassVar[tuple[str, ...]] = ("",)
    """What `drawing(show=...)` can show, the usual one first."""

    definitions: ClassVar[tuple[Definition, ...]] = ()
    """Formulas of its quantities, for pages and the reference."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Fields by the names they have in files of earlier versions."""

    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    def __init_subclass__(cls) -> None:
        """Make the kind known to `load_result`.

        Raises:
            ResultError: another kind of that name is there, and files could not tell them apart.
        """
        known = _KINDS.get(cls.__name__)
        if known is not None and known.__module__ != cls.__module__:
            raise ResultError(
                f"There is a result {cls.__name__!r} in {known.__module__} already; saved files know "
                "kinds by their class name, so choose another."
            )
        _KINDS[cls.__name__] = at_home(cls)
        if "__repr__" not in vars(cls):
            # `dataclass` leaves a method that is there; its own would print every tensor.
            cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    # --- labelled samples ---

    def quantities(self) -> dict[str, Quantity]:
        """What is estimated over prompts, the main one first.

        By default the means of all fields whose type names a prompt axis (`batch`).
        """
        return typed_quantities(self)

    def coordinates(self) -> Mapping[str, Sequence[Any]]:
        """Labels along axes, by axis name; axes not named here count from 0."""
        return {}

    def estimates(self) -> "xr.Dataset":
        """Every quantity with its 95 % interval: axes of a cell, then `end` (value, low, high)."""
        import xarray as xr

        return xr.Dataset({name: self._estimate(name) for name in self._all_quantities()})

    def _estimate(self, quantity: str) -> "xr.DataArray":
        """One quantity with its 95 % interval; the others are not resampled."""
        import xarray as xr

        own = self._all_quantities()[quantity]
        labels = labels_of({quantity: own}, self.coordinates())
        ends = [end.numpy() for end in (own.value(), *own.ends())]
        coords = {"end": list(ENDS), **{dim: labels[dim] for dim in own.dims}}
        unit = {"unit": own.unit or quantity.replace("_", " ")}
        return xr.DataArray(ends, coords, ("end", *own.dims), attrs=unit)

    def to_xarray(self) -> "xr.Dataset":
        """Per-prompt values with named axes and labels, the axis `prompt` first.

        Raises:
            ResultError: a result without per-prompt numbers of one shape.
        """
        import xarray as xr

        quantities = self._all_quantities()
        arrays = {}
        for name, quantity in quantities.items():
            # A statistic may have other axes than the values it is made from.
            if quantity.per_prompt.ndim == 1 + len(quantity.dims):
                values = quantity.per_prompt.numpy()
                arrays[name] = xr.DataArray(values, dims=(PROMPT, *quantity.dims))
        labels = labels_of(quantities, self.coordinates())
        used = {dim for array in arrays.values() for dim in array.dims}
        coords = {dim: own for dim, own in labels.items() if dim in used}
        return xr.Dataset(arrays, coords, {"kind": type(self).__name__})

    def sel(self, quantity: str | None = None, **labels: Any) -> "Samples":
        """One quantity (default: the main one) at these labels, with its interval.

        A label may be one of them, a list, or a slice, as in xarray.

        Raises:
            ResultError: a quantity, axis or label that is not there.
        """
        from icl_mech.results.samples import selected

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
            ResultError: another kind, other prompts, or other axes.
        """
        from icl_mech.results.samples import difference

        return difference(self, other)

    def _all_quantities(self) -> dict[str, Quantity]:
        quantities = self.quantities()
        if not quantities:
            raise ResultError(
                f"{type(self).__name__} keeps no per-prompt numbers of one shape; read its fields."
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

    def to_pandas(self) -> "pd.DataFrame":
        """One row per cell of the main quantity: its labels, value, low and high.

        Raises:
            ResultError: as `to_xarray`.
        """
        return self.sel().to_pandas()

    # --- showing ---

    @property
    def page_title(self) -> str:
        """Heading of its figures on a page."""
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", type(self).__name__).capitalize()
        return self.title or words

    def summary(self) -> str:
        """One line that says what came out."""
        quantities = self.quantities()
        if not quantities:
            return type(self).__name__
        name, first = next(iter(quantities.items()))
        parts = [str(self.interval())] if not first.dims else [" x ".join(first.dims)]
        return f"{name.replace('_', ' ')}: {', '.join(parts)}, {first.count} prompts"

    def __repr__(self) -> str:
        """The kind and its summary."""
        return f"<{type(self).__name__} {self.summary()}>"

    def drawing(self) -> Shape:
        """The shape this result is drawn as; by default its main quantity.

        Raises:
            ResultError: for results that have no figure.
        """
        return self.sel().drawing()

    def figures(self) -> list[Figure]:
        """What a page shows of this result, each figure with its sentence."""
        return [Figure(self.shows[0], answer=self.summary())]

    def plot(self, show: str | None = None, **options: Any) -> "go.Figure":
        """The interactive plotly figure.

        Args:
            show: What to show, one of `shows`.
            **options: Those of the result's `drawing`.

        Raises:
            ResultError: unknown `show`, or a result without a figure.
        """
        from icl_mech.plots import figure

        if show is not None and show != "":
            self.check_show(show)
            options["show"] = show
        return figure(checked(ResultError)(self.drawing)(**options))

    def check_show(self, show: str) -> None:
        """Refuse what this result cannot show.

        Raises:
            ResultError: lists what it can.
        """
        if show not in self.shows:
            known = [name for name in self.shows if name]
            hint = (
                near_matches(show, known) if known else "There is one drawing only; leave it out."
            )
            raise ResultError(f"show={show!r}. {hint}")

    def shown(self) -> "list[str | go.Figure]":
        """What a notebook shows: the summary and the figure, if it has one."""
        try:
            return [self.summary(), self.plot()]
        except ResultError:
            return [self.summary()]

    def _ipython_display_(self) -> None:
        from icl_mech.plots import show

        if not in_notebook():
            raise NotImplementedError  # IPython then prints the repr
        show(*self.shown())

    # --- files ---

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write `result.json` and `tensors.safetensors` into a folder, all or nothing.

        Args:
            folder: A new or empty folder.
            overwrite: It may hold files: those saved before are replaced as long as nobody changed
                them, all others stay.

        Raises:
            ResultError: the folder cannot be written, or holds files that would be lost; values
                that do not fit the types of their fields.
        """
        from icl_mech.results.folders import Folder
        from icl_mech.results.storage import FILES, write_result

        with Folder(folder, overwrite=overwrite, files=FILES) as place:
            write_result(self, place)
        return Path(folder).expanduser()

    @classmethod
    def load(cls: type[AnyResult], folder: str | Path) -> AnyResult:
        """Read what `save` wrote.

        Raises:
            ResultError: missing or damaged files, another kind of result, or a newer layout.
        """
        from icl_mech.results.storage import load_result

        loaded = load_result(folder)
        if not isinstance(loaded, cls):
            raise ResultError(f"{folder} holds a {type(loaded).__name__}, expected {cls.__name__}.")
        return loaded


def known_kinds() -> Mapping[str, type[Result]]:
    """Kinds of results that can be loaded, by class name."""
    return _KINDS

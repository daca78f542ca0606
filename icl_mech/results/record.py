"""`Record`: the part of a result that files and notes use: typed fields, provenance, quantities over prompts.

The methods of results are in `icl_mech.results.base`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

from icl_mech.at_home import at_home
from icl_mech.errors import ResultError
from icl_mech.names import EVERY_KIND, KINDS
from icl_mech.results.answer_words import handed_out
from icl_mech.results.figures import Definition
from icl_mech.results.half_precision import half_of
from icl_mech.results.quantities import KEPT, Quantity, kept, too_narrow, typed_quantities

_KINDS: dict[str, type["Record"]] = {}

_TEXT_METHODS = ("summary", "figures", "drawing")
"""Methods whose texts are reworded for the prompts' kind of answer."""


@at_home
@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """Fields and declarations common to all results.

    Attributes:
        provenance: Model, task, seed, versions and the variant of every definition used.
    """

    title: ClassVar[str] = ""
    """Heading on a page; by default the class name split into words."""

    shows: ClassVar[tuple[str, ...]] = ("",)
    """Options of `drawing(show=...)`, the default first."""

    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {}
    """Labels by axis name: the labels, or the name of the attribute that holds them.

    Axes that are not named here are numbered from 0.
    """

    ranked: ClassVar[bool] = False
    """True if rows of its table are sorted by the main quantity, the largest first."""

    definitions: ClassVar[tuple[Definition, ...]] = ()
    """Formulas of its quantities, for pages and the reference."""

    formerly: ClassVar[tuple[str, ...]] = ()
    """Names of this kind in files of earlier versions."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Current names of fields, by their names in files of earlier versions."""

    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    def __init_subclass__(cls) -> None:
        """Register the kind for loading, and reword its texts for the prompts' kind of answer.

        Raises:
            ResultError: another kind has that name, so files could not distinguish them.
        """
        known = _KINDS.get(cls.__name__)
        if known is not None and known.__module__ != cls.__module__:
            raise ResultError(
                f"{known.__module__} already defines a result {cls.__name__!r}, and saved files identify "
                "kinds by their class name; choose another name."
            )
        _KINDS[cls.__name__] = at_home(cls)
        earlier = [old for old, now in KINDS.items() if now == cls.__name__]
        for name in (*vars(cls).get("formerly", ()), *earlier):
            _KINDS.setdefault(name, cls)
        for name in (method for method in _TEXT_METHODS if method in vars(cls)):
            setattr(cls, name, handed_out(vars(cls)[name]))
        for name in {"quantities"} & vars(cls).keys():
            setattr(cls, name, kept(vars(cls)[name]))
        if "__repr__" not in vars(cls):
            # `dataclass` keeps an existing method; the one it generates would print every tensor.
            cls.__repr__ = Record.__repr__  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        """Pickle fields only, without the cache."""
        return {name: value for name, value in vars(self).items() if name != KEPT}

    @kept
    def quantities(self) -> dict[str, Quantity]:
        """Quantities estimated over prompts, the main one first.

        By default the means of the fields declared as a `quantity`; if there are none, of all fields
        whose type names a prompt axis (`batch`).
        """
        return typed_quantities(self)

    def coordinates(self) -> Mapping[str, Sequence[Any]]:
        """Labels along axes, by axis name, as `axis_labels` declares them."""
        return {
            axis: getattr(self, labels) if isinstance(labels, str) else labels
            for axis, labels in self.axis_labels.items()
        }

    def summary(self) -> str:
        """One line with the main outcome."""
        return type(self).__name__

    def __repr__(self) -> str:
        """The kind and its summary, half precision, and whether prompts are too few for its intervals."""
        dtype = half_of(self.provenance)
        notes = (f"; computed in {dtype}" if dtype else "") + too_narrow(self.quantities().values())
        return f"<{type(self).__name__} {self.summary()}{notes}>"


def known_kinds() -> Mapping[str, type[Record]]:
    """Loadable kinds of results, by class name."""
    import_module(EVERY_KIND)
    return _KINDS

"""`Record`: what a result is to files and notes: typed fields, provenance, quantities over prompts.

What can be asked of a result stands one floor above, in `icl_mech.results.base`.
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
"""Methods that give texts: their words are those for the prompts' kind of answer."""


@at_home
@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """What all results hold and declare.

    Attributes:
        provenance: Model, task, seed, versions and the variant of every definition used.
    """

    title: ClassVar[str] = ""
    """Heading on a page; by default the words of the class name."""

    shows: ClassVar[tuple[str, ...]] = ("",)
    """What `drawing(show=...)` can show, the usual one first."""

    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {}
    """Labels along axes, by axis name: the labels, or the name of the attribute that holds them.

    Axes that are not named here count from 0.
    """

    ranked: ClassVar[bool] = False
    """True if rows of its table stand in the order of the main quantity, the largest first."""

    definitions: ClassVar[tuple[Definition, ...]] = ()
    """Formulas of its quantities, for pages and the reference."""

    formerly: ClassVar[tuple[str, ...]] = ()
    """Names this kind has in files of earlier versions."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Fields by the names they have in files of earlier versions."""

    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    def __init_subclass__(cls) -> None:
        """Make the kind known to files, and its texts those for the prompts' kind of answer.

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
        earlier = [old for old, now in KINDS.items() if now == cls.__name__]
        for name in (*vars(cls).get("formerly", ()), *earlier):
            _KINDS.setdefault(name, cls)
        for name in (method for method in _TEXT_METHODS if method in vars(cls)):
            setattr(cls, name, handed_out(vars(cls)[name]))
        for name in {"quantities"} & vars(cls).keys():
            setattr(cls, name, kept(vars(cls)[name]))
        if "__repr__" not in vars(cls):
            # `dataclass` leaves a method that is there; its own would print every tensor.
            cls.__repr__ = Record.__repr__  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        """Fields only."""
        return {name: value for name, value in vars(self).items() if name != KEPT}

    @kept
    def quantities(self) -> dict[str, Quantity]:
        """What is estimated over prompts, the main one first.

        By default the means of the fields that are declared as a `quantity`; if there are none, of
        all fields whose type names a prompt axis (`batch`).
        """
        return typed_quantities(self)

    def coordinates(self) -> Mapping[str, Sequence[Any]]:
        """Labels along axes, by axis name, as `axis_labels` declares them."""
        return {
            axis: getattr(self, labels) if isinstance(labels, str) else labels
            for axis, labels in self.axis_labels.items()
        }

    def summary(self) -> str:
        """One line that says what came out."""
        return type(self).__name__

    def __repr__(self) -> str:
        """The kind and its summary, half precision, and whether prompts are too few for its intervals."""
        dtype = half_of(self.provenance)
        notes = (f"; computed in {dtype}" if dtype else "") + too_narrow(self.quantities().values())
        return f"<{type(self).__name__} {self.summary()}{notes}>"


def known_kinds() -> Mapping[str, type[Record]]:
    """Kinds of results that can be loaded, by class name."""
    import_module(EVERY_KIND)
    return _KINDS

"""`load`: anything this package saved in a folder, and published lenses."""

from pathlib import Path
from typing import TypeVar, overload

from icl_mech.documents import SAVED, index_in
from icl_mech.errors import ResultError
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.published import is_published, published_lens
from icl_mech.models import adapt
from icl_mech.results import Result
from icl_mech.results.files import given_path
from icl_mech.studies import Analysis
from icl_mech.sweeps import Sweep

KINDS: dict[str, type[Analysis | Sweep | Result]] = dict(
    zip(SAVED, (Analysis, Sweep, Result), strict=True)
)
K = TypeVar("K", bound=Analysis | Sweep | Result)


@overload
def load(folder: str | Path, model: object = None) -> Analysis | Sweep | Result: ...


@overload
def load(folder: str | Path, model: object = None, *, kind: type[K]) -> K: ...


def load(
    folder: str | Path, model: object = None, *, kind: type[object] = object
) -> Analysis | Sweep | Result:
    """What was saved in a folder: an analysis, a sweep, or one result (a lens, a context, any other).

    Args:
        folder: Where `save`, `out=` or the command line put it; or a published lens: a folder of
            tuned-lens (`config.json`, `params.pt`), a `.pt` file of jlens or TransformerLens.
        model: The model that a lens is for; it is checked here, and again by whatever uses it.
        kind: What it must be, such as `icl_mech.Sweep`; type checkers then know it, too.

    Raises:
        ResultError: a folder without any of these, another kind, a kind that is not a class, or damaged files.
        RunError: a lens of another model.
    """
    if not isinstance(kind, type):
        raise ResultError(f"kind={kind!r} is not a class; give one, such as kind=icl_mech.Sweep.")
    loaded = _loaded(given_path(folder), model)
    if not isinstance(loaded, kind):
        raise ResultError(
            f"{str(folder)!r} contains a {type(loaded).__name__}; expected a {kind.__name__}."
        )
    return loaded


def _loaded(place: Path, model: object) -> Analysis | Sweep | Result:
    if is_published(place):
        if model is None:
            raise ResultError(
                f"{str(place)!r} is a published lens; also give the model it was fitted to, as "
                "model=."
            )
        return published_lens(place, adapt(model))
    loaded: Analysis | Sweep | Result = KINDS[index_in(place)].load(place)
    if model is not None and isinstance(loaded, FittedLens):
        loaded.check_model(adapt(model))
    return loaded

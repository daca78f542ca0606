"""`load`: whatever this package saved in a folder."""

from pathlib import Path
from typing import Any

from icl_mech.errors import ResultError
from icl_mech.models import adapt
from icl_mech.results import Result, load_result
from icl_mech.results.files import INDEXES, given_path
from icl_mech.studies import Analysis, load_analysis
from icl_mech.sweeps import Sweep, load_sweep

READERS = {"analysis.json": load_analysis, "sweep.json": load_sweep, "result.json": load_result}


def load(folder: str | Path, model: Any = None) -> Analysis | Sweep | Result:
    """What was saved in a folder: an analysis, a sweep, or one result (a lens, a context, any other).

    Args:
        folder: Where `save`, `out=` or the command line put it.
        model: The model that a lens is for; it is checked here, and again by whatever uses it.

    Raises:
        ResultError: a folder without any of these, or damaged files.
        RunError: a lens of another model.
    """
    place = given_path(folder)
    found = next((name for name in READERS if (place / name).is_file()), None)
    if found is None:
        raise ResultError(
            f"{str(folder)!r} holds none of {', '.join(INDEXES)}, so nothing that was saved by icl_mech."
        )
    loaded: Any = READERS[found](folder)
    if model is not None and hasattr(loaded, "check_model"):
        loaded.check_model(adapt(model))
    return loaded  # type: ignore[no-any-return]

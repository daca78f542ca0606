"""`load`: anything this package saved in a folder, and published lenses.

Published lenses are `.pt` files, from which only tensors and plain values are read. They apply to the
residual stream of the unprocessed model, so a model with folded or centred weights is rejected, as are another
width, other layers and another name. The output of a block in a Jacobian lens is the entry of the next one;
entry 0, for which none is published, is read as by the logit lens.
"""

import pickle
from os.path import isdir, isfile
from pathlib import Path
from typing import TypeVar, overload

import torch
from torch import Tensor

from icl_mech.documents import SAVED, index_in, json_of
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.jacobian import JacobianLens
from icl_mech.measurements.lens.tuned import TunedLens
from icl_mech.models import LanguageModel, adapt
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
    if place.suffix == ".pt" or isfile(place / "params.pt"):
        if model is None:
            raise ResultError(
                f"{str(place)!r} is a published lens; also give the model it was fitted to, as "
                "model=."
            )
        return _published(place, adapt(model))
    loaded: Analysis | Sweep | Result = KINDS[index_in(place)].load(place)
    if model is not None and isinstance(loaded, FittedLens):
        loaded.check_model(adapt(model))
    return loaded


UNREADABLE = (
    *(OSError, EOFError, RuntimeError, pickle.UnpicklingError),
    *(LookupError, TypeError, ValueError, AttributeError),
)
"""Errors raised by files that are damaged or have another layout."""


def _published(place: Path, model: LanguageModel) -> FittedLens:
    info, kind = model.info, TunedLens if isdir(place) else JacobianLens
    try:
        name, maps = _translators(place) if isdir(place) else _jacobians(place, info.n_layers - 1)
    except UNREADABLE as error:
        raise ResultError(
            f"{str(place)!r} is not a lens in the format of tuned-lens or jlens for "
            f"{info.n_layers} layers: {type(error).__name__}: {str(error).partition('. ')[0]}"
        ) from error
    if info.processed_weights or (name and _last(name) != _last(info.name)):
        raise RunError(
            f"The published lens is for {name or 'a model'} as published on the hub, but this is "
            f"{info.name!r}{', its weights folded or centred' * info.processed_weights}. Load the "
            "published model with load_model; if the maps fit nevertheless, pass them to "
            "TunedLens.given or JacobianLens.given."
        )
    lens = kind.made(model, {"published": name or place.name}, **maps)
    lens.check_model(model)
    return lens


def _translators(folder: Path) -> tuple[str, dict[str, Tensor]]:
    about = json_of(folder / "config.json", ResultError)
    state = torch.load(folder / "params.pt", map_location="cpu", weights_only=True)
    rows = range(about["num_hidden_layers"])
    weight = torch.stack([state[f"{row}.weight"] for row in rows]).float()
    bias = torch.zeros(weight.shape[:2])
    if about.get("bias", True):
        bias = torch.stack([state[f"{row}.bias"] for row in rows]).float()
    return str(about["base_model_name_or_path"]), {"weight": weight, "bias": bias}


def _jacobians(file: Path, last: int) -> tuple[str, dict[str, Tensor]]:
    state = torch.load(file, map_location="cpu", weights_only=True)
    about = state.get("metadata", {})
    if sorted(state["J"]) != [*range(last)] or about.get("target_layer", last) not in (-1, last):
        raise ValueError(f"it does not map from layers 0 to {last - 1} to layer {last}")
    jacobians = [state["J"][row].float() for row in range(last)]
    maps = torch.stack([torch.eye(len(jacobians[0])), *jacobians])
    return str(about.get("model_name") or ""), {"jacobian": maps}


def _last(name: str) -> str:
    return name.rpartition("/")[2].lower()

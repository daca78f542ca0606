"""Published lenses: the files of tuned-lens, and of jlens and TransformerLens.

Published lenses are `.pt` files, from which only tensors and plain values are read. They apply to the
residual stream of the unprocessed model, so a model with folded or centred weights is rejected, as are another
width, other layers and another name. The output of a block in a Jacobian lens is the entry of the next one;
entry 0, for which none is published, is read as by the logit lens.

A name and a shape do not identify weights. So the unembedding is compared where the file has its hash, and the KL of the
lens on short passages with that of the logit lens.
"""

import hashlib
import pickle
import warnings
from os.path import exists, isdir, isfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icl_mech._typing import Tensor
from icl_mech.documents import json_of
from icl_mech.engine import run
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.lens.fitted import FittedLens, held_out_kl
from icl_mech.measurements.lens.jacobian import JacobianLens
from icl_mech.measurements.lens.residuals import ResidualReading, draw_positions
from icl_mech.measurements.lens.tuned import TunedLens
from icl_mech.models import LanguageModel
from icl_mech.prompts.passages import passages

PLACES = 4
"""Positions of each passage on which the KL is measured."""

UNREADABLE = (
    *(OSError, EOFError, RuntimeError, pickle.UnpicklingError),
    *(LookupError, TypeError, ValueError, AttributeError),
)
"""Errors raised by files that are damaged or have another layout."""


def is_published(place: Path) -> bool:
    """True for a `.pt` file, or a folder of tuned-lens."""
    return place.suffix == ".pt" or isfile(place / "params.pt")


def published_lens(place: Path, model: LanguageModel) -> FittedLens:
    """The lens in a file or folder, checked against the model, with its KL on short passages.

    Raises:
        ResultError: a damaged file, or one in another format or for another number of layers.
        RunError: a lens of another model, or a model with processed weights.
    """
    info, kind = model.info, TunedLens if isdir(place) else JacobianLens
    if not exists(place):
        raise ResultError(f"There is no file {str(place)!r}; give a lens that was downloaded.")
    try:
        published, maps = (
            _translators(place) if isdir(place) else _jacobians(place, info.n_layers - 1)
        )
    except UNREADABLE as error:
        raise ResultError(
            f"{str(place)!r} is not a lens in the format of tuned-lens or jlens for "
            f"{info.n_layers} layers: {_reason(error)}."
        ) from error
    name = published["published"]
    if info.processed_weights or (name and _last(name) != _last(info.name)):
        raise RunError(
            f"The published lens is for {name or 'a model'} as published on the hub, but this is "
            f"{info.name!r}{', its weights folded or centred' * info.processed_weights}. Load the "
            "published model with load_model; if the maps fit nevertheless, pass them to "
            "TunedLens.given or JacobianLens.given."
        )
    digest = published.pop("unembed_hash", None)
    if digest and digest != unembedding_hash(model):
        revision = f", revision {published['revision']!r}" if published.get("revision") else ""
        warnings.warn(
            f"The unembedding of {info.name!r} differs from the one that the published lens was fitted to: its "
            "config.json has another unembed_hash, which rounding to another number format may also change. Load the "
            f"model with the published weights{revision}.",
            stacklevel=4,
        )
    lens = kind.made(model, published | {"published": name or place.name}, **maps)
    lens.check_model(model)
    return _on_passages(lens, model)


def _on_passages(lens: FittedLens, model: LanguageModel) -> FittedLens:
    """The lens with its KL and that of the logit lens on short passages, if the tokenizer knows their words."""
    texts = passages(model.tokenizer)
    if texts is None:
        return lens
    reading = ResidualReading(draw_positions(texts, PLACES, 1, 0))
    (residuals,) = run(model, texts, [reading], progress=False)
    lens = held_out_kl(lens, model, residuals)
    fitted, logit = lens.mean_kl or (0.0, 0.0)
    if isinstance(lens, TunedLens) and not fitted < logit:
        warnings.warn(
            f"On {len(texts)} short passages, this lens is farther from the output of {model.info.name!r} than the "
            f"logit lens (KL {fitted:.3g} and {logit:.3g} nats, mean over layers), so it was probably fitted to "
            "other weights. Load the model with the weights that the lens was fitted to.",
            stacklevel=5,
        )
    return lens


def unembedding_hash(model: LanguageModel) -> str:
    """The `unembed_hash` of tuned-lens: SHA-256 of NumPy's summary of the unembedding with one decimal.

    The summary of a large matrix shows the first and last three rows and columns. So the hash tells unembeddings of different
    models apart, but not those of a model and its fine-tuned versions; and a value near the edge of a decimal may be rounded
    differently in another number format.

    Source: tuned-lens, `tuned_lens/utils.py` (`tensor_hash`).
    """
    last = model.info.d_vocab - 1
    # Any row in the middle stands for all that the summary leaves out.
    ids = torch.tensor([[0, 1, 2, last // 2, last - 2, last - 1, last]], device=model.device)
    rows = model.readout(ids)[0][0].detach().float().cpu().numpy()
    with np.printoptions(linewidth=75, suppress=False, sign="-", floatmode="maxprec"):
        text = np.array2string(rows, precision=1, threshold=0, edgeitems=3)
    return hashlib.sha256(text.encode()).hexdigest()


def _translators(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    about = json_of(folder / "config.json", ResultError)
    state = torch.load(folder / "params.pt", map_location="cpu", weights_only=True)
    rows = range(about["num_hidden_layers"])
    weight = torch.stack([state[f"{row}.weight"] for row in rows]).float()
    bias = torch.zeros(weight.shape[:2])
    if about.get("bias", True):
        bias = torch.stack([state[f"{row}.bias"] for row in rows]).float()
    published = {
        "published": str(about["base_model_name_or_path"]),
        "revision": about.get("base_model_revision"),
        "unembed_hash": about.get("unembed_hash"),
    }
    return published, {"weight": weight, "bias": bias}


def _jacobians(file: Path, last: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    state = torch.load(file, map_location="cpu", weights_only=True)
    about = state.get("metadata", {})
    if sorted(state["J"]) != [*range(last)] or about.get("target_layer", last) not in (-1, last):
        raise ValueError(f"it does not map from layers 0 to {last - 1} to layer {last}")
    jacobians = [state["J"][row].float() for row in range(last)]
    maps = torch.stack([torch.eye(len(jacobians[0])), *jacobians])
    return {"published": str(about.get("model_name") or "")}, {"jacobian": maps}


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError) and isinstance(error.args[0], str):
        return f"it has no entry {error.args[0]!r}"
    if isinstance(error, KeyError | EOFError | OSError | pickle.UnpicklingError):
        return "PyTorch finds something else than only tensors and plain values in it"
    return str(error).partition(". ")[0]


def _last(name: str) -> str:
    return name.rpartition("/")[2].lower()

"""`untrained`: a network that learned nothing, of the same architecture; what a claim must beat.

Source: `definitions` of the documentation, null models.
"""

import copy
from typing import Any, Literal

import torch

from icl_mech.checking import Natural, checked
from icl_mech.errors import ModelError
from icl_mech.models.adapt import _ADAPTED, adapt, load_model
from icl_mech.models.lock import exclusive, plain_modes
from icl_mech.models.nnsight import is_nnsight
from icl_mech.models.server import ServerModel

NullKind = Literal["untrained", "shuffled"]


@checked(ModelError, but=["model"])
@exclusive
def untrained(model: Any, seed: Natural = 0, kind: NullKind = "untrained") -> Any:
    """A model of the same architecture, tokenizer, format and device that learned nothing.

    The given model stays as it is; the random numbers of the caller, too.

    Args:
        model: TransformerBridge or HookedTransformer.
        seed: Of the weights.
        kind: `untrained`: parameters drawn as the configuration initialises them; `shuffled`: the
            model's own, the entries of every tensor permuted within the tensor, which keeps each
            tensor's distribution. Tied tensors stay tied.

    Returns:
        A model of the same class, to be used like any other; its name says what it is.

    Raises:
        ModelError: a model whose weights are not here (a server), or of nnsight.
    """
    if isinstance(model, ServerModel) or is_nnsight(model):
        raise ModelError(
            "An untrained model is made of a TransformerBridge or HookedTransformer; load the model "
            "with icl_mech.load_model."
        )
    adapted = adapt(model)
    name = f"{adapted.info.name} ({kind}, seed {seed})"
    devices = [adapted.device] if adapted.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), plain_modes():
        # In a fork: initialisation takes no generator.
        torch.manual_seed(seed)  # noqa: TID251
        if kind == "shuffled" or not hasattr(adapted.wrapped, "original_model"):
            found = _copied(adapted.wrapped, shuffle=kind == "shuffled")
        else:
            found = _drawn(adapted.wrapped.original_model, adapted.wrapped, name)
    _named(found, name)
    adapt(found)
    return found


def _drawn(inner: Any, bridge: Any, name: str) -> Any:
    """A new model from the configuration, wrapped as the given one is."""
    config = copy.deepcopy(inner.config)
    first = next(inner.parameters())
    try:
        # In float32, as checkpoints are made, so that formats differ by rounding alone.
        fresh = type(inner)(config).eval()
    except Exception as error:
        raise ModelError(
            f"{type(inner).__name__} cannot be made from its configuration ({type(error).__name__}: "
            f"{error}); take kind='shuffled'."
        ) from error
    fresh.config._name_or_path = name
    return load_model(
        fresh, tokenizer=bridge.tokenizer, device=str(first.device), dtype=first.dtype
    )


def _copied(model: Any, *, shuffle: bool) -> Any:
    """A copy, its entries permuted within each tensor, or drawn as TransformerLens initialises."""
    held = vars(model).pop(_ADAPTED, None)
    try:
        found = copy.deepcopy(model)
    finally:
        if held is not None:
            vars(model)[_ADAPTED] = held
    if not shuffle:
        found.init_weights()
        return found
    done: set[tuple[int, torch.Size]] = set()
    with torch.no_grad():
        for parameter in found.parameters():
            mark = (parameter.data_ptr(), parameter.shape)
            if mark not in done and parameter.numel() > 1:
                done.add(mark)
                order = torch.randperm(parameter.numel(), device=parameter.device)
                parameter.copy_(parameter.flatten()[order].reshape(parameter.shape))
    return found


def _named(model: Any, name: str) -> None:
    config = getattr(model, "cfg", None)
    if config is not None:
        config.model_name = name

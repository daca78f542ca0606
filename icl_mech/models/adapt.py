"""`load_model`, `adapt` and `untrained`: any supported model, checked once, behind one interface."""

import copy
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch

from icl_mech.checking import Natural, checked
from icl_mech.errors import ModelError
from icl_mech.models.checks import (
    Checks,
    check_eval_mode,
    check_model,
    check_weights,
    foreign_errors,
)
from icl_mech.models.interface import LanguageModel
from icl_mech.models.lock import exclusive, plain_modes
from icl_mech.models.nnsight import is_nnsight
from icl_mech.models.rehearsal import Rehearsed, met
from icl_mech.models.server import ServerModel
from icl_mech.models.watching import is_compact
from icl_mech.names import unsearched

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedModel

_ADAPTED = "_icl_mech_adapted"
"""Attribute in which a model keeps its adapter, so that both are freed together (a table of models,
with weak keys or not, would keep every model alive, since adapters refer to their models)."""


Quantization = Literal["8bit", "4bit"]


def load_model(
    name: object = "smollm2-135m",
    *,
    tokenizer: object = None,
    device: str | None = None,
    dtype: torch.dtype | str | None = None,
    device_map: object = None,
    max_memory: object = None,
    quantization: Quantization | None = None,
    check: bool = False,
    **kwargs: Any,
) -> Any:
    """A TransformerLens `TransformerBridge` that passed the load-time checks.

    Args:
        name: A known name (`icl-mech models` lists them), a Hugging Face hub id, a local
            folder or a `.gguf` file. The default works offline. Or a Hugging Face model you hold: it
            is wrapped, not copied, and switched to evaluation mode and eager attention.
        tokenizer: Tokenizer of a Hugging Face model that is passed (copied); names and files have theirs.
        device: `"cpu"`, `"cuda"`, ...; default: a GPU if there is one; a passed model stays.
        dtype: Default float32; a passed model keeps its dtype.
        device_map: Instead of `device`: `"auto"`, a dictionary, ..., as transformers takes it. What it
            puts on `"disk"`, or on `"cpu"` next to a GPU, is off-loaded: fetched when it computes.
        max_memory: Limits by device, with `device_map="auto"`.
        quantization: `"8bit"` (LLM.int8) or `"4bit"` (NF4), by bitsandbytes.
        check: Repeat checks that this machine passed before with the same weights and versions.
        **kwargs: Passed on to the Hugging Face loader (`revision=`, ...).

    Raises:
        ModelError: unknown name, hub unreachable, an encoder model, a model without its tokenizer, options
            that contradict each other, weights with no place in the model, or a failed check
            (`icl_mech.models.checks`).
    """
    from icl_mech.models.loading import boot
    from icl_mech.models.wrapping import boot_object

    kwargs |= {"device_map": device_map, "max_memory": max_memory, "quantization": quantization}
    checks = Checks(again=check)
    how: dict[str, Any] = {"device": device, "dtype": dtype, "checks": checks}
    if isinstance(name, str | os.PathLike):
        if tokenizer is not None:
            raise ModelError(
                f"tokenizer= applies to a Hugging Face model that you pass; {name!r} has its own "
                "tokenizer. Leave it out, or load the model with transformers and pass both."
            )
        with plain_modes(), unsearched():  # weights made in inference mode could give no gradients
            bridge = boot(os.fspath(name), **how, **kwargs)
    else:
        options = {key: value for key, value in kwargs.items() if value is not None}
        bridge = boot_object(name, tokenizer, options=options, **how)
    return adapt(bridge, revision=kwargs.get("revision"), checks=checks).wrapped


@exclusive
def adapt(
    model: object, *, revision: str | None = None, checks: Checks | None = None
) -> LanguageModel:
    """The model behind the interface of this package; checked the first time it is seen.

    A model that was moved, cast or processed since is checked again.

    Args:
        model: A `TransformerBridge`, a `HookedTransformer`, nnsight's `LanguageModel` or `NNsight`
            around a Hugging Face model, or what this function returned.
        revision: Recorded in provenance.
        checks: Known results for a model that is being loaded; without them all checks are run.

    Raises:
        ModelError: another kind of object, a model in training mode, or one that fails a check.
    """
    if isinstance(model, LanguageModel):
        check_eval_mode(model.module)
        model.refresh()
        return met(model)
    module = vars(model)["_module"] if is_nnsight(model) else model
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            "Expected a TransformerBridge, a HookedTransformer or an nnsight model, got a "
            f"{type(model).__name__}. Load one with icl_mech.load_model(name)."
        )
    runtime = _runtime(model)
    check_eval_mode(module)
    adapted: LanguageModel | None = vars(module).get(_ADAPTED)
    if adapted is None or adapted.wrapped is not model or not runtime.is_current(adapted):
        revision = revision or (adapted.info.revision if adapted else None)
        with foreign_errors(module):
            adapted = runtime.wrap(model, revision=revision)
            if checks is not None and checks.notes is not None:
                check_weights(module)
                adapted.info = replace(adapted.info, notes=checks.notes)
            else:
                check_model(adapted)
            if checks is not None:
                checks.keep(adapted.info.notes)
        vars(module)[_ADAPTED] = adapted
    adapted.refresh()
    return met(adapted)


def _runtime(model: object) -> Any:
    """The module whose `wrap` takes a model of this kind."""
    if is_nnsight(model):
        from icl_mech.models import nnsight

        return nnsight
    from icl_mech.models import transformer_lens

    return transformer_lens


NullKind = Literal["untrained", "shuffled"]


@checked(ModelError, but=["model"])
@exclusive
def untrained(model: object, seed: Natural = 0, kind: NullKind = "untrained") -> Any:
    """An untrained (randomly initialised) model of the same architecture, tokenizer, format and device.

    The given model and the caller's random state do not change.

    Args:
        model: TransformerBridge or HookedTransformer.
        seed: Seed of the weights.
        kind: `untrained`: parameters drawn as the configuration initialises them; `shuffled`: the
            trained parameters, with the entries of every tensor permuted within it, which keeps each
            tensor's distribution. Tied tensors stay tied.

    Returns:
        A model of the same class, to be used like any other; its name says that it is untrained.

    Raises:
        ModelError: a model whose weights are not here (on a server), or a model of nnsight.
    """
    if isinstance(model, ServerModel) or is_nnsight(model):
        raise ModelError(
            "An untrained (randomly initialised) model can only be made from a TransformerBridge "
            "or HookedTransformer; load the model with icl_mech.load_model."
        )
    adapted = adapt(model)
    if kind == "shuffled" and is_compact(adapted.module):
        raise ModelError(
            "Quantised or off-loaded weights cannot be shuffled; use kind='untrained'."
        )
    name = f"{adapted.info.name} ({kind}, seed {seed})"
    if isinstance(adapted, Rehearsed):
        return Rehearsed.of(adapted.ledger, name)
    devices = [adapted.device] if adapted.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), plain_modes():
        # Seeded globally, in a fork of the random state: initialisation takes no generator.
        torch.manual_seed(seed)  # noqa: TID251
        if kind == "shuffled" or not hasattr(adapted.wrapped, "original_model"):
            null_model = _copied(adapted.wrapped, shuffle=kind == "shuffled")
        else:
            null_model = _drawn(adapted.wrapped.original_model, adapted.wrapped, name)
    _named(null_model, name)
    adapt(null_model)
    return null_model


def _drawn(inner: "PreTrainedModel", bridge: "TransformerBridge", name: str) -> "TransformerBridge":
    """A new model from the configuration, wrapped like the given one."""
    config = copy.deepcopy(inner.config)
    first = next(inner.parameters())
    vars(config).pop("quantization_config", None)
    try:
        # Drawn in float32, so that models of different dtypes differ by rounding alone.
        fresh = type(inner)(config).eval()
    except Exception as error:
        raise ModelError(
            f"{type(inner).__name__} cannot be made from its configuration "
            f"({type(error).__name__}: {error}); use kind='shuffled'."
        ) from error
    fresh.config._name_or_path = name
    wrapped: TransformerBridge = load_model(
        fresh, tokenizer=bridge.tokenizer, device=str(first.device), dtype=first.dtype
    )
    return wrapped


def _copied(model: torch.nn.Module, *, shuffle: bool) -> Any:
    """A copy with entries permuted within each tensor, or initialised by TransformerLens."""
    # Copied along, the adapter would pass for that of the copy, with facts about the original.
    held = vars(model).pop(_ADAPTED, None)
    try:
        copied: Any = copy.deepcopy(model)
    finally:
        if held is not None:
            vars(model)[_ADAPTED] = held
    if not shuffle:
        copied.init_weights()
        return copied
    done: set[tuple[int, torch.Size]] = set()
    with torch.no_grad():
        for parameter in copied.parameters():
            mark = (parameter.data_ptr(), parameter.shape)
            if mark not in done and parameter.numel() > 1:
                done.add(mark)
                order = torch.randperm(parameter.numel(), device=parameter.device)
                parameter.copy_(parameter.flatten()[order].reshape(parameter.shape))
    return copied


def _named(model: object, name: str) -> None:
    config = getattr(model, "cfg", None)
    if config is not None:
        config.model_name = name

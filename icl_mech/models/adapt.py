"""`load_model` and `adapt`: any supported model, checked once, behind one interface."""

import os
from typing import Any

import torch

from icl_mech.errors import ModelError
from icl_mech.models.checks import check_eval_mode, check_model, foreign_errors
from icl_mech.models.interface import LanguageModel
from icl_mech.models.lock import exclusive, plain_modes
from icl_mech.models.nnsight import is_nnsight

_ADAPTED = "_icl_mech_adapted"
"""Where a model keeps its adapter: both are freed together (a table of models, weak keys or
not, would keep alive every model it holds, since adapters refer to their models)."""


def load_model(
    name: Any = "smollm2-135m",
    *,
    tokenizer: Any = None,
    device: str | None = None,
    dtype: torch.dtype | str | None = None,
    device_map: Any = None,
    max_memory: Any = None,
    **kwargs: Any,
) -> Any:
    """A TransformerLens `TransformerBridge` that passed the load-time checks.

    Args:
        name: A known name (`icl-mech models` lists them), a Hugging Face hub id, a local
            folder or a `.gguf` file. The default works offline. Or a Hugging Face model you
            hold: it is wrapped, not copied, and by that switched to evaluation mode and eager
            attention; use what is returned instead of it.
        tokenizer: Of a Hugging Face model that is passed (copied); names and files have their own.
        device: `"cpu"`, `"cuda"`, ...; default: a GPU if there is one, for a model that is
            passed where it is.
        dtype: Default float32, for a model that is passed its own.
        device_map: Spreads the model over devices, as transformers takes it (`"auto"`, a
            dictionary, ...); then `device` is left out. Off-loading to CPU or disk is refused.
        max_memory: Limits by device, with `device_map="auto"`.
        **kwargs: Passed on to the Hugging Face loader (`revision=`, ...).

    Raises:
        ModelError: unknown name, hub unreachable, an encoder model, a model without its
            tokenizer, options that contradict each other, weights that are missing or have no
            place, or a model that fails a check (see `icl_mech.models.checks`).
    """
    from icl_mech.models.loading import boot
    from icl_mech.models.objects import boot_object

    spreading = {"device_map": device_map, "max_memory": max_memory}
    if isinstance(name, str | os.PathLike):
        if tokenizer is not None:
            raise ModelError(
                f"tokenizer= goes with a Hugging Face model; {name!r} has its own. Leave it out, or "
                "load the model with transformers and pass both."
            )
        with plain_modes():  # weights made in inference mode could give no gradients
            bridge = boot(os.fspath(name), device=device, dtype=dtype, **spreading, **kwargs)
    else:
        options = kwargs | {key: value for key, value in spreading.items() if value is not None}
        bridge = boot_object(name, tokenizer, device=device, dtype=dtype, options=options)
    adapt(bridge, revision=kwargs.get("revision"))
    return bridge


@exclusive
def adapt(model: Any, *, revision: str | None = None) -> LanguageModel:
    """The model behind the package's own interface; checked the first time it is seen.

    A model that was moved, cast or processed since is checked again.

    Args:
        model: A `TransformerBridge`, a `HookedTransformer`, nnsight's `LanguageModel` or `NNsight`
            around a Hugging Face model, or what this function returned.
        revision: Recorded in provenance.

    Raises:
        ModelError: another kind of object, a model in training mode, or one that fails a check.
    """
    if isinstance(model, LanguageModel):
        check_eval_mode(model.module)
        model.refresh()
        return model
    module = model._module if is_nnsight(model) else model
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
            check_model(adapted)
        vars(module)[_ADAPTED] = adapted
    adapted.refresh()
    return adapted


def _runtime(model: Any) -> Any:
    """The module whose `wrap` takes such a model."""
    if is_nnsight(model):
        from icl_mech.models import nnsight

        return nnsight
    from icl_mech.models import transformer_lens

    return transformer_lens

"""`load_model` and `adapt`: any supported model, checked once, behind one interface."""

from typing import Any

import torch

from icl_mech.errors import ModelError
from icl_mech.models.checks import check_eval_mode, check_model
from icl_mech.models.interface import LanguageModel
from icl_mech.models.nnsight import is_nnsight

_ADAPTED = "_icl_mech_adapted"
"""Where a model keeps its adapter: both are freed together (a table of models, weak keys or
not, would keep alive every model it holds, since adapters refer to their models)."""


def load_model(
    name: str = "smollm2-135m",
    *,
    device: str | None = None,
    dtype: torch.dtype | str | None = None,
    **kwargs: Any,
) -> Any:
    """A TransformerLens `TransformerBridge` that passed the load-time checks.

    Args:
        name: A known name (`icl-mech models` lists them), a Hugging Face hub id, a local
            folder or a `.gguf` file. The default works offline.
        device: `"cpu"`, `"cuda"`, ...; default: a GPU if there is one.
        dtype: Default float32.
        **kwargs: Passed on to the Hugging Face loader (`revision=`, ...).

    Raises:
        ModelError: unknown name, hub unreachable, an encoder model, or a model that fails
            a check (see `icl_mech.models.checks`).
    """
    from icl_mech.models.loading import boot

    bridge = boot(name, device=device, dtype=dtype, **kwargs)
    adapt(bridge, revision=kwargs.get("revision"))
    return bridge


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
        adapted = runtime.wrap(model, revision=revision)
        check_model(adapted)
        vars(module)[_ADAPTED] = adapted
    return adapted


def _runtime(model: Any) -> Any:
    """The module whose `wrap` takes such a model."""
    if is_nnsight(model):
        from icl_mech.models import nnsight

        return nnsight
    from icl_mech.models import transformer_lens

    return transformer_lens

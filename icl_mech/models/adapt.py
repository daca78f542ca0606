"""`load_model` and `adapt`: any supported model, checked once, behind one interface."""

from typing import Any

import torch

from icl_mech.errors import ModelError
from icl_mech.models.checks import check_eval_mode, check_model
from icl_mech.models.interface import LanguageModel

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
    module = model._module if (through_nnsight := _is_nnsight(model)) else model
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            "Expected a TransformerBridge, a HookedTransformer or an nnsight model, got a "
            f"{type(model).__name__}. Load one with icl_mech.load_model(name)."
        )
    if through_nnsight:
        from icl_mech.models.nnsight import is_current, wrap
    else:
        from icl_mech.models.transformer_lens import is_current, wrap
    check_eval_mode(module)
    adapted: LanguageModel | None = vars(module).get(_ADAPTED)
    if adapted is None or adapted.wrapped is not model or not is_current(adapted):
        revision = revision or (adapted.info.revision if adapted else None)
        adapted = wrap(model, revision=revision)
        check_model(adapted)
        vars(module)[_ADAPTED] = adapted
    return adapted


def _is_nnsight(model: Any) -> bool:
    """True for nnsight's wrappers; the library itself is not imported."""
    return any(
        kind.__module__.split(".")[0] == "nnsight" and kind.__name__ == "Envoy"
        for kind in type(model).__mro__
    )

"""Hugging Face model objects that the caller already holds."""

import copy
from collections.abc import Mapping
from typing import Any

from icl_mech.errors import ModelError
from icl_mech.models.decoders import refuse_encoders
from icl_mech.models.placement import device_of, dtype_of, refuse_offloaded
from icl_mech.models.wrapping import WRAP_ERRORS, wrap_loaded


def boot_object(
    hf_model: Any, tokenizer: Any, *, device: Any, dtype: Any, options: Mapping[str, Any]
) -> Any:
    """A `TransformerBridge` around the caller's own model; not checked yet.

    The model is wrapped, not copied: it is switched to evaluation mode and eager attention, and
    moved or cast where `device` or `dtype` say so. The tokenizer is copied.

    Raises:
        ModelError: another kind of object, no tokenizer, options for loading, an encoder, or a
            model that cannot be wrapped.
    """
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    kind = type(hf_model).__name__
    _refuse_adapters(hf_model, kind)
    if kind in ("TransformerBridge", "HookedTransformer"):
        raise ModelError(
            f"This is a {kind} already; pass it to measure(), flow_scores(), ... as it is."
        )
    if not isinstance(hf_model, PreTrainedModel):
        raise ModelError(
            f"Expected the name of a model, a path, or a Hugging Face PreTrainedModel; got a {kind}."
        )
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        found = "no tokenizer" if tokenizer is None else f"tokenizer={tokenizer!r}"
        raise ModelError(
            f"A {kind} was given with {found}. Pass the tokenizer it was trained with: "
            "load_model(model, tokenizer=AutoTokenizer.from_pretrained(...))."
        )
    if options:
        raise ModelError(
            f"{', '.join(options)} cannot be used with a model that is loaded already. Use it in "
            "from_pretrained, or give load_model the name or path."
        )
    name = str(getattr(hf_model.config, "_name_or_path", "")) or kind
    refuse_encoders(name, hf_model.config)
    if any(type(part).__module__.startswith("transformer_lens") for part in hf_model.modules()):
        raise ModelError(
            f"This {kind} is wrapped by TransformerLens already. Use the model load_model gave, or "
            "load the Hugging Face model again."
        )
    _place(hf_model, device, dtype)
    _make_eager(hf_model.eval(), kind)
    first = next(hf_model.parameters())
    return wrap_loaded(hf_model, copy.deepcopy(tokenizer), name, first.dtype, str(first.device))


def _refuse_adapters(hf_model: Any, kind: str) -> None:
    if hasattr(hf_model, "peft_config") or getattr(hf_model, "_hf_peft_config_loaded", False):
        raise ModelError(
            f"This {kind} holds adapters (PEFT) beside its weights, which readouts of weights would "
            "miss. Merge them first: model = model.merge_and_unload()."
        )


def _place(hf_model: Any, device: Any, dtype: Any) -> None:
    refuse_offloaded(hf_model)
    if device is not None and getattr(hf_model, "hf_device_map", None):
        raise ModelError(
            f"device={device!r} was given, but the model is spread by a device map. Leave it out."
        )
    try:
        if device is not None:
            hf_model.to(device_of(device))
        if dtype is not None:  # buffers such as rotary frequencies keep their precision
            wanted = dtype_of(dtype)
            for parameter in hf_model.parameters():
                parameter.data = parameter.data.to(wanted)
    except ModelError:
        raise
    except WRAP_ERRORS as error:
        raise ModelError(f"The model cannot be moved or cast: {error}") from error
    dtype_of(next(hf_model.parameters()).dtype)


def _make_eager(hf_model: Any, kind: str) -> None:
    """Attention that computes patterns, whatever it was loaded with."""
    if hf_model.config._attn_implementation != "eager":
        try:
            hf_model.set_attn_implementation("eager")
        except WRAP_ERRORS as error:
            raise ModelError(
                f"This {kind} cannot be switched to eager attention ({error}); load it with "
                "from_pretrained(..., attn_implementation='eager')."
            ) from error

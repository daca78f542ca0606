"""Wrap the two model classes of TransformerLens as `LanguageModel`s."""

from dataclasses import asdict
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from icl_mech.errors import ModelError
from icl_mech.models.bridge import BridgeModel, components
from icl_mech.models.hooked import HookedModel
from icl_mech.models.interface import LanguageModel, ModelInfo
from icl_mech.models.language_part import PART_OF
from icl_mech.models.repairs import mend_blocks, mended_adapters, reroute_attention
from icl_mech.models.stored import of_model
from icl_mech.models.watching import is_compact
from icl_mech.names import version

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


WHOLE = (
    "Quantised or off-loaded weights cannot be split, which is necessary if queries, keys and "
    "values share one matrix (GPT-2, GPT-NeoX, BLOOM, Falcon, Phi 3). Load the model without "
    "off-loading, or in half precision instead of quantised."
)


def boot_bridge(
    hf_model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    *,
    name: str,
    dtype: torch.dtype,
    device: str,
) -> "TransformerBridge":
    """A `TransformerBridge` around a loaded Hugging Face model, in eval mode."""
    from transformer_lens.model_bridge import TransformerBridge

    with mended_adapters(hf_model):
        # Given a short name such as `gemma-3-270m`, TransformerLens would resolve it as one of its aliases.
        bridge = TransformerBridge.boot_transformers(
            type(hf_model).__name__,
            hf_model=hf_model,
            tokenizer=tokenizer,
            dtype=dtype,
            device=device,
        )
    bridge.cfg.model_name = name
    _refuse_without_residuals(bridge)
    return bridge.eval()


def wrap(model: torch.nn.Module, *, revision: str | None = None) -> LanguageModel:
    """The adapter for a `TransformerBridge` or `HookedTransformer`.

    Raises:
        ModelError: another kind of model, or one that is not a causal decoder.
    """
    class_name = type(model).__name__
    if class_name not in ("TransformerBridge", "HookedTransformer"):
        raise ModelError(
            f"Expected a TransformerBridge or HookedTransformer, got a {class_name}. Wrap a Hugging Face "
            "model with TransformerBridge.boot_transformers(name, hf_model=model), or use load_model."
        )
    config: Any = model.cfg
    hf_config = getattr(getattr(model, "original_model", None), "config", None)
    if getattr(hf_config, "is_encoder_decoder", False) or (
        getattr(config, "attention_dir", "causal") != "causal"
    ):
        raise ModelError(
            f"{config.model_name!r} is an encoder model; in-context learning is studied in decoder "
            "(causal) language models. Load one, for example load_model('gpt2')."
        )
    info = ModelInfo(
        name=_short_name(str(config.model_name)),
        architecture=str(getattr(config, "architecture", None) or config.model_name),
        library=f"transformer-lens {version('transformer-lens')} {class_name}",
        n_layers=int(config.n_layers),
        n_heads=int(config.n_heads),
        n_kv_heads=int(getattr(config, "n_key_value_heads", None) or config.n_heads),
        d_model=int(config.d_model),
        d_head=int(config.d_head),
        d_vocab=int(config.d_vocab),
        n_ctx=int(config.n_ctx),
        revision=revision,
        notes=_part_of(hf_config),
        weights_format=of_model(getattr(model, "original_model", None)),
        **_weights(model),
    )
    if class_name == "TransformerBridge":
        bridge: Any = model
        _refuse_without_residuals(bridge)
        if is_compact(bridge) and any(components(bridge)):
            raise ModelError(f"{type(bridge.original_model).__name__} cannot be analysed. {WHOLE}")
        reroute_attention(bridge)
        mend_blocks(bridge)
        return BridgeModel(model, info, getattr(model, "tokenizer", None))
    return HookedModel(model, info, getattr(model, "tokenizer", None))


def _part_of(hf_config: object) -> tuple[str, ...]:
    """Note for a model that is the language part of another; empty for others."""
    whole = getattr(hf_config, PART_OF, "")
    return (f"language part of {whole}; its image part was left out",) if whole else ()


def _refuse_without_residuals(bridge: "TransformerBridge") -> None:
    """Reject a bridge without hook points of the residual stream before and after every block."""
    known, n_layers = bridge.hook_dict, int(bridge.cfg.n_layers)
    without = [
        layer
        for layer in range(n_layers)
        if not {f"blocks.{layer}.hook_resid_{side}" for side in ("pre", "post")} <= known.keys()
    ]
    if without:
        raise ModelError(
            f"{type(bridge.original_model).__name__} cannot be analysed: TransformerLens exposes no residual "
            f"stream around {len(without)} of its {n_layers} blocks (first block {without[0]}), which nearly "
            "every measurement reads. Use a model of another family, for example load_model('gpt2')."
        )


def is_current(adapted: LanguageModel) -> bool:
    """False if the model was moved, cast or processed since it was wrapped."""
    known = asdict(adapted.info)
    return all(known[name] == value for name, value in _weights(adapted.wrapped).items())


def _weights(model: torch.nn.Module) -> dict[str, Any]:
    """Facts that calls such as `model.to(...)` change; inputs go to the device of the embedding."""
    first = next(getattr(model, "embed", model).parameters())
    return {
        "dtype": str(first.dtype).removeprefix("torch."),
        "device": str(first.device),
        "processed_weights": _is_processed(model),
    }


def _short_name(name: str) -> str:
    """The name of a folder without its path; hub ids stay whole."""
    return Path(name).name if exists(name) else name


def _is_processed(model: torch.nn.Module) -> bool:
    if type(model).__name__ == "TransformerBridge":
        return bool(getattr(model, "compatibility_mode", False))
    config: Any = model.cfg
    return str(config.normalization_type).endswith("Pre")

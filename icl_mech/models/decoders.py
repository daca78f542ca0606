"""Refuses what is not a causal decoder, before weights are read."""

from typing import Any

from icl_mech.errors import ModelError

_BIDIRECTIONAL = {"bert-generation", "xlnet"}  # not listed by transformers as masked models


def refuse_encoders(name: str, config: Any) -> None:
    """Refuse models whose configuration is not that of a causal decoder.

    Raises:
        ModelError: says what was found.
    """
    from transformers.models.auto import modeling_auto as auto

    kind = str(config.model_type)
    architectures = list(getattr(config, "architectures", None) or ())
    # BERT and its kin are also listed as causal models, for use as a decoder.
    bidirectional = kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES or kind in _BIDIRECTIONAL
    if getattr(config, "is_encoder_decoder", False):
        found = "an encoder-decoder model"
    elif bidirectional and not getattr(config, "is_decoder", False):
        found = "an encoder model"
    elif kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or any(
        architecture.endswith(("ForCausalLM", "LMHeadModel")) for architecture in architectures
    ):
        return
    else:
        found = "an encoder or another model without a causal language model head"
    raise ModelError(
        f"{name!r} is {found} (type {kind!r}, {', '.join(architectures) or 'no architecture'}). "
        "In-context learning is studied in decoder (causal) language models: load one, for "
        "example load_model('gpt2')."
    )

"""The language part of a model that also takes images, as a causal language model for texts.

    whole.model.language_model, whole.lm_head  ->  a causal language model with the same weights

Where the text configuration is that of a language model (Gemma 3, Mistral 3, LLaVA, ...), its layers are
used unchanged. Qwen's language parts give each token three positions, for time, height and width; in a text
all three are equal, so these parts are equivalent to Qwen 2 and Qwen 3, which get the weights. The logits of
both are compared.
"""

from typing import TYPE_CHECKING, Any

import torch

from icl_mech._typing import Tensor
from icl_mech.errors import ModelError
from icl_mech.models.checks import tolerance
from icl_mech.models.stored import keep, of_model
from icl_mech.models.watching import is_compact

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_OF_TEXTS = {
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
}
"""Text configurations that are equivalent, for texts, to language models of another name."""

PART_OF = "icl_mech_language_part_of"
"""Field in the configuration of a language part with the class it was taken from."""

_PROBE = 12
"""Number of tokens on which the two models are compared."""


def has_language_part(config: "PreTrainedConfig") -> bool:
    """True for the configuration of a model of texts and images whose language part is a language model.

    False for models that transformers and TransformerLens also support as language models (Gemma 4, ...).
    """
    from transformers.models.auto import modeling_auto as auto

    causal, kind = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, str(config.model_type)
    text = str(config.get_text_config().model_type)
    return (
        kind in auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
        and (kind == "gemma3" or kind not in causal)
        and (text in causal or text in _OF_TEXTS)
        and text != kind
    )


def language_part(whole: "PreTrainedModel") -> "PreTrainedModel":
    """The language model in a model of texts and images, sharing its weights; any other model unchanged.

    Raises:
        ModelError: weights that cannot be shared, or a part whose logits differ.
    """
    if not has_language_part(whole.config) or not hasattr(whole, "lm_head"):
        return whole
    class_name = type(whole).__name__
    inner: Any = getattr(whole, "model", None)
    language = getattr(inner, "language_model", None) or getattr(inner, "text_model", None)
    if language is None:
        raise ModelError(
            f"{class_name} contains no language_model, so its language part cannot be extracted. "
            "Load that part with transformers and pass it: load_model(model, tokenizer=...)."
        )
    part = _taken_over(whole, language, class_name)
    setattr(part.config, PART_OF, class_name)
    part.config._name_or_path = whole.config._name_or_path
    keep(part, of_model(whole))
    _compare(whole, part, class_name)
    return part


def _taken_over(
    whole: "PreTrainedModel", language: "PreTrainedModel", class_name: str
) -> "PreTrainedModel":
    """A causal language model with the layers, or the weights, of a language part."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    config: Any = language.config
    if (name := _OF_TEXTS.get(str(config.model_type))) is not None:
        if is_compact(whole):
            raise ModelError(
                f"The language part of {class_name} cannot be extracted from quantised or "
                "off-loaded weights. Load it in half precision on one device: dtype='bfloat16'."
            )
        fields = {k: v for k, v in config.to_dict().items() if k != "model_type"}
        config = AutoConfig.for_model(name, **fields)
    with init_empty_weights(include_buffers=False):
        part: Any = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    if name is None:
        part.model, part.config = language, config
    else:
        # keep_vars assigns the parameters themselves: tied ones stay tied, and nothing is copied.
        part.model.load_state_dict(language.state_dict(keep_vars=True), assign=True)
        part.model.to(next(language.parameters()).device)  # rotary frequencies
    part.lm_head = whole.get_output_embeddings()
    part.config.architectures = [type(part).__name__]
    taken: PreTrainedModel = part.eval()
    return taken


def _compare(whole: "PreTrainedModel", part: "PreTrainedModel", class_name: str) -> None:
    embedding: Any = whole.get_input_embeddings()
    weight: Tensor = embedding.weight
    ids = torch.arange(1, 1 + _PROBE, device=weight.device)[None] % (weight.shape[0] // 2)
    with torch.no_grad():
        expected, actual = (
            model(input_ids=ids, use_cache=False).logits.float() for model in (whole, part)
        )
    gap = float((actual - expected).abs().max())
    allowed = tolerance(str(weight.dtype).removeprefix("torch."), expected)
    if not gap <= allowed:
        raise ModelError(
            f"The language part of {class_name} gives logits that differ from those of the whole "
            f"model by {gap:.2g} (allowed {allowed:.2g}), so it cannot serve as a separate "
            "language model. Use a text-only model."
        )

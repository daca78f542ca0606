"""Wrap a Hugging Face model in a `TransformerBridge` that computes the same logits.

The model is loaded here or held by the caller; causal decoders only, with eager attention.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from icl_mech._typing import Tensor
from icl_mech.errors import IclMechError, ModelError, near_matches
from icl_mech.models.checks import Checks, tolerance
from icl_mech.models.conversion import LOAD_ERRORS
from icl_mech.models.language_part import has_language_part, language_part
from icl_mech.models.stored import of_model
from icl_mech.models.watching import Watch, is_compact, is_packed, stored
from icl_mech.names import version

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

Device = str | int | torch.device | None
"""Device of the weights, in a form torch accepts; None: the best one available."""

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
_STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")


def device_of(device: Device) -> str:
    """The name of an available device; None: a GPU if there is one.

    Raises:
        ModelError: an unknown device, or one that is not available.
    """
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ModelError(f"Unknown device {device!r}. Use 'cpu', 'cuda', 'cuda:1', ...") from error
    counts = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    if (wanted.index or 0) >= counts.get(wanted.type, 0):
        there = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        raise ModelError(
            f"Device {device!r} is not available here (found: {there}). Leave device out to use "
            "the best available one, or install a PyTorch built for that device."
        )
    return str(wanted)


def dtype_of(dtype: object) -> torch.dtype:
    """A floating-point dtype; None: float32.

    Raises:
        ModelError: an unsupported dtype; names the supported ones.
    """
    if dtype is None:
        return torch.float32
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise ModelError(f"Unknown or unsupported dtype {name!r}. {near_matches(name, _DTYPES)}")
    return _DTYPES[name]


def spread(device: Device, device_map: object, max_memory: object) -> dict[str, Any]:
    """Options with which transformers spreads a model over devices; empty without a map.

    Raises:
        ModelError: options that contradict each other, or weights that would leave memory.
    """
    if device_map is None:
        if max_memory is not None:
            raise ModelError(
                f"max_memory={max_memory!r} was given without device_map. Add device_map='auto' "
                "to spread the model within these limits, or leave max_memory out."
            )
        return {}
    if device is not None:
        raise ModelError(
            f"Both device={device!r} and device_map={device_map!r} were given; they contradict "
            "each other. Leave device out to spread the model, or device_map to keep it whole."
        )
    if not isinstance(device_map, str | Mapping) or not isinstance(max_memory, Mapping | None):
        raise ModelError(
            f"device_map={device_map!r}, max_memory={max_memory!r}; expected 'auto', 'balanced', "
            "'sequential', a device or a dictionary from module names to devices, and limits as a "
            "dictionary such as {0: '20GB'}."
        )
    places = device_map.values() if isinstance(device_map, Mapping) else [device_map]
    for place in places:
        if place not in (*_STRATEGIES, "disk"):
            device_of(f"cuda:{place}" if isinstance(place, int) else place)
    return {"device_map": device_map} | ({} if max_memory is None else {"max_memory": max_memory})


def quantised(quantization: object, dtype: torch.dtype, place: str) -> dict[str, Any]:
    """Options with which transformers quantises a model while loading; empty without `quantization`.

    Raises:
        ModelError: an unknown option, or bitsandbytes is not installed.
    """
    if quantization is None:
        return {}
    if quantization not in ("8bit", "4bit"):
        raise ModelError(f"quantization={quantization!r}; give '8bit' or '4bit', or leave it out.")
    if find_spec("bitsandbytes") is None:
        raise ModelError(
            f"quantization={quantization!r} needs bitsandbytes, which is not installed: pip "
            "install bitsandbytes. Without it, leave quantization out, or use dtype='bfloat16'."
        )
    from transformers import BitsAndBytesConfig

    # Threshold 0: outlier columns are chosen over the whole batch, so a prompt's logits would depend on others.
    how: dict[str, Any] = {"load_in_8bit": True, "llm_int8_threshold": 0.0}
    if quantization == "4bit":
        how = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": dtype}
    return {"quantization_config": BitsAndBytesConfig(**how), "device_map": {"": place}}


def refuse_offloaded(hf_model: "PreTrainedModel", device_map: object = None) -> None:
    """Reject a model with weights that are not loaded, or whose embedding is off-loaded.

    Raises:
        ModelError: names the weights, or names in the map that are not modules.
    """
    model: torch.nn.Module = hf_model
    if isinstance(device_map, Mapping):
        there = {name for name, _ in (*model.named_modules(), *model.named_parameters())}
        if unknown := [name for name in device_map if name not in there]:
            raise ModelError(
                f"device_map names {unknown[0]!r}, which is not a module of this "
                f"{type(model).__name__}. Its modules: "
                f"{', '.join(name for name, _ in model.named_children())}."
            )
    embedding = hf_model.get_input_embeddings()
    for name, module in model.named_modules():
        for attribute, parameter in module.named_parameters(recurse=False):
            if parameter.is_meta and (
                module is embedding or stored(module, attribute, parameter).is_meta
            ):
                raise ModelError(
                    f"The weights of {name!r} are off-loaded or were not loaded. The embedding "
                    "must be on a device, since inputs go there; all other weights must be on a "
                    "device, or where accelerate can fetch them (cpu, disk). Use a device_map "
                    "that puts the embedding first."
                )


_BIDIRECTIONAL = {"bert-generation", "xlnet"}  # not listed by transformers as masked models


def refuse_encoders(name: str, config: "PreTrainedConfig") -> None:
    """Reject models whose configuration is not that of a causal decoder.

    Raises:
        ModelError: says what was found.
    """
    from transformers.models.auto import modeling_auto as auto

    kind = str(config.model_type)
    architectures = list(getattr(config, "architectures", None) or ())
    # BERT and similar models are also listed as causal models, for use as a decoder.
    bidirectional = kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES or kind in _BIDIRECTIONAL
    if getattr(config, "is_encoder_decoder", False):
        description = "an encoder-decoder model"
    elif bidirectional and not getattr(config, "is_decoder", False):
        description = "an encoder model"
    elif (
        has_language_part(config)
        or kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        or any(
            architecture.endswith(("ForCausalLM", "LMHeadModel")) for architecture in architectures
        )
    ):
        return
    else:
        description = "an encoder or another model without a causal language model head"
    raise ModelError(
        f"{name!r} is {description} (type {kind!r}, {', '.join(architectures) or 'no architecture'}). "
        "In-context learning is studied in decoder (causal) language models: load one, for "
        "example load_model('gpt2')."
    )


_OTHER = "Use a model of a family it supports, for example load_model('gpt2')."

WRAP_ERRORS = (*LOAD_ERRORS, AssertionError, AttributeError, NotImplementedError)
"""Exceptions that TransformerLens raises for models it does not support."""


def wrap_loaded(
    hf_model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    name: str,
    dtype: torch.dtype,
    device: str,
    checks: Checks,
) -> "TransformerBridge":
    """A `TransformerBridge` in eval mode around a model; logits are compared unless the model passed before.

    Raises:
        ModelError: TransformerLens cannot wrap it, or the logits of the bridge differ.
    """
    from icl_mech.models import transformer_lens

    for part in filter(is_packed, hf_model.modules()):
        vars(part)["support_avx512bf16_for_cpu"] = False  # that kernel gives no gradients
    with torch.no_grad():
        try:
            passed = checks.recognise(hf_model)
            expected = torch.zeros(1) if passed else _logits(hf_model)
            with _own_tokens(tokenizer):
                bridge = transformer_lens.boot_bridge(
                    hf_model, tokenizer, name=name, dtype=dtype, device=device
                )
            inner: Any = bridge.original_model
            wrapped = expected if passed else _logits(inner)
        except IclMechError:
            raise
        except WRAP_ERRORS as error:
            words = str(error).split(" Available architectures")[0]  # a list of more than a hundred
            advice = transformer_lens.WHOLE if is_compact(hf_model) else _OTHER
            raise ModelError(
                f"TransformerLens {version('transformer-lens')} cannot wrap {name!r} "
                f"({type(hf_model).__name__}): {type(error).__name__}: {words} {advice}"
            ) from error
    gap, allowed = float((wrapped - expected).abs().max()), _allowed(hf_model, dtype, expected)
    if not gap <= allowed and bool(expected.isfinite().all()):
        if hooks := Watch(hf_model).foreign_hooks():
            raise ModelError(
                f"{name!r} has hooks that you added and that a bridge would not run as the model "
                f"does: {'; '.join(hooks[:3])}. Remove them, and add them to the model that "
                "load_model returns."
            )
        raise ModelError(
            f"TransformerLens {version('transformer-lens')} wraps {name!r} "
            f"({type(hf_model).__name__}) incorrectly: logits differ from the model's own by "
            f"{gap:.2g} (allowed {allowed:.2g}). Use a model of another family."
        )
    return bridge


def _allowed(hf_model: "PreTrainedModel", dtype: torch.dtype, logits: Tensor) -> float:
    # In float64 TransformerLens computes some parts in float32.
    formats = "float32", str(dtype).removeprefix("torch.")
    return max(tolerance(name, logits, of_model(hf_model)) for name in formats)


def _logits(hf_model: "PreTrainedModel") -> Tensor:
    """Logits of a few tokens, as the original model computes them."""
    embedding: Any = hf_model.get_input_embeddings()
    ids = torch.arange(3, 14, device=embedding.weight.device)[None] % embedding.weight.shape[0]
    logits: Tensor = hf_model(ids, use_cache=False).logits
    return logits.float()


@contextmanager
def _own_tokens(tokenizer: "PreTrainedTokenizerBase") -> Iterator[None]:
    """Context that keeps TransformerLens from changing the tokenization.

    A tokenizer not declared to add a BOS token would be reloaded, from the main revision, as one that
    does, whether or not the model was trained on texts that begin that way.
    """
    declared = dict(tokenizer.init_kwargs)
    try:
        # TransformerLens reads the name, which a tokenizer made in memory lacks, only to reload it.
        tokenizer.init_kwargs = {"name_or_path": "", **declared, "add_bos_token": True}
        yield
    finally:
        tokenizer.init_kwargs = declared


def boot_object(
    hf_model: object,
    tokenizer: object,
    *,
    device: Device,
    dtype: object,
    options: Mapping[str, object],
    checks: Checks,
) -> "TransformerBridge":
    """A `TransformerBridge` around a model held by the caller; not checked yet.

    The model is wrapped, not copied: it is switched to evaluation mode and eager attention, and
    moved or cast where `device` or `dtype` say so. The tokenizer is copied.

    Raises:
        ModelError: another kind of object, no tokenizer, options for loading, an encoder, or a
            model that cannot be wrapped.
    """
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    class_name = type(hf_model).__name__
    _refuse_wrapped(hf_model, class_name)
    if not isinstance(hf_model, PreTrainedModel):
        raise ModelError(
            f"Expected the name of a model, a path, or a Hugging Face PreTrainedModel; got a {class_name}."
        )
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        given = "no tokenizer" if tokenizer is None else f"tokenizer={tokenizer!r}"
        raise ModelError(
            f"A {class_name} was given with {given}. Pass the tokenizer it was trained with: "
            "load_model(model, tokenizer=AutoTokenizer.from_pretrained(...))."
        )
    if options:
        raise ModelError(
            f"{', '.join(options)} cannot be used with a model that is already loaded. Use it in "
            "from_pretrained, or give load_model the name or path."
        )
    name = str(getattr(hf_model.config, "_name_or_path", "")) or class_name
    refuse_encoders(name, hf_model.config)
    if any(type(part).__module__.startswith("transformer_lens") for part in hf_model.modules()):
        raise ModelError(
            f"This {class_name} is already wrapped by TransformerLens. Use the model that "
            "load_model returned, or load the Hugging Face model again."
        )
    _place(hf_model, device, dtype)
    _make_eager(hf_model.eval(), class_name)
    first = next(hf_model.parameters())
    copied = copy.deepcopy(tokenizer)
    return wrap_loaded(
        language_part(hf_model), copied, name, first.dtype, str(first.device), checks
    )


def _refuse_wrapped(hf_model: object, class_name: str) -> None:
    """Reject models wrapped by PEFT or TransformerLens."""
    if hasattr(hf_model, "peft_config") or getattr(hf_model, "_hf_peft_config_loaded", False):
        raise ModelError(
            f"This {class_name} has adapters (PEFT) in addition to its weights, which "
            "measurements that read weights would miss. Merge them first: model = "
            "model.merge_and_unload()."
        )
    if class_name in ("TransformerBridge", "HookedTransformer"):
        raise ModelError(
            f"This is already a {class_name}; pass it to measure(), flow_scores(), ... directly."
        )


def _place(hf_model: "PreTrainedModel", device: Device, dtype: object) -> None:
    refuse_offloaded(hf_model)
    if device is not None and getattr(hf_model, "hf_device_map", None):
        raise ModelError(
            f"device={device!r} was given, but the model is spread by a device map. Leave it out."
        )
    if dtype is not None and any(map(is_packed, hf_model.modules())):
        raise ModelError(f"dtype={dtype!r} was given, but the model is quantised. Leave it out.")
    module: torch.nn.Module = hf_model
    try:
        if device is not None:
            module.to(device_of(device))
        if dtype is not None:  # buffers such as rotary frequencies keep their precision
            wanted = dtype_of(dtype)
            for parameter in hf_model.parameters():
                parameter.data = parameter.data.to(wanted)
    except ModelError:
        raise
    except WRAP_ERRORS as error:
        raise ModelError(f"The model cannot be moved or cast: {error}") from error
    dtype_of(next(hf_model.parameters()).dtype)


def _make_eager(hf_model: "PreTrainedModel", class_name: str) -> None:
    """Switch a model to eager attention, which computes patterns, however it was loaded."""
    if hf_model.config._attn_implementation != "eager":
        try:
            hf_model.set_attn_implementation("eager")
        except WRAP_ERRORS as error:
            raise ModelError(
                f"This {class_name} cannot be switched to eager attention ({error}); load it with "
                "from_pretrained(..., attn_implementation='eager')."
            ) from error

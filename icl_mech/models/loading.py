"""Loads a model from where it is.

Whatever the source, a Hugging Face model with eager attention is wrapped in a
`TransformerBridge`. The tokenizer is the model's own: it begins texts with a BOS token only if
the model was published so.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from icl_mech.errors import ModelError
from icl_mech.models.conversion import (
    FOLDER_PARTS,
    LOAD_ERRORS,
    converted,
    missing_parts,
    refuse_missing_weights,
)
from icl_mech.models.known import DEFAULT_MODEL
from icl_mech.models.sources import Source, resolve

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
_BIDIRECTIONAL = {"bert-generation", "xlnet"}  # not listed by transformers as masked models
_FOR_ALL_LOADERS = ("cache_dir", "force_download", "local_files_only", "token", "trust_remote_code")


def boot(
    name: str = DEFAULT_MODEL,
    *,
    device: str | None = None,
    dtype: torch.dtype | str | None = None,
    revision: str | None = None,
    **kwargs: Any,
) -> Any:
    """A `TransformerBridge` in eval mode with eager attention; not checked yet.

    Args:
        name: A known name, a hub id `owner/name`, a folder in Hugging Face format, or a `.gguf`
            file. Known names come first: write `./gpt2` for a folder of that name.
        device: For example `"cpu"` or `"cuda:1"`; default: `"cuda"` if there is a GPU.
        dtype: A `torch.dtype` or its name; default float32, also on a GPU.
        revision: Branch, tag or commit on the hub.
        **kwargs: Passed to the Hugging Face loader (`token`, `cache_dir`, ...).

    Raises:
        ModelError: the model cannot be found or loaded, is not a causal decoder, or the device
            or dtype cannot be used.
    """
    place, precision = _device(device), _dtype(dtype)
    source = resolve(name)
    _check_options(source, revision, kwargs)
    if source.kind != "hub":
        kwargs = {"local_files_only": True, **kwargs}
    elif revision is not None:
        kwargs = {"revision": revision, **kwargs}
    with _quiet():
        location = source.location
        if source.kind == "gguf":
            location = str(converted(Path(location)))
        hf_model, tokenizer = _load(location, source, precision, kwargs)
        return _wrap(hf_model.to(place).eval(), tokenizer, source.name, precision, place)


def _wrap(hf_model: Any, tokenizer: Any, name: str, dtype: torch.dtype, device: str) -> Any:
    from icl_mech.models import transformer_lens

    try:
        with _own_tokens(tokenizer):
            return transformer_lens.boot_bridge(
                hf_model, tokenizer, name=name, dtype=dtype, device=device
            )
    except ModelError:
        raise
    except (ValueError, NotImplementedError) as error:
        raise ModelError(
            f"TransformerLens {version('transformer-lens')} cannot wrap {name!r} "
            f"({type(hf_model).__name__}): {error} Use a model of a family it supports, for "
            "example load_model('gpt2')."
        ) from error


@contextmanager
def _own_tokens(tokenizer: Any) -> Iterator[None]:
    """Keeps TransformerLens from changing how texts become tokens.

    A tokenizer not declared to add a BOS token would be loaded again, from the main revision, as
    one that does, whether or not the model has seen texts begin that way.
    """
    declared = dict(tokenizer.init_kwargs)
    try:
        tokenizer.init_kwargs["add_bos_token"] = True
        yield
    finally:
        tokenizer.init_kwargs = declared


def _check_options(source: Source, revision: str | None, kwargs: dict[str, Any]) -> None:
    if revision is not None and source.kind != "hub":
        raise ModelError(
            f"revision={revision!r} was given, but {source.name!r} is not loaded from the hub "
            f"({source.text}). Leave revision out, or give a hub id."
        )
    for option in ("attn_implementation", "device_map", "torch_dtype", "output_loading_info"):
        if option in kwargs:
            raise ModelError(
                f"The option {option}={kwargs[option]!r} cannot be passed on: attention must be "
                "eager so that patterns can be read and edited, placement and precision are set "
                "with device= and dtype=, and missing weights are always looked for. Leave it out."
            )


def _device(device: str | None) -> str:
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"Unknown device {device!r}. Use 'cpu', 'cuda', 'cuda:1', ...") from error
    found = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    if (wanted.index or 0) >= found.get(wanted.type, 0):
        there = ", ".join(f"{count} {kind}" for kind, count in found.items() if count)
        raise ModelError(
            f"Device {device!r} is not available here (found: {there}). Leave device out to use "
            "what there is, or install a PyTorch built for that device."
        )
    return str(wanted)


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype:
    if dtype is None:
        return torch.float32
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise ModelError(f"Unknown or unusable dtype {name!r}. Use one of: {', '.join(_DTYPES)}.")
    return _DTYPES[name]


def _load(
    location: str, source: Source, dtype: torch.dtype, options: dict[str, Any]
) -> tuple[Any, Any]:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    if source.kind != "hub" and (missing := missing_parts(Path(location))):
        raise ModelError(
            f"The folder {source.name!r} lacks {' and '.join(missing)}. A model folder holds "
            f"{', '.join(FOLDER_PARTS)}, as written by model.save_pretrained(folder) and "
            "tokenizer.save_pretrained(folder); for a GGUF file give the path of the file itself."
        )
    # Otherwise transformers asks at the terminal whether to run a repository's own code, and
    # names weights of another shape only in its log.
    options = {"trust_remote_code": False, "ignore_mismatched_sizes": True, **options}
    shared = {key: options[key] for key in (*_FOR_ALL_LOADERS, "revision") if key in options}
    try:
        config = AutoConfig.from_pretrained(location, **shared)
        _refuse_encoders(source.name, config)
        tokenizer = AutoTokenizer.from_pretrained(location, **shared)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            location,
            config=config,
            dtype=dtype,
            attn_implementation="eager",
            output_loading_info=True,
            **options,
        )
        model, info = loaded
        refuse_missing_weights(source.name, info)
    except ModelError:
        raise
    except LOAD_ERRORS as error:
        raise _load_error(source, error) from error
    return model, tokenizer


def _load_error(source: Source, error: Exception) -> ModelError:
    if source.kind != "hub" or not isinstance(error, OSError):
        return ModelError(
            f"Cannot load {source.name!r} ({source.text}): {type(error).__name__}: {error} "
            "Check that its files are complete and the options right."
        )
    from huggingface_hub import constants

    offline = "HF_HUB_OFFLINE is set, so only downloaded models are found. "
    return ModelError(
        f"Cannot load {source.location!r} from the Hugging Face hub: the hub cannot be reached, "
        "there is no model of this id, or access to it must be granted first. "
        f"{offline if constants.HF_HUB_OFFLINE else ''}{source.hint}"
        "Check the id and the network, or give the path of a local folder that holds the model. "
        f"The loader said: {error}"
    )


def _refuse_encoders(name: str, config: Any) -> None:
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


@contextmanager
def _quiet() -> Iterator[None]:
    """No weight-loading bars and no notes by transformers; downloads still show theirs."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    download_bars = not are_progress_bars_disabled()
    with ExitStack() as stack:
        stack.callback(logging.set_verbosity, logging.get_verbosity())
        logging.set_verbosity_error()
        if logging.is_progress_bar_enabled():
            # Both switches of transformers also turn the hub's.
            if not download_bars:
                stack.callback(disable_progress_bars)
            stack.callback(logging.enable_progress_bar)
            logging.disable_progress_bar()
            if download_bars:
                enable_progress_bars()
        yield

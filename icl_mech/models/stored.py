"""The number format of a model's stored weights, which their dtype in memory does not show."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_KEPT = "_icl_mech_weights_format"
"""Attribute in which a loaded Hugging Face model keeps the format."""

IN_CONFIG = "icl_mech_weights_format"
"""Config field with the format of a converted GGUF file, whose folder holds de-quantised weights."""

_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64"}
_LONGEST_HEADER = 100_000_000  # bytes, as safetensors has it


def of_gguf(tensors: Iterable[Any]) -> str:
    """Type of most parameters of a GGUF file, such as `Q4_1`.

    Args:
        tensors: Tensors of the file, from `gguf.GGUFReader`.
    """
    return _most((str(tensor.tensor_type.name), int(tensor.n_elements)) for tensor in tensors)


def of_files(
    kind: str, location: str, config: "PreTrainedConfig", options: Mapping[str, Any]
) -> str:
    """Number format in the loaded files; "" if it is not known.

    Args:
        kind: Source of the files: `gguf`, `folder` or `hub`.
        location: The folder or hub id that was loaded.
        config: Configuration of the model before anything was loaded.
        options: Options of the loader.
    """
    if kind == "gguf":
        return str(getattr(config, IN_CONFIG, ""))
    if {"variant", "subfolder", "gguf_file"} & options.keys():
        return ""
    if quantised := _of_quantisation(config):
        return quantised
    try:
        folder = Path(location) if kind == "folder" else _snapshot(location, options)
        weights_format = _most(_entries(folder)) if folder is not None else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        weights_format = ""
    return weights_format or _NAMES.get(
        str(getattr(config, "dtype", "")).removeprefix("torch."), ""
    )


def keep(hf_model: "PreTrainedModel", weights_format: str) -> None:
    """Store the format of the files on a loaded model."""
    vars(hf_model)[_KEPT] = weights_format


def of_model(hf_model: object) -> str:
    """The format stored by `keep`, with any quantisation at load time: `bitsandbytes nf4 of BF16`."""
    kept = str(vars(hf_model).get(_KEPT, "") if hf_model is not None else "")
    quantised = _of_quantisation(getattr(hf_model, "config", None))
    return f"{quantised} of {kept}" if kept and quantised not in ("", kept) else kept or quantised


def _of_quantisation(config: object) -> str:
    """Method and width of quantised weights, such as `gptq 4-bit` or `bitsandbytes nf4`."""
    given = getattr(config, "quantization_config", None)
    if given is not None and hasattr(given, "to_dict"):
        given = given.to_dict()
    if not isinstance(given, Mapping):
        return ""
    method = str(getattr(given.get("quant_method"), "value", given.get("quant_method") or ""))
    if given.get("load_in_4bit"):
        width = str(given.get("bnb_4bit_quant_type", "4-bit"))
    elif given.get("load_in_8bit"):
        width = "int8"
    else:
        width = f"{given['bits']}-bit" if given.get("bits") else ""
    return f"{method} {width}".strip()


def _snapshot(hub_id: str, options: Mapping[str, Any]) -> Path | None:
    """The folder of the user's cache that a hub model was loaded from."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(
        hub_id, "config.json", cache_dir=options.get("cache_dir"), revision=options.get("revision")
    )
    return Path(cached).parent if isinstance(cached, str) else None


def _entries(folder: Path) -> Iterable[tuple[str, int]]:
    """Format and number of parameters of every tensor in the safetensors files of a folder."""
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.is_file():
        files = [single]
    elif index.is_file():
        parts = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        files = [folder / part for part in sorted(set(parts))]
    else:
        files = sorted(folder.glob("*.safetensors"))
    for file in files:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(min(length, _LONGEST_HEADER)))
        for name, tensor in header.items():
            if name != "__metadata__":
                yield str(tensor["dtype"]), math.prod(tensor["shape"])


def _most(entries: Iterable[tuple[str, int]]) -> str:
    """The format of the largest number of parameters."""
    counts: Counter[str] = Counter()
    for name, size in entries:
        counts[name] += size
    return max(counts, key=lambda name: counts[name]) if counts else ""

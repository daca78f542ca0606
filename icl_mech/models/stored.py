"""The number format a model's weights were stored in, which their precision in memory hides."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_KEPT = "_icl_mech_weights_format"
"""Where a loaded Hugging Face model keeps it."""

IN_CONFIG = "icl_mech_weights_format"
"""What the config of a converted GGUF file calls it: the folder holds plain numbers."""

_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64"}
_LONGEST_HEADER = 100_000_000  # bytes, as safetensors has it


def of_gguf(tensors: Iterable[Any]) -> str:
    """Type of most parameters of a GGUF file, such as `Q4_1`.

    Args:
        tensors: What `gguf.GGUFReader` found in it.
    """
    return _most((str(one.tensor_type.name), int(one.n_elements)) for one in tensors)


def of_files(
    kind: str, location: str, config: "PreTrainedConfig", options: Mapping[str, Any]
) -> str:
    """What the files that were loaded hold; "" if that is not known.

    Args:
        kind: Where they come from: `gguf`, `folder` or `hub`.
        location: The folder or hub id that was loaded.
        config: Its configuration, before anything was loaded.
        options: Those of the loader.
    """
    if kind == "gguf":
        return str(getattr(config, IN_CONFIG, ""))
    if {"variant", "subfolder", "gguf_file"} & options.keys():
        return ""
    if quantised := _of_quantisation(config):
        return quantised
    try:
        folder = Path(location) if kind == "folder" else _snapshot(location, options)
        found = _most(_entries(folder)) if folder is not None else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        found = ""
    return found or _NAMES.get(str(getattr(config, "dtype", "")).removeprefix("torch."), "")


def keep(hf_model: "PreTrainedModel", weights_format: str) -> None:
    """Let a loaded model remember what its files held."""
    vars(hf_model)[_KEPT] = weights_format


def of_model(hf_model: object) -> str:
    """What `keep` wrote, and how that was quantised when it was loaded: `bitsandbytes nf4 of BF16`."""
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

    found = try_to_load_from_cache(
        hub_id, "config.json", cache_dir=options.get("cache_dir"), revision=options.get("revision")
    )
    return Path(found).parent if isinstance(found, str) else None


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
    """The format with the largest share."""
    counts: Counter[str] = Counter()
    for name, size in entries:
        counts[name] += size
    return max(counts, key=lambda name: counts[name]) if counts else ""

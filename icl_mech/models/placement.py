"""Where a model's weights go, and in which precision."""

from collections.abc import Mapping
from typing import Any

import torch

from icl_mech.errors import ModelError

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
_STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")


def device_of(device: Any) -> str:
    """A device that is there; None: a GPU if there is one.

    Raises:
        ModelError: an unknown device, or one that is not available.
    """
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError) as error:
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


def dtype_of(dtype: Any) -> torch.dtype:
    """A floating type; None: float32.

    Raises:
        ModelError: names those that can be used.
    """
    if dtype is None:
        return torch.float32
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise ModelError(f"Unknown or unusable dtype {name!r}. Use one of: {', '.join(_DTYPES)}.")
    return _DTYPES[name]


def spread(device: Any, device_map: Any, max_memory: Any) -> dict[str, Any]:
    """Options by which transformers spreads a model over devices; none without a map.

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
    _refuse_offloading({str(place) for place in places})
    for place in places:
        if place not in _STRATEGIES:
            device_of(f"cuda:{place}" if isinstance(place, int) else place)
    return {"device_map": device_map} | ({} if max_memory is None else {"max_memory": max_memory})


def refuse_offloaded(model: torch.nn.Module, device_map: Any = None) -> None:
    """Refuse a model whose weights are not all in the memory of the device that uses them.

    Raises:
        ModelError: names where they are, or names in the map that are no modules.
    """
    if isinstance(device_map, Mapping):
        there = {name for name, _ in (*model.named_modules(), *model.named_parameters())}
        if unknown := [name for name in device_map if name not in there]:
            raise ModelError(
                f"device_map names {unknown[0]!r}, which is no module of this "
                f"{type(model).__name__}. Its parts: "
                f"{', '.join(name for name, _ in model.named_children())}."
            )
    placed = {str(place) for place in getattr(model, "hf_device_map", {}).values()}
    if any(parameter.is_meta for parameter in model.parameters()):
        placed.add("meta")
    _refuse_offloading(placed)


def _refuse_offloading(places: set[str]) -> None:
    elsewhere = places & {"disk", "meta"}
    if "cpu" in places and len(places) > 1:
        elsewhere.add("cpu")
    if elsewhere:
        raise ModelError(
            f"Parts of the model would be off-loaded ({', '.join(sorted(elsewhere))}, out of "
            f"{', '.join(sorted(places))}). Every weight must be in the memory of the device that "
            "uses it, since readouts read weights directly: use GPUs with enough memory together, "
            "the CPU for all of it (device_map={'': 'cpu'}), a smaller dtype or a smaller model."
        )

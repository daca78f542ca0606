"""Helpers shared by the adapters around Hugging Face models: key/value caches, logits, frozen weights."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from icl_mech._typing import Tensor
from icl_mech.models.interface import KeyValues
from icl_mech.models.undo import Undo
from icl_mech.models.watching import is_packed, stored

if TYPE_CHECKING:
    from transformers import DynamicCache, PreTrainedConfig


def dynamic_cache(cache: KeyValues | None) -> "DynamicCache":
    """A plain `DynamicCache` with these keys and values: a sliding-window cache would drop keys."""
    from transformers import DynamicCache

    dynamic = DynamicCache()
    if cache is not None:
        for number, (key, value) in enumerate(zip(cache.keys, cache.values, strict=True)):
            # Initialised empty: `update` would copy the tensors that many prompts share.
            dynamic.update(key[:, :, :0], value[:, :, :0], number)
            layer: Any = dynamic.layers[number]
            layer.keys, layer.values = key, value
    return dynamic


def key_values(dynamic: "DynamicCache") -> KeyValues:
    """The keys and values in a cache; blocks that were not run have no columns."""
    layers: list[Any] = dynamic.layers
    nothing = layers[-1].keys[:, :, :0]
    keys, values = (
        tuple(nothing if getattr(la, name) is None else getattr(la, name) for la in layers)
        for name in ("keys", "values")
    )
    return KeyValues(keys, values)


def scaled_logits(config: "PreTrainedConfig", logits: Tensor) -> Tensor:
    """Logits with the scaling and soft-cap of a model's config."""
    scale = getattr(config, "logit_scale", None)
    divisor = getattr(config, "logits_scaling", None)
    cap = getattr(config, "final_logit_softcapping", None)
    logits = logits * scale if scale else logits
    logits = logits / divisor if divisor else logits
    return torch.tanh(logits / cap) * cap if cap else logits


def plain_weight(linear: torch.nn.Linear, like: Tensor) -> Tensor:
    """The matrix of a linear layer; packed integers are de-quantised to the dtype of `like`."""
    if not is_packed(linear):
        return stored(linear, "weight", linear.weight)
    from transformers.integrations.bitsandbytes import dequantize_bnb_weight

    weight: Any = linear.weight
    plain: Tensor = dequantize_bnb_weight(weight, getattr(linear, "state", None))
    return plain.to(like.dtype)


@contextmanager
def frozen(parameters: Iterable[torch.nn.Parameter], undo: Undo) -> Iterator[None]:
    """Context with parameters frozen and gradients enabled; both are restored afterwards."""
    trainable = [parameter for parameter in parameters if parameter.requires_grad]

    def thaw() -> None:
        for parameter in trainable:
            parameter.requires_grad_(True)

    with undo.by(thaw), torch.enable_grad():
        for parameter in trainable:
            parameter.requires_grad_(False)
        yield

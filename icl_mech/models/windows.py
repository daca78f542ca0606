"""Attention windows: how far back a row of attention reaches, by layer, according to the configuration.

A token at position `i` sees the position `j <= i` if `i - j < window`.
"""

from typing import Any

import torch

SLIDING = ("sliding_attention", "local", "local_attention")
"""Names that configurations give to layers with a window."""


def windows_of(module: torch.nn.Module, n_layers: int) -> tuple[int | None, ...]:
    """Number of tokens that a row of attention sees, itself included, by layer; None where it sees all before it."""
    kinds, window = _of_config(module)
    if window is None:
        return (None,) * n_layers
    chosen = kinds or [SLIDING[0]] * n_layers
    return tuple(int(window) if kind in SLIDING else None for kind in chosen[:n_layers])


def _of_config(module: torch.nn.Module) -> tuple[list[str] | None, int | None]:
    """The kinds of the layers, if the configuration distinguishes them, and the window."""
    hf_config = getattr(getattr(module, "original_model", module), "config", None)
    if hf_config is None:
        config: Any = module.cfg
        return config.attn_types, config.window_size if config.use_local_attn else None
    text = hf_config.get_text_config()
    if hasattr(text, "attention_layers"):  # GPT-Neo
        return list(text.attention_layers), text.window_size
    return getattr(text, "layer_types", None), getattr(text, "sliding_window", None)

"""Windows of attention: how far back a row of attention reaches, by layer, as the configuration says it.

A token at position `i` sees the position `j <= i` if `i - j < window`.
"""

from typing import Any

import torch

SLIDING = ("sliding_attention", "local", "local_attention")
"""What configurations call layers with a window."""


def windows_of(module: torch.nn.Module, n_layers: int) -> tuple[int | None, ...]:
    """Tokens that a row of attention sees, its own among them, by layer; None where it sees all before it."""
    kinds, window = _of_config(module)
    if window is None:
        return (None,) * n_layers
    chosen = kinds or [SLIDING[0]] * n_layers
    return tuple(int(window) if kind in SLIDING else None for kind in chosen[:n_layers])


def _of_config(module: torch.nn.Module) -> tuple[list[str] | None, int | None]:
    """The kinds of the layers, where the configuration tells them apart, and the window."""
    hf_config = getattr(getattr(module, "original_model", module), "config", None)
    if hf_config is None:
        own: Any = module.cfg
        return own.attn_types, own.window_size if own.use_local_attn else None
    text = hf_config.get_text_config()
    if hasattr(text, "attention_layers"):  # GPT-Neo
        return list(text.attention_layers), text.window_size
    return getattr(text, "layer_types", None), getattr(text, "sliding_window", None)

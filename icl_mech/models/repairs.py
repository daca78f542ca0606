"""Families that TransformerLens wraps wrongly, mended.

* Falcon's new decoder architecture: the fused projection holds, for each group of heads, its
  queries, one key and one value; TransformerLens takes all queries to come first.
* GPT of 2018: blocks return lists, so that the hook of their output does not fire, and a padding
  mask is taken for one that hides the future too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from icl_mech._typing import Tensor


@contextmanager
def mended_adapters(hf_config: Any) -> Iterator[None]:
    """While a bridge is made."""
    if not getattr(hf_config, "new_decoder_architecture", False):
        yield
        return
    from transformer_lens.model_bridge.supported_architectures import FalconArchitectureAdapter

    with (
        patch.object(FalconArchitectureAdapter, "_split_falcon_qkv", _split_by_group),
        patch.object(hf_config, "multi_query", False),  # read first, it would hide num_kv_heads
    ):
        yield


def _split_by_group(_: Any, attention: Any) -> tuple[nn.Linear, ...]:
    """Queries, keys and values of a `FalconAttention`."""
    fused, groups, width = attention.query_key_value, attention.num_kv_heads, attention.head_dim
    parts: list[nn.Linear] = []
    for rows in (slice(None, -2), slice(-2, -1), slice(-1, None)):

        def taken(values: Tensor, rows: slice = rows) -> Tensor:
            by_group = values.detach().reshape(groups, -1, width, *values.shape[1:])
            return by_group[:, rows].reshape(-1, *values.shape[1:]).clone()

        weight = taken(fused.weight)
        linear = nn.Linear(
            weight.shape[1], weight.shape[0], bias=fused.bias is not None, device="meta"
        )
        linear.weight = nn.Parameter(weight)
        if fused.bias is not None:
            linear.bias = nn.Parameter(taken(fused.bias))
        parts.append(linear)
    return tuple(parts)


def mend_blocks(bridge: Any) -> None:
    """Make the blocks of a bridge return what its hooks expect; doing so again changes nothing."""
    if type(bridge.original_model).__name__ == "OpenAIGPTLMHeadModel":
        for block in bridge.blocks:
            block.original_component.forward = partial(_gpt_block, block.original_component)


def _gpt_block(
    block: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    output_attentions: bool = False,
) -> tuple[Any, ...]:
    """`Block.forward` of GPT with a causal mask, as a tuple."""
    if attention_mask is not None:
        length, least = hidden_states.shape[1], torch.finfo(hidden_states.dtype).min
        future = hidden_states.new_full((length, length), least).triu(1)
        attention_mask = torch.minimum(attention_mask, future)
    return tuple(type(block).forward(block, hidden_states, attention_mask, output_attentions))

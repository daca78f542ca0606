"""Families that TransformerLens wraps wrongly, mended.

* Falcon's new decoder architecture: the fused projection holds, for each group of heads, its
  queries, one key and one value; TransformerLens takes all queries to come first. With one
  norm (Falcon 2) it looks for that of another name.
* GPT of 2018: blocks return lists, so that the hook of their output does not fire, and a padding
  mask is taken for one that hides the future too.
* Models that also take images: TransformerLens would look for their image processor on the hub,
  and install torchvision for it. Texts need none.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from icl_mech._typing import Tensor
from icl_mech.errors import ModelError


@contextmanager
def mended_adapters(hf_model: Any) -> Iterator[None]:
    """While a bridge is made."""
    hf_config = hf_model.config
    with ExitStack() as stack:
        if not hf_config.architectures:  # made from a config; TransformerLens goes by the name
            names = [type(hf_model).__name__]
            stack.enter_context(patch.object(hf_config, "architectures", names))
        if getattr(hf_config, "new_decoder_architecture", False):
            falcon = "transformer_lens.model_bridge.supported_architectures.falcon"
            adapter = import_module(falcon).FalconArchitectureAdapter
            stack.enter_context(patch.object(adapter, "_split_falcon_qkv", _split_by_group))
            stack.enter_context(patch.object(adapter, "__init__", _named_norm(adapter.__init__)))
            # Read first, it would hide num_kv_heads.
            stack.enter_context(patch.object(hf_config, "multi_query", False))
        if hf_config.get_text_config() is not hf_config:
            processor = "transformers.AutoProcessor.from_pretrained"
            stack.enter_context(patch(processor, lambda *_, **__: None))
        yield


def _named_norm(own: Callable[..., None]) -> Callable[..., None]:
    """A constructor that knows the one norm of Falcon 2."""

    def init(self: Any, cfg: Any) -> None:
        own(self, cfg)
        if getattr(cfg, "num_ln_in_parallel_attn", None) == 1:
            self.component_mapping["blocks"].submodules["ln1"].name = "input_layernorm"

    return init


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
    """Make the blocks of a bridge return what its hooks expect; doing so again changes nothing.

    Raises:
        ModelError: a bridge around Falcon's new decoder that `load_model` did not make.
    """
    if getattr(bridge.original_model.config, "new_decoder_architecture", False):
        attention = bridge.blocks[0].attn
        queries = _split_by_group(None, attention.original_component)[0].weight
        if not torch.equal(attention.q.weight, queries):
            raise ModelError(
                "TransformerLens splits the fused projection of Falcon's new decoder the wrong way, "
                "so this bridge gives wrong numbers. Make it with load_model(name), or with "
                "load_model(hf_model, tokenizer=tokenizer)."
            )
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

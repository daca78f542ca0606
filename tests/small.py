"""A small random model that reads the offline model's tokens: for what must run, whatever the numbers."""

from functools import lru_cache
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import icl_mech as icl
from icl_mech.models.loading import load_tokenizer


@lru_cache
def small_model(layers: int = 6) -> Any:
    """As many tokens as the offline model, but few and narrow blocks of random weights."""
    tokenizer = load_tokenizer("smollm2-135m")
    return icl.load_model(small_hf(tokenizer, layers), tokenizer=tokenizer)


def small_hf(tokenizer: Any, layers: int) -> LlamaForCausalLM:
    """The same before it is wrapped, new at every call."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=32,
        intermediate_size=64,
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        return LlamaForCausalLM(config).eval()

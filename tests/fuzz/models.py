"""Tiny models of a random family, width and depth; the same seed gives the same weights."""

import random
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.families.configs import BY_NAME, SIZES
from tests.tiny import Kind, randomize, tiny_tokenizer

# Of each kind of attention, positions, norms and order of parts one or two; no experts, whose
# choice between near ties no other number format can follow.
FAMILIES = (
    "GPT-2", "GPT-2, scaled by layer", "GPT-2, untied", "GPT-Neo", "GPT-J", "GPT-NeoX",
    "GPT-NeoX, sequential", "CodeGen", "OPT", "BLOOM", "Falcon", "Falcon, new decoder", "Llama",
    "Llama, tied, biases", "Mistral", "Qwen 2", "Qwen 2, sliding", "Qwen 3", "Gemma", "Gemma 2",
    "Gemma 3", "Phi", "Phi 3", "StableLM, parallel", "OLMo", "OLMo 2", "OLMo 3", "StarCoder 2",
    "Granite", "Cohere 2", "GLM", "GLM 4", "SmolLM 3", "Hunyuan",
)  # fmt: skip

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Architecture:
    """What is drawn of a model.

    Attributes:
        family: Its name in `tests.families.configs`.
        layers: Number of blocks.
        heads: Number of query heads.
        kv_heads: Of keys and values, where the family groups them.
        window: Width of sliding windows, where it has them.
        dtype: Number format.
        seed: Of the weights.
    """

    family: str
    layers: int
    heads: int
    kv_heads: int
    window: int
    dtype: str
    seed: int

    @classmethod
    def drawn(cls, draw: random.Random) -> "Architecture":
        """A random one."""
        family = draw.choice(FAMILIES)
        heads = 4 if family == "CodeGen" else draw.choice((2, 4))  # its code needs a multiple of 4
        return cls(
            family=family,
            layers=draw.choice((2, 2, 3, 4)),
            heads=heads,
            kv_heads=draw.choice([n for n in (1, 2, 4) if n <= heads]),
            window=draw.choice((3, 5, 8, 13)),
            dtype=draw.choice(("float32",) * 6 + ("float64",) * 2 + ("bfloat16",)),
            seed=draw.randrange(1000),
        )

    @property
    def windowed(self) -> bool:
        """True if some layers see a few tokens only."""
        names = BY_NAME[self.family].options.keys()
        return bool(names & {"sliding_window", "attention_types"})

    @property
    def tokenizer(self) -> Kind:
        """Which tiny tokenizer."""
        return BY_NAME[self.family].tokenizer

    def make(self) -> PreTrainedModel:
        """A new Hugging Face model."""
        family = BY_NAME[self.family]
        tokenizer = tiny_tokenizer(self.tokenizer)
        tokens: dict[str, Any] = {"vocab_size": len(tokenizer)}
        for name in ("pad", "bos", "eos"):
            tokens[f"{name}_token_id"] = getattr(tokenizer, f"{name}_token_id")
        options = {**SIZES, **tokens, **family.options}
        options |= {"num_hidden_layers": self.layers, "num_attention_heads": self.heads}
        if "num_key_value_heads" in options:
            options["num_key_value_heads"] = self.kv_heads
        if options.get("sliding_window"):
            options["sliding_window"] = self.window
        if "layer_types" in options:
            options["layer_types"] = (options["layer_types"] * 2)[: self.layers]
        if "no_rope_layers" in options:
            options["no_rope_layers"] = (options["no_rope_layers"] * 2)[: self.layers]
        if "attention_types" in options:
            kinds = (["local", "global"] * 2)[: self.layers]
            options |= {"attention_types": [[kinds, 1]], "window_size": self.window}
        config = AutoConfig.for_model(family.kind, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        model.config.architectures = [type(model).__name__]
        randomize(model, self.seed)
        return model.to(DTYPES[self.dtype])

"""Tiny random models and tokenizers of the families we support; nothing is downloaded.

Weights are large enough that attention is far from uniform and that logits of label words
differ clearly: errors of masking, of positions or of hooks then move every number.
"""

import copy
import json
import os
from functools import lru_cache
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformer_lens.model_bridge import TransformerBridge
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPTJConfig,
    GPTNeoConfig,
    GPTNeoXConfig,
    LlamaConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    XGLMConfig,
)

Kind = Literal["bpe", "sentencepiece"]

N_LAYERS = 3
N_HEADS = 4
N_KV_HEADS = 2
D_MODEL = 32
D_HEAD = D_MODEL // N_HEADS
D_MLP = 64
N_CTX = 512
MAX_PARAMETERS = 400_000

# Fewer where tests run a second time, under other settings.
FAMILIES = tuple(os.environ.get("TEST_FAMILIES", "gpt2 gptj neox llama gemma3 opt").split())
REROUTED_FAMILIES = ("gptj", "opt", "gptneo", "xglm")

# Each of these becomes one token with a leading space, and in "bpe" also without.
WHOLE_WORDS = (
    "Review Sentiment Positive Negative World Sports Business Technology Article Answer "
    "Question Topic Type Location Person Number Entity Description Abbreviation Input Output "
    "positive negative animal plant vegetable sport the a of and is was movie good bad"
)

# Once each: their pieces are learned only as far as other words share them.
OTHER_TEXT = (
    "the film was a wonderful story of hope and courage",
    "terrible acting, boring plot and a waste of two hours",
    "stocks fell sharply on Monday as investors worried about rising prices",
    "the home team won the final match after extra time",
    "researchers announced a faster computer chip",
    "who wrote the first novel? how many rivers cross the country?",
    "1 2 3 4 5 6 7 8 9 0 ; ' \" ! - ( ) / quick brown foxes jump over lazy dogs",
)


def tiny_model(family: str, seed: int = 0) -> TransformerBridge:
    """A new bridge around `tiny_hf(family)`, with the tokenizer of its family."""
    return TransformerBridge.boot_transformers(
        f"tiny-{family}",
        hf_model=tiny_hf(family, seed),
        # The bridge sets missing special tokens on what it gets.
        tokenizer=copy.deepcopy(tiny_tokenizer(tokenizer_kind(family))),
        dtype=torch.float32,
        device="cpu",
    )


def tiny_hf(family: str, seed: int = 0) -> PreTrainedModel:
    """A new Hugging Face model of the family, in evaluation mode, with eager attention."""
    tokenizer = tiny_tokenizer(tokenizer_kind(family))
    config = _config(family, tokenizer)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model.config.architectures = [type(model).__name__]  # as in a checkpoint
    randomize(model, seed)
    assert sum(parameter.numel() for parameter in model.parameters()) < MAX_PARAMETERS
    assert config.num_hidden_layers == N_LAYERS
    assert config.num_attention_heads == N_HEADS
    return model


def tokenizer_kind(family: str) -> Kind:
    """Which tokenizer the family uses."""
    return "sentencepiece" if family in ("llama", "gemma3") else "bpe"


@lru_cache
def tiny_tokenizer(kind: Kind) -> PreTrainedTokenizerFast:
    """A shared tokenizer trained on a few lines.

    Args:
        kind: "bpe" is byte-level as in GPT-2, without BOS; "sentencepiece" is as in Llama 2:
            spaces are "▁", one is put before the text, unknown characters (also newlines)
            become bytes, and `<s>` is prepended.
    """
    return _byte_level_tokenizer() if kind == "bpe" else _sentencepiece_tokenizer()


def _byte_level_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        min_frequency=2,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_training_lines(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        name_or_path="tiny-bpe",  # TransformerLens reads it
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        model_max_length=N_CTX,
    )


def _sentencepiece_tokenizer() -> PreTrainedTokenizerFast:
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    trained = Tokenizer(models.BPE())
    # Keeps pieces such as "Review:" from being learned.
    trained.pre_tokenizer = pre_tokenizers.Sequence([metaspace, pre_tokenizers.Punctuation()])
    trainer = trainers.BpeTrainer(min_frequency=2, show_progress=False)
    trained.train_from_iterator(_training_lines(), trainer)
    # As trained special tokens the bytes would be read from text, so they are added here.
    pieces = ["<unk>", "<s>", "</s>", "<pad>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += sorted(trained.get_vocab(), key=trained.get_vocab().__getitem__)
    merges = [tuple(merge) for merge in json.loads(trained.to_str())["model"]["merges"]]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=merges,
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.pre_tokenizer = metaspace
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", "<pad>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        name_or_path="tiny-sentencepiece",  # TransformerLens reads it
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        # Without it TransformerLens looks for a tokenizer that adds BOS on the hub.
        add_bos_token=True,
        model_max_length=N_CTX,
    )


def _training_lines() -> list[str]:
    repeated = [line for word in WHOLE_WORDS.split() for line in (word, f"{word}:", f": {word}")]
    return 10 * repeated + list(OTHER_TEXT)


def _config(family: str, tokenizer: PreTrainedTokenizerFast) -> PretrainedConfig:
    tokens: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    gpt2_sizes = {"n_layer": N_LAYERS, "n_head": N_HEADS, "n_embd": D_MODEL, "n_inner": D_MLP}
    sizes = {
        "num_hidden_layers": N_LAYERS,
        "num_attention_heads": N_HEADS,
        "hidden_size": D_MODEL,
        "max_position_embeddings": N_CTX,
    }
    gated = {**sizes, "num_key_value_heads": N_KV_HEADS, "head_dim": D_HEAD}
    match family:
        case "gpt2":
            return GPT2Config(**gpt2_sizes, n_positions=N_CTX, **tokens)
        case "gptj":
            return GPTJConfig(**gpt2_sizes, n_positions=N_CTX, rotary_dim=4, **tokens)
        case "neox":
            return GPTNeoXConfig(**sizes, intermediate_size=D_MLP, **tokens)
        case "llama":
            return LlamaConfig(**gated, intermediate_size=D_MLP, **tokens)
        case "gemma3":
            return Gemma3TextConfig(
                **gated,
                intermediate_size=D_MLP,
                query_pre_attn_scalar=D_HEAD,
                sliding_window=8,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                **tokens,
            )
        case "opt":
            return OPTConfig(**sizes, ffn_dim=D_MLP, word_embed_proj_dim=D_MODEL, **tokens)
        case "gptneo":
            return GPTNeoConfig(
                hidden_size=D_MODEL,
                num_layers=N_LAYERS,
                num_heads=N_HEADS,
                intermediate_size=D_MLP,
                max_position_embeddings=N_CTX,
                attention_types=[[["global", "local", "global"], 1]],
                window_size=8,
                **tokens,
            )
        case "xglm":
            return XGLMConfig(
                d_model=D_MODEL,
                num_layers=N_LAYERS,
                attention_heads=N_HEADS,
                ffn_dim=D_MLP,
                max_position_embeddings=N_CTX,
                **tokens,
            )
        case _:
            raise ValueError(f"unknown family {family!r}")


def randomize(model: PreTrainedModel, seed: int) -> None:
    """Weights of a size that makes masks, positions and label words matter, in place."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            value = 0.3 * noise
        elif name.endswith("bias"):
            value = 0.1 * noise
        else:
            # Norms of Gemma 1 to 3 scale by 1 + weight; those of q and k bound the scores.
            gemma = "Gemma" in type(model).__name__ and "Gemma4" not in type(model).__name__
            offset = 2.0 if name.endswith(("q_norm.weight", "k_norm.weight")) else 1.0
            value = 0.1 * noise + (offset - 1.0 if gemma else offset)
        parameter.data.copy_(value)

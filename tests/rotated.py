"""A transformer that writes its answer in one part of the residual stream and reads it in another.

The embedding of a word holds the class of the word in the space `written` and noise in the space
`read`; blocks do next to nothing until the last one, whose MLP turns `written` into `read`. The
unembedding knows `read` only. So the logit lens reads noise up to the last entry, while one linear
map of every earlier entry gives the model's own answer.

A feature is the difference of two dimensions, so the mean is always 0, and a constant far larger
than the rest makes every LayerNorm the identity within 2 %. `gelu(x) - gelu(-x) = x`, so an MLP
with the weights of a linear map beside their negatives is that map.
"""

import copy

import torch
from transformer_lens.model_bridge import TransformerBridge
from transformers import GPT2Config, GPT2LMHeadModel

from icl_mech.prompts import Prompt, PromptBatch
from tests.planted import LABELS, WORDS, planted_tokenizer

N_LAYERS = 4
C = len(LABELS)
N_FEATURES = 1 + 2 * C  # size, written, read
D_MODEL = 2 * N_FEATURES
SIZE = 40.0
WRITTEN, READ = slice(1, 1 + C), slice(1 + C, 1 + 2 * C)


def spread(features: torch.Tensor) -> torch.Tensor:
    """`[..., feature]` as differences of two dimensions."""
    return torch.cat([features, -features], dim=-1) / 2**0.5


def words() -> list[tuple[int, int]]:
    """Token id and class of every word."""
    ids = planted_tokenizer().get_vocab()
    return [(ids[word], label) for label, own in enumerate(WORDS) for word in own.split()]


def label_tokens() -> list[int]:
    ids = planted_tokenizer().get_vocab()
    return [ids[f" {label}"] for label in LABELS]


@torch.no_grad()
def rotated_hf() -> GPT2LMHeadModel:
    """GPT-2's architecture, weights by hand."""
    tokenizer = planted_tokenizer()
    config = GPT2Config(
        vocab_size=len(tokenizer), n_layer=N_LAYERS, n_head=2, n_embd=D_MODEL,
        n_inner=2 * D_MODEL, n_positions=64, tie_word_embeddings=False, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        activation_function="gelu", architectures=[GPT2LMHeadModel.__name__],
        attn_implementation="eager",
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        is_norm = name.rsplit(".", 2)[-2].startswith("ln_")
        parameter.fill_(SIZE / D_MODEL**0.5 if is_norm and name.endswith("weight") else 0.0)
    for block in model.transformer.h:  # attention that hardly matters
        for part in (block.attn.c_attn.weight, block.attn.c_proj.weight):
            part.copy_(0.01 * torch.randn(part.shape, generator=generator))
    features = torch.zeros(len(tokenizer), N_FEATURES)
    features[:, 0] = SIZE
    features[:, READ] = 2 * torch.randn(len(tokenizer), C, generator=generator)
    for token, label in words():
        features[token, 1 + label] = 3.0
    model.transformer.wte.weight.copy_(spread(features))
    turn = torch.zeros(N_FEATURES, N_FEATURES)  # new = old @ turn, minus the identity
    turn[WRITTEN, READ] = torch.eye(C)
    turn[READ, WRITTEN] = -torch.eye(C)
    keep = torch.zeros(N_FEATURES)
    keep[0] = 1
    change = turn + torch.diag(keep) - torch.eye(N_FEATURES)
    both = torch.cat([torch.eye(N_FEATURES), -torch.eye(N_FEATURES)], dim=1) / 2**0.5
    linear = both.T @ change @ both
    mlp = model.transformer.h[-1].mlp
    mlp.c_fc.weight.copy_(torch.cat([torch.eye(D_MODEL), -torch.eye(D_MODEL)], dim=1))
    mlp.c_proj.weight.copy_(torch.cat([linear, -linear]))
    out = torch.zeros(len(tokenizer), N_FEATURES)
    out[:, READ] = 0.1 * torch.randn(len(tokenizer), C, generator=generator)
    for token, own in zip(label_tokens(), torch.eye(C), strict=True):
        out[token, READ] = 2 * own
    model.lm_head.weight.copy_(spread(out))
    return model


def rotated_model() -> TransformerBridge:
    """A new bridge around `rotated_hf()`."""
    return TransformerBridge.boot_transformers(
        "rotated", hf_model=rotated_hf(), tokenizer=copy.deepcopy(planted_tokenizer()),
        dtype=torch.float32, device="cpu",
    )  # fmt: skip


def word_lists(count: int, length: int, seed: int) -> list[list[int]]:
    """Sequences of words, drawn at random."""
    known = [token for token, _ in words()]
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(len(known), (count, length), generator=generator).tolist()
    return [[known[place] for place in row] for row in rows]


def word_prompts(rows: list[list[int]]) -> PromptBatch:
    """Prompts that ask for the class of their last word."""
    classes = dict(words())
    return PromptBatch(
        tuple(
            Prompt.from_positions(
                row, label_positions=[], label_classes=[], label_tokens=label_tokens(),
                answer=classes[row[-1]],
            )
            for row in rows
        )
    )  # fmt: skip

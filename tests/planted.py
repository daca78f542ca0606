"""A small transformer with planted false induction heads: weights set by hand, nothing trained.

A demonstration is five tokens, `dog`, `:`, ` animal`, `.`, `\\n\\n`; a query ends at its `:`.
The residual stream holds the named spaces of `SPACES`, and each part reads and writes them:

* embeddings: a random code for each word, the class of a text, the label a label word
  displays, the places (in bits) of a token and of the token before it;
* head 0.0 and head 1.1 attend to the token before: first every `:` learns the class of its
  text, then every label word learns the class of its demonstration's text;
* MLP 1 knows the answer: at a `:` it writes the class of the text, whatever the demonstrations
  say. From there on, right answers need no attention;
* `INDUCTION_HEADS` match prefixes and copy: at a `:` they attend to earlier label words whose
  demonstration has a text of the same class, and write the label these display. Without a
  match they rest on line breaks, which display nothing. Each alone outweighs what MLP 1 and the
  promoting decoys leave of the right answer;
* `ATTENDING_DECOYS` attend to all earlier label words alike and copy what these display:
  balanced demonstrations give each label its equal share;
* `PROMOTING_DECOYS` attend to the query's text and write *minus* its class: they raise every
  wrong label over the right one, with true and with false demonstrations alike;
* all other heads are noise: random weights, small outputs, value biases.

A feature is the difference of two residual dimensions, so the mean is always 0, and the space
`size` is constant and far larger than the rest: every LayerNorm is the identity within 2 %.
"""

import copy
import math
from functools import lru_cache

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformer_lens.model_bridge import TransformerBridge
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from icl_mech import Example, Task, Template

INDUCTION_HEADS: tuple[tuple[int, int], ...] = ((2, 1), (3, 2))
ATTENDING_DECOYS: tuple[tuple[int, int], ...] = ((2, 0), (3, 3))
PROMOTING_DECOYS: tuple[tuple[int, int], ...] = ((2, 3), (3, 0))
PREVIOUS_TOKEN_HEADS: tuple[tuple[int, int], ...] = ((0, 0), (1, 1))

# What the parts write for or against a label, in logits.
ANSWER = 2.5
COPIED = 2.5
AVERAGED = 1.0
AGAINST_TEXT = 0.5

N_LAYERS = 4
N_HEADS = 4
N_CTX = 256
LABELS = ("animal", "plant", "sport")
TRAIN_WORDS = 10  # of each class; the others are queries
WORDS = (
    "dog cat horse cow pig sheep goat lion tiger bear wolf fox rabbit mouse rat deer camel "
    "monkey donkey zebra otter seal whale shark eagle owl crow duck goose frog",
    "oak pine birch maple willow rose tulip lily daisy fern moss ivy grass wheat corn rice "
    "bean pea carrot onion garlic potato tomato lettuce spinach cabbage pepper mint basil thyme",
    "soccer tennis rugby hockey golf cricket boxing judo karate rowing sailing skiing surfing "
    "archery fencing baseball softball basketball volleyball handball badminton squash polo "
    "cycling swimming diving running wrestling curling gymnastics",
)

SIZE = 64.0
SHARP = 20.0
N_BITS = N_CTX.bit_length() - 1
N_CODE = 7
SPACES = {
    "size": 1,
    "place": N_BITS,
    "place_before": N_BITS,
    "code": N_CODE,
    "is_colon": 1,
    "is_label": 1,
    "is_break": 1,
    "text_class": len(LABELS),  # of the token itself
    "shown": len(LABELS),  # the label a label word displays
    "class_before": len(LABELS),  # written by head 0.0
    "class_two_before": len(LABELS),  # written by head 1.1
    "answer": len(LABELS),  # read by the unembedding
}
N_FEATURES = sum(SPACES.values())
D_MODEL = 2 * N_FEATURES
D_HEAD = D_MODEL // N_HEADS


def planted_task() -> Task:
    """Objects of three classes; a prompt's tokens are exact."""
    texts = [words.split() for words in WORDS]
    return Task(
        "planted",
        Template("{text}: {label}.", separator="\n\n"),
        LABELS,
        tuple(Example(w, c) for c, words in enumerate(texts) for w in words[:TRAIN_WORDS]),
        tuple(Example(w, c) for c, words in enumerate(texts) for w in words[TRAIN_WORDS:]),
    )


def planted_model() -> TransformerBridge:
    """A new bridge around `planted_hf()`."""
    return TransformerBridge.boot_transformers(
        "planted",
        hf_model=planted_hf(),
        tokenizer=copy.deepcopy(planted_tokenizer()),
        dtype=torch.float32,
        device="cpu",
    )


@lru_cache
def planted_tokenizer() -> PreTrainedTokenizerFast:
    """Whole words, label words with their leading space; no BOS."""
    texts = [word for words in WORDS for word in words.split()]
    pieces = ["<|endoftext|>", ":", ".", "\n\n", *(f" {label}" for label in LABELS), *texts]
    tokenizer = Tokenizer(
        models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<|endoftext|>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\w+|\n\n|[:.]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        name_or_path="planted",  # TransformerLens reads it
        unk_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        model_max_length=N_CTX,
    )


@torch.no_grad()
def planted_hf() -> GPT2LMHeadModel:
    """The model itself: GPT-2's architecture, in evaluation mode, with eager attention."""
    tokenizer = planted_tokenizer()
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_layer=N_LAYERS,
        n_head=N_HEADS,
        n_embd=D_MODEL,
        n_inner=len(LABELS),
        n_positions=N_CTX,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        architectures=[GPT2LMHeadModel.__name__],  # as in a checkpoint
        attn_implementation="eager",
    )
    model = GPT2LMHeadModel(config).eval()
    for name, parameter in model.named_parameters():
        is_norm = name.rsplit(".", 2)[-2].startswith("ln_")
        parameter.fill_(SIZE / math.sqrt(D_MODEL) if is_norm and name.endswith("weight") else 0.0)
    generator = torch.Generator().manual_seed(0)
    _set_embeddings(model, generator)
    _set_mlps(model, generator)
    _set_heads(model, generator)
    return model


def _set_embeddings(model: GPT2LMHeadModel, generator: torch.Generator) -> None:
    ids = planted_tokenizer().convert_tokens_to_ids
    tokens = torch.zeros(model.config.vocab_size, N_FEATURES)
    tokens[:, _space("size")] = SIZE
    tokens[:, _space("code")] = torch.randn(len(tokens), N_CODE, generator=generator)
    tokens[ids(":"), _space("is_colon")] = 1.0
    tokens[ids("\n\n"), _space("is_break")] = 1.0
    logits = 0.1 * tokens * (torch.arange(N_FEATURES) >= _space("code").start)
    for c, (label, words) in enumerate(zip(LABELS, WORDS, strict=True)):
        tokens[ids(words.split()), _space("text_class").start + c] = 1.0
        tokens[ids(f" {label}"), _space("is_label")] = 1.0
        tokens[ids(f" {label}"), _space("shown").start + c] = 1.0
        logits[ids(f" {label}"), _space("answer").start + c] = 1.0
        logits[ids(f" {label}"), _space("is_colon")] = 6.0  # a label follows
    bits = 2.0 * (torch.arange(N_CTX)[:, None] >> torch.arange(N_BITS) & 1) - 1.0
    places = torch.zeros(N_CTX, N_FEATURES)
    places[:, _space("place")] = bits
    places[1:, _space("place_before")] = bits[:-1]
    model.transformer.wte.weight.copy_(tokens @ _basis())
    model.transformer.wpe.weight.copy_(places @ _basis())
    model.lm_head.weight.copy_(logits @ _basis())


def _set_mlps(model: GPT2LMHeadModel, generator: torch.Generator) -> None:
    for block in model.transformer.h:
        block.mlp.c_proj.bias.copy_(_basis().T @ _noise(generator, 0.03, "code", "answer")[:, 0])
    mlp = model.transformer.h[1].mlp
    # GELU(5) = 5 where the class is present and GELU(-5) = 0 where it is not.
    mlp.c_fc.weight.copy_(_basis().T @ _reads(class_before=10.0)[:, : len(LABELS)])
    mlp.c_fc.bias.fill_(-5.0)
    mlp.c_proj.weight.copy_(_reads(answer=ANSWER / 5).T[: len(LABELS)] @ _basis())


def _set_heads(model: GPT2LMHeadModel, generator: torch.Generator) -> None:
    for layer, block in enumerate(model.transformer.h):
        block.attn.c_proj.bias.copy_(_basis().T @ _noise(generator, 0.03, "code", "answer")[:, 0])
        for head in range(N_HEADS):
            query, key = _reads(place_before=SHARP / 2), _reads(place=1.0)  # the token before
            if (layer, head) == PREVIOUS_TOKEN_HEADS[0]:
                value, output = _reads(text_class=1.0), _reads(class_before=1.0)
            elif (layer, head) == PREVIOUS_TOKEN_HEADS[1]:
                value, output = _reads(class_before=1.0), _reads(class_two_before=1.0)
            elif (layer, head) in INDUCTION_HEADS:
                # Per unit of SHARP: label words of the class 2, line breaks 1.5, others 1.
                query = _reads(class_before=SHARP, is_colon=SHARP)
                key = _reads(class_two_before=1.0, is_label=1.0)
                key += _reads(class_two_before=0.0, is_break=1.5)
                value, output = _reads(shown=1.0), _reads(answer=COPIED)
            elif (layer, head) in ATTENDING_DECOYS:
                query, key = _reads(is_colon=SHARP), _reads(is_label=1.0)
                value, output = _reads(shown=1.0), _reads(answer=AVERAGED)
            elif (layer, head) in PROMOTING_DECOYS:
                value, output = _reads(text_class=1.0), _reads(answer=-AGAINST_TEXT)
            else:
                everything = list(SPACES)[1:]  # but the size
                query, key, value = (_noise(generator, x, *everything) for x in (0.1, 0.5, 0.2))
                output = _noise(generator, 0.006, "code", "answer")
                bias = 0.2 * torch.randn(D_HEAD, generator=generator)
                block.attn.c_attn.bias.view(3, N_HEADS, D_HEAD)[2, head] = bias
            query = query * math.sqrt(D_HEAD)  # attention divides by it
            reading = block.attn.c_attn.weight.view(D_MODEL, 3, N_HEADS, D_HEAD)
            reading[:, :, head] = torch.stack([_basis().T @ x for x in (query, key, value)], dim=1)
            block.attn.c_proj.weight.view(N_HEADS, D_HEAD, D_MODEL)[head] = output.T @ _basis()


@lru_cache
def _basis() -> torch.Tensor:
    """One orthonormal row per feature."""
    return torch.kron(torch.eye(N_FEATURES), torch.tensor([[1.0, -1.0]]) / math.sqrt(2))


def _space(name: str) -> slice:
    start = sum(SPACES[other] for other in list(SPACES)[: list(SPACES).index(name)])
    return slice(start, start + SPACES[name])


def _reads(**gains: float) -> torch.Tensor:
    """`[feature, channel]`: the spaces side by side in a head's channels; transposed, it writes."""
    matrix, channel = torch.zeros(N_FEATURES, D_HEAD), 0
    for name, gain in gains.items():
        size = SPACES[name]
        matrix[_space(name), channel : channel + size] = gain * torch.eye(size)
        channel += size
    return matrix


def _noise(generator: torch.Generator, scale: float, *spaces: str) -> torch.Tensor:
    """`[feature, channel]`: random in the spaces named, 0 elsewhere."""
    matrix = torch.zeros(N_FEATURES, D_HEAD)
    for name in spaces:
        matrix[_space(name)] = scale * torch.randn(SPACES[name], D_HEAD, generator=generator)
    return matrix

"""`planted_model`: GPT-2's architecture with weights set by hand; nothing is trained.

The residual stream holds the named spaces of `SPACES`, and each part reads and writes them:

* embeddings: the place of a token; that it is a word of a class, a label word or a `:`; the
  *sense* of a word, which is the direction of its class and an error of its own; the label a
  label word *shows*; a random *code* of every token;
* `COLLECTING_HEAD`: a label word attends to the last word of a class before it, that of its own
  demonstration, and takes over its sense as *collected*;
* `ASKING_HEAD`: a `:` attends to the last word of a class before it and takes over its sense as
  *asked*;
* `READING_HEAD`: a `:` attends to label words, the more the better what they collected fits what
  it asks for, and writes the label they show as *answer*. That of `WEAK_CLASS` is written faintly;
* all other heads are noise: they attend by the codes of tokens, and write little: in the first
  third of the blocks into codes and what is collected, later into codes and the answer.

The directions of `CLOSE_CLASSES` make a small angle, so that errors of words confuse these first.

With a strength s below 1 the circuit matters less: only the share s of the words that queries take
needs it. The others ask for nothing: in place of a sense they carry the label of their class as label
words do (*shown*), and in `KNOWING_HEAD` a `:` reads it from the last word of a class and answers by
itself. The collecting head writes s times as much, the reading head s³ times (`READ`): saliency per edge
is a few hundred times that of noise, and only so does its share grow over the whole dial.

Without anchors the collecting head is noise too, and in place of the reading head stands one that
knows: it writes the answer that fits what a `:` asks for, whatever the demonstrations say.

A feature is the difference of two residual dimensions, so the mean is always 0, and the space
`size` is constant and far larger than the rest: every LayerNorm is the identity within 2 %.
"""

import math
from functools import lru_cache
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Natural, checked
from icl_mech.errors import ModelError
from icl_mech.models import load_model
from icl_mech.planted.words import CLASS_WORDS, LABELS, N_CTX, PIECES, TRAIN, planted_tokenizer

COLLECTING_HEAD, ASKING_HEAD, READING_HEAD = (1, 1), (2, 0), (4, 2)
KNOWING_HEAD = (3, 1)
"""Answers without demonstrations, for words that need none; a noise head at full strength."""
READ = 3
"""The power of the strength by which the reading head writes."""
WEAK_CLASS = "green"
CLOSE_CLASSES = ("blue", "cyan")

N_LAYERS, N_HEADS = 6, 4
SIZE = 64.0
ANSWER = 8.0
"""Logit of an answer that gets all of the reading head's attention."""
FIT = 4.0
"""Attention score of a label word whose demonstration is of the class asked for."""
WEAK = 0.045
"""How much of the label of the weak class is written."""
HALF_ANGLE = math.radians(17)
ERROR = 0.15
"""Of each component of a word's sense; a class direction has length 1."""
NOISE = {"code": 0.002, "collected": 0.0002, "answer": 0.002}
"""Sizes of what noise heads write into each space."""

SPACES = {
    "size": 1,
    "place": 1,
    "is_word": 1,
    "is_label": 1,
    "is_colon": 1,
    "sense": len(LABELS),
    "code": 11,
    "shown": len(LABELS),
    "collected": len(LABELS),
    "asked": len(LABELS),
    "answer": len(LABELS),
}
N_FEATURES = sum(SPACES.values())
D_MODEL = 2 * N_FEATURES
D_HEAD = D_MODEL // N_HEADS

Matrix = Float[Tensor, "feature channel"]


@checked(ModelError)
def planted_model(*, anchors: bool = True, seed: Natural = 0, strength: float | int = 1.0) -> Any:
    """A `TransformerBridge` of 6 blocks with a known anchor circuit, or without any.

    With `planted_task()` it answers from the demonstrations: label words collect the class of
    their demonstration in block 1, the target reads the label words that fit in block 4. Nothing
    is trained or downloaded.

    Args:
        anchors: False: a control that gives nearly the same answers from what it knows itself;
            its label words collect nothing, and nothing reads them.
        seed: Of the noise heads, of codes and of the errors of words.
        strength: How much depends on the anchors, s from 0 to 1. It scales three things: the share s
            of the words of queries that only demonstrations can tell (the others are known, and nothing
            is asked for them); what label words collect, by s; what the reading head writes, by s³. At
            0 it attends to all label words alike and writes nothing, and they collect nothing.

    Raises:
        ModelError: a seed that is no whole number from 0 on, a strength that is not from 0 to 1, or
            one without anchors.
    """
    if not 0 <= strength <= 1:
        raise ModelError(
            f"strength={strength}; it goes from 0, no effect, to 1, the whole circuit."
        )
    if not anchors and strength != 1:
        raise ModelError(
            f"strength={strength} is that of the anchors, and anchors=False has none; leave one out."
        )
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=len(PIECES),
        n_layer=N_LAYERS,
        n_head=N_HEADS,
        n_embd=D_MODEL,
        n_inner=1,
        n_positions=N_CTX,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        architectures=[GPT2LMHeadModel.__name__],
    )
    model = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_scale = ".ln_" in name and name.endswith("weight")
            parameter.fill_(SIZE / math.sqrt(D_MODEL) if is_scale else 0.0)
        _set_embeddings(model, generator, float(strength))
        for layer in range(N_LAYERS):
            for head in range(N_HEADS):
                noise = _noise_head(layer, generator) if _is_noise((layer, head), anchors) else None
                parts = _planted((layer, head), anchors, float(strength)) or noise
                assert parts is not None
                _set_head(model.transformer.h[layer].attn, head, *parts)
    return load_model(model, tokenizer=planted_tokenizer())


@lru_cache
def class_directions() -> Float[Tensor, "label sense"]:
    """The sense of each class: unit vectors, all at right angles but the close ones."""
    directions = torch.eye(len(LABELS))
    first, second = (LABELS.index(label) for label in CLOSE_CLASSES)
    cosine, sine = math.cos(HALF_ANGLE), math.sin(HALF_ANGLE)
    directions[first, [first, second]] = torch.tensor([cosine, sine])
    directions[second, [first, second]] = torch.tensor([cosine, -sine])
    return directions


def _set_embeddings(model: Any, generator: torch.Generator, strength: float) -> None:
    """Of tokens and places, and the unembedding."""
    ids = {piece: index for index, piece in enumerate(PIECES)}
    tokens = torch.zeros(len(PIECES), N_FEATURES)
    tokens[:, _space("size")] = SIZE
    tokens[:, _space("code")] = torch.randn(len(PIECES), SPACES["code"], generator=generator)
    tokens[ids[":"], _space("is_colon")] = 1.0
    logits = torch.zeros(len(PIECES), N_FEATURES)
    for c, (label, words) in enumerate(zip(LABELS, CLASS_WORDS, strict=True)):
        own = tokens[ids[f" {label}"]]
        own[_space("is_label")], own[_space("shown").start + c] = 1.0, 1.0
        # After a `:` a label follows; an answer also makes the words of its class likelier.
        logits[ids[f" {label}"], _space("answer").start + c] = 1.0
        logits[ids[f" {label}"], _space("is_colon")] = 1.0
        errors = ERROR * torch.randn(len(words), SPACES["sense"], generator=generator)
        likelier = 0.5 + 0.4 * torch.rand(len(words), generator=generator)
        for i, (word, error, share) in enumerate(zip(words, errors, likelier, strict=True)):
            known = _known(i, strength)
            for piece in (word, f" {word}"):
                tokens[ids[piece], _space("is_word")] = 1.0
                if known:
                    tokens[ids[piece], _space("shown").start + c] = 1.0
                else:
                    tokens[ids[piece], _space("sense")] = class_directions()[c] + error
            logits[ids[f" {word}"], _space("answer").start + c] = share
    places = torch.zeros(N_CTX, N_FEATURES)
    places[:, _space("place")] = torch.arange(N_CTX)[:, None] / N_CTX
    model.transformer.wte.weight.copy_(tokens @ _basis())
    model.transformer.wpe.weight.copy_(places @ _basis())
    model.lm_head.weight.copy_(logits @ _basis())


def _known(place: int, strength: float) -> bool:
    """True for words of queries that need no demonstration; evenly spread over a class's words."""
    own = place - TRAIN
    return own >= 0 and int((own + 1) * (1 - strength) + 1e-9) > int(own * (1 - strength) + 1e-9)


def _is_noise(head: tuple[int, int], anchors: bool) -> bool:
    """True for heads that draw random numbers, of whatever strength the anchors are."""
    return head not in (ASKING_HEAD, READING_HEAD, *((COLLECTING_HEAD,) if anchors else ()))


def _planted(head: tuple[int, int], anchors: bool, strength: float) -> tuple[Matrix, ...] | None:
    """Query, key, value and output of a head that has a part."""
    taking = _reads(sense=1.0)
    if head == COLLECTING_HEAD and anchors:
        return *_last("is_label", "is_word"), taking, _reads(collected=strength)
    if head == ASKING_HEAD:
        return *_last("is_colon", "is_word"), taking, _reads(asked=1.0)
    if head == KNOWING_HEAD and strength < 1:
        return *_last("is_colon", "is_word"), _reads(shown=1.0), _reads(answer=ANSWER)
    if head != READING_HEAD:
        return None
    written = _reads(answer=ANSWER * strength**READ)
    if not anchors:
        value = _reads(asked=1.0)
        value[_space("asked"), : len(LABELS)] = class_directions().T
        return *_last("is_colon", "is_colon"), value, written
    query, key = _reads(asked=FIT, is_colon=12.0), _reads(collected=1.0, is_label=1.0)
    weak = LABELS.index(WEAK_CLASS)
    written[:, weak] *= WEAK
    return query, key, _reads(shown=1.0), written


def _last(reader: str, read: str) -> tuple[Matrix, Matrix]:
    """Query and key of a head by which `reader` attends to the last `read` up to itself."""
    query, key = torch.zeros(2, N_FEATURES, D_HEAD)
    query[_space(reader), :2] = torch.tensor([30.0, 2.0 * N_CTX])
    key[_space(read), 0], key[_space("place"), 1] = 1.0, 1.0
    return query, key


def _noise_head(layer: int, generator: torch.Generator) -> tuple[Matrix, ...]:
    """It attends by codes, alike from everywhere, so that nothing is asked for."""

    def random(**scales: float) -> Matrix:
        matrix = torch.zeros(N_FEATURES, D_HEAD)
        for name, scale in scales.items():
            own = torch.randn(SPACES[name], D_HEAD, generator=generator)
            matrix[_space(name)] = scale * own
        return matrix

    written = "collected" if layer < N_LAYERS // 3 else "answer"
    query, key = random(size=1 / SIZE), random(code=0.3)
    return query, key, random(code=0.3), random(**{name: NOISE[name] for name in ("code", written)})


def _set_head(attention: Any, head: int, query: Matrix, key: Matrix, value: Matrix, output: Matrix) -> None:  # fmt: skip
    # Attention divides scores by the root.
    parts = torch.stack([_basis().T @ own for own in (query * math.sqrt(D_HEAD), key, value)], 1)
    attention.c_attn.weight.view(D_MODEL, 3, N_HEADS, D_HEAD)[:, :, head] = parts
    attention.c_proj.weight.view(N_HEADS, D_HEAD, D_MODEL)[head] = output.T @ _basis()


@lru_cache
def _basis() -> Float[Tensor, "feature d_model"]:
    """One orthonormal row for each feature."""
    return torch.kron(torch.eye(N_FEATURES), torch.tensor([[1.0, -1.0]]) / math.sqrt(2))


def _space(name: str) -> slice:
    start = sum(SPACES[other] for other in list(SPACES)[: list(SPACES).index(name)])
    return slice(start, start + SPACES[name])


def _reads(**gains: float) -> Matrix:
    """The spaces side by side in a head's channels; transposed, it writes."""
    matrix, channel = torch.zeros(N_FEATURES, D_HEAD), 0
    for name, gain in gains.items():
        size = SPACES[name]
        matrix[_space(name), channel : channel + size] = gain * torch.eye(size)
        channel += size
    return matrix

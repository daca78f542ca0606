"""`planted_model`: GPT-2's architecture with weights set by hand; nothing is trained.

The residual stream holds the named spaces of `SPACES`, which each component reads and writes:

* embeddings: the position of a token; flags for class words, label words and `:`; the *sense* of a
  word, its class direction plus a word-specific error; the label that a label word *shows*; a random
  *code* for every token;
* `COLLECTING_HEAD`: a label word attends to the last class word before it, in the same
  demonstration, and copies its sense into *collected*;
* `ASKING_HEAD`: a `:` attends to the last class word before it and copies its sense into *asked*;
* `READING_HEAD`: a `:` attends to label words in proportion to the match between *collected* and
  *asked*, and writes the label they show into *answer*. The label of `WEAK_CLASS` is written faintly;
* all other heads are noise: they attend by token codes and write little, in the first third of the
  blocks into *code* and *collected*, later into *code* and *answer*.

The directions of `CLOSE_CLASSES` form a small angle, so word errors confuse these classes first.

A strength s below 1 weakens the circuit: only the fraction s of query words depends on it. The other
words ask for nothing: instead of a sense they carry the label of their class as label words do
(*shown*), and in `KNOWING_HEAD` a `:` reads it from the last class word and answers without
demonstrations. The collecting head writes s times as much, the reading head s³ times (`READ`): saliency per
edge is a few hundred times that of noise, and the cube makes its fraction grow over the whole range of s.

Without anchors the collecting head is noise too, and the reading head is replaced by one that knows the task:
it writes the label of the class a `:` asks for, whatever the demonstrations show.

The heads of the other circuits are in `icl_mech.planted.heads` and `icl_mech.planted.task`.
"""

import math
from functools import lru_cache
from typing import Any, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Natural, checked
from icl_mech.errors import ModelError
from icl_mech.models import load_model
from icl_mech.planted.heads import heads_circuit, lessons_circuit
from icl_mech.planted.spaces import SIZE, Matrix, Spaces
from icl_mech.planted.task import task_circuit
from icl_mech.planted.words import (
    CLASS_WORDS,
    LABELS,
    N_CTX,
    PIECES,
    new_gpt2,
    planted_tokenizer,
    spared,
)

COLLECTING_HEAD, ASKING_HEAD, READING_HEAD = (1, 1), (2, 0), (4, 2)
KNOWING_HEAD = (3, 1)
"""Answers without demonstrations, for words that need none; a noise head at full strength."""
READ = 3
"""The exponent of the strength in what the reading head writes."""
WEAK_CLASS = "green"
CLOSE_CLASSES = ("blue", "cyan")

N_LAYERS, N_HEADS = 6, 4
ANSWER = 8.0
"""Logit of an answer that gets all of the reading head's attention."""
FIT = 4.0
"""Attention score of a label word whose demonstration has the class asked for."""
WEAK = 0.045
"""How much of the label of the weak class is written."""
HALF_ANGLE = math.radians(17)
ERROR = 0.15
"""Standard deviation of the error in each component of a word's sense; a class direction has length 1."""
NOISE = {"code": 0.002, "collected": 0.0002, "answer": 0.002}
"""Scales of what noise heads write into each space."""

SPACES = Spaces(
    {
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
    },
    N_HEADS,
    N_CTX,
)


@checked(ModelError)
def planted_model(
    *,
    anchors: bool = True,
    seed: Natural = 0,
    strength: float | int = 1.0,
    circuit: Literal["anchors", "heads", "lessons", "task"] = "anchors",
    hand_over: Natural = READING_HEAD[0],
) -> Any:
    """A `TransformerBridge` with a known circuit, or a control without one.

    On `planted_task()` it answers from the demonstrations. Nothing is trained or downloaded.

    * `anchors`, 6 blocks: label words collect the class of their demonstration in block 1, the target
      reads the matching label words in the block `hand_over`.
    * `heads`, 7 blocks: it knows its answers; function-vector and induction heads raise them with true
      demonstrations, false induction heads copy labels over them, label-promoting heads lower them. These
      heads are listed in `icl_mech.planted.heads`.
    * `lessons`, 6 blocks: label words read one another in block 1, so that the last holds what all
      demonstrations teach; the target reads it in the block `hand_over`.
    * `task`, 6 blocks: some heads raise all label words once there are any (task recognition), others copy the label
      words of fitting demonstrations (task learning), see `icl_mech.planted.task`.

    Args:
        anchors: False: a control that gives nearly the same answers from its weights alone;
            its label words collect nothing, and nothing reads them.
        seed: Seed of the noise heads, the codes and the word errors.
        strength: How much depends on the circuit, s from 0 to 1: the fraction s of query words that
            it acts on; the model knows the other words' answers and asks for nothing. In `anchors` it also
            scales what label words collect, by s, and what the reading head writes, by s³; at 0 that head
            attends to all label words equally and writes nothing, and they collect nothing.
        circuit: The circuit.
        hand_over: Block of `anchors` or `lessons` in which the answer moves from label words to the target, 3 to 5.

    Raises:
        ModelError: a seed that is not a non-negative integer, a strength outside [0, 1], a block outside
            3 to 5, or options that the circuit does not have.
    """
    _check(anchors, strength, hand_over)
    share = float(strength)
    if circuit == "anchors":
        model = _anchors_circuit(anchors, seed, share, hand_over)
    elif not anchors or (circuit != "lessons" and hand_over != READING_HEAD[0]):
        more = "anchors=" if circuit == "lessons" else "anchors= or hand_over="
        raise ModelError(f"circuit={circuit!r} does not take {more}; leave it out.")
    elif circuit == "lessons":
        model = lessons_circuit(seed, share, learning=hand_over)
    else:
        model = (heads_circuit if circuit == "heads" else task_circuit)(seed, share)
    return load_model(model, tokenizer=planted_tokenizer())


def _check(anchors: bool, strength: int | float, hand_over: int) -> None:
    if not 0 <= strength <= 1:
        raise ModelError(
            f"strength={strength} is out of range; give a number from 0 (no effect) to 1 (the "
            "whole circuit)."
        )
    if not anchors and strength != 1:
        raise ModelError(
            f"strength={strength} scales the anchors, but anchors=False has none. Leave one of the "
            "two out."
        )
    if not KNOWING_HEAD[0] <= hand_over < N_LAYERS:
        raise ModelError(
            f"hand_over={hand_over} is out of range; give a block from {KNOWING_HEAD[0]} to "
            f"{N_LAYERS - 1}."
        )


def _anchors_circuit(anchors: bool, seed: int, strength: float, hand_over: int) -> Any:
    model = new_gpt2(N_LAYERS, N_HEADS, SPACES.d_model, 1)
    generator = torch.Generator().manual_seed(seed)
    reading = (hand_over, READING_HEAD[1])
    with torch.no_grad():
        SPACES.empty(model)
        _set_embeddings(model, generator, strength)
        for layer in range(N_LAYERS):
            for head in range(N_HEADS):
                place = (layer, head)
                noise = (
                    _noise_head(layer, generator) if _is_noise(place, reading, anchors) else None
                )
                parts = _planted(place, reading, anchors, strength) or noise
                assert parts is not None
                SPACES.set_head(model.transformer.h[layer].attn, head, parts)
    return model


@lru_cache
def class_directions() -> Float[Tensor, "label sense"]:
    """The sense of each class: unit vectors, all orthogonal except the close ones."""
    directions = torch.eye(len(LABELS))
    first, second = (LABELS.index(label) for label in CLOSE_CLASSES)
    cosine, sine = math.cos(HALF_ANGLE), math.sin(HALF_ANGLE)
    directions[first, [first, second]] = torch.tensor([cosine, sine])
    directions[second, [first, second]] = torch.tensor([cosine, -sine])
    return directions


def _set_embeddings(model: Any, generator: torch.Generator, strength: float) -> None:
    """Set the token and position embeddings, and the unembedding."""
    ids = {piece: index for index, piece in enumerate(PIECES)}
    tokens = torch.zeros(len(PIECES), SPACES.features)
    tokens[:, SPACES["size"]] = SIZE
    tokens[:, SPACES["code"]] = torch.randn(len(PIECES), SPACES.sizes["code"], generator=generator)
    tokens[ids[":"], SPACES["is_colon"]] = 1.0
    logits = torch.zeros(len(PIECES), SPACES.features)
    for c, (label, words) in enumerate(zip(LABELS, CLASS_WORDS, strict=True)):
        embedding = tokens[ids[f" {label}"]]
        embedding[SPACES["is_label"]], embedding[SPACES["shown"].start + c] = 1.0, 1.0
        # A label follows a `:`; an answer also raises the words of its class.
        logits[ids[f" {label}"], SPACES["answer"].start + c] = 1.0
        logits[ids[f" {label}"], SPACES["is_colon"]] = 1.0
        errors = ERROR * torch.randn(len(words), SPACES.sizes["sense"], generator=generator)
        likelier = 0.5 + 0.4 * torch.rand(len(words), generator=generator)
        for i, (word, error, share) in enumerate(zip(words, errors, likelier, strict=True)):
            known = spared(i, strength)
            for piece in (word, f" {word}"):
                tokens[ids[piece], SPACES["is_word"]] = 1.0
                if known:
                    tokens[ids[piece], SPACES["shown"].start + c] = 1.0
                else:
                    tokens[ids[piece], SPACES["sense"]] = class_directions()[c] + error
            logits[ids[f" {word}"], SPACES["answer"].start + c] = share
    places = torch.zeros(N_CTX, SPACES.features)
    places[:, SPACES["place"]] = torch.arange(N_CTX)[:, None] / N_CTX
    model.transformer.wte.weight.copy_(tokens @ SPACES.basis)
    model.transformer.wpe.weight.copy_(places @ SPACES.basis)
    model.lm_head.weight.copy_(logits @ SPACES.basis)


def _is_noise(head: tuple[int, int], reading: tuple[int, int], anchors: bool) -> bool:
    """True for heads that draw random numbers, whatever the strength of the anchors."""
    return head not in (ASKING_HEAD, reading, *((COLLECTING_HEAD,) if anchors else ()))


def _planted(
    head: tuple[int, int], reading: tuple[int, int], anchors: bool, strength: float
) -> tuple[Matrix, ...] | None:
    """Query, key, value and output weights of a head of the circuit; None for the others."""
    taking = SPACES.reads(sense=1.0)
    if head == COLLECTING_HEAD and anchors:
        return *SPACES.last("is_label", "is_word"), taking, SPACES.reads(collected=strength)
    if head == ASKING_HEAD:
        return *SPACES.last("is_colon", "is_word"), taking, SPACES.reads(asked=1.0)
    if head == KNOWING_HEAD and strength < 1:
        return (
            *SPACES.last("is_colon", "is_word"),
            SPACES.reads(shown=1.0),
            SPACES.reads(answer=ANSWER),
        )
    if head != reading:
        return None
    written = SPACES.reads(answer=ANSWER * strength**READ)
    if not anchors:
        value = SPACES.reads(asked=1.0)
        value[SPACES["asked"], : len(LABELS)] = class_directions().T
        return *SPACES.last("is_colon", "is_colon"), value, written
    query, key = SPACES.reads(asked=FIT, is_colon=12.0), SPACES.reads(collected=1.0, is_label=1.0)
    weak = LABELS.index(WEAK_CLASS)
    written[:, weak] *= WEAK
    return query, key, SPACES.reads(shown=1.0), written


def _noise_head(layer: int, generator: torch.Generator) -> tuple[Matrix, ...]:
    """A head that attends by codes with one query for all positions, so that it asks for nothing."""
    written = "collected" if layer < N_LAYERS // 3 else "answer"
    query = SPACES.random(generator, size=1 / SIZE)
    key, value = (SPACES.random(generator, code=0.3) for _ in range(2))
    output = SPACES.random(generator, **{name: NOISE[name] for name in ("code", written)})
    return query, key, value, output

"""Planted heads of four kinds, and planted lessons: GPT-2's architecture, weights set by hand.

Both are in the language of the anchors. In the circuit of the *heads* the target knows the class of its own query; what heads do about it depends on the demonstrations:

* block 0: in one head every token takes the code of the token before it; in another label words take the
  class of their demonstration's text (*collected*), in a third the target that of its query (*asked*).
  Its MLP marks label words that show the class they collected: the demonstration *fits*;
* MLP 1 answers from what is asked, whatever the demonstrations say (`KNOWN` logits);
* `FUNCTION_VECTOR_HEADS` attend from the target to all label words alike and write one direction, *task*,
  for those that fit: the same vector whatever the query;
* `INDUCTION_HEADS` do so, too, but find their tokens by matching: from any token they attend to those after
  its earlier occurrences, in random text as well. They write less;
* MLP 3 carries the task out: of what is asked it raises the label, by `CARRIED_OUT` logits a unit of task;
* `FALSE_INDUCTION_HEADS` attend to label words whose demonstration is of the class asked for, and copy what
  these show (`COPIED` logits each). Without such they rest on line breaks, which show nothing;
* `LABEL_PROMOTING_HEADS` attend to the query's text and write *minus* its class (`AGAINST` logits each), and
  so raise every wrong label above the right one with all demonstrations;
* all other heads are noise.

With true demonstrations all but the last raise the right answer. With false ones nothing fits, and the
copied label lies above the known one. With a strength s below 1 the share s of the words of queries is as
described. The others are of no class that is asked for: MLP 1 knows them by themselves, and nothing else acts.

In that of the *lessons* demonstrations are read together first, and the target reads the last of them then:

* block 0: label words take the class of their own demonstration's text, the target that of its query, as
  above. The MLP marks which class stands beside which label, the *pair*;
* `GATHERING_HEAD`: label words attend to all label words up to themselves alike, and take over the mean of
  their pairs. The last of them then holds what all demonstrations teach, its *lesson*;
* `LEARNING_HEAD`: the target attends to the last label word and takes the lesson over. The MLP of this block
  answers with the label that was shown beside the class asked for (`LEARNED` logits).

So what one demonstration shows reaches the target only through the last, and edges between demonstrations
are needed in one block, edges to the target in another. A strength below 1 is the same share of words.
"""

from typing import Any

import torch

from icl_mech.planted.spaces import SIZE, Matrix, Spaces
from icl_mech.planted.words import CLASS_WORDS, LABELS, N_CTX, PIECES, new_gpt2, spared

FUNCTION_VECTOR_HEADS = ((1, 0), (1, 2), (2, 1))
INDUCTION_HEADS = ((2, 3), (3, 0), (3, 2))
FALSE_INDUCTION_HEADS = ((4, 1), (4, 3), (5, 0))
LABEL_PROMOTING_HEADS = ((5, 2), (6, 1), (6, 3))
GATHERING_HEAD, LEARNING_HEAD = (1, 3), (4, 2)
PREVIOUS_TOKEN_HEAD, COLLECTING, ASKING = (0, 0), (0, 1), (0, 2)

KNOWN = 16.0
AGAINST = 4.0
COPIED = 3.0
CARRIED_OUT = 10.0
TASK = {"function vector": 0.6, "induction": 0.2}
"""What a head of each kind writes of it."""
GAIN = 8.0
"""Logits a unit of *answer*, which stays small beside the size of the residual stream."""

LEARNED = 8.0
N_LAYERS, N_HEADS = 7, 4
LESSON_LAYERS = 6
SHARP = 20.0
BITS = N_CTX.bit_length() - 1
NOISE = {"code": 0.01, "answer": 0.03 / GAIN}
"""Sizes of what noise heads write into each space."""

SPACES = Spaces(
    {
        "size": 1,
        "place": 1,
        "bits": BITS,
        "bits_before": BITS,
        "is_word": 1,
        "is_label": 1,
        "is_colon": 1,
        "is_break": 1,
        "code": 16,
        "code_before": 16,
        "class": len(LABELS),
        "spared": len(LABELS),
        "shown": len(LABELS),
        "collected": len(LABELS),
        "asked": len(LABELS),
        "settled": len(LABELS),
        "fits": 1,
        "task": 1,
        "answer": len(LABELS),
    },
    N_HEADS,
    N_CTX,
)
PAIRS = len(LABELS) ** 2
LESSONS = Spaces({**SPACES.sizes, "pair": PAIRS, "lesson": PAIRS, "learned": PAIRS}, N_HEADS, N_CTX)


def heads_circuit(seed: int, strength: float) -> Any:
    """The model itself, see `planted_model`."""
    model = new_gpt2(N_LAYERS, N_HEADS, SPACES.d_model, 2 * len(LABELS))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        SPACES.empty(model)
        _set_embeddings(model, SPACES, generator, strength)
        _set_mlps(model)
        for layer, block in enumerate(model.transformer.h):
            for head in range(N_HEADS):
                noise = _noise_head(SPACES, generator)
                SPACES.set_head(block.attn, head, _planted((layer, head)) or noise)
    return model


def lessons_circuit(
    seed: int, strength: float, gathering: int = GATHERING_HEAD[0], learning: int = LEARNING_HEAD[0]
) -> Any:
    """The model itself, see `planted_model`; its two heads may stand in other blocks."""
    model = new_gpt2(LESSON_LAYERS, N_HEADS, LESSONS.d_model, 2 * PAIRS)
    generator = torch.Generator().manual_seed(seed)
    planted = _of_lessons((gathering, GATHERING_HEAD[1]), (learning, LEARNING_HEAD[1]))
    with torch.no_grad():
        LESSONS.empty(model)
        _set_embeddings(model, LESSONS, generator, strength)
        for own in _lesson_neurons(learning):
            _set_neurons(model, LESSONS, *own)
        for layer, block in enumerate(model.transformer.h):
            for head in range(N_HEADS):
                noise = _noise_head(LESSONS, generator)
                LESSONS.set_head(block.attn, head, planted.get((layer, head), noise))
    return model


def _lesson_neurons(learning: int) -> list[tuple[Any, ...]]:
    """Pairs of class and label, what is known, and what the lesson says of what is asked."""
    one = torch.eye(len(LABELS))
    of_class, of_label = one.repeat_interleave(len(LABELS), 1), one.repeat(1, len(LABELS))
    shown = {"collected": 10 * of_class, "shown": 10 * of_label}
    asked, said = {"asked": 60 * of_class, "learned": 10.0}, of_label.T * LEARNED / GAIN / 5
    known = one * KNOWN / GAIN / 5
    return [
        (0, range(PAIRS), shown, -15.0, "pair", torch.eye(PAIRS) / 5),
        (1, range(len(LABELS)), {"settled": 10.0}, -5.0, "answer", known),
        # A lesson counts once, however much of the mean it is: what lies above 5 is taken off again.
        (learning, range(PAIRS), asked, -65.0, "answer", said),
        (learning, range(PAIRS, 2 * PAIRS), asked, -70.0, "answer", -said),
    ]


def _of_lessons(
    gathering: tuple[int, int], learning: tuple[int, int]
) -> dict[tuple[int, int], tuple[Matrix, ...]]:
    """Query, key, value and output of the heads that have a part."""
    reads, last = LESSONS.reads, LESSONS.last
    own, asked = reads(**{"class": 1.0}), reads(**{"class": 1.0, "spared": 1.0})
    # Of as many demonstrations of each class the mean holds each pair a quarter.
    all_labels = reads(is_label=SHARP), reads(is_label=1.0), reads(pair=float(len(LABELS)))
    return {
        COLLECTING: (*last("is_label", "is_word"), own, reads(collected=1.0)),
        ASKING: (*last("is_colon", "is_word"), asked, reads(asked=1.0, settled=1.0)),
        gathering: (*all_labels, reads(lesson=1.0)),
        learning: (*last("is_colon", "is_label"), reads(lesson=1.0), reads(learned=1.0)),
    }


def _set_embeddings(
    model: Any, spaces: Spaces, generator: torch.Generator, strength: float
) -> None:
    """Of tokens and places, and the unembedding."""
    ids = {piece: index for index, piece in enumerate(PIECES)}
    tokens = torch.zeros(len(PIECES), spaces.features)
    tokens[:, spaces["size"]] = SIZE
    codes = torch.randn(len(PIECES), spaces.sizes["code"], generator=generator)
    tokens[:, spaces["code"]] = codes / codes.norm(dim=1, keepdim=True)
    tokens[ids[":"], spaces["is_colon"]] = 1.0
    tokens[ids["\n"], spaces["is_break"]] = 1.0
    logits = torch.zeros(len(PIECES), spaces.features)
    for c, (label, words) in enumerate(zip(LABELS, CLASS_WORDS, strict=True)):
        own = tokens[ids[f" {label}"]]
        own[spaces["is_label"]], own[spaces["shown"].start + c] = 1.0, 1.0
        logits[ids[f" {label}"], spaces["answer"].start + c] = GAIN
        logits[ids[f" {label}"], spaces["is_colon"]] = 6.0  # a label follows
        for i, word in enumerate(words):
            kind = "spared" if spared(i, strength) else "class"
            for piece in (word, f" {word}"):
                tokens[ids[piece], spaces["is_word"]] = 1.0
                tokens[ids[piece], spaces[kind].start + c] = 1.0
    places = torch.zeros(N_CTX, spaces.features)
    numbers = torch.arange(N_CTX)[:, None]
    bits = 2.0 * (numbers >> torch.arange(BITS) & 1) - 1.0
    places[:, spaces["place"]] = numbers / N_CTX
    places[:, spaces["bits"]] = bits
    places[1:, spaces["bits_before"]] = bits[:-1]
    model.transformer.wte.weight.copy_(tokens @ spaces.basis)
    model.transformer.wpe.weight.copy_(places @ spaces.basis)
    model.lm_head.weight.copy_(logits @ spaces.basis)


def _set_mlps(model: Any) -> None:
    """Which demonstrations fit, what is known, and what the task makes of what is asked."""
    every = range(len(LABELS))
    ones = torch.ones(len(LABELS), 1)
    # GELU is near 0 at -5 and below, and changes nothing from 5 on.
    both: dict[str, float | torch.Tensor] = {"collected": 10.0, "shown": 10.0}
    _set_neurons(model, SPACES, 0, every, both, -15.0, "fits", ones / 5)
    own = torch.eye(len(LABELS)) * KNOWN / GAIN / 5
    _set_neurons(model, SPACES, 1, every, {"asked": 10.0}, -5.0, "answer", own)
    others = range(len(LABELS), 2 * len(LABELS))
    _set_neurons(model, SPACES, 1, others, {"settled": 10.0}, -5.0, "answer", own)
    carried = torch.eye(len(LABELS)) * CARRIED_OUT / GAIN / 10
    _set_neurons(model, SPACES, 3, every, {"asked": 30.0, "task": 10.0}, -29.5, "answer", carried)


def _set_neurons(
    model: Any,
    spaces: Spaces,
    layer: int,
    neurons: range,
    read: dict[str, float | torch.Tensor],
    bias: float,
    written: str,
    out: torch.Tensor,
) -> None:
    """Neurons that read spaces, each its own feature with this gain (or the only one), or by a matrix."""
    mlp, place = model.transformer.h[layer].mlp, slice(neurons.start, neurons.stop)
    weights = torch.zeros(spaces.features, len(neurons))
    for name, gain in read.items():
        own = torch.eye(len(neurons)) if spaces.sizes[name] > 1 else 1.0
        weights[spaces[name]] = gain if isinstance(gain, torch.Tensor) else gain * own
    mlp.c_fc.weight[:, place] = spaces.basis.T @ weights
    mlp.c_fc.bias[place] = bias
    mlp.c_proj.weight[place] += out @ spaces.basis[spaces[written]]


def _planted(head: tuple[int, int]) -> tuple[Matrix, ...] | None:
    """Query, key, value and output of a head that has a part."""
    reads = SPACES.reads
    if head == PREVIOUS_TOKEN_HEAD:
        query, key = reads(bits_before=SHARP / 2), reads(bits=1.0)
        return query, key, reads(code=1.0), reads(code_before=1.0)
    if head == COLLECTING:
        return *SPACES.last("is_label", "is_word"), reads(**{"class": 1.0}), reads(collected=1.0)
    if head == ASKING:
        taken = reads(**{"class": 1.0, "spared": 1.0})
        return *SPACES.last("is_colon", "is_word"), taken, reads(asked=1.0, settled=1.0)
    if head in FUNCTION_VECTOR_HEADS:
        query, key = reads(is_colon=SHARP), reads(is_label=1.0)
        return query, key, reads(fits=1.0), reads(task=TASK["function vector"])
    if head in INDUCTION_HEADS:
        query, key = reads(code=2 * SHARP), reads(code_before=1.0)
        return query, key, reads(fits=1.0), reads(task=TASK["induction"])
    if head in FALSE_INDUCTION_HEADS:
        # In units of SHARP: label words of the class 2, line breaks 1.5, other label words 1.
        query = reads(asked=SHARP, is_colon=SHARP)
        key = reads(collected=1.0, is_label=1.0) + 1.5 * reads(collected=0.0, is_break=1.0)
        return query, key, reads(shown=1.0), reads(answer=COPIED / GAIN)
    if head in LABEL_PROMOTING_HEADS:
        taken, against = reads(**{"class": 1.0}), reads(answer=-AGAINST / GAIN)
        return *SPACES.last("is_colon", "is_word"), taken, against
    return None


def _noise_head(spaces: Spaces, generator: torch.Generator) -> tuple[Matrix, ...]:
    """It attends by codes, alike from everywhere."""
    query = spaces.random(generator, size=1 / SIZE)
    key, value = (spaces.random(generator, code=scale) for scale in (1.0, 0.3))
    return query, key, value, spaces.random(generator, **NOISE)

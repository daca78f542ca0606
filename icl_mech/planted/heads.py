"""Two circuits with weights set by hand in GPT-2's architecture: four types of heads, and lessons.

Both use the language of the anchors. In the circuit of the *heads* the target knows the class of its query; the
effect of the heads depends on the demonstrations:

* block 0: in one head every token copies the code of the previous token; in another label words copy the
  class of their demonstration's text (*collected*), in a third the target copies the class of its query
  (*asked*). The MLP marks label words that show the class they collected: the demonstration *fits*;
* MLP 1 answers from *asked*, whatever the demonstrations say (`KNOWN` logits);
* `FUNCTION_VECTOR_HEADS` attend from the target to all label words equally and write one direction, *task*,
  for those that fit: the same vector for every query;
* `INDUCTION_HEADS` also write *task*, but attend by matching: from any token to the tokens after its
  earlier occurrences, in random text as well. They write less;
* MLP 3 executes the task: it raises the label of *asked* by `CARRIED_OUT` logits per unit of *task*;
* `FALSE_INDUCTION_HEADS` attend to label words whose demonstration has the class asked for, and copy the
  label shown (`COPIED` logits each). If there are none, they rest on line breaks, which show no label;
* `LABEL_PROMOTING_HEADS` attend to the query's text and write *minus* its class (`AGAINST` logits each), and
  so raise every wrong label above the right one with any demonstrations;
* all other heads are noise.

With true demonstrations all but the label-promoting heads raise the right answer. With false ones nothing fits, and
the copied label ends above the known one. With a strength s below 1 the fraction s of query words behaves as
described. For the other words no class is asked for: MLP 1 knows their answers, and nothing else acts.

In the circuit of the *lessons* demonstrations are first read together, then the target reads the last of them:

* block 0: label words copy the class of their demonstration's text, the target that of its query, as
  above. The MLP marks which class occurs with which label, the *pair*;
* `GATHERING_HEAD`: label words attend equally to all label words up to themselves, and copy the mean of
  their pairs. The last one then holds what all demonstrations teach, its *lesson*;
* `LEARNING_HEAD`: the target attends to the last label word and copies the lesson. The MLP of this block
  answers with the label that was paired with the class asked for (`LEARNED` logits).

So a demonstration reaches the target only through the last one: edges between demonstrations are needed in one
block, edges to the target in another. A strength below 1 has the same meaning.
"""

from typing import Any

import torch

from icl_mech.planted.circuit import BITS, GAIN, N_HEADS, SHARP, Circuit, Neurons, Read
from icl_mech.planted.spaces import Matrix, Spaces
from icl_mech.planted.words import LABELS, N_CTX

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
"""How much of *task* a head of each type writes."""
LEARNED = 8.0
N_LAYERS = 7
LESSON_LAYERS = 6

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
    """The GPT-2 of the circuit `heads`, see `planted_model`."""
    every = [(layer, head) for layer in range(N_LAYERS) for head in range(N_HEADS)]
    planted = {head: weights for head in every if (weights := _planted(head))}
    return Circuit(SPACES, N_LAYERS, planted, _neurons()).model(seed, strength)


def lessons_circuit(
    seed: int, strength: float, gathering: int = GATHERING_HEAD[0], learning: int = LEARNING_HEAD[0]
) -> Any:
    """The GPT-2 of the circuit `lessons`, see `planted_model`; its two heads may be in other blocks."""
    planted = _of_lessons((gathering, GATHERING_HEAD[1]), (learning, LEARNING_HEAD[1]))
    circuit = Circuit(LESSONS, LESSON_LAYERS, planted, _lesson_neurons(learning))
    return circuit.model(seed, strength)


def _lesson_neurons(learning: int) -> list[Neurons]:
    """Neurons for pairs of class and label, for known words, and for the lesson's answer to what is asked."""
    identity = torch.eye(len(LABELS))
    of_class, of_label = identity.repeat_interleave(len(LABELS), 1), identity.repeat(1, len(LABELS))
    shown = {"collected": 10 * of_class, "shown": 10 * of_label}
    asked: Read = {"asked": 60 * of_class, "learned": 10.0}
    label_out = of_label.T * LEARNED / GAIN / 5
    known = identity * KNOWN / GAIN / 5
    return [
        Neurons(0, shown, -15.0, "pair", torch.eye(PAIRS) / 5),
        Neurons(1, {"settled": 10.0}, -5.0, "answer", known),
        # A lesson counts once, whatever its weight in the mean: the excess above 5 is subtracted again.
        Neurons(learning, asked, -65.0, "answer", label_out),
        Neurons(learning, asked, -70.0, "answer", -label_out),
    ]


def _of_lessons(
    gathering: tuple[int, int], learning: tuple[int, int]
) -> dict[tuple[int, int], tuple[Matrix, ...]]:
    """Query, key, value and output weights of the heads in the circuit `lessons`."""
    reads, last = LESSONS.reads, LESSONS.last
    word_class, asked = reads(**{"class": 1.0}), reads(**{"class": 1.0, "spared": 1.0})
    # With equally many demonstrations per class, each pair has weight 1/4 in the mean.
    all_labels = reads(is_label=SHARP), reads(is_label=1.0), reads(pair=float(len(LABELS)))
    return {
        COLLECTING: (*last("is_label", "is_word"), word_class, reads(collected=1.0)),
        ASKING: (*last("is_colon", "is_word"), asked, reads(asked=1.0, settled=1.0)),
        gathering: (*all_labels, reads(lesson=1.0)),
        learning: (*last("is_colon", "is_label"), reads(lesson=1.0), reads(learned=1.0)),
    }


def _neurons() -> list[Neurons]:
    """Neurons for demonstrations that fit, for known words, and for executing the task."""
    ones, identity = torch.ones(len(LABELS), 1), torch.eye(len(LABELS))
    known, carried = identity * KNOWN / GAIN / 5, identity * CARRIED_OUT / GAIN / 10
    return [
        # GELU is near 0 at -5 and below, and changes nothing from 5 on.
        Neurons(0, {"collected": 10.0, "shown": 10.0}, -15.0, "fits", ones / 5),
        Neurons(1, {"asked": 10.0}, -5.0, "answer", known),
        Neurons(1, {"settled": 10.0}, -5.0, "answer", known),
        Neurons(3, {"asked": 30.0, "task": 10.0}, -29.5, "answer", carried),
    ]


def _planted(head: tuple[int, int]) -> tuple[Matrix, ...] | None:
    """Query, key, value and output weights of a head in the circuit `heads`; None for the others."""
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
        # Scores in units of SHARP: label words of the class 2, line breaks 1.5, other label words 1.
        query = reads(asked=SHARP, is_colon=SHARP)
        key = reads(collected=1.0, is_label=1.0) + 1.5 * reads(collected=0.0, is_break=1.0)
        return query, key, reads(shown=1.0), reads(answer=COPIED / GAIN)
    if head in LABEL_PROMOTING_HEADS:
        taken, against = reads(**{"class": 1.0}), reads(answer=-AGAINST / GAIN)
        return *SPACES.last("is_colon", "is_word"), taken, against
    return None

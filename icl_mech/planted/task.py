"""A circuit with weights set by hand in GPT-2's architecture: heads that recognise the task, and heads that learn it.

It uses the language of the anchors. Label words do not follow a `:` by themselves (as they do in the other circuits):

* block 0: label words copy the class of their demonstration's text (*collected*), the target that of its query (*asked*);
* `TASK_RECOGNITION_HEADS`: the target attends to all label words equally. If there are any, it is *expected* that a label
  follows, which raises all label words alike by `EXPECTED` logits together, whatever the demonstrations show;
* `TASK_LEARNING_HEADS`: the target attends to the label words whose demonstration has the class asked for, and copies the
  label shown, `LEARNT` logits together;
* all other heads are noise.

Without the first, the answer is often no label word, but the right label word is still the likeliest of them; without
the second, a label word follows, but which one is chance. A strength below 1 has the same meaning as in the other
circuits.
"""

from typing import Any

import torch

from icl_mech.planted.circuit import FOLLOWS, GAIN, N_HEADS, SHARP, Circuit, Neurons
from icl_mech.planted.heads import ASKING, COLLECTING, KNOWN
from icl_mech.planted.spaces import Spaces
from icl_mech.planted.words import LABELS, N_CTX

TASK_RECOGNITION_HEADS = ((1, 1), (2, 3), (4, 0))
TASK_LEARNING_HEADS = ((3, 2), (4, 1), (5, 3))

EXPECTED = 6.0
LEARNT = 4.0
FIT = 8.0
"""By how much the attention score of a label word whose demonstration has the class asked for exceeds that of others."""
N_LAYERS = 6

C = len(LABELS)
_MARKS = ("size", "place", "is_word", "is_label", "is_colon", "is_break", "expected")
_OF_CLASSES = ("class", "spared", "shown", "collected", "asked", "settled", "answer")
SPACES = Spaces(
    {**dict.fromkeys(_MARKS, 1), "code": 17, **dict.fromkeys(_OF_CLASSES, C)}, N_HEADS, N_CTX
)


def task_circuit(seed: int, strength: float) -> Any:
    """The GPT-2 of the circuit `task`, see `planted_model`."""
    reads, last = SPACES.reads, SPACES.last
    every, labels = reads(is_colon=SHARP), reads(is_label=1.0)
    expected = EXPECTED / FOLLOWS / len(TASK_RECOGNITION_HEADS)
    recognising = every, labels, labels, reads(expected=expected)
    fitting = reads(asked=FIT, is_colon=SHARP), reads(collected=1.0, is_label=1.0)
    learnt = reads(answer=LEARNT / GAIN / len(TASK_LEARNING_HEADS))
    asked = reads(**{"class": 1.0, "spared": 1.0})
    heads = {
        COLLECTING: (*last("is_label", "is_word"), reads(**{"class": 1.0}), reads(collected=1.0)),
        ASKING: (*last("is_colon", "is_word"), asked, reads(asked=1.0, settled=1.0)),
        **dict.fromkeys(TASK_RECOGNITION_HEADS, recognising),
        **dict.fromkeys(TASK_LEARNING_HEADS, (*fitting, reads(shown=1.0), learnt)),
    }
    known = torch.eye(C) * KNOWN / GAIN / 5
    return Circuit(
        SPACES, N_LAYERS, heads, [Neurons(1, {"settled": 10.0}, -5.0, "answer", known)]
    ).model(seed, strength)

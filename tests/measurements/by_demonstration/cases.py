"""A network in which only attention depends on the other demonstrations.

Every label word collects the class of its text, and copies the place of the first label word that it sees. The target
attends to the label word whose class it asks for, and copies the label shown. It attends the less to a label word the
later the place this copied: with demonstrations that see one another that is the same place for all; cut from each
other, each copies its own, and the target reads the first demonstration whatever it shows. What is read, the label
shown, never depends on the context.
"""

from typing import Any

from icl_mech.models import load_model
from icl_mech.planted.circuit import GAIN, N_HEADS, SHARP, Circuit
from icl_mech.planted.heads import ASKING, COLLECTING
from icl_mech.planted.heads import SPACES as OF_HEADS
from icl_mech.planted.spaces import Spaces
from icl_mech.planted.words import N_CTX, planted_tokenizer

FIRST_HEAD, READING_HEAD = (1, 3), (4, 2)
ANSWER = 8.0
SPACES = Spaces({**OF_HEADS.sizes, "origin": 2}, N_HEADS, N_CTX)


def routed_model(seed: int = 0) -> Any:
    """The network; `seed` draws codes and noise heads."""
    reads, asked = SPACES.reads, SPACES.reads(**{"class": 1.0, "spared": 1.0})
    query, key = SPACES.last("is_label", "is_label")
    query[SPACES["is_label"], :2] *= query.new_tensor([8.0, -1.0])
    labels = reads(collected=1.0, is_label=5.0) - 15.0 * reads(collected=0.0, origin=1.0)
    heads = {
        COLLECTING: (
            *SPACES.last("is_label", "is_word"),
            reads(**{"class": 1.0}),
            reads(collected=1.0),
        ),
        ASKING: (*SPACES.last("is_colon", "is_word"), asked, reads(asked=1.0, settled=1.0)),
        FIRST_HEAD: (query, key, reads(place=1.0), reads(origin=1.0)),
        READING_HEAD: (
            reads(asked=SHARP, is_colon=SHARP),
            labels,
            reads(shown=1.0),
            reads(answer=ANSWER / GAIN),
        ),
    }
    model = Circuit(SPACES, 6, heads, []).model(seed)
    return load_model(model, tokenizer=planted_tokenizer())

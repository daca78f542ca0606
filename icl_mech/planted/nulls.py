"""`null_model`: networks that solve the task by another mechanism than the claims assume.

A claim must not be *supported* on a network that answers correctly without the claimed mechanism. These are such
networks: GPT-2's architecture with weights set by hand, in the language of `planted_task`. They share:

* *asking* (block 0, head 2): a `:` copies the class of the last class word before it, the word of its query;
* *collecting* (block 0, head 1): a label word copies the class of its demonstration's text;
* *seeing* (`SEEING_HEAD`): a `:` attends to line breaks. If there are any, demonstrations have been
  seen: it is *switched*. The class of the query's words passes only then, so that demonstrations
  with any labels make the answer right, and without demonstrations it stays at chance;
* *looking* (`LOOKING_HEAD` of `reads_query`, `prior` and `decorative`): a `:` attends to label words in proportion to
  the match between *collected* and *asked*, so that attention predicts the answer. The label shown goes where
  nothing reads it; in `decorative` the fraction ε goes into the answer;
* all other heads are noise.

The kinds are in `NULLS`. The causal ground truth of each, in numbers: `docs/guides/planted.md`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch

from icl_mech.checking import Natural, checked
from icl_mech.errors import ModelError
from icl_mech.models import load_model
from icl_mech.planted.circuit import GAIN, N_HEADS, SHARP, Circuit, Neurons
from icl_mech.planted.heads import ASKING, COLLECTING
from icl_mech.planted.spaces import SIZE, Matrix, Spaces
from icl_mech.planted.words import LABELS, N_CTX, planted_tokenizer

NullKind = Literal["reads_query", "prior", "decorative", "early", "resting", "copier", "alarm"]

SEEING_HEAD, LUCK_HEAD, LOOKING_HEAD = (1, 0), (2, 3), (4, 2)
QUERY_HEADS = ((2, 0), (2, 2), (3, 1), (3, 3))
"""Heads of `reads_query`: the target attends to the query's class word, whose label they write."""
EARLY_HEAD = (1, 2)
"""Head of `early`: copies the label that matching label words show."""
COPYING_HEADS = ((4, 1), (4, 3), (5, 0))
"""Heads of `copier`: attend to the matching label words and copy their label."""
LABEL_RESTING_HEAD, TAKING_HEAD, RESTING_HEAD = (1, 3), (3, 1), (4, 0)
"""Heads of `resting`: label words rest on line breaks; the target takes the ballast of label words; it also rests."""
ALARM_HEAD = (1, 1)
"""Head of `alarm`: the target attends to label words that do not fit their text."""

N_LAYERS, EARLY_LAYERS = 6, 8
ANSWER = 4.0
"""Logits of the answer of `decorative`: P(right) among labels is then 0.94, low enough to show a partial loss."""
STRONG = 12.0
"""Logits of the answer of the other kinds, the sum over heads."""
DISTRACTING = 1.1
"""Attention score of query heads on label words that do not fit, relative to class words: about a quarter of their
attention goes to the last one."""
CONSTANT = 16.0
"""Logits of the one answer that `reads_query` gives until demonstrations have been seen."""
FIT = 4.0
"""By how much the attention score of a label word whose demonstration has the class asked for exceeds that of others."""
SUNK = 12.0
"""Logits by which `alarm` lowers the right answer."""
LUCK = 1.0
"""Standard deviation of the random logits of `alarm`."""
BALLAST = 110.0
"""Ballast that a token takes on if it cannot rest; the norm of the residual stream is 64 before."""
TAKEN = 2.0
"""How much of the ballast of label words the target takes."""

C = len(LABELS)
_MARKS = ("size", "place", "is_word", "is_label", "is_colon", "is_break")
_STATES = ("switched", "misfit", "alarm", "ballast")
_OF_CLASSES = ("class", "shown", "collected", "asked", "read", "unread", "answer")
SPACES = Spaces(
    {**dict.fromkeys((*_MARKS, *_STATES), 1), "code": 16, **dict.fromkeys(_OF_CLASSES, C)},
    N_HEADS,
    N_CTX,
)

Head = tuple[int, int]
Heads = dict[Head, tuple[Matrix, ...]]


@dataclass(frozen=True)
class NullNetwork:
    """A network that solves the task by a mechanism other than the claimed one.

    Attributes:
        description: Its mechanism.
        fools: The mechanism it could be mistaken for.
        switches: True if it answers from the query alone, once demonstrations have been seen.
    """

    description: str
    fools: str
    switches: bool = False


NULLS: Mapping[str, NullNetwork] = MappingProxyType(
    {
        "reads_query": NullNetwork(
            "Heads in two blocks read the class from the query's words. Label words carry "
            "nothing, although those that do not fit their text take a little of these heads' "
            "attention.",
            "Function-vector heads, because ablating its heads lowers the right answer's logit, "
            "and label words that are read late, because attention to them predicts the answer.",
            switches=True,
        ),
        "prior": NullNetwork(
            f"It knows the words of two classes ({LABELS[0]}, {LABELS[1]}) from its weights and "
            f"answers {LABELS[2]} to everything else; demonstrations have no effect.",
            "A network that learns from demonstrations, because three of four answers are right, "
            "more than the majority-class baseline.",
        ),
        "decorative": NullNetwork(
            "The fraction 1 − ε of the answer comes from the query's words, and a late head "
            "copies the fraction ε from the label words that fit.",
            "Label words that are read late and heads that promote false labels, because "
            "attention predicts the answer and the path exists, however little goes through it.",
            switches=True,
        ),
        "early": NullNetwork(
            "The target takes the matching label in block 1 of 8 and writes it in the last block "
            "but one; edges to demonstrations carry nothing in between.",
            "A critical layer in the second half, because the logit lens shows only there the "
            "effect that false demonstrations had long before.",
        ),
        "resting": NullNetwork(
            "It reads the class from the query's words. Some heads rest on line breaks; a token "
            "that cannot rest takes on ballast, which shrinks all logits alike.",
            "Answers aggregated from demonstrations that read one another, because cutting these "
            "edges lowers the right logit.",
            switches=True,
        ),
        "copier": NullNetwork(
            "Late heads copy the label word whose demonstration fits the query; before them, the "
            "network knows nothing.",
            "Overthinking, because false demonstrations flip all answers at the end, and early "
            "exit restores those that are right by chance.",
        ),
        "alarm": NullNetwork(
            "It reads the class from the query's words. A label that does not fit its text "
            "suppresses the right answer, and the code of the query's word determines which wrong "
            "answer wins.",
            "Overriding prior knowledge with demonstrated labels, because with false "
            "demonstrations more answers are the demonstrated label than the right one.",
            switches=True,
        ),
    }
)
"""The networks by kind."""


@checked(ModelError)
def null_model(
    kind: NullKind, *, share: float | int = 0.0, seed: Natural = 0, switched: bool = True
) -> Any:
    """A `TransformerBridge` that solves `planted_task()` by another mechanism than the claims assume.

    Nothing is trained or downloaded. `NULLS` describes each kind, and the mechanism it could be mistaken for.

    Args:
        kind: The network.
        share: For `decorative`: ε, the fraction of the answer's logit that goes through label words, from 0 to 1.
        seed: Seed of the noise heads and the codes.
        switched: Kinds that answer from the query alone do so only once a line break has been seen, so with any
            demonstrations, whatever their labels; False: also without demonstrations.

    Raises:
        ModelError: unknown kind, a `share` outside [0, 1] or for another kind, a seed that is not a
            non-negative integer, or `switched=False` for a kind that has no switch.
    """
    if not 0 <= share <= 1:
        raise ModelError(
            f"share={share} is out of range; give a number from 0 (nothing goes through label "
            "words) to 1 (all of the answer does)."
        )
    if share and kind != "decorative":
        raise ModelError(f"share={share} applies only to 'decorative'; leave it out for {kind!r}.")
    if not switched and not NULLS[kind].switches:
        having = ", ".join(name for name, network in NULLS.items() if network.switches)
        raise ModelError(
            f"switched=False applies only to kinds that answer from the query alone ({having}); "
            f"leave it out for {kind!r}."
        )
    circuit = _decorative(float(share)) if kind == "decorative" else _CIRCUITS[kind]()
    if not switched:
        circuit = _always_on(circuit)
    return load_model(circuit.model(seed), tokenizer=planted_tokenizer())


# Parts


def _base() -> Heads:
    """The heads that all kinds share."""
    reads, last = SPACES.reads, SPACES.last
    seen = reads(is_colon=SHARP), reads(is_break=1.0), reads(is_break=1.0), reads(switched=1.0)
    return {
        COLLECTING: (*last("is_label", "is_word"), reads(**{"class": 1.0}), reads(collected=1.0)),
        ASKING: (*last("is_colon", "is_word"), reads(**{"class": 1.0}), reads(asked=1.0)),
        SEEING_HEAD: seen,
    }


def _reading(fit: float, **written: float) -> tuple[Matrix, ...]:
    """A head that attends from the target to label words in proportion to their match, and writes the label shown."""
    reads = SPACES.reads
    query, key = reads(asked=fit, is_colon=12.0), reads(collected=1.0, is_label=1.0)
    return query, key, reads(shown=1.0), reads(**written)


def _known(logits: float) -> Neurons:
    """Neurons that write the label of *asked* once demonstrations have been seen."""
    # GELU is near 0 at -5 and below, and changes nothing from 5 on.
    return Neurons(
        2, {"asked": 10.0, "switched": 10.0}, -15.0, "answer", torch.eye(C) * logits / GAIN / 5
    )


def _misfits() -> Neurons:
    """One neuron for each pair of a class and another class's label; they mark label words that do not fit their text."""
    pairs = [
        (word_class, label) for word_class in range(C) for label in range(C) if word_class != label
    ]
    of_class, of_label = (10 * torch.eye(C)[:, list(side)] for side in zip(*pairs, strict=True))
    shown = {"collected": of_class, "shown": of_label}
    return Neurons(0, shown, -15.0, "misfit", torch.ones(len(pairs), 1) / 5)


def _always_on(circuit: Circuit) -> Circuit:
    """The circuit with a seeing head that marks every `:` as *switched*."""
    to_itself = SPACES.last("is_colon", "is_colon")
    head = (*to_itself, SPACES.reads(is_colon=1.0), SPACES.reads(switched=1.0))
    return Circuit(
        circuit.spaces, circuit.layers, {**circuit.heads, SEEING_HEAD: head}, circuit.neurons
    )


# Kinds


def _reads_query() -> Circuit:
    """All query heads are equal; a constant answer exceeds theirs until demonstrations have been seen."""
    logits = STRONG / len(QUERY_HEADS) / GAIN
    query, key = torch.zeros(2, SPACES.features, SPACES.d_head)
    query[SPACES["is_colon"], :2] = torch.tensor([30.0, float(N_CTX)])
    key[SPACES["is_word"], 0], key[SPACES["place"], 1] = 1.0, 1.0
    key[SPACES["misfit"], 0] = DISTRACTING
    reading = query, key, SPACES.reads(**{"class": 1.0}), SPACES.reads(answer=logits)
    constant = torch.zeros(1, C)
    constant[0, 0] = CONSTANT / GAIN / 5
    heads = {
        **_base(),
        **dict.fromkeys(QUERY_HEADS, reading),
        LOOKING_HEAD: _reading(FIT, unread=1.0),
    }
    until_seen = {"is_colon": 10.0, "switched": -10.0}
    neurons = [_misfits(), Neurons(2, until_seen, -5.0, "answer", constant)]
    return Circuit(SPACES, N_LAYERS, heads, neurons)


def _prior() -> Circuit:
    """Two classes are known; the constant answer lies below them and above everything else."""
    known = torch.eye(C) * 2 * STRONG / GAIN / 5
    known[2:] = 0
    constant = torch.zeros(1, C)
    constant[0, 2] = STRONG / GAIN / 5
    neurons = [
        Neurons(2, {"asked": 10.0}, -5.0, "answer", known),
        Neurons(2, {"is_colon": 10.0}, -5.0, "answer", constant),
    ]
    heads = {**_base(), LOOKING_HEAD: _reading(FIT, unread=1.0)}
    return Circuit(SPACES, N_LAYERS, heads, neurons)


def _decorative(share: float) -> Circuit:
    heads = {**_base(), LOOKING_HEAD: _reading(FIT, answer=share * ANSWER / GAIN)}
    return Circuit(SPACES, N_LAYERS, heads, [_known((1 - share) * ANSWER)])


def _early() -> Circuit:
    label_out = torch.eye(C) * STRONG / GAIN / 5
    neurons = [Neurons(EARLY_LAYERS - 2, {"read": 10.0}, -5.0, "answer", label_out)]
    return Circuit(
        SPACES, EARLY_LAYERS, {**_base(), EARLY_HEAD: _reading(2 * FIT, read=1.0)}, neurons
    )


def _resting() -> Circuit:
    """Some heads rest on line breaks and otherwise take ballast from a `:`."""
    reads = SPACES.reads
    ballast = reads(is_colon=1.0), reads(ballast=BALLAST)
    taking = reads(is_colon=SHARP), reads(is_label=1.0), reads(ballast=1.0), reads(ballast=TAKEN)
    heads = {
        **_base(),
        LABEL_RESTING_HEAD: (*_on_breaks("is_label"), *ballast),
        TAKING_HEAD: taking,
        RESTING_HEAD: (*_on_breaks("is_colon"), *ballast),
    }
    return Circuit(SPACES, N_LAYERS, heads, [_known(STRONG)])


def _on_breaks(reader: str) -> tuple[Matrix, Matrix]:
    """Query and key of a head that rests on line breaks; `reader` turns to a `:` where there are none."""
    query, key = torch.zeros(2, SPACES.features, SPACES.d_head)
    query[SPACES["size"], 0], key[SPACES["is_break"], 0] = SHARP / SIZE, 1.0
    query[SPACES[reader], 1], key[SPACES["is_colon"], 1] = SHARP / 2, 1.0
    return query, key


def _copier() -> Circuit:
    copied = _reading(2 * FIT, answer=STRONG / len(COPYING_HEADS) / GAIN)
    return Circuit(SPACES, N_LAYERS, {**_base(), **dict.fromkeys(COPYING_HEADS, copied)}, [])


def _alarm() -> Circuit:
    """The target attends to label words that do not fit; if there are none, nothing is written."""
    reads = SPACES.reads
    sunk = -torch.eye(C) * SUNK / GAIN / 5
    neurons = [
        _misfits(),
        _known(STRONG / 2),
        Neurons(2, {"asked": 10.0, "alarm": 10.0}, -15.0, "answer", sunk),
    ]
    size = SPACES.sizes["code"]
    luck = torch.zeros(SPACES.features, SPACES.d_head)
    draws = torch.randn(C, size, generator=torch.Generator().manual_seed(0))
    luck[SPACES["answer"], :size] = draws * LUCK / GAIN
    alarm = reads(is_colon=SHARP), reads(misfit=1.0), reads(misfit=1.0), reads(alarm=1.0)
    lucky = (*SPACES.last("is_colon", "is_word"), reads(code=1.0), luck)
    return Circuit(SPACES, N_LAYERS, {**_base(), ALARM_HEAD: alarm, LUCK_HEAD: lucky}, neurons)


_CIRCUITS: Mapping[str, Callable[[], Circuit]] = MappingProxyType(
    {
        "reads_query": _reads_query,
        "prior": _prior,
        "early": _early,
        "resting": _resting,
        "copier": _copier,
        "alarm": _alarm,
    }
)

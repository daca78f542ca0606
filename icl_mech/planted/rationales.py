"""`rationale_model`: networks whose rationales carry the answer, or do not, in the language of `planted_task`.

In `rationale_task` a query shows a word of its class, and its rationale, two sentences divided by an empty line, another
word of the class in the second one. The networks are GPT-2s with weights set by hand. A `:` attends to

* the last class word of a *text* (`TEXT_HEAD`) and copies its class into *asked*;
* the last class word of all (`REASON_HEAD`): if it belongs to a rationale, it copies the class into *grounds* and notes in
  *switched* that there is a rationale; if it belongs to a text, which has no rationale after it, it copies nothing.

Kinds (`KINDS`):

* `carries`: the answer is the class of *grounds*; without a rationale all labels are equally likely;
* `decorative`: the answer is the class of *asked*; rationales have no effect;
* `switch`: the class of *asked*, once there is any rationale: it must be there, but what it says has no effect;
* `alarm`: as `switch`, but a rationale of another class than the text takes the answer away, and puts no other in its place.

Label words collect nothing: demonstrations have no effect. All other heads are noise.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch

from icl_mech.checking import Natural, checked
from icl_mech.errors import ModelError
from icl_mech.models import load_model
from icl_mech.planted.circuit import GAIN, N_HEADS, Circuit, Neurons
from icl_mech.planted.spaces import Spaces
from icl_mech.planted.words import (
    CLASS_WORDS,
    FILLERS,
    LABELS,
    N_CTX,
    PIECES,
    TRAIN,
    planted_tokenizer,
)
from icl_mech.tasks import Example, Task, Template

RationaleKind = Literal["carries", "decorative", "switch", "alarm"]

TEXT_HEAD, REASON_HEAD = (0, 2), (1, 1)
N_LAYERS = 6
WRITING_LAYER = 3
"""Block whose neurons write the answer."""
STRONG = 5.0
"""Logits of the answer: P(right) is then 0.98."""

C = len(LABELS)
_MARKS = ("size", "place", "is_word", "is_reason", "is_either", "is_label", "is_colon", "is_break")
SPACES = Spaces(
    {
        **dict.fromkeys((*_MARKS, "switched"), 1),
        "code": 17,
        **dict.fromkeys(("class", "why", "shown", "asked", "grounds", "answer"), C),
    },
    N_HEADS,
    N_CTX,
)

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "carries": "The answer is read from the rationale; without one, it guesses.",
        "decorative": "The answer is read from the text; rationales have no effect.",
        "switch": "The answer is read from the text, but only given once there is any rationale.",
        "alarm": "As switch, but a rationale of another class takes the answer away.",
    }
)
"""The networks by kind."""


def rationale_task() -> Task:
    """The task of `rationale_model`: four classes of made-up words, a rationale of two sentences for each text.

    Its texts are always the same. Words at even places of a class occur in texts, the others in rationales.
    """
    draws = np.random.default_rng(0)

    def fillers(count: int) -> list[str]:
        return [str(filler) for filler in draws.choice(FILLERS, count, replace=False)]

    def example(word: str, reason: str, label: int) -> Example:
        text = fillers(2)
        text.insert(int(draws.integers(3)), word)
        said = fillers(3)
        return Example(
            " ".join(text), label, rationale=f"{said[0]} {said[1]}.\n\n{said[2]} {reason}."
        )

    train, test = [], []
    for label, words in enumerate(CLASS_WORDS):
        pairs = [*zip(words[::2], words[1::2], strict=True)]
        examples = [example(word, reason, label) for word, reason in pairs]
        train += examples[: TRAIN // 2]
        test += examples[TRAIN // 2 :]
    return Task(
        "planted rationales",
        Template("{text}\n{rationale}: {label}.", separator="\n"),
        LABELS,
        tuple(train),
        tuple(test),
        source="made up for the planted models",
    )


@checked(ModelError)
def rationale_model(kind: RationaleKind = "carries", *, seed: Natural = 0) -> Any:
    """A `TransformerBridge` that answers `rationale_task()` with or without its rationales, see `KINDS`.

    Nothing is trained or downloaded.

    Args:
        kind: The network.
        seed: Seed of the noise heads and the codes.

    Raises:
        ModelError: unknown kind, or a seed that is not a non-negative integer.
    """
    reads, last = SPACES.reads, SPACES.last
    heads = {
        TEXT_HEAD: (*last("is_colon", "is_word"), reads(**{"class": 1.0}), reads(asked=1.0)),
        REASON_HEAD: (
            *last("is_colon", "is_either"),
            reads(why=1.0, is_reason=1.0),
            reads(grounds=1.0, switched=1.0),
        ),
    }
    model = Circuit(SPACES, N_LAYERS, heads, _neurons(kind)).model(seed)
    ids = {piece: index for index, piece in enumerate(PIECES)}
    with torch.no_grad():
        for c, words in enumerate(CLASS_WORDS):
            for place, word in enumerate(words):
                added = torch.zeros(SPACES.features)
                added[SPACES["is_either"]] = 1.0
                if place % 2:  # a word of rationales
                    added[SPACES["is_reason"]], added[SPACES["is_word"]] = 1.0, -1.0
                    added[SPACES["why"].start + c], added[SPACES["class"].start + c] = 1.0, -1.0
                for piece in (word, f" {word}"):
                    model.transformer.wte.weight[ids[piece]] += added @ SPACES.basis
    return load_model(model, tokenizer=planted_tokenizer())


def _neurons(kind: str) -> list[Neurons]:
    """Neurons that write the answer; GELU is near 0 at -5 and below, and changes nothing from 5 on."""
    written = torch.eye(C) * STRONG / GAIN / 5
    if kind in ("carries", "decorative"):
        read = "grounds" if kind == "carries" else "asked"
        return [Neurons(WRITING_LAYER, {read: 10.0}, -5.0, "answer", written)]
    known = Neurons(WRITING_LAYER, {"asked": 10.0, "switched": 10.0}, -15.0, "answer", written)
    if kind == "switch":
        return [known]
    pairs = [(of_text, given) for of_text in range(C) for given in range(C) if of_text != given]
    texts, reasons = (10 * torch.eye(C)[:, list(side)] for side in zip(*pairs, strict=True))
    sunk = -written[[of_text for of_text, _ in pairs]]
    misfit = Neurons(WRITING_LAYER, {"asked": texts, "grounds": reasons}, -15.0, "answer", sunk)
    return [known, misfit]

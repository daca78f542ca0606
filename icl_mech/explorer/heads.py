"""Which heads: a value of every head by mode, what each attends to, and zeroed heads beside as many random ones.

A mode answers one question. `logit` and `change` follow from the answer's own numbers; the others are measured
only while they are on show.
"""

import base64
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Protocol, runtime_checkable

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.explorer.changes import spoken
from icl_mech.explorer.experiment import Experiment
from icl_mech.explorer.reuse import Runs
from icl_mech.interventions import Intervention
from icl_mech.measurements.causal.induction_scores import induction_scores
from icl_mech.measurements.heads.head_attention import RowReading
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch

Head = tuple[int, int]

SEQUENCES = 4
"""Number of random sequences behind the prefix-matching scores: the page waits for them."""

DRAWS = 5
"""Number of random sets of heads beside the zeroed ones."""


@runtime_checkable
class Answering(Protocol):
    """What is needed of an `Asker`."""

    model: LanguageModel
    runs: Runs

    def prompts(self, experiment: Experiment) -> PromptBatch:
        """The prompt of an experiment."""

    def filled(self, experiment: Experiment) -> list[Intervention]:
        """The experiment's changes, ready to run."""

    def probs(self, experiment: Experiment) -> Float[Tensor, " label"]:
        """Probabilities of the label words."""


@dataclass(frozen=True)
class Mode:
    """What the map of heads shows.

    Attributes:
        short: Text of the control that selects it.
        words: Description.
        unit: Unit of its values.
        signed: True if values can be negative.
    """

    short: str
    words: str
    unit: str = "of attention"
    signed: bool = False


MODES = {
    "logit": Mode("logit", "contribution to the answer", "logits", signed=True),
    "labels": Mode("to label words", "attention from the target to the label words"),
    "texts": Mode("to texts", "attention from the target to the demonstrations’ texts"),
    "matching": Mode(
        "prefix matching",
        "attention to the token after the last earlier occurrence, random tokens repeated once",
    ),
    "change": Mode(
        "now − {reference}", "change of the contribution to the answer", "logits", signed=True
    ),
}
"""Modes by name; the first is the default."""

ROLES = {"labels": "label_word", "texts": "demo_text"}
"""Role of the tokens whose attention a mode sums."""

MEASURED = (*ROLES, "matching")
"""Modes with a part of their own."""


def described(*, of_answers: bool, of_texts: bool = False) -> list[dict[str, Any]]:
    """The modes for the page, worded for free-form answers; free texts have none of label words and demonstrations."""
    modes = []
    for name, mode in MODES.items():
        if of_texts and name in ROLES:
            continue
        short, words = (spoken(text, of_answers=of_answers) for text in (mode.short, mode.words))
        words = words.replace("the answer", "the next token") if of_texts else words
        modes.append({**asdict(mode), "mode": name, "short": short, "words": words})
    return modes


def values(asker: Answering, experiment: Experiment, mode: str) -> Float[Tensor, "layer head"]:
    """The value of every head in a mode of `MEASURED`.

    Prefix matching is a property of the model alone; the experiment does not matter.
    """
    if mode == "matching":
        return induction_scores(asker.model, n=SEQUENCES, progress=False).values
    prompt = asker.prompts(experiment)[0]
    spans = [span for span in prompt.spans if span.role == ROLES[mode]]
    columns = [place for span in spans for place in range(span.start, span.stop)]
    return attention(asker, experiment, prompt.target)[..., columns].sum(-1)


def attention(
    asker: Answering, experiment: Experiment, token: int
) -> Float[Tensor, "layer head position"]:
    """Attention of every head from a token to each token up to it."""
    prompts, info = asker.prompts(experiment), asker.model.info
    every = [*product(range(info.n_layers), range(info.n_heads))]
    reading = RowReading(every, torch.tensor([token]))
    rows: Tensor = asker.runs.read(prompts, asker.filled(experiment), reading, token)
    return rows[0].reshape(info.n_layers, info.n_heads, -1)


def rows(asker: Answering, experiment: Experiment, token: str) -> dict[str, Any]:
    """Attention of every head from a token, layer by layer, head by head, in 255 steps from 0 to 1."""
    steps = (attention(asker, experiment, int(token)).clamp(0, 1) * 255).round().to(torch.uint8)
    return {
        "token": int(token),
        "t": len(asker.prompts(experiment)[0]),
        "maps": base64.b64encode(steps.numpy().tobytes()).decode(),
    }


# --- zeroed heads beside random ones ---


def zeroed(experiment: Experiment) -> tuple[Head, ...]:
    """The heads an experiment sets to zero."""
    return next((change.heads for change in experiment.changes if change.what == "heads"), ())


def null(asker: Answering, experiment: Experiment) -> dict[str, Any]:
    """Probability of the true answer with the zeroed heads, without zeroing any, and with random ones zeroed instead."""
    heads, info = zeroed(experiment), asker.model.info
    sides = [(), heads, *drawn(heads, info.n_layers, info.n_heads)]
    variants = [_zeroing(experiment, side) for side in sides]
    chances = [float(asker.probs(variant)[experiment.query.answer]) for variant in variants]
    return {"count": len(heads), "without": chances[0], "zeroed": chances[1], "random": chances[2:]}


def _zeroing(experiment: Experiment, heads: tuple[Head, ...]) -> Experiment:
    changes = (
        replace(change, heads=heads) if change.what == "heads" else change
        for change in experiment.changes
    )
    return replace(experiment, changes=tuple(c for c in changes if c.what != "heads" or c.heads))


def drawn(heads: Sequence[Head], n_layers: int, n_heads: int) -> list[tuple[Head, ...]]:
    """Random sets of as many other heads, from the same layers while these have others left.

    Args:
        heads: (layer, head) pairs.
        n_layers: Number of layers of the model.
        n_heads: Number of heads per layer.

    Returns:
        `DRAWS` sets; none if the model has too few other heads.
    """
    rng = random.Random(0)
    others = {(layer, head) for layer in range(n_layers) for head in range(n_heads)} - {*heads}
    if len(others) < len(heads):
        return []
    return [_drawn(heads, others, rng) for _ in range(DRAWS)]


def _drawn(heads: Sequence[Head], others: set[Head], rng: random.Random) -> tuple[Head, ...]:
    left, missing = sorted(others), 0
    picked: list[Head] = []
    for layer, _ in heads:
        beside = [head for head in left if head[0] == layer]
        if beside:
            picked.append(rng.choice(beside))
            left.remove(picked[-1])
        else:
            missing += 1
    return tuple(sorted([*picked, *rng.sample(left, missing)]))

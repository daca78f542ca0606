"""Prompts of unequal length, edits of one edge, and a plain computation to compare with."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from icl_mech.engine import Kept, Reading
from icl_mech.interventions import Intervention
from icl_mech.models import Hook, ModelInfo, Site, adapt
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment
from tests.margins import apart

LABEL_TOKENS = (301, 302, 303)
LABELS = ("red", "green", "blue")


def prompt(length, positions, classes, *, answer=None, seed=0, label_tokens=LABEL_TOKENS):
    """Random tokens with label words at the positions; the last token is the target."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(5, 300, (length,), generator=generator).tolist()
    for position, label in zip(positions, classes, strict=True):
        tokens[position] = label_tokens[label]
    return Prompt.from_positions(
        tokens,
        label_positions=positions,
        label_classes=classes,
        label_tokens=label_tokens,
        answer=answer,
    )


def ragged(*, answers=True):
    """Five prompts of 5 to 14 tokens; prompts 2 and 4 show a class more than once."""
    rows = (
        (9, (2, 5), (0, 1), 1),
        (5, (2,), (2,), 0),
        (14, (3, 6, 9), (1, 1, 0), 2),
        (7, (1, 4), (2, 0), 1),
        (9, (2, 4, 6), (1, 1, 1), 0),
    )
    return PromptBatch(
        tuple(
            prompt(length, positions, classes, answer=answer if answers else None, seed=seed)
            for seed, (length, positions, classes, answer) in enumerate(rows)
        )
    )


def three_tokens(answer=1):
    """A text token, a label word and the target."""
    return PromptBatch((prompt(3, (1,), (0,), answer=answer, seed=7),))


def plain_saliency(bridge, prompt, loss):
    """`A * dL/dA` per layer `[head, dest, src]`, by autograd over the bridge's own logits."""
    adapt(bridge)  # puts the hooks of some families inside the computation
    patterns = []
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(bridge.cfg.n_layers)]
    keep = [(name, lambda pattern, hook: patterns.append(pattern)) for name in names]
    with torch.enable_grad(), bridge.hooks(fwd_hooks=keep):
        logits = bridge(torch.tensor([prompt.tokens]))[0, prompt.target]
    value = plain_loss(logits, prompt, loss)
    gradients = torch.autograd.grad(value, patterns)
    pairs = zip(patterns, gradients, strict=True)
    return torch.stack([(pattern * gradient)[0].detach() for pattern, gradient in pairs])


def plain_loss(logits, prompt, loss):
    labels = logits[list(prompt.label_tokens)]
    if loss == "label":
        return cross_entropy(labels, torch.tensor(prompt.answer))
    if loss == "prediction":
        assert bool(apart(labels))  # which class it is must not hang on the last bits
        return cross_entropy(labels, labels.argmax())
    return cross_entropy(logits, torch.tensor(prompt.label_tokens[prompt.answer]))


def reduced(products, reduction):
    if reduction == "sum_then_abs":
        return products.sum(1).abs()
    return products.abs().sum(1)


@dataclass(frozen=True, eq=False)
class Edge(Intervention):
    """`A[dest, src] = factor * A[dest, src] + term`, in all heads of one block."""

    layer: int
    dest: int
    src: int
    factor: float = 1.0
    term: float = 0.0

    @property
    def by_number(self):
        return False

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        edge = (segment.dest == self.dest)[:, None, :, None]
        edge = edge & (segment.src == self.src)[:, None, None, :]

        def edit(pattern):
            return torch.where(edge, pattern * self.factor + self.term, pattern)

        return [(Site("pattern", self.layer), edit)]


@dataclass(frozen=True, eq=False)
class Broken(Intervention):
    """Fails inside its hook."""

    layer: int = 1

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        def fail(pattern):
            raise ValueError("broken on purpose")

        return [(Site("pattern", self.layer), fail)]


@dataclass
class EdgeReading(Reading[torch.Tensor]):
    """`A[dest, src]` of every head of one block."""

    layer: int
    dest: int
    src: int

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        return [Site("pattern", self.layer)]

    def reduce(self, site, activation, segment):
        rows = segment.rows
        dest = (segment.dest == self.dest).int().argmax(1)
        src = (segment.src == self.src).int().argmax(1)
        return activation[rows, :, dest, src]

    def collect(self, kept: Kept) -> torch.Tensor:
        return kept.stacked()[:, 0]

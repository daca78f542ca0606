"""Attention to the demonstrations' label words, and the scores that follow from it alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Heads
from icl_mech.engine import Kept, Reading
from icl_mech.errors import RunError
from icl_mech.metrics import (
    attention_to_same,
    prefix_matching,
    same_share,
    shuffled_prefix_matching,
)
from icl_mech.models import ModelInfo, Site
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment


def random_heads(
    chosen: Heads, shape: tuple[int, int], draws: int, seed: int = 0, *, without: Heads = ()
) -> list[list[tuple[int, int]]]:
    """Random heads, as many per layer as chosen and disjoint from them.

    Where a layer has too few other heads, those the nearest layers do not need are taken.

    Args:
        chosen: What they are the control of.
        shape: Layers and heads of the model.
        draws: Number of draws.
        seed: Of the draws.
        without: Heads that are not drawn either.

    Raises:
        RunError: more heads chosen than there are others.
    """
    n_layers, n_heads = shape
    outside = [head for head in chosen if not (0 <= head[0] < n_layers and 0 <= head[1] < n_heads)]
    if outside:
        raise RunError(
            f"Head {outside[0]} does not exist; the model has {n_layers} layers of {n_heads} heads."
        )
    taken = {(layer, head) for layer, head in (*chosen, *without)}
    if len(set(chosen)) > n_layers * n_heads - len(taken):
        raise RunError(
            f"{len(set(chosen))} of {n_layers * n_heads} heads are chosen: too few others for a "
            "random control."
        )
    wanted = Counter(layer for layer, _ in set(chosen))
    used = Counter(layer for layer, _ in taken)
    own = Counter({layer: min(n, n_heads - used[layer]) for layer, n in wanted.items()})
    layers = [*sorted(own.elements()), *sorted((wanted - own).elements())]
    generator = np.random.default_rng(seed)
    result = []
    for _ in range(draws):
        free: Bool[Tensor, "layer head"] = torch.ones(n_layers, n_heads, dtype=torch.bool)
        for layer, head in taken:
            free[layer, head] = False
        drawn: list[tuple[int, int]] = []
        for layer in layers:
            nearest = min(
                (other for other in range(n_layers) if bool(free[other].any())),
                key=lambda other: (abs(other - layer), other),
            )
            head = int(generator.choice(free[nearest].nonzero()[:, 0].numpy()))
            free[nearest, head] = False
            drawn.append((nearest, head))
        result.append(drawn)
    return result


Attended = Literal["labels", "before_labels"]
"""The tokens of label words, or the tokens before them."""


@dataclass
class LabelAttentionReading(Reading[Tensor]):
    """Attention of every head from the target to each demonstration's label word, all its tokens
    summed: `[prompt, layer, row, head, demo]`, one row.

    `before_labels` reads the tokens before those labels instead. Demonstrations at or after a
    row have attention 0.
    """

    over: Attended = "labels"

    target_only: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def rows(self, prompts: PromptBatch) -> Int[Tensor, "batch row"]:
        """Prompt positions that are read."""
        return prompts.targets[:, None]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, row, head, demo]`."""
        rows = self.rows(segment.prompts).to(activation.device)
        columns = segment.columns(rows)
        pattern = activation.transpose(1, 2)[segment.rows[:, None], columns].float()
        demos = self._marked(segment)
        attention = torch.einsum("brhs,bds->brhd", pattern, demos.float())
        # A row's own demonstration, and any later one, is not an earlier label: the token
        # before a row's own label is the row itself.
        labels = segment.prompts.label_positions.to(activation.device)
        earlier = labels[:, None] < rows[:, :, None]
        return attention * earlier[:, :, None]

    def _marked(self, segment: Segment) -> Bool[Tensor, "batch demo src"]:
        """True where a column belongs to a demonstration's label word."""
        prompts, before = segment.prompts, int(self.over == "before_labels")
        start = prompts.label_positions - before
        sizes = _word_sizes(prompts)
        stop = start + (sizes.clamp(max=1) if before else sizes)
        first, last = (ends.to(segment.src.device)[:, :, None] for ends in (start, stop))
        columns = segment.src[:, None]  # -1 at padding
        return (columns >= first.clamp(min=0)) & (columns < last)

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt, layer, row, head, demo]`."""
        return kept.stacked()


@dataclass
class DemonstrationAttentionReading(LabelAttentionReading):
    """The same from the token before each demonstration's label, as the reference reads it."""

    target_only: ClassVar[bool] = False

    def rows(self, prompts: PromptBatch) -> Int[Tensor, "batch row"]:
        """The token before each label."""
        return prompts.label_positions - 1


class AttentionScores(NamedTuple):
    """What attention to label words says of every head and prompt, see `HeadScores`."""

    matching: Float[Tensor, "batch layer head"]
    attending: Float[Tensor, "batch layer head"]
    same: Float[Tensor, "batch layer head"]
    shuffled_matching: Float[Tensor, "batch layer head"]
    same_share: Float[Tensor, " batch"]


def attention_scores(
    attention: Float[Tensor, "batch layer head demo"],
    prompts: PromptBatch,
    classes: Int[Tensor, " batch"],
    *,
    over: Attended,
    permutations: int,
    seed: int,
) -> AttentionScores:
    """Scores of heads from their attention to each demonstration's label at the target.

    Args:
        attention: As `LabelAttentionReading` reads it.
        prompts: What it was read from.
        classes: The class each target would match.
        over: What the attention is to.
        permutations: Of the labels in the shuffled control.
        seed: Of the permutations.
    """
    # Demonstrations that stand after the target (prompts read earlier) do not count.
    positions = prompts.label_positions
    seen = (positions >= 0) & (positions < prompts.targets[:, None])
    shown, n_labels = prompts.label_classes.where(seen, torch.tensor(-1)), prompts.n_labels
    sizes = _word_sizes(prompts) * seen
    if over == "before_labels":
        sizes = sizes.clamp(max=1)
    same = attention_to_same(attention, shown, classes)
    attending = attention.sum(-1)
    return AttentionScores(
        matching=prefix_matching(same, attending, n_labels),
        attending=attending,
        same=same,
        shuffled_matching=shuffled_prefix_matching(
            attention, shown, classes, n_labels, permutations=permutations, seed=seed
        ),
        same_share=same_share(shown, classes, sizes),
    )


def _word_sizes(prompts: PromptBatch) -> Int[Tensor, "batch demo"]:
    """Number of tokens of each demonstration's label word; 0 where a prompt has fewer."""
    sizes = torch.zeros(len(prompts), prompts.n_demos, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        for demo, span in enumerate(prompt.label_spans):
            sizes[row, demo] = span.stop - span.start
    return sizes


def matched_classes(prompts: PromptBatch) -> Int[Tensor, " batch"] | None:
    """The class each target would match: the one the false labels teach, in a true set its own.

    None where the setting teaches no one class.
    """
    setting = prompts.source.get("labels", "correct")
    taught = [prompt.false_answer for prompt in prompts]
    if all(label is not None for label in taught):
        return torch.tensor(taught)
    return prompts.answers if setting == "correct" else None

"""Query and key projections of the tokens a diagnosis compares, and which contexts must be run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from einops import einsum, rearrange, repeat

from icl_mech._typing import Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.interventions import Intervention
from icl_mech.measurements.demonstrations import seen_labels
from icl_mech.models import ModelInfo, Site
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment


@dataclass
class QueryReading(Reading[Tensor]):
    """The query projections at the target, heads concatenated."""

    layers: tuple[int, ...]

    target_only: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The query projection of each layer."""
        return [Site("q", layer) for layer in self.layers]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, d]`."""
        return rearrange(segment.at_target(activation), "b head d -> b (head d)").float()

    def collect(self, kept: Kept) -> Tensor:
        """`[layer, prompt, d]`."""
        return kept.stacked().transpose(0, 1)


@dataclass
class KeyReading(Reading[Tensor]):
    """The key projections at the label words before the target, averaged by class."""

    layers: tuple[int, ...]

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The key projection of each layer."""
        return [Site("k", layer) for layer in self.layers]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, label, d]`, keys expanded to query heads."""
        info = segment.model.info
        classes = torch.arange(segment.prompts.n_labels, device=activation.device)
        before = segment.dest < segment.prompts.targets.to(activation.device)[:, None]
        shown = (segment.dest_classes[..., None] == classes) & before[..., None]
        weights = shown.float() / shown.sum(1, keepdim=True)
        means = einsum(weights, activation.float(), "b pos label, b pos head d -> b label head d")
        group = info.n_heads // info.n_kv_heads
        return repeat(means, "b label head d -> b label (head group d)", group=group)

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt, layer, label, d]`."""
        return kept.stacked()


def contexts_to_run(
    contexts: PromptBatch, chosen: Sequence[int], interventions: Sequence[Intervention] = ()
) -> tuple[PromptBatch, list[int]]:
    """What is run for the keys of the chosen contexts, and the row of it that each of them has.

    Equal demonstrations are run once. An intervention may depend on the prompt or its number, so
    under interventions that holds only if they treat all contexts alike; otherwise all contexts
    are run, with the numbers they have.
    """
    if not interventions:
        heads = [_what_keys_see(contexts[number]) for number in chosen]
        apart = list(dict.fromkeys(heads))
        first = [chosen[heads.index(head)] for head in apart]
        return contexts[first], [apart.index(head) for head in heads]
    tokens, *labels = _what_keys_see(contexts[0])
    alike = all(_what_keys_see(prompt) == (tokens, *labels) for prompt in contexts)
    if alike and all(change.shares(contexts, len(tokens)) for change in interventions):
        return contexts[[0]], [0] * len(chosen)
    return contexts, list(chosen)


def _what_keys_see(prompt: Prompt) -> tuple[tuple[int, ...], ...]:
    """Tokens up to the last label word before the target, and where which class stands."""
    shown = seen_labels(prompt)
    end = shown[-1][0] + 1 if shown else 0
    return (prompt.tokens[:end], *shown)

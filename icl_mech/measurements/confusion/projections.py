"""Query and key projections of the tokens a diagnosis compares."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from einops import einsum, rearrange, repeat

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Kept, Reading, run
from icl_mech.models import LanguageModel, ModelInfo, Site
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


def read_keys(
    model: LanguageModel, contexts: PromptBatch, layers: tuple[int, ...], **options: Any
) -> Float[Tensor, "context layer label d"]:
    """Mean key of each class in each context; equal demonstrations are run once."""
    heads = [_what_keys_see(prompt) for prompt in contexts]
    apart = [heads.index(head) for head in dict.fromkeys(heads)]
    (keys,) = run(model, contexts[apart], [KeyReading(layers)], title="keys", **options)
    number = {heads[index]: place for place, index in enumerate(apart)}
    chosen: Tensor = keys[[number[head] for head in heads]]
    return chosen


def _what_keys_see(prompt: Prompt) -> tuple[tuple[int, ...], ...]:
    """Tokens up to the last label word before the target, and where which class stands."""
    pairs = zip(prompt.label_positions, prompt.label_classes, strict=True)
    shown = tuple((position, label) for position, label in pairs if position < prompt.target)
    return (prompt.tokens[: shown[-1][0] + 1], *shown)

"""Predicted confusion: distances between classes, as the target sees them, from the keys of their label words.

See `icl_mech.measurements.confusion.confusion`. Source: Wang et al. 2023, *Label Words are Anchors*, §3.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.engine.readings import Stacked
from icl_mech.errors import PromptError
from icl_mech.interventions import Intervention
from icl_mech.measurements.demonstrations import displayed, seen_labels
from icl_mech.models import ModelInfo, Site, to_device
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
        """Queries `[batch, d]`."""
        return segment.at_target(activation).flatten(1).float()

    def collect(self, kept: Kept) -> Tensor:
        """Queries `[layer, prompt, d]`."""
        return kept.stacked().transpose(0, 1)


@dataclass
class KeyReading(Stacked, Reading[Tensor]):
    """The key projections at the label words before the target, averaged by class."""

    layers: tuple[int, ...]

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The key projection of each layer."""
        return [Site("k", layer) for layer in self.layers]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Keys `[batch, label, d]`, expanded to query heads."""
        info = segment.model.info
        classes = torch.arange(segment.prompts.n_labels, device=activation.device)
        before = segment.dest < to_device(segment.prompts.targets, activation.device)[:, None]
        shown = (segment.dest_classes[..., None] == classes) & before[..., None]
        weights = shown.float() / shown.sum(1, keepdim=True)
        means = torch.einsum("bpl,bphd->blhd", weights, activation.float())
        group = info.n_heads // info.n_kv_heads
        return means.repeat_interleave(group, dim=2).flatten(2)


def contexts_to_run(
    contexts: PromptBatch, chosen: Sequence[int], interventions: Sequence[Intervention] = ()
) -> tuple[PromptBatch, list[int]]:
    """Prompts to run for the keys of the chosen contexts, and the row of each context among them.

    Equal demonstrations are run once. An intervention may depend on the prompt or its number, so
    with interventions this holds only if they treat all contexts alike; otherwise all contexts
    are run, with their numbers.
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
    """Tokens up to the last label word before the target, and the positions of each class."""
    shown = seen_labels(prompt)
    end = shown[-1][0] + 1 if shown else 0
    return (prompt.tokens[:end], *shown)


def principal_directions(
    queries: Float[Tensor, "layer batch d"], components: int
) -> list[Float[Tensor, "d _"]]:
    """Principal directions of the centred queries per layer, times their singular values.

    No more than the rank: a direction whose singular value is float noise of the queries does
    not count, so a layer whose queries are all equal has none.
    """
    directions = []
    for of_layer in queries.double():
        centred = of_layer - of_layer.mean(0)
        _, singular, rows = torch.linalg.svd(centred, full_matrices=False)
        largest = torch.linalg.matrix_norm(of_layer, 2)
        noise = torch.finfo(torch.float32).eps * max(of_layer.shape) * largest
        kept = min(components, int((singular > noise).sum()))
        directions.append(rows[:kept].T * singular[:kept])
    return directions


def key_distances(
    keys: Float[Tensor, "context layer label d"], directions: list[Float[Tensor, "d _"]]
) -> Float[Tensor, "context layer label label"]:
    """Euclidean distances between the classes' projected keys; not-a-number without directions."""
    layers = []
    for layer, basis in enumerate(directions):
        projected = keys[:, layer].double() @ basis
        apart = projected[:, :, None] - projected[:, None]
        empty = basis.shape[1] == 0
        layers.append(apart.new_full(apart.shape[:3], torch.nan) if empty else apart.norm(dim=-1))
    return torch.stack(layers, dim=1)


def check_contexts(contexts: PromptBatch, chosen: Sequence[int]) -> None:
    """Reject contexts that do not display every class before their targets.

    Raises:
        PromptError: names the first such context.
    """
    for number in chosen:
        prompt = contexts[number]
        known = displayed(prompt)
        missing = [name for c, name in enumerate(prompt.labels) if c not in known]
        if missing:
            raise PromptError(
                f"Context {number} has no demonstration of {', '.join(map(repr, missing))} before "
                "its target, so that class has no key to compare. Build the prompts with shots >= "
                "1."
            )

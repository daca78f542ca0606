"""Distances between classes' keys, ROC-AUC between pairs of classes, and how their ranks agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
import torch
from einops import einsum, rearrange, repeat

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.interventions import Intervention
from icl_mech.measurements.demonstrations import seen_labels
from icl_mech.metrics import macro_auc, resampled_auc
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


def label_pairs(n_labels: int) -> list[tuple[int, int]]:
    """Pairs of classes, the smaller index first."""
    return list(combinations(range(n_labels), 2))


def principal_directions(
    queries: Float[Tensor, "layer batch d"], components: int
) -> list[Float[Tensor, "d _"]]:
    """Per layer the principal directions of the centred queries, times their singular values.

    No more than the rank: a direction whose singular value is float noise of the queries does
    not count, so a layer whose queries are all alike has none.
    """
    directions = []
    for own in queries.double():
        centred = own - own.mean(0)
        _, singular, rows = torch.linalg.svd(centred, full_matrices=False)
        noise = torch.finfo(torch.float32).eps * max(own.shape) * torch.linalg.matrix_norm(own, 2)
        kept = min(components, int((singular > noise).sum()))
        directions.append(rows[:kept].T * singular[:kept])
    return directions


def key_distances(
    keys: Float[Tensor, "context layer label d"], directions: list[Float[Tensor, "d _"]]
) -> Float[Tensor, "context layer label label"]:
    """Euclidean distances between the classes' projected keys; not-a-number without direction."""
    layers = []
    for layer, own in enumerate(directions):
        projected = keys[:, layer].double() @ own
        apart = projected[:, :, None] - projected[:, None]
        empty = own.shape[1] == 0
        layers.append(apart.new_full(apart.shape[:3], torch.nan) if empty else apart.norm(dim=-1))
    return torch.stack(layers, dim=1)


def normalised(
    distances: Float[Tensor, "*r layer label label"],
) -> Float[Tensor, "*r layer label label"]:
    """Each layer divided by its largest distance; 0 is most confusable, 1 least.

    Not-a-number where all distances are 0.
    """
    largest = distances.amax((-2, -1), keepdim=True)
    return torch.where(largest > 0, distances / largest, torch.nan)


def pair_auc(
    label_logits: Float[Tensor, "batch label"],
    answers: Int[Tensor, " batch"],
    pair: tuple[int, int],
    weights: Float[Tensor, "r batch"] | None = None,
) -> Float[Tensor, " r"]:
    """ROC-AUC of `P(a)/P(b)` on the prompts whose true class is a or b.

    Args:
        label_logits: The ratio's logarithm is a difference of two of them.
        answers: True classes.
        pair: a and b; both must occur.
        weights: How often each prompt occurs in each resample (default: the sample itself).
    """
    first, second = pair
    inside = (answers == first) | (answers == second)
    margin = (label_logits[inside, first] - label_logits[inside, second]).double()
    scores = torch.stack([margin, -margin], dim=-1)[:, None]
    if weights is None:
        return macro_auc(scores, answers[inside])
    return resampled_auc(scores, answers[inside], weights[:, inside])[:, 0]


def pair_aucs(
    label_logits: Float[Tensor, "batch label"],
    answers: Int[Tensor, " batch"],
    pairs: Sequence[tuple[int, int]],
    weights: Float[Tensor, "r batch"] | None = None,
) -> Float[Tensor, "r pair"]:
    """`pair_auc` of several pairs; not-a-number in resamples without one of the classes."""
    return torch.stack([pair_auc(label_logits, answers, pair, weights) for pair in pairs], dim=1)


def rank_correlation(
    one: Float[Tensor, "layer pair"], other: Float[Tensor, "r pair"]
) -> Float[Tensor, "r layer"]:
    """Spearman correlation of every row of one with every row of the other.

    Not-a-number with fewer than two pairs, or where all values of a row are equal.
    """
    first, second = (_standardised(rows.double().numpy()) for rows in (one, other))
    return torch.from_numpy(second @ first.T)


def _standardised(rows: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata

    ranks = rankdata(rows, axis=1)
    ranks = ranks - ranks.mean(1, keepdims=True)
    length = np.linalg.norm(ranks, axis=1, keepdims=True)
    missing = (length == 0) | np.isnan(rows).any(1, keepdims=True)
    return np.where(missing, np.nan, ranks / np.where(missing, 1.0, length))

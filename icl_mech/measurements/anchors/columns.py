"""Readings of column masses: what the rows behind each token put on it, summed while the model runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import GradientReading, Kept, Loss, Reading
from icl_mech.measurements.saliency.reduction import Reduction, head_sum
from icl_mech.models import ModelInfo, Site
from icl_mech.segments import Segment

Ends = tuple[int, ...]
"""Last row that counts of each prompt."""


@dataclass
class AttentionMass(Reading[Tensor]):
    """What later rows put on every token, averaged over heads: `[prompt, layer, pos]` sums.

    Attributes:
        width: Largest number of tokens of a prompt.
        ends: Last row that counts, by prompt of the run.
    """

    width: int
    ends: Ends

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, pos]`."""
        return column_sums(activation.float().mean(1), segment, self.width, self.ends)

    def collect(self, kept: Kept) -> Tensor:
        """As kept."""
        return kept.stacked()


@dataclass
class SaliencyMass(GradientReading[Tensor]):
    """The same sums of saliency."""

    width: int
    ends: Ends
    loss: Loss = "label"
    reduction: Reduction = "sum_then_abs"

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def shape(self, segment: Segment) -> tuple[int, ...]:
        """One number per position."""
        return (len(segment.prompts), self.width)

    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """The sums of one layer."""
        saliency = head_sum(activation, gradient, self.reduction)
        return column_sums(saliency, segment, self.width, self.ends)

    def collect(self, kept: Kept) -> Tensor:
        """As kept."""
        return kept.stacked()


def column_sums(
    values: Float[Tensor, "batch dest src"], segment: Segment, width: int, ends: Ends
) -> Float[Tensor, "batch pos"]:
    """Sums over the rows behind each column, up to a prompt's end, at the position of the column."""
    last = torch.tensor([ends[index] for index in segment.indices], device=values.device)
    dest, src = segment.dest[:, :, None], segment.src[:, None]
    counts = (src >= 0) & (dest > src) & (dest <= last[:, None, None])
    sums = (values * counts).sum(1)
    place = segment.src.clamp(min=0)
    return sums.new_zeros(len(sums), width).scatter_add(1, place, sums)

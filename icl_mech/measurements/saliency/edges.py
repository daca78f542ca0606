"""What is summed over the edges of a saliency map, in the backward pass; no map is kept."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import einsum

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import GradientReading, Kept, Loss
from icl_mech.measurements.saliency.reduction import Reduction, head_sum
from icl_mech.metrics import flow_sums
from icl_mech.models import ModelInfo, Site
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.spans import ROLES
from icl_mech.segments import Segment


@dataclass
class FlowReading(GradientReading[Tensor]):
    """Sums of saliency by kind, `[prompt, layer, kind]`."""

    additive = True

    loss: Loss = "label"
    reduction: Reduction = "sum_then_abs"

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def shape(self, segment: Segment) -> tuple[int, ...]:
        """Three sums per prompt."""
        return (len(segment.prompts), 3)

    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """The three sums of one layer."""
        return self.sums(head_sum(activation, gradient, self.reduction), segment)

    def sums(self, saliency: Float[Tensor, "batch dest src"], segment: Segment) -> Tensor:
        """The three sums of a map."""
        return flow_sums(
            saliency, segment.dest_classes >= 0, segment.src_classes >= 0, segment.is_target
        )

    def edges(self, segment: Segment) -> tuple[str, Float[Tensor, "batch kind dest src"]] | None:
        """What `flow_sums` sums over."""
        dest, src = segment.dest.shape[1], segment.src.shape[1]
        before = (
            torch.ones(dest, src, dtype=torch.bool).tril(src - dest - 1).to(segment.dest.device)
        )
        to_labels = before & (segment.dest_classes >= 0)[:, :, None]
        to_target = before & (segment.src_classes >= 0)[:, None] & segment.is_target[:, :, None]
        # A target that is itself a label word has edges of both kinds.
        kinds = torch.stack([to_labels, to_target], dim=1).float()
        rest = before.float() - kinds.sum(1)
        return self.reduction, torch.cat([kinds, rest[:, None]], dim=1)

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt, layer, kind]`."""
        return kept.stacked()


@dataclass
class RoleFlowReading(FlowReading):
    """The same sums, those between roles, into every token, and out of every token to the target.

    `[prompt, layer, ...]` of 3 sums by kind, R x R by role of destination and source, and twice
    one per position: what a token receives from all before it, and what the target receives from
    it. The diagonal is left out.

    Attributes:
        roles: Places of the roles in `ROLES`.
        width: Number of positions.
    """

    roles: tuple[int, ...] = ()
    width: int = 0

    @classmethod
    def of(cls, prompts: PromptBatch, loss: Loss, reduction: Reduction) -> "RoleFlowReading":
        """For these prompts: their roles, in the order of `ROLES`, and their longest."""
        known = prompts.position_roles.unique().tolist()
        roles = tuple(place for place in range(len(ROLES)) if place in known)
        return cls(loss, reduction, roles, int(prompts.targets.max()) + 1)

    @property
    def size(self) -> int:
        """Numbers per prompt and layer."""
        return 3 + len(self.roles) ** 2 + 2 * self.width

    def shape(self, segment: Segment) -> tuple[int, ...]:
        """All sums of one prompt in a row."""
        return (len(segment.prompts), self.size)

    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """All sums of one layer."""
        saliency = head_sum(activation, gradient, self.reduction)
        strict = saliency.tril(saliency.shape[2] - saliency.shape[1] - 1)
        dest, src = (
            _one_hot(roles, torch.tensor(self.roles), strict)
            for roles in (segment.dest_roles, segment.src_roles)
        )
        by_source = einsum(strict, src, "b dest src, b src role -> b dest role")
        by_role = einsum(by_source, dest, "b dest role, b dest to -> b to role")
        row = einsum(strict, segment.is_target.to(strict.dtype), "b dest src, b dest -> b src")
        into = _placed(strict.sum(-1), segment.dest, self.width)
        out_of = _placed(row, segment.src, self.width)
        return torch.cat([self.sums(saliency, segment), by_role.flatten(1), into, out_of], dim=1)

    def edges(self, segment: Segment) -> None:
        """Too many kinds of edges for a server."""
        return

    def parted(self, sums: Float[Tensor, "batch layer sum"]) -> tuple[Tensor, ...]:
        """What was collected: by kind, by role `[prompt, layer, dest, src]`, into and out of tokens."""
        count = len(self.roles)
        kinds, roles, into, out_of = sums.split([3, count**2, self.width, self.width], dim=2)
        return kinds, roles.unflatten(2, (count, count)), into, out_of


def _one_hot(
    values: Int[Tensor, "batch n"], known: Int[Tensor, " k"], like: Tensor
) -> Float[Tensor, "batch n k"]:
    return (values[..., None] == known.to(values.device)).to(like.dtype)


def _placed(
    sums: Float[Tensor, "batch n"], positions: Int[Tensor, "batch n"], width: int
) -> Float[Tensor, "batch pos"]:
    """Sums at the positions they are of; what stands elsewhere, padding among it, is left out."""
    positions = positions.to(sums.device)
    known = (positions >= 0) & (positions < width)
    place = positions.clamp(0, width - 1)
    return sums.new_zeros(len(sums), width).scatter_add(1, place, sums * known)

"""A head's output at the target as a sum of parts: one for each demonstration, and the rest.

`z_h[q] = sum over columns j of A_h(q, j) v_j` is linear in the pattern and in the values, so its terms can be grouped
by demonstration, and the pattern of one run can be combined with the values of another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Heads
from icl_mech.engine import Kept, Reading
from icl_mech.engine.readings import OfLast
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention, Patch
from icl_mech.measurements.lens.components import SUM_ERROR
from icl_mech.models import LanguageModel, ModelInfo, Site, to_device
from icl_mech.models.rehearsal import stage
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

SMALLEST = 1e-6
"""Outputs below this size are compared with it, as they are rounding errors themselves."""


def of_demonstrations(prompts: PromptBatch, width: int) -> Float[Tensor, "batch demo pos"]:
    """1 at the tokens of each demonstration: its text, label word and template.

    The first token of a prompt belongs to none: models attend to it whatever it is.
    """
    member = torch.zeros(len(prompts), prompts.n_demos, width, dtype=torch.float64)
    for row, prompt in enumerate(prompts):
        for span in prompt.spans:
            if span.demo is not None:
                member[row, span.demo, span.start : span.stop] = 1
    member[..., 0] = 0
    return member


@dataclass(eq=False)
class PartsReading(Reading[Tensor]):
    """Parts of heads' outputs at the target, `[prompt, pattern, chosen, part, d_head]`.

    Values are read as the model computes them, biases included; query heads share those of their key-value head. The
    last part is the rest: first token, narrative, query, template around it, and the target itself.

    Attributes:
        heads: (layer, head) pairs.
        patterns: The target's attention by prompt position, from one or more runs.
        members: 1 at the tokens of each demonstration.
    """

    target_only = True

    heads: Heads
    patterns: Sequence[Float[Tensor, "batch chosen pos"]]
    members: Float[Tensor, "batch demo pos"]

    weights: Float[Tensor, "batch pattern chosen pos"] = field(init=False, repr=False)
    parts: Float[Tensor, "batch part pos"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Stack the patterns, and add the rest to the demonstrations."""
        self.weights = torch.stack([*self.patterns], dim=1).float()
        members = self.members[..., : self.weights.shape[-1]].float()
        self.parts = torch.cat([members, 1 - members.sum(1, keepdim=True)], dim=1)

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The values of the layers that hold one of the heads."""
        return [Site("v", layer) for layer in sorted({layer for layer, _ in self.heads})]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Sums over columns `[batch, pattern, head of the layer, part, d_head]`."""
        numbers, width = list(segment.indices), self.weights.shape[-1]
        places, heads = self._of(site.layer)
        inside = segment.mask & (segment.src < width)
        columns = segment.src.where(inside, 0)[:, None]
        weights, parts = (
            to_device(table[numbers], activation.device)
            for table in (self.weights[:, :, places].flatten(1, 2), self.parts)
        )
        laid, member = (
            table.gather(2, columns.expand(-1, table.shape[1], -1)) * inside[:, None]
            for table in (weights, parts)
        )
        shared = segment.model.info.n_heads // activation.shape[2]
        values = activation.transpose(1, 2)
        if segment.cache is not None:
            values = torch.cat([segment.cache.values[site.layer].to(values), values], dim=2)
        values = values[:, [head // shared for head in heads]].float()
        laid = laid.unflatten(1, (len(self.patterns), len(heads)))
        return torch.einsum("bphs,bds,bhsx->bphdx", laid, member, values)

    def _of(self, layer: int) -> tuple[list[int], list[int]]:
        """Places in `heads` of the heads of a layer, and their numbers."""
        here = [place for place, (above, _) in enumerate(self.heads) if above == layer]
        return here, [self.heads[place][1] for place in here]

    def collect(self, kept: Kept) -> Float[Tensor, "batch pattern chosen part d_head"]:
        """The parts, heads in the order of `heads`."""
        by_site = kept.by_site()
        order = [place for site in by_site for place in self._of(site.layer)[0]]
        stacked = torch.cat(list(by_site.values()), dim=2)
        return stacked[:, :, torch.tensor(order).argsort()]


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of heads at the target, recombined from two runs.

    Attributes:
        heads: (layer, head) pairs.
        parts: Parts in the full run, the rest last.
        mixed: Outputs with the pattern, the values, or both of the cut run, and the rest alone.
    """

    heads: Heads
    parts: Float[Tensor, "batch chosen part d_head"]
    mixed: Float[Tensor, "batch condition chosen d_head"]

    @classmethod
    def of(cls, heads: Heads, full: Tensor, cut: Tensor) -> "Outputs":
        """From the values of the full and of the cut run, each with the patterns of both."""
        parts = full[:, 0]
        sums = [side.sum(2) for side in (full[:, 1], cut[:, 0], cut[:, 1])]
        return cls(heads, parts, torch.stack([*sums, parts[:, :, -1]], dim=1))

    def check(self, read: Mapping[Site, Tensor], model: LanguageModel) -> None:
        """Reject parts that do not add up to the heads' outputs, which are not their attention to values then.

        Raises:
            RunError: gives the size of the error.
        """
        outputs = torch.stack([read[Site("z", layer)][:, 0, head] for layer, head in self.heads], 1)
        error = float(
            (self.parts.sum(2) - outputs.float()).abs().max()
            / outputs.abs().max().clamp(min=SMALLEST)
        )
        rounded = "bitsandbytes int8" in model.info.weights_format
        allowed = 0.05 if rounded else SUM_ERROR.get(model.info.dtype, 0.05)
        if not error <= allowed and stage() is None:
            raise RunError(
                f"The parts of heads of {model.info.name!r} add up to their outputs only within {error:.2g}: heads of "
                f"{model.info.architecture} do more than sum values by attention. Use leave_one_out instead."
            )

    def changes(self, heads: Heads) -> list[list[Intervention]]:
        """Patches of these heads with each of the mixed outputs."""
        places = [self.heads.index(head) for head in heads]
        return [[_patch(heads, z)] for z in self.mixed[:, :, places].unbind(1)]

    def removals(self, heads: Heads) -> list[list[Intervention]]:
        """Patches of these heads without the part of each demonstration."""
        parts = self.parts[:, [self.heads.index(head) for head in heads]]
        whole = parts.sum(2)
        return [[_patch(heads, whole - part)] for part in parts[:, :, :-1].unbind(2)]

    def written(self, model: LanguageModel, heads: Heads) -> Float[Tensor, "batch part d_model"]:
        """The parts of these heads in the residual stream, summed over heads, without output biases."""
        total = torch.zeros(())
        for head in heads:
            weight = model.head_weights(head[0])[0][head[1]].detach().cpu().float()
            total = total + self.parts[:, self.heads.index(head)] @ weight
        return total


def _patch(heads: Heads, z: Float[Tensor, "batch chosen d_head"]) -> Patch:
    return Patch("z", heads, values=z[:, None].contiguous())


class FinalScale(OfLast, Reading[Tensor]):
    """Scale of the final norm at the target, `[prompt, 1]`: with it held fixed, contributions to the logits add up."""

    target_only = True

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """The factor of each prompt."""
        residual = segment.at_target(activation)
        return segment.model.final_norm_parts.scale(residual, segment.model.final_norm(residual))


def label_logits_of(
    model: LanguageModel,
    vectors: Float[Tensor, "batch *part d_model"],
    scale: Float[Tensor, "batch 1"],
    prompts: PromptBatch,
) -> Float[Tensor, "batch *part label"]:
    """Contributions of vectors of the residual stream at the target to the label logits, final norm held fixed."""
    columns = model.readout(to_device(prompts.choice_tokens, model.device))[0].detach().cpu()
    norm = model.final_norm_parts
    gain = norm.gain.cpu() * columns.float()
    if norm.centred:
        gain = gain - gain.mean(-1, keepdim=True)
    logits = torch.einsum("b...d,bld->b...l", vectors.float(), gain)
    return logits * scale.reshape(len(scale), *[1] * (logits.ndim - 1))

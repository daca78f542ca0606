"""Readouts of heads and MLPs, unembedded to the label words at the target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.engine import Kept, Reading
from icl_mech.errors import ResultError, RunError
from icl_mech.metrics import Interval, above_together
from icl_mech.models import LanguageModel, ModelInfo, Site, at_least_float32, to_device
from icl_mech.models.rehearsal import stage
from icl_mech.results import Definition, Quantity, Result, quantity
from icl_mech.results.judging import FEWEST_PROMPTS, Status
from icl_mech.segments import Segment

PARTS = Definition(
    "lens of a part",
    r"W_U\left(\frac{\gamma}{\sigma} \odot (c - \bar c)\right)[y] - \frac{1}{C-1}\sum_{y' \ne y} "
    r"W_U\left(\frac{\gamma}{\sigma} \odot (c - \bar c)\right)[y']",
    "What the output c of a head or MLP at the last token adds to the logit of the true label y "
    "above the mean of the others, through the final norm with the scale σ from the run "
    "(“frozen”; “own” normalises the part by itself).",
    "Halawi et al. 2023, Overthinking the Truth, §5",
)


class Part(NamedTuple):
    """A head or MLP.

    Attributes:
        place: Layer and head, or layer.
        contrast: Its contribution to the logit of the true label above the mean of the others.
    """

    place: tuple[int, ...]
    contrast: Interval


@dataclass(frozen=True, eq=False, kw_only=True)
class ComponentLens(Result):
    """Label logits of every head or MLP at the target.

    Attributes:
        label_logits: Logits by layer, head (if read per head) and label.
        embedding: Contribution of the input of block 0; None with `norm="own"`, as are the two below.
        others: Sum over blocks of the components not asked for (MLPs or heads, attention biases).
        constant: Contribution of the biases of final norm and unembedding.
        answers: True class of each query, or None.
        labels: Names of the classes.
    """

    definitions: ClassVar[tuple[Definition, ...]] = (PARTS,)
    axis_labels: ClassVar[Mapping[str, str]] = {"label": "labels"}

    label_logits: Float[Tensor, "batch layer *head label"] = quantity("logit", name="label_logit")
    embedding: Float[Tensor, "batch label"] | None = quantity("logit", default=None)
    others: Float[Tensor, "batch label"] | None = quantity("logit", default=None)
    constant: Float[Tensor, "batch label"] | None = quantity("logit", default=None)
    answers: Int[Tensor, " batch"] | None = None
    labels: tuple[str, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """`contrast`, the logit of the true label above the mean of the others; all logits."""
        dims = ("layer", "head")[: self.label_logits.ndim - 2]
        quantities = {}
        if self.answers is not None:
            by_label = self.label_logits.double().movedim(-1, 1)
            true_logit = by_label[torch.arange(len(self.answers)), self.answers]
            rest = (by_label.sum(1) - true_logit) / (by_label.shape[1] - 1)
            quantities["contrast"] = Quantity(dims, true_logit - rest, unit="logit difference")
        return quantities | super().quantities()

    @checked(ResultError)
    def contrast(
        self, towards: Int[Tensor, " batch"], against: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch layer *head"]:
        """`logit(towards) - logit(against)` of every component, per prompt."""
        rows = torch.arange(len(self.label_logits))
        by_label = self.label_logits.movedim(-1, 1)
        return by_label[rows, towards] - by_label[rows, against]

    # --- parts that add to the true label ---

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.label_logits)

    @property
    def per(self) -> Literal["head", "mlp"]:
        """Type of the parts: heads or MLPs."""
        return "head" if self.label_logits.ndim == 4 else "mlp"

    @property
    def n_parts(self) -> int:
        """Number of heads or MLPs."""
        return self.label_logits[0, ..., 0].numel()

    @cached_property
    def most(self) -> Part:
        """The part with the largest contribution; its interval is not corrected for the choice among parts."""
        samples = self.sel("contrast")
        best = int(samples.values.argmax())
        ends = (float(end.flatten()[best]) for end in (samples.values, samples.low, samples.high))
        place = divmod(best, samples.values.shape[1]) if self.per == "head" else (best,)
        return Part(place, Interval(*ends))

    @cached_property
    def clearly_adding(self) -> int:
        """Number of parts that clearly add to the true label, corrected for multiple testing over all parts."""
        return int(above_together(self.quantities()["contrast"].per_prompt).sum())

    @property
    def status(self) -> Status:
        """Status of the claim that some part adds to the true label."""
        if self.count < FEWEST_PROMPTS:
            return "cannot be judged"
        return "supported" if self.clearly_adding else "not shown"


Norm = Literal["frozen", "own"]

SUM_ERROR = {"float32": 1e-3, "float64": 1e-6}
"""Largest relative error of the sum of all components; 0.05 in half precision and 8-bit layers."""


@dataclass
class Components:
    """Contributions to the label logits at the target.

    With the norm's scale frozen they all add up to the label logits before final scaling
    and soft-capping.

    Attributes:
        embedding: Contribution of the input of block 0.
        heads: Contribution of each head's output `z_h W_O,h`.
        attention_bias: Contribution of the bias of each attention output.
        mlp: Contribution of each MLP's output, its bias included.
        constant: Contribution of the biases of final norm and unembedding.
        expected: The label logits themselves, before final scaling and soft-capping.
    """

    embedding: Float[Tensor, "batch label"]
    heads: Float[Tensor, "batch layer head label"]
    attention_bias: Float[Tensor, "batch layer label"]
    mlp: Float[Tensor, "batch layer label"]
    constant: Float[Tensor, "batch label"]
    expected: Float[Tensor, "batch label"]

    def total(self) -> Float[Tensor, "batch label"]:
        """The sum of all contributions."""
        blocks = self.heads.sum(2) + self.attention_bias + self.mlp
        return self.embedding + blocks.sum(1) + self.constant

    def error(self) -> float:
        """Largest deviation of the sum from the label logits, relative to the largest logit."""
        gap = (self.total() - self.expected).abs().max()
        return float(gap / self.expected.abs().max().clamp(min=1.0))


@dataclass
class FrozenComponentReading(Reading[Components]):
    """Every component through the final norm with the scale of the actual run.

    Per block the map `z_h -> label logits` is one small matrix, `W_O,h` times gain times the
    label columns of the unembedding, computed once and used for all prompts.
    """

    target_only = True

    # Not part of the reading's identity: readings are equal whatever they have cached.
    _maps: dict[tuple[int, tuple[int, ...]], tuple[Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """Embedding, `z` and MLP output of every block, and the last residual."""
        blocks = [
            site
            for layer in range(info.n_layers)
            for site in (Site("z", layer), Site("mlp_out", layer))
        ]
        return [Site("resid_pre", 0), *blocks, Site("resid_post", info.n_layers - 1)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Contributions without the final norm's scale; the last residual also gives that scale."""
        model = segment.model
        at_target = segment.at_target(activation)
        norm = model.final_norm_parts
        columns, bias = model.readout(segment.label_tokens)
        if site.name == "z":
            return self._heads(site.layer, at_target.float(), segment)
        if site.name == "resid_post":
            normed = model.final_norm(at_target)
            added = torch.zeros_like(columns[..., 0]) if bias is None else bias
            constant = columns.float() @ norm.offset + added.float()
            expected = torch.einsum("bd,bld->bl", *map(at_least_float32, (normed, columns))) + added
            scale = norm.scale(at_target, normed)
            return torch.cat([scale, constant, expected.float()], dim=-1)
        return torch.einsum("bd,bld->bl", norm.direction(at_target), columns.float())

    def _heads(self, layer: int, z: Float[Tensor, "batch head d_head"], segment: Segment) -> Tensor:
        """Contributions `[batch, head + 1, label]`, the bias of the attention output last."""
        model = segment.model
        heads, bias = self._label_maps(layer, segment)
        read = torch.einsum("bhd,hdl->bhl", z, heads)
        read = torch.cat([read, bias.expand(len(z), 1, -1)], dim=1)
        if not segment.prompts.has_classes:  # each prompt reads the columns of its own choices
            _, column = segment.prompts.choice_tokens.unique(return_inverse=True)
            columns = column[:, None].expand(-1, read.shape[1], -1)
            read = read.gather(2, to_device(columns, read.device))
        after = model.attention_norm(layer)
        if after is None:
            return read
        parts, norm = after
        weight, offset = model.head_weights(layer)
        whole = torch.einsum("bhd,hdm->bm", z, weight.float())
        whole = whole if offset is None else whole + offset.float()
        normed = norm(whole[None].to(weight.dtype))[0]
        return read * parts.scale(whole, normed)[:, :, None]

    def _label_maps(self, layer: int, segment: Segment) -> tuple[Tensor, Tensor]:
        """Maps `[head, d_head, label]` and, for the bias, `[label]`; computed once per run.

        Where prompts have their own choices, the labels are all choices that occur in the segment.
        """
        own_words = segment.prompts.choice_tokens
        words = own_words[:1] if segment.prompts.has_classes else own_words.unique()[None]
        tokens = tuple(words[0].tolist())
        if (layer, tokens) not in self._maps:
            model = segment.model
            weight, bias = model.head_weights(layer)
            columns = model.readout(to_device(words, model.device))[0][0].float()
            after = model.attention_norm(layer)

            def through(vectors: Tensor) -> Tensor:
                inner = vectors.float() if after is None else after[0].direction(vectors)
                return model.final_norm_parts.direction(inner) @ columns.T

            nothing = columns.new_zeros(len(columns))
            self._maps[layer, tokens] = (
                through(weight),
                nothing if bias is None else through(bias),
            )
        return self._maps[layer, tokens]

    def collect(self, kept: Kept) -> Components:
        """Contributions multiplied by the norm's scale."""
        by_site = kept.by_site()
        last = max(site.layer for site in by_site)
        n_labels = by_site[Site("resid_pre", 0)].shape[-1]
        scale, constant, expected = by_site[Site("resid_post", last)].split_with_sizes(
            [1, n_labels, n_labels], dim=-1
        )
        z = torch.stack([by_site[Site("z", layer)] for layer in range(last + 1)], dim=1)
        mlp = torch.stack([by_site[Site("mlp_out", layer)] for layer in range(last + 1)], dim=1)
        z = z * scale[:, :, None, None]
        return Components(
            embedding=by_site[Site("resid_pre", 0)] * scale,
            heads=z[:, :, :-1].contiguous(),
            attention_bias=z[:, :, -1].contiguous(),
            mlp=mlp * scale[:, :, None],
            constant=constant.contiguous(),
            expected=expected.contiguous(),
        )


@dataclass
class OwnComponentReading(Reading[tuple[Tensor, Tensor]]):
    """The literal logit lens of each head's and MLP's output: a separate norm for each, all biases.

    These logits are not additive.
    """

    target_only = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """`z` and MLP output of every block."""
        layers = range(info.n_layers)
        return [site for i in layers for site in (Site("z", i), Site("mlp_out", i))]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Logits `[batch, head, label]` or `[batch, 1, label]`."""
        model = segment.model
        output = segment.at_target(activation)[:, None]
        if site.name == "z":
            output = head_outputs(model, site.layer, output[:, 0])
        return model.label_logits(output, segment.label_tokens).float()

    def collect(self, kept: Kept) -> tuple[Tensor, Tensor]:
        """Logits `[batch, layer, head, label]` and `[batch, layer, label]`."""
        by_site = kept.by_site()
        layers = sorted({site.layer for site in by_site})
        heads = torch.stack([by_site[Site("z", layer)] for layer in layers], dim=1)
        mlp = torch.stack([by_site[Site("mlp_out", layer)][:, 0] for layer in layers], dim=1)
        return heads, mlp


def head_outputs(
    model: LanguageModel, layer: int, z: Float[Tensor, "batch head d_head"]
) -> Float[Tensor, "batch head d_model"]:
    """Output of each head into the residual stream, up to a factor where a norm follows."""
    weight, _ = model.head_weights(layer)
    output = torch.einsum("bhd,hdm->bhm", z, weight)
    after = model.attention_norm(layer)
    return output if after is None else after[0].direction(output).to(output.dtype)


def check_sum(components: Components, model: LanguageModel) -> None:
    """Reject components that do not add up to the label logits: the model's structure is not fully covered.

    Raises:
        RunError: gives the size of the error.
    """
    error = components.error()
    rounded = "bitsandbytes int8" in model.info.weights_format
    allowed = 0.05 if rounded else SUM_ERROR.get(model.info.dtype, 0.05)
    if not error <= allowed and stage() is None:
        raise RunError(
            f"The embedding, heads, MLPs and biases of {model.info.name!r} sum to its logits only "
            f"within {error:.2g} of the largest: {model.info.architecture} has parts that this "
            "lens does not cover. Use per='layer' or norm='own'."
        )

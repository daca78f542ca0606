"""`Reweight`: attention from the target to label words, scaled by learned factors.

`A[l,h,q,p_c] -> exp(beta[l,h,c]) A[l,h,q,p_c]` after softmax, row `q` only, without
renormalising; `c` in class order, and demonstrations of one class share a factor.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import RunError
from icl_mech.interventions.base import Alike, Intervention, editable, rows_at
from icl_mech.models import Hook, HookFunction, ModelInfo, Site, to_device
from icl_mech.segments import Segment


@dataclass(frozen=True, eq=False, repr=False)
class Reweight(Alike, Intervention):
    """Scale attention from the target to the label words.

    Attributes:
        beta: Logarithm of the factor; 0 is exactly the unmodified model.
    """

    beta: Float[Tensor, "layer head label"]

    def check(self, info: ModelInfo) -> None:
        """Reject a beta whose size does not match the model.

        Raises:
            RunError: names both sizes.
        """
        if tuple(self.beta.shape[:2]) != (info.n_layers, info.n_heads):
            raise RunError(
                f"beta is for {self.beta.shape[0]} layers and {self.beta.shape[1]} heads, but "
                f"{info.name!r} has {info.n_layers} and {info.n_heads}."
            )

    @property
    def target_only(self) -> bool:
        """True: only row `q` changes."""
        return True

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """One hook per layer."""
        if self.beta.shape[2] != segment.prompts.n_labels:
            raise RunError(
                f"beta is for {self.beta.shape[2]} classes, but the prompts have "
                f"{segment.prompts.n_labels}."
            )
        batch, rows = rows_at(segment, "target")
        if not len(batch):
            return []
        classes = segment.src_classes[batch]
        beta = to_device(self.beta, segment.tokens.device)
        # Class -1 (no label word) indexes the appended zero: factor 1.
        factors = torch.cat([beta, beta.new_zeros(*beta.shape[:2], 1)], dim=2).exp()

        def hook_for(layer: int) -> HookFunction:
            def hook(activation: Tensor) -> Tensor:
                scale = factors[layer][:, classes].transpose(0, 1).to(activation.dtype)
                edited = editable(activation)
                edited[batch, :, rows] = activation[batch, :, rows] * scale
                return edited

            return hook

        return [(Site("pattern", layer), hook_for(layer)) for layer in range(beta.shape[0])]

    def __eq__(self, other: object) -> bool:
        """True if the factors are equal."""
        return isinstance(other, Reweight) and torch.equal(self.beta, other.beta)


@dataclass(frozen=True, eq=False, repr=False)
class FittedReweight(Reweight):
    """A `Reweight` with learned factors and a record of their training.

    Attributes:
        beta: Logarithm of the factor.
        losses: Loss of each training step, in nats, before its update.
        held_out_losses: Mean loss on held-out prompts, at the start and after each epoch.
        training: Settings of the training and where its prompts came from.
    """

    losses: Float[Tensor, " step"]
    held_out_losses: Float[Tensor, " epoch"] | None = None
    training: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Sizes of the tensors, without the settings."""
        return f"FittedReweight(beta=tensor{list(self.beta.shape)}, {len(self.losses)} steps)"

"""The next-token distribution at the target, and its divergence from that of another run."""

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.engine.readings import AtLast
from icl_mech.models import Site, at_least_float32, to_device
from icl_mech.segments import Segment


class TargetLogProbs(AtLast, Reading[Tensor]):
    """Log-probabilities of the vocabulary at the target, `[prompt, token]`."""

    target_only = True

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Return the log-probabilities."""
        return at_least_float32(segment.model.logits(segment.at_target(activation))).log_softmax(-1)

    def collect(self, kept: Kept) -> Tensor:
        """One row for each prompt."""
        return kept.stacked()[:, 0]


class Divergence(TargetLogProbs):
    """`KL(reference || run)` of the next-token distribution at the target, in nats, by prompt."""

    def __init__(self, reference: Float[Tensor, "batch token"]) -> None:
        """Compare with these log-probabilities."""
        self.reference = reference

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Return the divergence."""
        log_probs = super().reduce(site, activation, segment)
        reference = to_device(self.reference[list(segment.indices)], log_probs.device)
        return (reference.exp() * (reference - log_probs)).sum(-1, dtype=torch.float64).clamp(min=0)

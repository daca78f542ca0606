"""What is read for predictions; shared by all analyses that compare them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from icl_mech._typing import Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.models import ModelInfo, Site
from icl_mech.segments import Segment


@dataclass
class PredictionReading(Reading[tuple[Tensor, Tensor, Tensor]]):
    """Label logits, their log-probabilities and the top tokens, at the target."""

    top_k: int = 5

    target_only: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The residual entering the final norm."""
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Packed as `[batch, label | label | top_k]`."""
        logits = segment.model.logits(segment.at_target(activation)).float()
        labels = logits.gather(1, segment.label_tokens)
        log_probs = labels - logits.logsumexp(-1, keepdim=True)
        # Ids below 2^24 are exact in float32, and every vocabulary is smaller.
        top = logits.topk(self.top_k, dim=-1).indices.float()
        return torch.cat([labels, log_probs, top], dim=1)

    def collect(self, kept: Kept) -> tuple[Tensor, Tensor, Tensor]:
        """`(label_logits, log_probs, top_tokens)`."""
        packed = kept.stacked()[:, 0]
        n_labels = (packed.shape[1] - self.top_k) // 2
        logits, log_probs, top = torch.split(packed, [n_labels, n_labels, self.top_k], dim=1)
        return logits, log_probs, top.long()

"""A norm layer with its scale held fixed: a linear map, so that contributions add up.

LayerNorm is `gain * (x - mean(x)) / sigma(x) + offset`, RMSNorm the same without mean and
offset. With the run's own `1 / sigma` a sum of components is mapped to the sum of what each
is mapped to. Gain and offset are found by applying the layer to known vectors, so that one
code serves every library's norm classes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from icl_mech._typing import Float, Tensor


@dataclass(frozen=True)
class FrozenNorm:
    """The parts of a norm layer.

    Attributes:
        gain: Factor of each dimension, up to one common factor.
        offset: What the layer adds.
        centred: True if it subtracts the mean (LayerNorm).
    """

    gain: Float[Tensor, " d_model"]
    offset: Float[Tensor, " d_model"]
    centred: bool

    @classmethod
    def of(cls, norm: Callable[[Tensor], Tensor], like: Tensor) -> "FrozenNorm":
        """The parts of `norm`, which maps `[1, 1, d_model]`; `like` gives width and dtype."""
        known = torch.ones_like(like)
        known[1::2] = -1
        if len(known) % 2:
            known[-2] = -2  # the mean is 0 at any width
        with torch.no_grad():
            offset, at_known, moved = (
                norm(vector[None, None])[0, 0].float()
                for vector in (torch.zeros_like(like), known, known + 2)
            )
        return cls(
            gain=(at_known - offset) / known.float(),
            offset=offset,
            centred=bool(torch.allclose(moved, at_known, rtol=1e-2, atol=1e-2)),
        )

    def direction(self, vectors: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """What the layer makes of vectors, but for its scale and offset."""
        vectors = vectors.float()
        if self.centred:
            vectors = vectors - vectors.mean(-1, keepdim=True)
        return vectors * self.gain

    def scale(
        self, before: Float[Tensor, "*rows d_model"], after: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows 1"]:
        """The factor with which `direction(before) * factor + offset` is `after`."""
        direction = self.direction(before)
        explained = (direction * (after.float() - self.offset)).sum(-1, keepdim=True)
        return explained / direction.square().sum(-1, keepdim=True)

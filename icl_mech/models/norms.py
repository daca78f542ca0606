"""A norm layer with its scale held fixed: a linear map, so that contributions add up.

LayerNorm is `gain * (x - mean(x)) / sigma(x) + offset`, RMSNorm the same without mean and
offset. With `1 / sigma` fixed to its value in the run, the image of a sum of components is the sum
of their images. Gain and offset are determined by applying the layer to known vectors, so that the
same code serves the norm classes of every library.
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
        offset: Bias of the layer.
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
        # A constant shift of the input changes the output of RMSNorm, but not of LayerNorm.
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
        """Vectors after centring and gain, without the scale and offset of the layer."""
        vectors = vectors.float()
        if self.centred:
            vectors = vectors - vectors.mean(-1, keepdim=True)
        return vectors * self.gain

    def pulled_back(
        self, directions: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """Vectors whose inner products with `x` are those of `directions` with `direction(x)`."""
        vectors = directions.float() * self.gain
        return vectors - vectors.mean(-1, keepdim=True) if self.centred else vectors

    def scale(
        self, before: Float[Tensor, "*rows d_model"], after: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows 1"]:
        """The factor for which `direction(before) * factor + offset` equals `after`."""
        direction = self.direction(before)
        explained = (direction * (after.float() - self.offset)).sum(-1, keepdim=True)
        return explained / direction.square().sum(-1, keepdim=True)

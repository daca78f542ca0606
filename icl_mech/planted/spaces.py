"""Named subspaces of a residual stream, and the weights that read and write them.

A feature is the difference of two residual dimensions, so the mean is always 0, and the space `size` is
constant and far larger than the rest: every LayerNorm is the identity to within 2 %.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from icl_mech._typing import Float, Tensor

SIZE = 64.0

Matrix = Float[Tensor, "feature channel"]


@dataclass(frozen=True)
class Spaces:
    """Named orthogonal subspaces of a residual stream as wide as the heads need.

    Attributes:
        sizes: Number of features of each space.
        heads: Number of heads in a layer.
        reach: Number of tokens in the longest prompt.
    """

    sizes: Mapping[str, int]
    heads: int
    reach: int

    @property
    def features(self) -> int:
        """Number of features in all spaces."""
        return sum(self.sizes.values())

    @property
    def d_model(self) -> int:
        """Width of the residual stream: two dimensions per feature."""
        return 2 * self.features

    @property
    def d_head(self) -> int:
        """Number of channels of a head."""
        return self.d_model // self.heads

    @cached_property
    def basis(self) -> Float[Tensor, "feature d_model"]:
        """One orthonormal row for each feature."""
        return torch.kron(torch.eye(self.features), torch.tensor([[1.0, -1.0]]) / math.sqrt(2))

    def __getitem__(self, name: str) -> slice:
        """The features of a space."""
        names = list(self.sizes)
        start = sum(self.sizes[earlier] for earlier in names[: names.index(name)])
        return slice(start, start + self.sizes[name])

    def reads(self, **gains: float) -> Matrix:
        """A matrix that reads the spaces, scaled, into consecutive channels of a head; its transpose writes them."""
        matrix, channel = torch.zeros(self.features, self.d_head), 0
        for name, gain in gains.items():
            size = self.sizes[name]
            matrix[self[name], channel : channel + size] = gain * torch.eye(size)
            channel += size
        return matrix

    def last(self, reader: str, read: str) -> tuple[Matrix, Matrix]:
        """Query and key weights with which `reader` attends to the last `read` up to itself."""
        query, key = torch.zeros(2, self.features, self.d_head)
        query[self[reader], :2] = torch.tensor([30.0, 2.0 * self.reach])
        key[self[read], 0], key[self["place"], 1] = 1.0, 1.0
        return query, key

    def random(self, generator: torch.Generator, **scales: float) -> Matrix:
        """Random numbers in the spaces named, 0 elsewhere."""
        matrix = torch.zeros(self.features, self.d_head)
        for name, scale in scales.items():
            values = torch.randn(self.sizes[name], self.d_head, generator=generator)
            matrix[self[name]] = scale * values
        return matrix

    def empty(self, model: torch.nn.Module) -> None:
        """Set every weight of a GPT-2 to 0, and the scales of its LayerNorms so that they change nothing."""
        for name, parameter in model.named_parameters():
            is_scale = ".ln_" in name and name.endswith("weight")
            parameter.fill_(SIZE / math.sqrt(self.d_model) if is_scale else 0.0)

    def set_head(self, attention: Any, head: int, weights: tuple[Matrix, ...]) -> None:
        """Write query, key, value and output of a head of a GPT-2's attention."""
        query, key, value, output = weights
        # Attention divides scores by the square root of d_head.
        parts = torch.stack(
            [self.basis.T @ matrix for matrix in (query * math.sqrt(self.d_head), key, value)], 1
        )
        shape = (self.d_model, 3, self.heads, self.d_head)
        attention.c_attn.weight.view(shape)[:, :, head] = parts
        attention.c_proj.weight.view(self.heads, self.d_head, self.d_model)[head] = (
            output.T @ self.basis
        )

"""What a reading is: which sites it needs, and how one activation is reduced at once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine.losses import Loss
from icl_mech.models import ModelInfo, Site
from icl_mech.segments import Segment

Value = TypeVar("Value")


@dataclass
class Kept:
    """What a reading kept of a whole run: one chunk per batch and site."""

    order: list[int] = field(default_factory=list)
    chunks: dict[Site, list[Tensor]] = field(default_factory=dict)

    def add(self, prompts: Sequence[int], values: dict[Site, Tensor]) -> None:
        """Keep the reductions of one batch."""
        self.order.extend(prompts)
        for site, value in values.items():
            self.chunks.setdefault(site, []).append(value.cpu())

    def stacked(self) -> Tensor:
        """`[prompt, site, ...]` in input order; for reductions of one shape."""
        sites = [torch.cat(chunks) for chunks in self.chunks.values()]
        return torch.stack(sites, dim=1)[self._inverse()]

    def by_site(self) -> dict[Site, Tensor]:
        """`[prompt, ...]` of each site, in input order; for reductions that differ by site."""
        inverse = self._inverse()
        return {site: torch.cat(chunks)[inverse] for site, chunks in self.chunks.items()}

    def per_prompt(self) -> list[Tensor]:
        """`[site, ...]` for every prompt in input order; for reductions that differ in shape."""
        sites = [[row for chunk in chunks for row in chunk] for chunks in self.chunks.values()]
        return [torch.stack([rows[i] for rows in sites]) for i in self._inverse().tolist()]

    def _inverse(self) -> Tensor:
        return torch.tensor(self.order).argsort()


class Reading(ABC, Generic[Value]):
    """Something read from forward passes.

    `reduce` is called inside the hook, once per site and batch, and returns a small tensor
    with the batch axis first; the activation itself is never kept.
    """

    target_only: ClassVar[bool] = False
    """True if nothing but the target's row is read: then earlier rows need not be computed
    for every prompt."""

    @abstractmethod
    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """Sites this reading needs, in the order of its results."""

    @abstractmethod
    def reduce(
        self, site: Site, activation: Float[Tensor, " batch *rest"], segment: Segment
    ) -> Tensor:
        """What is kept of one activation, batch axis first."""

    @abstractmethod
    def collect(self, kept: Kept) -> Value:
        """The value over all prompts, in input order."""


class GradientReading(ABC, Generic[Value]):
    """Something read from an activation and the gradient of the loss at it.

    `reduce` is called in the backward pass, once per site and batch.
    """

    loss: Loss

    @abstractmethod
    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """Sites this reading needs, in the order of its results."""

    @abstractmethod
    def shape(self, segment: Segment) -> tuple[int, ...]:
        """Shape of what `reduce` returns, batch axis first."""

    @abstractmethod
    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """What is kept of one activation and its gradient, batch axis first."""

    @abstractmethod
    def collect(self, kept: Kept) -> Value:
        """The value over all prompts, in input order."""

"""What a reading is: which sites it needs, and how one activation is reduced at once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine.losses import Loss
from icl_mech.errors import RunError
from icl_mech.models import ModelInfo, Site
from icl_mech.segments import Segment

Value = TypeVar("Value")


class Kept:
    """What a reading keeps of a whole run, in input order.

    Reductions are copied into a buffer made once per site. Left where they arose, among the
    activations of their batch, small tensors would keep the allocator from using the memory
    around them again, and a run would take more of it with every batch.
    """

    def __init__(self, count: int, *, ragged: bool = False) -> None:
        """For so many prompts; `ragged` if the shape of reductions differs between batches."""
        self.count = count
        self.ragged = ragged
        self._buffers: dict[Site, Tensor] = {}
        self._rows: list[list[Tensor]] = [[] for _ in range(count)]

    def add(self, prompts: Sequence[int], values: dict[Site, Tensor]) -> None:
        """Keep the reductions of one batch, which holds these prompts."""
        for site, value in values.items():
            if self.ragged:
                for prompt, row in zip(prompts, value.cpu(), strict=True):
                    self._rows[prompt].append(row.clone())
                continue
            if site not in self._buffers:
                shape = (self.count, *value.shape[1:])
                self._buffers[site] = torch.empty(shape, dtype=value.dtype)
            if value.shape[1:] != self._buffers[site].shape[1:]:
                raise RunError(
                    f"A reading of {site.name!r} of block {site.layer} gave rows of shape "
                    f"{list(value.shape[1:])} after rows of {list(self._buffers[site].shape[1:])}; if "
                    "they differ with the prompts' lengths, set ragged = True in the reading."
                )
            self._buffers[site].index_copy_(0, torch.tensor(list(prompts)), value.cpu())

    def stacked(self) -> Tensor:
        """`[prompt, site, ...]`; for reductions of one shape."""
        return torch.stack(list(self._buffers.values()), dim=1)

    def by_site(self) -> dict[Site, Tensor]:
        """`[prompt, ...]` of each site; for reductions that differ by site."""
        return dict(self._buffers)

    def per_prompt(self) -> list[Tensor]:
        """`[site, ...]` for every prompt; for ragged reductions."""
        return [torch.stack(rows) for rows in self._rows]


class Reading(ABC, Generic[Value]):
    """Something read from forward passes.

    `reduce` is called inside the hook, once per site and batch, and returns a small tensor
    with the batch axis first; the activation itself is never kept.
    """

    target_only: ClassVar[bool] = False
    """True if nothing but the target's row is read: then earlier rows need not be computed
    for every prompt."""

    ragged: ClassVar[bool] = False
    """True if the shape of what `reduce` returns differs between batches."""

    finite: ClassVar[bool] = True
    """False if what `reduce` returns may be NaN or infinite; a run refuses it otherwise."""

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

    `reduce` is called in the backward pass, once per site and batch; of an additive reading
    also under `torch.vmap`, so it must not write into tensors it made.
    """

    additive: ClassVar[bool] = False
    """True if the reductions of some rows and of the others add up to that of all: then the
    common beginning of prompts can be computed apart."""

    ragged: ClassVar[bool] = False
    """True if the shape of what `reduce` returns differs between batches."""

    finite: ClassVar[bool] = True
    """False if what `reduce` returns may be NaN or infinite; a run refuses it otherwise."""

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

    def edges(self, segment: Segment) -> tuple[str, Float[Tensor, "batch kind dest src"]] | None:
        """Where `reduce` sums saliency of patterns over edges: how heads are reduced, and the edges.

        Such sums can be taken on a server; None, the default, is always right.
        """
        return None

    @abstractmethod
    def collect(self, kept: Kept) -> Value:
        """The value over all prompts, in input order."""

"""Weights that a bridge computes with as copies of others: fused projections, split at load.

Families with one matrix for queries, keys and values (GPT-NeoX, BLOOM, Falcon, CodeGen, ...) or for the
two halves of a gated MLP (Phi 3, GLM) get it split when the bridge is made. Where the parts are copies,
a change of the fused weights, by training, merging or by hand, would not reach them.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.errors import ModelError

_SPLITS = (
    ("split_qkv_matrix", ("q", "k", "v")),
    ("split_gate_up_matrix", ("gate", "in")),
)
"""How components call what splits, and the parts it gives."""


class FusedWeights:
    """The split parts of one bridge, and the fused weights they were made of."""

    def __init__(self, bridge: Any) -> None:
        self._components = list(_components(bridge))
        self._made_of = [_digest(_tensors(fresh)) for _, _, fresh in self._split()]

    def _split(self) -> Iterator[tuple[Any, list[Any], Sequence[Any]]]:
        """Each component, the parts it computes with, and those of the fused weights as they are."""
        for component, split, parts in self._components:
            # Splitting makes layers, which draws random numbers before they are filled.
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                fresh = split(component.original_component)
            yield component, parts, fresh

    def renew(self) -> None:
        """Bring the parts up to date with the fused weights.

        Raises:
            ModelError: both were changed.
        """
        for number, (component, parts, fresh) in enumerate(self._split()):
            now, before = _digest(_tensors(fresh)), self._made_of[number]
            if now == before:
                continue
            old, new = _tensors(parts), _tensors(fresh)
            if (own := _digest(old)) not in (before, now):
                raise ModelError(
                    f"The fused weights of {component.name!r} and what the bridge split them into "
                    "were both changed since; it cannot be told which are meant. Change one of "
                    "them, or load the model again."
                )
            if own != now:
                with torch.no_grad():
                    for target, source in zip(old, new, strict=True):
                        target.copy_(source)
            self._made_of[number] = now


def _components(bridge: Any) -> Iterator[tuple[Any, Any, list[Any]]]:
    """Components that split, how, and their parts."""
    for block in getattr(bridge, "blocks", ()):
        for component in (getattr(block, "attn", None), getattr(block, "mlp", None)):
            for name, names in _SPLITS:
                split = getattr(component, name, None)
                parts = [
                    getattr(getattr(component, n, None), "original_component", None) for n in names
                ]
                if callable(split) and all(isinstance(p, torch.nn.Module) for p in parts):
                    yield component, split, parts


def _tensors(modules: Sequence[Any]) -> list[Tensor]:
    return [
        tensor
        for module in modules
        for tensor in (module.weight, getattr(module, "bias", None))
        if tensor is not None
    ]


def _digest(tensors: Sequence[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        own = tensor.detach().cpu().contiguous().flatten()
        digest.update(own.view(torch.uint8).numpy().data if own.numel() else b"")
    return digest.hexdigest()

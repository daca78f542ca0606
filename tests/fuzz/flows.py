"""Sums over saliency maps, edge by edge."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.fuzz.reference import Text


def flow(maps: Tensor, text: Text) -> Tensor:
    """`[3, layer]`: mean saliency of text to label words, label words to target, and of the rest."""
    q = text.target
    scores = torch.zeros(3, len(maps), dtype=torch.float64)
    counts = torch.zeros(3, 1, dtype=torch.float64)
    for dest, src in itertools.combinations(range(q + 1), 2):
        dest, src = src, dest
        kind = 0 if dest in text.positions else 1 if dest == q and src in text.positions else 2
        scores[kind] += maps[:, dest, src]
        counts[kind] += 1
    return torch.where(counts > 0, scores / counts.clamp(min=1), 0.0)


def by_role(maps: Tensor, text: Text, roles: Sequence[str]) -> Tensor:
    """`[dest role, src role, layer]`: saliency below the diagonal, summed."""
    members = torch.tensor([[own == role for own in text.roles] for role in roles]).double()
    below = maps.tril(-1)
    return torch.einsum("ad,lds,bs->abl", members, below, members)

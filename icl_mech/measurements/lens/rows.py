"""Rows of the residual stream that lenses are fitted on: drawn positions, read once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Kept, Reading, common_prefix
from icl_mech.errors import PromptError
from icl_mech.models import ModelInfo, Site
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment


@dataclass(eq=False)
class ResidualReading(Reading[Tensor]):
    """Residuals of every entry at given positions of each prompt, `[prompt, entry, place, d_model]`."""

    positions: Int[Tensor, "batch place"]

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """L + 1 entries."""
        return [Site("resid_pre", 0), *(Site("resid_post", i) for i in range(info.n_layers))]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, place, d_model]`."""
        columns = segment.columns(self.positions[list(segment.indices)])
        return activation[segment.rows[:, None], columns]

    def collect(self, kept: Kept) -> Tensor:
        """Entries on their own axis."""
        return kept.stacked()


class Split(NamedTuple):
    """Numbers of the prompts a lens is fitted on, and of those held out."""

    fitted: tuple[int, ...]
    held_out: tuple[int, ...]


def split_prompts(prompts: PromptBatch, share: float, seed: int) -> Split:
    """Prompts at random into two parts; equal prompts stay together.

    Raises:
        PromptError: fewer than two different prompts.
    """
    alike: dict[tuple[int, ...], list[int]] = {}
    for number, prompt in enumerate(prompts):
        alike.setdefault(prompt.tokens, []).append(number)
    groups = list(alike.values())
    if len(groups) < 2:
        raise PromptError(
            f"{len(prompts)} prompts of which {len(groups)} differ; a lens needs some to be fitted on "
            "and others to be judged by."
        )
    order = np.random.default_rng(seed).permutation(len(groups))
    count = min(max(1, round(share * len(groups))), len(groups) - 1)
    parts = [sorted(n for g in own for n in groups[g]) for own in (order[count:], order[:count])]
    return Split(tuple(parts[0]), tuple(parts[1]))


def draw_positions(
    prompts: PromptBatch, count: int, skip_first: int, seed: int
) -> Int[Tensor, "batch place"]:
    """Equally many positions of each prompt, drawn without replacement.

    The first ones, and those of a beginning that all prompts share, are left out: read from every
    prompt they would be the same row again, among the fitted and among the held-out ones.

    Raises:
        PromptError: a prompt has no other position.
    """
    first = max(skip_first, common_prefix(prompts) if len(prompts) > 1 else 0)
    left = [len(prompt) - first for prompt in prompts]
    if min(left) < 1:
        raise PromptError(
            f"The shortest prompt has {min(map(len, prompts))} tokens, of which the first {first} are "
            "left out (skip_first, or a beginning that all prompts share); use longer prompts."
        )
    generator = np.random.default_rng([seed, 1])
    wanted = min(count, *left)
    rows = [np.sort(generator.permutation(own)[:wanted]) + first for own in left]
    return torch.from_numpy(np.stack(rows))


def flat(
    residuals: Float[Tensor, "batch entry place d_model"],
) -> Float[Tensor, "entry row d_model"]:
    """All rows of an entry one after the other."""
    return residuals.transpose(0, 1).flatten(1, 2)

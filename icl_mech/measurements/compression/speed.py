"""How long queries take in full prompts and behind two caches, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch

from icl_mech.measurements.compression.behind import Plan
from icl_mech.measurements.compression.stand_in import Demonstrations
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

REPEATS = 5
"""Timed passes over the prompts, after one that warms up."""

MEASURED = 8
"""Prompts that are timed at most: the first ones."""


@dataclass(frozen=True)
class Speed:
    """Seconds per pass over the timed prompts, one per repeat; the ways take turns.

    Attributes:
        prompts: Number of timed prompts.
        full: Full prompts without a cache.
        cached: Queries behind the full cache of their demonstrations.
        compressed: Queries behind the compressed cache.
    """

    prompts: int
    full: tuple[float, ...]
    cached: tuple[float, ...]
    compressed: tuple[float, ...]

    @property
    def up(self) -> float:
        """Full prompts / queries behind the compressed cache, of medians."""
        return median(self.full) / median(self.compressed)

    @property
    def up_cached(self) -> float:
        """Queries behind the full cache / behind the compressed one, of medians."""
        return median(self.cached) / median(self.compressed)

    def to_dict(self) -> dict[str, Any]:
        """What provenance records; seconds."""
        return {
            "prompts": self.prompts,
            "repeats": len(self.full),
            "full": list(self.full),
            "cached": list(self.cached),
            "compressed": list(self.compressed),
        }


def measure_speed(
    model: LanguageModel, prompts: PromptBatch, queries: Sequence[int], plan: Plan
) -> Speed:
    """Time forward pass and label logits of one prompt after the other; caches are built before.

    For models that take position ids; with others no cache is cut.

    Source: Wang et al. 2023, §3.2.
    """
    shared: dict[tuple[int, ...], Demonstrations] = {}
    ways: list[tuple[Segment, Segment, Segment]] = []
    for row, prompt in enumerate(prompts[:MEASURED]):
        tokens = prompt.tokens[: queries[row]]
        own = shared.setdefault(tokens, Demonstrations(model, tokens, True))
        short = own.stand_in(plan.kept[row], as_text=plan.as_text, position=plan.position)
        whole = Segment.build(model, prompts[[row]], [row], spans=[(0, prompt.target + 1)])
        ways.append(
            (whole, own.full.segment(model, prompts, [row]), short.segment(model, prompts, [row]))
        )
    seconds: list[list[float]] = [[], [], []]
    for repeat in range(REPEATS + 1):
        taken = [0.0, 0.0, 0.0]
        for segments in ways:
            for way, segment in enumerate(segments):
                taken[way] += _timed(segment)
        if repeat:
            for store, value in zip(seconds, taken, strict=True):
                store.append(value)
    full, cached, compressed = map(tuple, seconds)
    return Speed(len(ways), full, cached, compressed)


def _timed(segment: Segment) -> float:
    model = segment.model
    _wait(model.device)
    start = perf_counter()
    with torch.no_grad():
        output = model.forward(segment.tokens, segment.mask, segment.positions, cache=segment.cache)
        model.label_logits(segment.at_target(output.residual), segment.label_tokens)
    _wait(model.device)
    return perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

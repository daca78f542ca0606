"""Comparison of the time that queries take in full prompts and on two caches."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.engine import Reading, Work, fill_means
from icl_mech.engine.readings import OfLast
from icl_mech.interventions import Intervention
from icl_mech.measurements.compression.stand_in import Behind, StandIn
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition
from icl_mech.segments import Segment

REPEATS = 5
"""Timed passes over the prompts, after one that warms up."""

MEASURED = 8
"""Maximum number of prompts that are timed: the first ones."""

SPEED_UP = Definition(
    "speed-up",
    r"\frac{t_{\text{full}}}{t_{\text{compressed}}}",
    "Time of full prompts without a cache divided by that of queries on the compressed cache, "
    "excluding the time to build it. A second ratio compares queries on the full cache of the "
    "demonstrations with queries on the compressed one. Medians of repeats.",
    "Wang et al. 2023, Label Words are Anchors, §3.2",
)


@dataclass(frozen=True)
class Speed:
    """Seconds per pass over the timed prompts, one per repeat; the three ways alternate.

    Attributes:
        prompts: Number of timed prompts.
        full: Full prompts without a cache.
        cached: Queries on the full cache of their demonstrations.
        compressed: Queries on the compressed cache.
        tokens: Length of each timed prompt.
        each: Median seconds of each prompt, by way in this order.
    """

    prompts: int
    full: tuple[float, ...]
    cached: tuple[float, ...]
    compressed: tuple[float, ...]
    tokens: tuple[int, ...] = ()
    each: tuple[tuple[float, ...], ...] = ()

    @property
    def up(self) -> float:
        """Ratio of median times: full prompts / queries on the compressed cache."""
        return median(self.full) / median(self.compressed)

    @property
    def up_cached(self) -> float:
        """Ratio of median times: queries on the full cache / on the compressed one."""
        return median(self.cached) / median(self.compressed)

    def to_dict(self) -> dict[str, Any]:
        """Provenance record; times in seconds."""
        return {
            "prompts": self.prompts,
            "repeats": len(self.full),
            "full": list(self.full),
            "cached": list(self.cached),
            "compressed": list(self.compressed),
            "tokens": list(self.tokens),
            "each": [list(seconds) for seconds in self.each],
        }


class LabelLogits(OfLast, Reading[Tensor]):
    """Label logits at the target, the computation that is timed."""

    target_only = True

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """One number per prompt and label."""
        return segment.model.label_logits(segment.at_target(activation), segment.label_tokens)


def measure_speed(
    model: LanguageModel,
    prompts: PromptBatch,
    queries: Sequence[int],
    stand_in: StandIn,
    interventions: Sequence[Intervention],
) -> Speed:
    """Time the engine's pass over the prompts one by one; caches are built beforehand.

    Applies to models that take position ids; with others no cache is cut.

    Source: Wang et al. 2023, §3.2.
    """
    (ready,) = fill_means(model, prompts, [interventions])
    work = Work([LabelLogits()], ready, checkpoint=False)
    count = min(MEASURED, len(prompts))
    cached = StandIn(model, prompts, queries, [tuple(range(query)) for query in queries])
    seen = [cached.first(count), stand_in.first(count)]
    layout = Behind(seen[0].sharing(range(count)), seen, size=1)
    ways = [_whole(model, prompts[:count]), [], []]
    laid = sorted(layout.segments([work, work]), key=lambda numbered: numbered[1].indices)
    for number, segment in laid:
        ways[1 + number].append(segment)
    # Axes: way, prompt and repeat.
    seconds = torch.zeros(3, count, REPEATS, dtype=torch.float64)
    for repeat in range(-1, REPEATS):  # the first one warms up
        for number, segments in enumerate(zip(*ways, strict=True)):
            for way, segment in enumerate(segments):
                taken = _timed(work, segment)
                if repeat >= 0:
                    seconds[way, number, repeat] = taken
    full, behind, compressed = (tuple(times) for times in seconds.sum(1).tolist())
    tokens = tuple(len(prompt) for prompt in prompts[:count])
    each = tuple(tuple(times) for times in seconds.median(-1).values.tolist())
    return Speed(count, full, behind, compressed, tokens, each)


def _whole(model: LanguageModel, prompts: PromptBatch) -> list[Segment]:
    """Prompts up to their targets, one by one."""
    return [
        Segment.build(model, prompts[[row]], [row], spans=[(0, prompt.target + 1)])
        for row, prompt in enumerate(prompts)
    ]


def _timed(work: Work, segment: Segment) -> float:
    _wait(segment.model.device)
    start = perf_counter()
    work.values(segment)
    _wait(segment.model.device)
    return perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

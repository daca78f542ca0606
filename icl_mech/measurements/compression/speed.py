"""How long queries take in full prompts and on two caches, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.engine import Reading, Work, fill_means
from icl_mech.engine.readings import OfLast
from icl_mech.errors import ResultError
from icl_mech.interventions import Intervention
from icl_mech.measurements.compression.stand_in import Behind, StandIn
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure
from icl_mech.results.wording import counted, told
from icl_mech.segments import Segment
from icl_mech.shapes import Scatter

REPEATS = 5
"""Timed passes over the prompts, after one that warms up."""

MEASURED = 8
"""Prompts that are timed at most: the first ones."""

SPEED_UP = Definition(
    "speed-up",
    r"\frac{t_{\text{full}}}{t_{\text{compressed}}}",
    "Time of full prompts without a cache over that of queries on the compressed cache, "
    "whose building is not counted; beside it queries on the full cache of the "
    "demonstrations over queries on the compressed one. Medians of repeats.",
    "Wang et al. 2023, Label Words are Anchors, §3.2",
)


@dataclass(frozen=True)
class Speed:
    """Seconds per pass over the timed prompts, one per repeat; the ways take turns.

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
        """Full prompts / queries on the compressed cache, of medians."""
        return median(self.full) / median(self.compressed)

    @property
    def up_cached(self) -> float:
        """Queries on the full cache / on the compressed one, of medians."""
        return median(self.cached) / median(self.compressed)

    def to_dict(self) -> dict[str, Any]:
        """What provenance records; seconds."""
        return {
            "prompts": self.prompts,
            "repeats": len(self.full),
            "full": list(self.full),
            "cached": list(self.cached),
            "compressed": list(self.compressed),
            "tokens": list(self.tokens),
            "each": [list(own) for own in self.each],
        }


class LabelLogits(OfLast, Reading[Tensor]):
    """Label logits at the target: what is timed."""

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
    """Time the engine's pass over one prompt after the other; caches are built before.

    For models that take position ids; with others no cache is cut.

    Source: Wang et al. 2023, §3.2.
    """
    (ready,) = fill_means(model, prompts, [interventions])
    work = Work([LabelLogits()], ready, checkpoint=False)
    count = min(MEASURED, len(prompts))
    cached = StandIn(model, prompts, queries, [tuple(range(query)) for query in queries])
    seen = [cached.first(count), stand_in.first(count)]
    layout = Behind(seen[0].sharing(range(count)), seen, size=1)
    ways = [_whole(model, prompts[:count]), [], []]
    laid = sorted(layout.segments([work, work]), key=lambda one: one[1].indices)
    for number, segment in laid:
        ways[1 + number].append(segment)
    # By way, prompt and repeat.
    seconds = torch.zeros(3, count, REPEATS, dtype=torch.float64)
    for repeat in range(-1, REPEATS):  # the first one warms up
        for number, segments in enumerate(zip(*ways, strict=True)):
            for way, segment in enumerate(segments):
                taken = _timed(work, segment)
                if repeat >= 0:
                    seconds[way, number, repeat] = taken
    full, behind, compressed = (tuple(own) for own in seconds.sum(1).tolist())
    tokens = tuple(len(prompt) for prompt in prompts[:count])
    each = tuple(tuple(own) for own in seconds.median(-1).values.tolist())
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


def speed_ups(speed: Mapping[str, Any]) -> Scatter:
    """How many times as fast each timed prompt is, against its length.

    Raises:
        ResultError: nothing was timed.
    """
    if not speed:
        raise ResultError(
            "This result does not hold how long each prompt took; measure again with "
            "measure_speed=True, on a model that takes position ids."
        )
    full, cached, compressed = speed["each"]
    tokens = speed["tokens"]
    ways = {
        "full prompt without cache ÷ compressed": full,
        "query on full cache ÷ compressed": cached,
    }
    ratios = [a / b for own in ways.values() for a, b in zip(own, compressed, strict=True)]
    return Scatter(
        title="Speed-up by compressed demonstrations",
        x=torch.tensor(tokens * len(ways), dtype=torch.float64),
        y=torch.tensor(ratios, dtype=torch.float64),
        names=tuple(f"prompt {i}" for _ in ways for i in range(len(tokens))),
        groups=tuple(name for name in ways for _ in tokens),
        x_title="length of the prompt (tokens)",
        y_title="times as fast",
        note=f"medians of {len(speed['full'])} repeats on this machine, one prompt at a time",
        order=tuple(ways),
        meanings=("label", "other"),
        levels=((1.0, "equally fast"),),
    )


def speed_figure(speed: Mapping[str, Any], up: float, cached: float) -> Figure:
    """What a page says of it.

    Args:
        speed: What was timed.
        up: Times as fast as full prompts.
        cached: Times as fast as queries on the full cache.
    """
    count, repeats = len(speed["tokens"]), len(speed["full"])
    least, most = min(speed["tokens"]), max(speed["tokens"])
    length = counted(least, "token") if least == most else f"{least} to {most} tokens"
    return Figure(
        "speed",
        "How much faster are queries after the stand-in?",
        f"{told(up)} times as fast as full prompts without a cache, {told(cached)} times as queries on "
        f"the full cache ({counted(count, 'prompt')} of {length}).",
        f"**Speed-up by length of the prompt**, one point for each of the first {counted(count, 'prompt')}: "
        f"medians of {counted(repeats, 'repeat')}, one prompt at a time, building the cache not counted.",
        limits="other machines, batches or lengths.",
        short="Speed-up",
    )

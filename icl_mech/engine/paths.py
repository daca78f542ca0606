"""Ways to lay prompts out as segments: whole, behind a shared prefix, or the target alone.

* *whole*: every position of every prompt; always right.
* *shared*: the longest common beginning is computed once per run (under the run's
  interventions), its keys and values are seen by all prompts; rows after it are computed.
  For readings at the target, and gradients whose reductions add up over rows (`Beginning`).
* *target*: keys and values of everything before the target are kept (`prepare`), each
  further run computes one token per prompt. For readings and interventions at the target only.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.functional import pad

from icl_mech.engine.memory import plan, rows_together
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import KeyValues, LanguageModel, Resume, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.segments import PADDING, Segment, by_length

WORTH_SHARING = 8
"""Shortest common beginning that is computed apart."""

Runner = Callable[[Segment], KeyValues]
"""Runs a segment without readings and returns its keys and values."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Prompts with the keys and values of everything before their targets.

    Attributes:
        model: The model.
        prompts: The prompts.
        segments: The target rows, one segment per length bucket; runs reuse them.
    """

    model: LanguageModel
    prompts: PromptBatch
    segments: tuple[Segment, ...]


def prepare(
    model: Any,
    prompts: PromptBatch,
    *,
    batch_size: int | None = None,
    memory: str | int | None = None,
) -> Prepared:
    """Compute keys and values of everything before the targets, once.

    Afterwards `run(model, prepared, ...)` costs one token per prompt for any readings and
    interventions that concern the target only.

    Raises:
        PromptError: prompts this model cannot run.
    """
    adapted = adapt(model)
    if adapted.has_own_hooks:
        warnings.warn(
            f"{adapted.info.name!r} has hooks of your own in place. Targets are run apart from what "
            "stands before them: a hook that looks at positions sees others than in a whole prompt.",
            stacklevel=2,
        )
    tokens, _ = plan(adapted, prompts.lengths.tolist(), gradient=False, memory=memory)
    segments = []
    with torch.no_grad():
        for indices in by_length(prompts.targets.tolist(), tokens=tokens, size=batch_size):
            batch = prompts[indices]
            targets = [prompt.target for prompt in batch]
            if not min(targets):
                raise RunError("A prompt of one token has nothing before its target to prepare.")
            before = Segment.build(
                adapted, batch, indices, spans=[(0, target) for target in targets]
            )
            cache = adapted.forward(
                before.tokens, before.mask, before.positions, keep_cache=True
            ).cache
            segments.append(
                Segment.build(
                    adapted,
                    batch,
                    indices,
                    spans=[(target, target + 1) for target in targets],
                    cache=cache,
                    cached=before.dest,
                )
            )
    most = min(rows_together(adapted), batch_size or len(prompts))
    return Prepared(adapted, prompts, tuple(_together(segments, most)))


def _together(segments: Sequence[Segment], most: int) -> Iterator[Segment]:
    """Single-token segments merged to at most so many rows, caches padded on the left.

    A pass over few rows costs nearly what one over many does.
    """
    group: list[Segment] = []
    for segment in segments:
        if group and sum(len(part.prompts) for part in [*group, segment]) > most:
            yield merged(group)
            group = []
        group.append(segment)
    yield merged(group)


def merged(group: Sequence[Segment]) -> Segment:
    """Single-token segments as one, their caches padded on the left."""
    if len(group) == 1:
        return group[0]
    first = group[0]
    caches = [part.cache for part in group if part.cache is not None]
    width = max(cache.length for cache in caches)
    cached = [pad(part.src[:, :-1], (width - cache.length, 0), value=PADDING)
              for part, cache in zip(group, caches, strict=True)]  # fmt: skip
    return Segment.build(
        first.model,
        PromptBatch(
            tuple(prompt for part in group for prompt in part.prompts), first.prompts.source
        ),
        [index for part in group for index in part.indices],
        spans=[span for part in group for span in part.spans],
        cache=KeyValues.stacked([cache.padded(width) for cache in caches]),
        cached=torch.cat(cached),
    )


def common_prefix(prompts: PromptBatch) -> int:
    """Length of the longest beginning all prompts share, their targets excluded.

    Shared are its tokens, and which of them are label words of which class.
    """
    first, *others = (prompt.tokens for prompt in prompts)
    length = min(prompt.target for prompt in prompts)
    for tokens in others:
        while first[:length] != tokens[:length]:
            length = next(i for i in range(length) if first[i] != tokens[i])
    classes = prompts.position_classes[:, :length]
    unlike = (classes != classes[0]).any(0).nonzero()
    return int(unlike[0]) if len(unlike) else length


def can_share(
    model: LanguageModel, prompts: PromptBatch, interventions: Sequence[Intervention], apart: bool
) -> bool:
    """True if the shared path gives what the whole path gives, for less.

    Args:
        model: What runs; hooks of the caller's own may look at positions, which move.
        prompts: What is run.
        interventions: What is changed.
        apart: The common beginning can be computed apart, as far as the readings go.
    """
    if not apart or len(prompts) == 1 or model.has_own_hooks:
        return False
    length = common_prefix(prompts)
    return length >= WORTH_SHARING and all(i.shares(prompts, length) for i in interventions)


def whole_segments(
    model: LanguageModel, prompts: PromptBatch, tokens: int, size: int | None
) -> Iterator[Segment]:
    """Whole prompts in batches of similar length."""
    for indices in by_length(prompts.lengths.tolist(), tokens=tokens, size=size):
        yield Segment.build(model, prompts[indices], indices)


def shared_segments(
    model: LanguageModel,
    prompts: PromptBatch,
    length: int,
    tokens: int,
    size: int | None,
    run: Runner,
    *,
    gradient: bool = False,
) -> Iterator[Segment]:
    """Rows after the common beginning, which is run once.

    Behind a shared cache padding stands on the right: a hole between cached and new columns
    would be silently wrong in layers with a sliding window.

    Args:
        model: The model.
        prompts: The prompts.
        length: Of their common beginning.
        tokens: Largest number of tokens of a batch.
        size: Largest number of prompts of a batch.
        run: Runs the common beginning.
        gradient: The backward pass goes through the beginning once per prompt, so that its
            tokens count too.
    """
    head = Segment.build(model, prompts[[0]], [0], spans=[(0, length)])
    cache = run(head)
    columns = torch.arange(length)
    costs = (prompts.lengths - (0 if gradient else length)).tolist()
    for indices in by_length(costs, tokens=tokens, size=size):
        batch = prompts[indices]
        yield Segment.build(
            model,
            batch,
            indices,
            spans=[(length, len(prompt)) for prompt in batch],
            left=False,
            cache=cache.expand(len(batch)),
            cached=columns.expand(len(batch), -1),
        )


def halves(segment: Segment) -> Iterator[Segment]:
    """The same rows in two segments, for when one does not fit into memory."""
    count = len(segment.prompts)
    cached = segment.src.shape[1] - segment.dest.shape[1]
    for part in (slice(0, count // 2), slice(count // 2, count)):
        cache = segment.cache
        half = Segment.build(
            segment.model,
            segment.prompts[part],
            segment.indices[part],
            spans=segment.spans[part],
            left=segment.left,
            cache=None if cache is None else cache.rows(part),
            cached=segment.src[part, :cached] if cached else None,
            shift=segment.shift,
        )
        if segment.start is not None:
            # The half may be narrower: its padding is cut where the whole segment had it.
            width = half.tokens.shape[1]
            columns = slice(-width, None) if segment.left else slice(0, width)
            residual = segment.start.residual[part, columns]
            half = replace(half, start=Resume(segment.start.layer, residual))
        yield half

"""`run_variants`: the same readings under many sets of interventions, nothing computed twice.

What the variants share is run once: the common beginning of the prompts, and everything
below the first block a variant changes. A variant that starts at block `l` goes on from the
plain run's residual there. Target-only variants become single-token passes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.engine.memory import plan
from icl_mech.engine.paths import can_share, common_prefix, prepare
from icl_mech.engine.progress import Progress
from icl_mech.engine.readings import Kept, Reading
from icl_mech.engine.runs import fill_means, run
from icl_mech.engine.work import Work
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import KeyValues, LanguageModel, Resume, Site, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment, by_length

Variant = Sequence[Intervention]


def run_variants(
    model: Any,
    prompts: PromptBatch,
    readings: Sequence[Reading[Any]],
    variants: Sequence[Variant],
    *,
    batch_size: int | None = None,
    memory: str | int | None = None,
    progress: bool | None = None,
    title: str = "variants",
) -> list[list[Any]]:
    """For each variant the value of each reading, as `run` would give it.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: What to run.
        readings: What to read.
        variants: Sets of interventions; an empty one is the plain model.
        batch_size: Prompts per batch at most.
        memory: Budget, see `run`.
        progress: Show a progress bar.
        title: What the progress bar counts.

    Raises:
        RunError: as `run`.
        PromptError: as `run`.
    """
    adapted = adapt(model)
    target_only = all(reading.target_only for reading in readings)
    every = [intervention for variant in variants for intervention in variant]
    single = target_only and not adapted.has_own_hooks
    if single and every and all(i.target_only for i in every):
        prepared = prepare(adapted, prompts, batch_size=batch_size, memory=memory)
        return [run(adapted, prepared, readings, variant, progress=False) for variant in variants]
    if not can_share(adapted, prompts, every, target_only):
        return [
            run(
                adapted,
                prompts,
                readings,
                variant,
                batch_size=batch_size,
                memory=memory,
                progress=progress,
                title=title,
            )
            for variant in variants
        ]
    return _shared(adapted, prompts, readings, variants, batch_size, memory, progress, title)


def _shared(
    model: LanguageModel,
    prompts: PromptBatch,
    readings: Sequence[Reading[Any]],
    variants: Sequence[Variant],
    batch_size: int | None,
    memory: str | int | None,
    progress: bool | None,
    title: str,
) -> list[list[Any]]:
    tokens, _ = plan(model, prompts.lengths.tolist(), gradient=False, memory=memory)
    works = [Work(readings, fill_means(model, prompts, v), checkpoint=False) for v in variants]
    starts = [_start(model, readings, work.interventions) for work in works]
    length = common_prefix(prompts)
    head = Segment.build(model, prompts[[0]], [0], spans=[(0, length)])
    plain, at_head = _plain(head, sorted(set(starts)), keep_cache=True)
    caches = [
        _variant_cache(work, head, start, plain, at_head)
        for work, start in zip(works, starts, strict=True)
    ]
    kept = [[Kept(len(prompts), ragged=r.ragged) for r in readings] for _ in variants]
    rest = (prompts.lengths - length).tolist()
    columns = torch.arange(length)
    with Progress(title, len(prompts) * len(variants), progress) as bar:
        for indices in by_length(rest, tokens=tokens, size=batch_size):
            batch = prompts[indices]
            segment = Segment.build(
                model,
                batch,
                indices,
                spans=[(length, len(prompt)) for prompt in batch],
                left=False,
                cache=plain.expand(len(batch)),
                cached=columns.expand(len(batch), -1),
            )
            _, residuals = _plain(segment, sorted(set(starts)), keep_cache=False)
            for number, (work, start, cache) in enumerate(zip(works, starts, caches, strict=True)):
                entered = Resume(start, residuals[start]) if start else None
                own = replace(segment, cache=cache.expand(len(batch)), start=entered)
                for part, values in work.done(own):
                    for store, value in zip(kept[number], values, strict=True):
                        store.add(part.indices, value)
                bar.advance(len(batch))
    for work in works:
        work.check_acted()
    return [
        [reading.collect(store) for reading, store in zip(readings, stores, strict=True)]
        for stores in kept
    ]


def _start(model: LanguageModel, readings: Sequence[Reading[Any]], interventions: Variant) -> int:
    """First block that changes or is read; everything below it is the plain run's."""
    info = model.info
    changed = [intervention.first_layer for intervention in interventions]
    read = [site.layer for reading in readings for site in reading.sites(info)]
    return min([*changed, *read, info.n_layers - 1])


def _plain(
    segment: Segment, starts: Sequence[int], *, keep_cache: bool
) -> tuple[KeyValues, dict[int, Tensor]]:
    """The unchanged run of a segment: its cache, and the residuals entering some blocks."""
    residuals: dict[int, Tensor] = {}

    def keep(layer: int) -> Any:
        def hook(activation: Tensor) -> None:
            residuals[layer] = activation.clone()

        return hook

    wanted = [layer for layer in starts if layer]
    cache = segment.cache
    if wanted or keep_cache:
        with torch.no_grad():
            output = segment.model.forward(
                segment.tokens,
                segment.mask,
                segment.positions,
                cache=segment.cache,
                hooks=[(Site("resid_pre", layer), keep(layer)) for layer in wanted],
                keep_cache=keep_cache,
            )
        cache = output.cache if keep_cache else segment.cache
    if cache is None:
        raise RunError(f"{segment.model.info.architecture} returned no keys and values.")
    return cache, residuals


def _variant_cache(
    work: Work, head: Segment, start: int, plain: KeyValues, at_head: dict[int, Tensor]
) -> KeyValues:
    """Keys and values of the common beginning under one variant."""
    if not any(intervention.hooks(head) for intervention in work.interventions):
        return plain
    entered = Resume(start, at_head[start]) if start else None
    own = work.keys_and_values(replace(head, start=entered))
    return KeyValues(
        plain.keys[:start] + own.keys[start:], plain.values[:start] + own.values[start:]
    )

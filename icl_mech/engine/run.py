"""`run`: every reading and every intervention in one pass over the prompts."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.engine.losses import target_loss
from icl_mech.engine.progress import Progress
from icl_mech.engine.readings import GradientReading, Kept, Reading
from icl_mech.engine.tap import Tap
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import Hook, HookFunction, Site, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment, by_length

_TOKENS_PER_BATCH = 2048
"""Padded tokens of one batch; larger batches gain nothing on a CPU and cost memory."""

AnyReading = Reading[Any] | GradientReading[Any]


def run(
    model: Any,
    prompts: PromptBatch,
    readings: Sequence[AnyReading],
    interventions: Sequence[Intervention] = (),
    *,
    batch_size: int | None = None,
    progress: bool | None = None,
    title: str = "prompts",
) -> list[Any]:
    """The value of each reading, over all prompts in input order.

    Interventions apply in the order given, readings tap last. If any reading needs
    gradients there is one backward pass; all such readings share its loss.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: What to run.
        readings: What to read.
        interventions: What to change.
        batch_size: Prompts per batch at most (default: by length).
        progress: Show a progress bar; None: when the output is a terminal or notebook.
        title: What the progress bar counts.

    Raises:
        RunError: readings with different losses, or a hook that did not fire.
        PromptError: prompts this model cannot run.
    """
    adapted = adapt(model)
    losses = {reading.loss for reading in readings if isinstance(reading, GradientReading)}
    if len(losses) > 1:
        raise RunError(f"One pass has one loss; these readings ask for {sorted(losses)}.")
    kept = [Kept() for _ in readings]
    batches = by_length(prompts.lengths.tolist(), tokens=_TOKENS_PER_BATCH, size=batch_size)
    with Progress(title, len(prompts), progress) as bar:
        for indices in batches:
            segment = Segment.whole(adapted, prompts[indices])
            values = _run_segment(segment, readings, interventions)
            for store, value in zip(kept, values, strict=True):
                store.add(indices, value)
            bar.advance(len(indices))
    return [reading.collect(store) for reading, store in zip(readings, kept, strict=True)]


def _run_segment(
    segment: Segment, readings: Sequence[AnyReading], interventions: Sequence[Intervention]
) -> list[dict[Site, Tensor]]:
    """The reductions of every reading for one batch."""
    info = segment.model.info
    values: list[dict[Site, Tensor]] = [{} for _ in readings]
    sinks: list[tuple[int, Site, Tensor]] = []
    hooks: list[tuple[str, Hook]] = [
        (repr(intervention), hook)
        for intervention in interventions
        for hook in intervention.hooks(segment)
    ]
    for number, reading in enumerate(readings):
        for site in reading.sites(info):
            if isinstance(reading, GradientReading):
                sink = torch.zeros(
                    reading.shape(segment), device=segment.tokens.device, requires_grad=True
                )
                sinks.append((number, site, sink))
                hook = _tap(reading, site, segment, sink)
            else:
                hook = _read(reading, site, segment, values[number])
            hooks.append((type(reading).__name__, (site, hook)))
    fired = [0] * len(hooks)
    with ExitStack() as stack:
        stack.enter_context(segment.model.gradients() if sinks else torch.no_grad())
        output = segment.model.forward(
            segment.tokens,
            segment.mask,
            segment.positions,
            cache=segment.cache,
            hooks=[
                (site, _counted(function, fired, index))
                for index, (_, (site, function)) in enumerate(hooks)
            ],
        )
        for (owner, (site, _)), count in zip(hooks, fired, strict=True):
            if not count:
                raise RunError(
                    f"{owner} did not fire at {site.name!r} of block {site.layer} in "
                    f"{info.architecture}; its effect or reading would be missing."
                )
        if sinks:
            loss = next(r.loss for r in readings if isinstance(r, GradientReading))
            total = target_loss(segment.at_target(output.residual), segment, loss).sum()
            gradients = torch.autograd.grad(total, [sink for *_, sink in sinks])
            for (number, site, _), gradient in zip(sinks, gradients, strict=True):
                values[number][site] = gradient
    return values


def _read(
    reading: Reading[Any], site: Site, segment: Segment, values: dict[Site, Tensor]
) -> HookFunction:
    def hook(activation: Tensor) -> None:
        with torch.no_grad():
            values[site] = reading.reduce(site, activation.detach(), segment)

    return hook


def _tap(reading: GradientReading[Any], site: Site, segment: Segment, sink: Tensor) -> HookFunction:
    def reduce(activation: Tensor, gradient: Tensor) -> Tensor:
        return reading.reduce(site, activation, gradient, segment).to(sink.dtype)

    def hook(activation: Tensor) -> Tensor:
        tapped: Tensor = Tap.apply(activation, sink, reduce)  # type: ignore[no-untyped-call]
        return tapped

    return hook


def _counted(function: HookFunction, fired: list[int], index: int) -> HookFunction:
    def hook(activation: Tensor) -> Tensor | None:
        fired[index] += 1
        return function(activation)

    return hook

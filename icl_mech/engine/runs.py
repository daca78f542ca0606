"""`run`: every reading and every intervention in one pass over the prompts."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch

from icl_mech._typing import Tensor
from icl_mech.engine.memory import plan, plan_behind
from icl_mech.engine.paths import (
    Prepared,
    can_share,
    common_prefix,
    shared_segments,
    whole_segments,
)
from icl_mech.engine.progress import Progress
from icl_mech.engine.readings import GradientReading, Kept, Reading
from icl_mech.engine.work import AnyReading, Work
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import LanguageModel, ModelInfo, Site, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

Path = Literal["auto", "whole"]


def run(
    model: Any,
    prompts: PromptBatch | Prepared,
    readings: Sequence[AnyReading],
    interventions: Sequence[Intervention] = (),
    *,
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
    progress: bool | None = None,
    title: str = "prompts",
) -> list[Any]:
    """The value of each reading, over all prompts in input order.

    Interventions apply in the order given, readings tap last. If any reading needs
    gradients there is one backward pass; all such readings share its loss.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: What to run; prepared prompts (see `prepare`) cost one token each if all
            readings and interventions concern the target only.
        readings: What to read.
        interventions: What to change.
        batch_size: Prompts per batch at most (default: by length and memory).
        memory: Budget such as `"8GB"`: sets batch size and checkpointing (default: half of
            what is free).
        path: `whole` computes every position of every prompt; `auto` leaves out what the
            readings cannot see, and runs once what prompts share. Both give the same values.
            While the model has hooks of your own, which may look at positions, nothing is shared.
        progress: Show a progress bar; None: when the output is a terminal or notebook.
        title: What the progress bar counts.

    Raises:
        RunError: readings with different losses, an intervention that did nothing, a hook
            that did not fire, or a prompt that does not fit into memory.
        PromptError: prompts this model cannot run.
    """
    adapted = adapt(model)
    losses = {reading.loss for reading in readings if isinstance(reading, GradientReading)}
    if len(losses) > 1:
        raise RunError(f"One pass has one loss; these readings ask for {sorted(losses)}.")
    if losses and torch.is_inference_mode_enabled():
        raise RunError("Saliency needs gradients; leave torch.inference_mode() (no_grad is fine).")
    batch = prompts.prompts if isinstance(prompts, Prepared) else prompts
    ready = fill_means(adapted, prompts, interventions)
    target_only = all(isinstance(r, Reading) and r.target_only for r in readings)
    apart = all(r.target_only if isinstance(r, Reading) else r.additive for r in readings)
    tokens, checkpoint = plan(adapted, batch.lengths.tolist(), gradient=bool(losses), memory=memory)
    work = Work(readings, ready, checkpoint)
    segments: Iterator[Segment]
    if isinstance(prompts, Prepared) and target_only and all(i.target_only for i in ready):
        segments = iter(prompts.segments)
    elif path == "auto" and can_share(adapted, batch, ready, apart and not checkpoint):
        length = common_prefix(batch)
        if losses:
            tokens = plan_behind(adapted, batch.lengths.tolist(), length, memory=memory)
        segments = shared_segments(
            adapted, batch, length, tokens, batch_size, work.begin, gradient=bool(losses)
        )
    else:
        segments = whole_segments(adapted, batch, tokens, batch_size)
    kept = [Kept(len(batch), ragged=reading.ragged) for reading in readings]
    with Progress(title, len(batch), progress) as bar:
        for segment in segments:
            for part, values in work.done(segment):
                for store, value in zip(kept, values, strict=True):
                    store.add(part.indices, value)
                bar.advance(len(part.prompts))
    work.check_acted()
    return [reading.collect(store) for reading, store in zip(readings, kept, strict=True)]


class TargetMean(Reading[list[Tensor]]):
    """Mean over prompts of activations at the target."""

    target_only = True

    def __init__(self, sites: Sequence[Site]) -> None:
        """Of these sites."""
        self._sites = sites

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """As given."""
        return self._sites

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """The target's row."""
        return segment.at_target(activation).float()

    def collect(self, kept: Kept) -> list[Tensor]:
        """One mean per site."""
        return list(kept.stacked().mean(0))


def fill_means(
    model: LanguageModel, prompts: PromptBatch | Prepared, interventions: Sequence[Intervention]
) -> list[Intervention]:
    """The interventions, checked, with the means they need measured on these prompts.

    Raises:
        RunError: an intervention this model cannot have.
    """
    ready = []
    for intervention in interventions:
        intervention.check(model.info)
        sites = intervention.missing()
        if sites:
            (means,) = run(model, prompts, [TargetMean(sites)], progress=False)
            intervention = intervention.filled(means)
        ready.append(intervention)
    return ready

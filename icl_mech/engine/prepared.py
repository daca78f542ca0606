"""Prompts with cached keys and values before the target, so that each run costs one token per prompt."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from icl_mech.engine.memory import plan, rows_together
from icl_mech.engine.work import Work
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import KeyValues, LanguageModel, adapt, exclusive
from icl_mech.prompts import PromptBatch
from icl_mech.segments import PADDING, Segment, by_length


@dataclass(frozen=True, eq=False)
class Prepared:
    """Prompts with the keys and values of everything before their targets.

    Attributes:
        model: The model.
        prompts: The prompts.
        segments: The target rows, one segment per length bucket; runs reuse them.
        interventions: Interventions under which keys and values were computed; every run applies them too.
        acted: Which interventions changed something before a target.
        made_of: The model's weights, settings and hooks when the prompts were prepared.
    """

    model: LanguageModel
    prompts: PromptBatch
    segments: tuple[Segment, ...]
    interventions: tuple[Intervention, ...] = ()
    acted: tuple[bool, ...] = ()
    made_of: tuple[str, ...] = ()

    def check_current(self) -> None:
        """Raise if the model's weights, settings or hooks have changed since the prompts were prepared.

        Raises:
            RunError: they have changed.
        """
        if self.made_of and self.made_of != _state(self.model):
            raise RunError(
                f"Weights, settings or hooks of {self.model.info.name!r} were changed after these "
                "prompts were prepared, so their keys and values are outdated. Prepare them "
                "again."
            )


@exclusive
def prepare(
    model: object,
    prompts: PromptBatch,
    *,
    interventions: Sequence[Intervention] = (),
    batch_size: int | None = None,
    memory: str | int | None = None,
) -> Prepared:
    """Compute keys and values of everything before the targets, once.

    Afterwards `run(model, prepared, ...)` costs one token per prompt for any readings and
    further interventions that concern the target only.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: The prompts.
        interventions: Applied while keys and values are computed, and by every later run before its
            further interventions; those that need means must already hold them (`fill_means`).
        batch_size: Prompts per batch at most.
        memory: Budget, see `run`.

    Raises:
        PromptError: prompts this model cannot run.
        RunError: an intervention this model does not support.
    """
    adapted = adapt(model)
    for intervention in interventions:
        intervention.check(adapted.info)
        if intervention.missing():
            raise RunError(
                f"{intervention!r} has no means yet; measure them first with "
                "icl_mech.engine.fill_means."
            )
    if adapted.has_own_hooks:
        warnings.warn(
            f"{adapted.info.name!r} has hooks that you added. Prepared targets are run separately "
            "from the tokens before them, so a hook that depends on positions would see other "
            "ones than in a whole prompt. Remove the hooks, or make them an intervention.",
            stacklevel=2,
        )
    tokens, _ = plan(adapted, prompts.lengths.tolist(), gradient=False, memory=memory)
    work = Work([], interventions, checkpoint=False)
    segments = [
        _behind_its_own(adapted, prompts, indices, work)
        for indices in by_length(prompts.targets.tolist(), tokens=tokens, size=batch_size)
    ]
    most = min(rows_together(adapted), batch_size or len(prompts))
    together = tuple(_together(segments, most))
    acted, state = tuple(work.acted), _state(adapted)
    return Prepared(adapted, prompts, together, tuple(interventions), acted, state)


def _behind_its_own(
    model: LanguageModel, prompts: PromptBatch, indices: Sequence[int], work: Work
) -> Segment:
    """The targets of some prompts, on the keys and values of the tokens before them."""
    batch = prompts[indices]
    targets = [prompt.target for prompt in batch]
    if not min(targets):
        raise RunError("A prompt of one token has nothing before its target to prepare.")
    before = Segment.build(model, batch, indices, spans=[(0, target) for target in targets])
    return Segment.build(
        model,
        batch,
        indices,
        spans=[(target, target + 1) for target in targets],
        cache=work.keys_and_values(before),
        cached=before.on_host[0],
    )


def _state(model: LanguageModel) -> tuple[str, ...]:
    """The model's weights, settings and added hooks, which determine its outputs."""
    return (model.fingerprint(), model.settings, *model.watch.foreign_hooks())


def _together(segments: Sequence[Segment], most: int) -> Iterator[Segment]:
    """Single-token segments merged to at most `most` rows, caches padded on the left.

    A pass over few rows costs nearly as much as one over many.
    """
    group: list[Segment] = []
    for segment in segments:
        if group and sum(len(part.prompts) for part in [*group, segment]) > most:
            yield merged(group)
            group = []
        group.append(segment)
    yield merged(group)


def merged(group: Sequence[Segment]) -> Segment:
    """Single-token segments as one segment, their caches padded on the left."""
    if len(group) == 1:
        return group[0]
    first = group[0]
    caches = [part.cache for part in group if part.cache is not None]
    # On the left: a gap between cached and new columns would be silently wrong with a sliding window.
    width = max(cache.length for cache in caches)
    cached = [
        pad(part.on_host[1][:, :-1], (width - cache.length, 0), value=PADDING)
        for part, cache in zip(group, caches, strict=True)
    ]
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


def single_rows(prepared: Prepared) -> list[Segment]:
    """The target row of each prompt as a segment of one row, without padding, in input order.

    Raises:
        RunError: segments without keys and values.
    """
    rows: dict[int, Segment] = {}
    for segment in prepared.segments:
        if segment.cache is None:
            raise RunError("Prepared prompts hold no keys and values; make them with prepare.")
        for row, (index, prompt) in enumerate(zip(segment.indices, segment.prompts, strict=True)):
            padded = segment.cache.rows(slice(row, row + 1))
            # Padding is on the left: the columns of the prompt are the last ones.
            real = slice(padded.length - prompt.target, None)
            cache = KeyValues(
                tuple(key[:, :, real] for key in padded.keys),
                tuple(value[:, :, real] for value in padded.values),
            )
            rows[index] = Segment.build(
                prepared.model,
                segment.prompts[[row]],
                [index],
                spans=[(prompt.target, prompt.target + 1)],
                cache=cache,
                cached=torch.arange(prompt.target)[None],
            )
    return [rows[index] for index in sorted(rows)]

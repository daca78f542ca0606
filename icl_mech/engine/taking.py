"""Values that interventions take from other runs, read as the run itself is laid out.

Equal prompts then stand in equal batches on equal keys and values, so that what is read is what
the run computes, to the last bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from icl_mech._typing import Int, Tensor
from icl_mech.engine.layouts import Layout, Shared, TargetOnly, Whole, can_share
from icl_mech.engine.prepared import prepare
from icl_mech.engine.readings import Kept, Reading
from icl_mech.engine.work import Work
from icl_mech.interventions import Intervention, Taken
from icl_mech.models import LanguageModel, ModelInfo, Site, to_device
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment


class RowsReading(Reading[dict[Site, Tensor]]):
    """Activations at some tokens of every prompt, `[prompt, row, ...]` by site; 0 where there is none."""

    def __init__(
        self, sites: Sequence[Site], rows: Int[Tensor, "batch row"], *, only_target: bool
    ) -> None:
        """Of these sites and tokens."""
        self._sites, self.rows, self._only_target = list(sites), rows, only_target

    @property
    def target_only(self) -> bool:  # type: ignore[override]
        """True if the tokens are the targets."""
        return self._only_target

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """As given."""
        return self._sites

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """The rows of this batch."""
        if self._only_target:
            return segment.at_target(activation)[:, None]
        rows = to_device(self.rows[list(segment.indices)], activation.device)
        there = rows >= 0
        columns = segment.columns(rows.clamp(min=0))
        found = activation[segment.rows[:, None], columns]
        return found.where(there.reshape(*there.shape, *[1] * (found.ndim - 2)), 0.0)

    def collect(self, kept: Kept) -> dict[Site, Tensor]:
        """By site."""
        return kept.by_site()


@dataclass
class _Request:
    """Sites of one set of prompts and tokens, asked for by several interventions."""

    taken: Taken
    sites: dict[Site, None]


def fill_taken(
    model: LanguageModel,
    layout: Layout,
    works: Sequence[Work],
    *,
    tokens: int,
    size: int | None,
    memory: str | int | None,
) -> None:
    """Give the interventions of these works the values they take from other runs.

    What several of them take from the same tokens of the same prompts is read in one run of the
    unchanged model.

    Raises:
        IclMechError: an intervention refuses the prompts, or prompts this model cannot run.
    """
    requests: list[_Request] = []
    asking: dict[int, tuple[Intervention, _Request]] = {}
    for intervention in (own for work in works for own in work.interventions):
        taken = None if id(intervention) in asking else intervention.taken_from()
        if taken is None:
            continue
        request = next((own for own in requests if _same(own.taken, taken)), None)
        if request is None:
            request = _Request(taken, {})
            requests.append(request)
        request.sites |= dict.fromkeys(taken.sites)
        asking[id(intervention)] = intervention, request
    read: dict[int, Any] = {}
    for request in requests:
        read[id(request)] = _read(model, layout, request, tokens, size, memory)
    filled = {
        key: intervention.filled_from(read[id(request)])
        for key, (intervention, request) in asking.items()
    }
    for work in works:
        work.takes = any(id(own) in filled for own in work.interventions)
        work.interventions = [filled.get(id(own), own) for own in work.interventions]


def _same(one: Taken, other: Taken) -> bool:
    return (
        one.only_target == other.only_target
        and (one.prompts is other.prompts or one.prompts.digest == other.prompts.digest)
        and torch.equal(one.rows, other.rows)
    )


def _read(
    model: LanguageModel,
    layout: Layout,
    request: _Request,
    tokens: int,
    size: int | None,
    memory: str | int | None,
) -> dict[Site, Tensor]:
    taken = request.taken
    reading = RowsReading(list(request.sites), taken.rows, only_target=taken.only_target)
    work = Work([reading], (), checkpoint=False)
    own = _like(model, layout, taken, tokens, size, memory)
    kept = Kept(len(taken.prompts))
    for _, segment in own.segments([work]):
        for part, (values,) in work.done(segment):
            kept.add(part.indices, values)
    return reading.collect(kept)


def _like(
    model: LanguageModel,
    layout: Layout,
    taken: Taken,
    tokens: int,
    size: int | None,
    memory: str | int | None,
) -> Layout:
    """The layout of the run, of the prompts values are taken from."""
    prompts: PromptBatch = taken.prompts
    if taken.only_target and isinstance(layout, TargetOnly):
        given = layout.prepared
        if given.prompts.digest == prompts.digest and not given.interventions:
            return replace(layout)
        return TargetOnly(prepare(model, prompts, batch_size=size, memory=memory))
    if taken.only_target and isinstance(layout, Shared) and can_share(model, prompts, (), True):
        return Shared(
            model, prompts, layout.tokens, layout.size, with_beginning=layout.with_beginning
        )
    return Whole(model, prompts, layout.tokens if isinstance(layout, Whole) else tokens, size)

"""Values that interventions take from other runs, read with the same layout as the run itself.

Equal prompts are then in equal batches on equal keys and values, so that the values read are
bitwise equal to those the run computes.
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
    """Activations at some tokens of every prompt, `[prompt, row, ...]` by site; 0 where there is no token."""

    def __init__(
        self, sites: Sequence[Site], rows: Int[Tensor, "batch row"], *, only_target: bool
    ) -> None:
        """Read these sites at these tokens."""
        self._sites, self.rows, self._only_target = list(sites), rows, only_target

    @property
    def target_only(self) -> bool:  # type: ignore[override]
        """True if the tokens are the targets."""
        return self._only_target

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The sites given."""
        return self._sites

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Activations at the tokens of this batch."""
        if self._only_target:
            return segment.at_target(activation)[:, None]
        rows = to_device(self.rows[list(segment.indices)], activation.device)
        there = rows >= 0
        columns = segment.columns(rows.clamp(min=0))
        taken = activation[segment.rows[:, None], columns]
        return taken.where(there.reshape(*there.shape, *[1] * (taken.ndim - 2)), 0.0)

    def collect(self, kept: Kept) -> dict[Site, Tensor]:
        """Activations by site."""
        return kept.by_site()


@dataclass
class _Request:
    """Sites of one set of prompts and tokens that one or more interventions need."""

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
    """Fill the interventions of these works with the values they take from other runs.

    Values that several of them take from the same tokens of the same prompts are read in one run of
    the unmodified model.

    Raises:
        IclMechError: an intervention rejects the prompts, or prompts this model cannot run.
    """
    requests: list[_Request] = []
    asking: dict[int, tuple[Intervention, _Request]] = {}
    for intervention in (change for work in works for change in work.interventions):
        taken = None if id(intervention) in asking else intervention.taken_from()
        if taken is None:
            continue
        request = next((earlier for earlier in requests if _same(earlier.taken, taken)), None)
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
        work.takes = any(id(change) in filled for change in work.interventions)
        work.interventions = [filled.get(id(change), change) for change in work.interventions]


def _same(first: Taken, second: Taken) -> bool:
    return (
        first.only_target == second.only_target
        and (first.prompts is second.prompts or first.prompts.digest == second.prompts.digest)
        and torch.equal(first.rows, second.rows)
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
    matched = _like(model, layout, taken, tokens, size, memory)
    kept = Kept(len(taken.prompts))
    for _, segment in matched.segments([work]):
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
    """The layout of the run, applied to the prompts that values are taken from."""
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

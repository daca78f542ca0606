"""`Work`: the passes of one run over its segments, hooks and backward passes included."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.engine.beginning import Beginning, Sink, asking
from icl_mech.engine.finite import check_losses, check_reductions, check_rows, told
from icl_mech.engine.losses import Loss, target_loss
from icl_mech.engine.memory import is_out_of_memory
from icl_mech.engine.readings import GradientReading, Reading
from icl_mech.engine.tap import Tap
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import Hook, HookFunction, KeyValues, Site
from icl_mech.segments import Segment

AnyReading = Reading[Any] | GradientReading[Any]
Values = list[dict[Site, Tensor]]
"""By reading: the reduction at each of its sites."""


class Work:
    """Runs segments of one run; remembers which interventions acted."""

    def __init__(
        self,
        readings: Sequence[AnyReading],
        interventions: Sequence[Intervention],
        checkpoint: bool,
    ) -> None:
        self.readings = readings
        self.interventions = interventions
        self.checkpoint = checkpoint
        self.acted = [False] * len(interventions)
        self.beginning: Beginning | None = None

    def take_over(self, acted: Sequence[bool]) -> None:
        """The first interventions have acted on what was computed before this run."""
        for number, flag in enumerate(acted):
            self.acted[number] |= flag

    def check_acted(self) -> None:
        """Refuse interventions that had nothing to act on in the whole run."""
        for intervention, acted in zip(self.interventions, self.acted, strict=True):
            if not acted:
                raise RunError(
                    f"{intervention!r} changed nothing: these prompts have no token it acts on."
                )

    def acting(self, segment: Segment) -> list[Intervention]:
        """The interventions that change something in a segment; counted as having acted.

        For segments whose keys and values were made under the same interventions before.
        """
        found = []
        for number, intervention in enumerate(self.interventions):
            if intervention.hooks(segment):
                self.acted[number] = True
                found.append(intervention)
        return found

    @told
    def begin(self, segment: Segment) -> KeyValues:
        """Keys and values of the common beginning; its gradient readings wait for each batch."""
        taps, sinks = self._taps(segment)
        try:
            if not sinks:
                return self.keys_and_values(segment)
            with segment.model.gradients():
                self.beginning = Beginning(self._cache(segment, taps), sinks)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise _no_room(segment) from error
        return self.beginning.cache

    @told
    def keys_and_values(self, segment: Segment) -> KeyValues:
        """Keys and values of a segment under the interventions."""
        with torch.no_grad():
            return self._cache(segment)

    def _cache(self, segment: Segment, taps: Sequence[tuple[str, Hook]] = ()) -> KeyValues:
        hooks, check = self._hooks(segment, taps)
        output = segment.model.forward(
            segment.tokens,
            segment.mask,
            segment.positions,
            hooks=hooks,
            keep_cache=True,
            start=segment.start,
        )
        check()
        check_rows(segment, output.residual)
        if output.cache is None:
            raise RunError(f"{segment.model.info.architecture} returned no keys and values.")
        return output.cache

    def done(self, segment: Segment) -> Iterator[tuple[Segment, Values]]:
        """The reductions of a segment; in halves if it does not fit into memory."""
        try:
            values = self.values(segment)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(segment.prompts) == 1:
                raise _no_room(segment) from error
        else:
            yield segment, values
            return
        for half in segment.halves():
            yield from self.done(half)

    @told
    def values(self, segment: Segment) -> Values:
        """The reductions of every reading for one segment, in one pass."""
        values: Values = [{} for _ in self.readings]
        taps, sinks = self._taps(segment, values)
        cache = segment.cache
        if self.beginning is not None and cache is not None:
            cache = self.beginning.leaves(cache)
        with ExitStack() as stack:
            stack.enter_context(segment.model.gradients() if sinks else torch.no_grad())
            if sinks and self.checkpoint:
                stack.enter_context(segment.model.checkpointed())
            hooks, check = self._hooks(segment, taps)
            # Held until after the backward pass, where checkpointed blocks run again.
            stack.enter_context(segment.model.installed(hooks))
            output = segment.model.forward(
                segment.tokens, segment.mask, segment.positions, cache=cache, start=segment.start
            )
            check()
            check_rows(segment, output.residual)
            if not sinks:
                return self._in_order(values, segment)
            loss = next(r.loss for r in self.readings if isinstance(r, GradientReading))
            total = target_loss(segment.at_target(output.residual), segment, loss).sum()
            leaves = [] if self.beginning is None or cache is None else asking(cache)
            asked = [*(sink for *_, sink in sinks), *leaves]
            gradients: Sequence[Tensor | None] = torch.autograd.grad(
                total, asked, allow_unused=True
            )
        for (number, site, _), gradient in zip(sinks, gradients, strict=False):
            if gradient is None:
                raise RunError(
                    f"The loss does not depend on {site.name!r} of block {site.layer} in "
                    f"{segment.model.info.architecture}: {type(self.readings[number]).__name__} would "
                    "be 0 there. A hook or an intervention has cut the graph (detach, no_grad)."
                )
            values[number][site] = gradient
        if self.beginning is not None and leaves:
            vectors = [
                torch.zeros_like(leaf) if gradient is None else gradient
                for leaf, gradient in zip(leaves, gradients[len(sinks) :], strict=True)
            ]
            before = self.beginning.reductions(vectors)
            for (number, site, _), reduction in zip(self.beginning.sinks, before, strict=True):
                values[number][site] = values[number][site] + reduction
        return self._in_order(values, segment)

    def _in_order(self, values: Values, segment: Segment) -> Values:
        """Reductions in the order their reading names its sites, not in that of the forward pass."""
        info = segment.model.info
        ordered = [
            {site: own[site] for site in reading.sites(info)}
            for reading, own in zip(self.readings, values, strict=True)
        ]
        for reading, own in zip(self.readings, ordered, strict=True):
            if reading.finite:
                loss = reading.loss if isinstance(reading, GradientReading) else None
                check_reductions(type(reading).__name__, own, loss)
        return ordered

    @told
    def losses(self, segment: Segment, loss: Loss) -> Tensor:
        """Each prompt's loss under the interventions, in the graph of what they hold.

        For learning an intervention's own tensors; `values` is for reading.
        """
        hooks, check = self._hooks(segment)
        output = segment.model.forward(
            segment.tokens, segment.mask, segment.positions, cache=segment.cache, hooks=hooks
        )
        check()
        losses = target_loss(segment.at_target(output.residual), segment, loss)
        check_losses(losses)
        return losses

    def _taps(
        self, segment: Segment, values: Values | None = None
    ) -> tuple[list[tuple[str, Hook]], list[Sink]]:
        """Hooks of the readings and the sinks of those with gradients.

        Without `values` to write to only readings with gradients are taken.
        """
        sinks: list[Sink] = []
        taps: list[tuple[str, Hook]] = []
        for number, reading in enumerate(self.readings):
            for site in reading.sites(segment.model.info):
                if isinstance(reading, GradientReading):
                    sink = torch.zeros(
                        reading.shape(segment), device=segment.tokens.device, requires_grad=True
                    )
                    sinks.append((number, site, sink))
                    hook = _tap(reading, site, segment, sink)
                elif values is not None:
                    hook = _read(reading, site, segment, values[number])
                else:
                    continue
                taps.append((type(reading).__name__, (site, hook)))
        return taps, sinks

    def _hooks(
        self, segment: Segment, taps: Sequence[tuple[str, Hook]] = ()
    ) -> tuple[list[Hook], Callable[[], None]]:
        """Hooks of interventions, then of readings, and the check that all of them fired."""
        owned: list[tuple[str, Hook]] = []
        for number, intervention in enumerate(self.interventions):
            own = intervention.hooks(segment)
            self.acted[number] |= bool(own)
            owned += [(repr(intervention), hook) for hook in own]
        owned += taps
        fired = [0] * len(owned)

        def check() -> None:
            for (owner, (site, _)), count in zip(owned, fired, strict=True):
                if not count:
                    raise RunError(
                        f"{owner} did not fire at {site.name!r} of block {site.layer} in "
                        f"{segment.model.info.architecture}; its effect or reading would be missing."
                    )

        counted = [
            (site, _counted(function, fired, index))
            for index, (_, (site, function)) in enumerate(owned)
        ]
        return counted, check


def _no_room(segment: Segment) -> RunError:
    return RunError(
        f"One prompt of {len(segment.prompts[0])} tokens does not fit into memory; use a shorter "
        "prompt, a narrower dtype or memory= (smaller, for recomputation)."
    )


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

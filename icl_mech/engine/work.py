"""`Work`: the passes of one run over its segments, backward passes included."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import torch

from icl_mech._typing import Tensor
from icl_mech.engine.beginning import Beginning, Block, RecomputedBeginning, Sink, asking
from icl_mech.engine.finite import check_losses, check_reductions, check_rows, told
from icl_mech.engine.hooks import AnyReading, Owned, Values, counted, hooks_of, taps_of
from icl_mech.engine.memory import is_out_of_memory
from icl_mech.engine.readings import GradientReading, Loss, target_loss
from icl_mech.engine.server import on_server
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import ForwardOutput, Hook, KeyValues, Resume, ServerModel, Site
from icl_mech.segments import Segment


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
    def begin(self, segment: Segment, *, together: int | None = None) -> KeyValues:
        """Keys and values of the common beginning; its gradient readings wait for each batch.

        Args:
            segment: The beginning.
            together: Keep no graph of it, and take so many prompts at a time back through each
                of its blocks; None: keep the graph.
        """
        taps, sinks = taps_of(self.readings, segment)
        try:
            if not sinks:
                return self.keys_and_values(segment)
            if together is not None:
                self.beginning = self._recomputed(segment, sinks, together)
                return self.beginning.cache
            with segment.model.gradients():
                self.beginning = Beginning(self._cache(segment, taps), sinks)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise _no_room(segment) from error
        return self.beginning.cache

    def _recomputed(
        self, segment: Segment, sinks: Sequence[Sink], together: int
    ) -> RecomputedBeginning:
        """The beginning as residuals entering its blocks, under the interventions below them."""
        model = segment.model
        entering: list[Tensor] = []
        # First in line: a block that runs again makes the interventions at its own entrance again.
        keep: list[Hook] = [
            (Site("resid_pre", layer), lambda residual: entering.append(residual.detach().clone()))
            for layer in range(model.info.n_layers)
        ]
        with torch.no_grad():
            cache = self._cache(segment, first=keep)
        lowest = min(site.layer for _, site, _ in sinks)
        for layer in range(lowest, model.info.n_layers):
            cache.keys[layer].requires_grad_()
            cache.values[layer].requires_grad_()

        def block(layer: int) -> Block:
            taps, own = taps_of(self.readings, segment, layer=layer)
            hooks, check = self._hooks(segment, taps, layer=layer)
            residual = entering[layer].requires_grad_()
            with model.gradients():
                output = model.forward(
                    segment.tokens,
                    segment.mask,
                    segment.positions,
                    hooks=hooks,
                    keep_cache=True,
                    start=Resume(layer, residual),
                    stop=layer + 1,
                )
            check()
            kept = _cached(output, segment)
            pair = kept.keys[layer], kept.values[layer]
            return Block(residual, output.residual, pair, [sink for *_, sink in own])

        return RecomputedBeginning(cache, sinks, block, together)

    @told
    def keys_and_values(self, segment: Segment) -> KeyValues:
        """Keys and values of a segment under the interventions."""
        with torch.no_grad():
            return self._cache(segment)

    def _cache(
        self, segment: Segment, taps: Sequence[Owned] = (), *, first: Sequence[Hook] = ()
    ) -> KeyValues:
        hooks, check = self._hooks(segment, taps)
        output = segment.model.forward(
            segment.tokens,
            segment.mask,
            segment.positions,
            hooks=[*first, *hooks],
            keep_cache=True,
            start=segment.start,
        )
        check()
        check_rows(segment, output.residual)
        return _cached(output, segment)

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
        if isinstance(segment.model, ServerModel):
            hooks, check = self._hooks(segment)
            found = on_server(segment, self.readings, hooks)
            check()
            return found
        values: Values = [{} for _ in self.readings]
        taps, sinks = taps_of(self.readings, segment, values)
        cache = segment.cache
        if self.beginning is not None and cache is not None:
            cache = self.beginning.leaves(cache)
        with ExitStack() as stack:
            stack.enter_context(segment.model.gradients() if sinks else torch.no_grad())
            if sinks and self.checkpoint and self.beginning is None:
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
            total = target_loss(output.residual, segment, loss).sum()
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
        losses = target_loss(output.residual, segment, loss)
        check_losses(losses)
        return losses

    @told
    def traced(self, segment: Segment, hooks: Sequence[Hook]) -> Tensor:
        """The residual leaving the last block, in the graph where gradients are on.

        For methods that follow the graph themselves; `hooks` come after the interventions'.
        """
        own, check = self._hooks(segment, [("a trace", hook) for hook in hooks])
        output = segment.model.forward(
            segment.tokens, segment.mask, segment.positions, cache=segment.cache, hooks=own
        )
        check()
        check_rows(segment, output.residual)
        return output.residual

    def _hooks(
        self, segment: Segment, taps: Sequence[Owned] = (), *, layer: int | None = None
    ) -> tuple[list[Hook], Callable[[], None]]:
        """Hooks of interventions, then of readings, and the check that all of them fired."""
        owned: list[Owned] = []
        for number, intervention in enumerate(self.interventions):
            own = hooks_of(intervention, segment)
            self.acted[number] |= bool(own)
            owned += [(repr(intervention), hook) for hook in own if layer in (None, hook[0].layer)]
        return counted([*owned, *taps], segment)


def _cached(output: ForwardOutput, segment: Segment) -> KeyValues:
    if output.cache is None:
        raise RunError(f"{segment.model.info.architecture} returned no keys and values.")
    return output.cache


def _no_room(segment: Segment) -> RunError:
    return RunError(
        f"One prompt of {len(segment.prompts[0])} tokens does not fit into memory; use a shorter "
        "prompt, a narrower dtype or memory= (smaller, for recomputation)."
    )

"""`Work`: the readings and interventions of one run; `Stack`: rows of one or several works that share a pass."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.engine.beginning import Beginning, Block, RecomputedBeginning, Sink, asking
from icl_mech.engine.finite import Finite, Part, explained
from icl_mech.engine.hooks import AnyReading, Owned, Values, counted, hooks_of, on_rows, taps_of
from icl_mech.engine.memory import is_out_of_memory
from icl_mech.engine.readings import GradientReading, Loss, target_loss
from icl_mech.engine.server import on_server
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import ForwardOutput, Hook, KeyValues, Resume, ServerModel, Site
from icl_mech.segments import Segment


class Work:
    """Runs the segments of one run, and records which interventions acted."""

    def __init__(
        self,
        readings: Sequence[AnyReading],
        interventions: Sequence[Intervention],
        checkpoint: bool,
        finite: Finite | None = None,
        ran: Callable[[int], None] | None = None,
    ) -> None:
        """Set it up.

        Args:
            readings: What to read.
            interventions: What to change.
            checkpoint: Recompute blocks in the backward pass.
            finite: Where values that are not finite are noted.
            ran: Called after each pass with its rows times the blocks that they went through.
        """
        self.readings = readings
        self.ran = ran
        self.interventions = interventions
        self.checkpoint = checkpoint
        self.finite = finite or Finite()
        self.acted = [False] * len(interventions)
        self.takes = False
        """True if some of its interventions hold values read from other runs with the same layout."""
        self.beginning: Beginning | None = None

    def take_over(self, acted: Sequence[bool]) -> None:
        """Count the first interventions as having acted if they did so before this run."""
        for number, flag in enumerate(acted):
            self.acted[number] |= flag

    def check_acted(self) -> None:
        """Raise if an intervention had nothing to act on in the whole run."""
        for intervention, acted in zip(self.interventions, self.acted, strict=True):
            if not acted:
                raise RunError(
                    f"{intervention!r} changed nothing: these prompts have no token it acts on."
                )

    def part(self, segment: Segment) -> Part:
        """The rows of a segment and its interventions, for an error about values that are not finite."""
        return Part.of(segment, self.interventions)

    def acting(self, segment: Segment) -> list[Intervention]:
        """The interventions that change something in a segment, which are counted as having acted.

        For segments whose keys and values were computed under the same interventions before.
        """
        acting = []
        for number, intervention in enumerate(self.interventions):
            if intervention.hooks(segment):
                self.acted[number] = True
                acting.append(intervention)
        return acting

    @explained
    def begin(self, segment: Segment, *, together: int | None = None) -> KeyValues:
        """Keys and values of the common beginning; its gradient readings are completed by each batch.

        Args:
            segment: The beginning.
            together: Keep no graph of it, and backpropagate this many prompts at a time through each
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
        """The beginning as the residuals entering its blocks, each under the interventions below it."""
        model = segment.model
        entering: list[Tensor] = []
        # These hooks come first: a rerun block applies the interventions on its input again.
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
            taps, block_sinks = taps_of(self.readings, segment, layer=layer)
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
            return Block(residual, output.residual, pair, [sink for *_, sink in block_sinks])

        return RecomputedBeginning(cache, sinks, block, together)

    @explained
    def keys_and_values(self, segment: Segment) -> KeyValues:
        """Keys and values of a segment under the interventions."""
        with torch.no_grad():
            return self._cache(segment)

    def _cache(
        self, segment: Segment, taps: Sequence[Owned] = (), *, first: Sequence[Hook] = ()
    ) -> KeyValues:
        hooks, check = self._hooks(segment, taps)
        output = _forward(segment, hooks=[*first, *hooks], keep_cache=True)
        check()
        self.finite.rows(output.residual, segment, [self.part(segment)])
        return _cached(output, segment)

    def done(self, segment: Segment) -> Iterator[tuple[Segment, Values]]:
        """Reductions of a segment; in halves if it does not fit into memory."""
        for _, part, values in Stack([self], [segment]).done():
            self.finite.settle_if_due()
            yield part, values

    @explained
    def values(self, segment: Segment) -> Values:
        """Reductions of every reading for one segment, in one pass."""
        return Stack([self], [segment]).values()

    @explained
    def losses(self, segment: Segment, loss: Loss) -> Tensor:
        """Each prompt's loss under the interventions, differentiable in the tensors they hold.

        For training the tensors of an intervention; `values` is for reading.
        """
        hooks, check = self._hooks(segment)
        output = segment.model.forward(
            segment.tokens, segment.mask, segment.positions, cache=segment.cache, hooks=hooks
        )
        check()
        losses = target_loss(output.residual, segment, loss)
        self.finite.losses(losses, [self.part(segment)])
        return losses

    @explained
    def traced(self, segment: Segment, hooks: Sequence[Hook]) -> Tensor:
        """The residual after the last block, with its graph if gradients are enabled.

        For methods that traverse the graph themselves; `hooks` come after those of the interventions.
        """
        all_hooks, check = self._hooks(segment, [("a trace", hook) for hook in hooks])
        output = segment.model.forward(
            segment.tokens, segment.mask, segment.positions, cache=segment.cache, hooks=all_hooks
        )
        check()
        self.finite.rows(output.residual, segment, [self.part(segment)])
        return output.residual

    def _hooks(
        self, segment: Segment, taps: Sequence[Owned] = (), *, layer: int | None = None
    ) -> tuple[list[Hook], Callable[[], None]]:
        """Hooks of interventions, then of readings, and a function that raises unless all of them fired."""
        owned: list[Owned] = []
        for number, intervention in enumerate(self.interventions):
            hooks = hooks_of(intervention, segment)
            self.acted[number] |= bool(hooks)
            name = repr(intervention)
            owned += [(name, hook) for hook in hooks if layer in (None, hook[0].layer)]
        return counted([*owned, *taps], segment)


@dataclass(frozen=True, eq=False)
class Stack:
    """Rows that one pass computes, of one or several works, each under its interventions.

    Attributes:
        works: Works with equal readings.
        parts: The rows of each work, all with the same `Segment.form`.
    """

    works: Sequence[Work]
    parts: Sequence[Segment]

    @cached_property
    def segment(self) -> Segment:
        """All rows as one segment."""
        return Segment.joined(self.parts)

    @cached_property
    def rows(self) -> list[slice]:
        """The rows of each work in the joined segment."""
        ends = [0, *accumulate(len(part.prompts) for part in self.parts)]
        return [slice(start, stop) for start, stop in pairwise(ends)]

    @property
    def changes(self) -> list[Part]:
        """Rows and interventions of each work."""
        return [work.part(part) for work, part in zip(self.works, self.parts, strict=True)]

    def done(self) -> Iterator[tuple[Work, Segment, Values]]:
        """Reductions of each work's rows; in halves if they do not fit into memory."""
        try:
            with self.parts[0].model.undo.kept():
                values = self.values()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(self.segment.prompts) == 1:
                raise _no_room(self.segment) from error
        else:
            self._count()
            for work, part, rows in zip(self.works, self.parts, self.rows, strict=True):
                yield work, part, [{s: v[rows] for s, v in by_site.items()} for by_site in values]
            return
        for half in self._halves():
            yield from half.done()

    def _count(self) -> None:
        if (ran := self.works[0].ran) is not None:
            ran(sum(part.dest.numel() * part.blocks for part in self.parts))

    def _halves(self) -> "Iterator[Stack]":
        # The joined rows would otherwise stay in memory while the halves run.
        self.__dict__.pop("segment", None)
        if len(self.parts) == 1:
            for part in self.parts[0].halves():
                yield Stack(self.works, [part])
            return
        middle = len(self.parts) // 2
        yield Stack(self.works[:middle], self.parts[:middle])
        yield Stack(self.works[middle:], self.parts[middle:])

    def caches(self) -> list[KeyValues]:
        """Keys and values of each work's rows."""
        try:
            caches = self._caches()
            self._count()
            return caches
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(self.parts) == 1:
                raise _no_room(self.segment) from error
        # Outside the except clause: the traceback would keep the tensors of the failed pass alive.
        return [cache for half in self._halves() for cache in half.caches()]

    def _caches(self) -> list[KeyValues]:
        segment = self.segment
        hooks, check = self._hooks()
        with segment.model.undo.kept(), torch.no_grad():
            output = _forward(segment, hooks=hooks, keep_cache=True)
        check()
        self.works[0].finite.rows(output.residual, segment, self.changes)
        return [_cached(output, segment).rows(rows) for rows in self.rows]

    def values(self) -> Values:
        """Reductions of every reading over all rows, in one pass."""
        segment, first = self.segment, self.works[0]
        readings, beginning = first.readings, first.beginning
        if isinstance(segment.model, ServerModel):
            hooks, check = self._hooks()
            reductions = on_server(segment, readings, hooks)
            check()
            return reductions
        values: Values = [{} for _ in readings]
        taps, sinks = taps_of(readings, segment, values)
        cache = segment.cache
        if beginning is not None and cache is not None:
            cache = beginning.leaves(cache)
        with ExitStack() as stack:
            stack.enter_context(segment.model.gradients() if sinks else torch.no_grad())
            if sinks and first.checkpoint and beginning is None:
                stack.enter_context(segment.model.checkpointed())
            hooks, check = self._hooks(taps)
            # Hooks stay installed during the backward pass, where checkpointed blocks are rerun.
            stack.enter_context(segment.model.installed(hooks))
            output = _forward(segment, cache=cache)
            check()
            first.finite.rows(output.residual, segment, self.changes)
            if not sinks:
                return self.in_order(values)
            loss = next(r.loss for r in readings if isinstance(r, GradientReading))
            total = target_loss(output.residual, segment, loss).sum()
            leaves = [] if beginning is None or cache is None else asking(cache)
            asked = [*(sink for *_, sink in sinks), *leaves]
            gradients: Sequence[Tensor | None] = torch.autograd.grad(
                total, asked, allow_unused=True
            )
        for (number, site, _), gradient in zip(sinks, gradients, strict=False):
            if gradient is None:
                raise RunError(
                    f"The loss does not depend on {site.name!r} of block {site.layer} in "
                    f"{segment.model.info.architecture}: {type(readings[number]).__name__} would "
                    "be 0 there. A hook or an intervention has cut the graph (detach, no_grad)."
                )
            values[number][site] = gradient
        if beginning is not None and leaves:
            vectors = [
                torch.zeros_like(leaf) if gradient is None else gradient
                for leaf, gradient in zip(leaves, gradients[len(sinks) :], strict=True)
            ]
            before = beginning.reductions(vectors)
            for (number, site, _), reduction in zip(beginning.sinks, before, strict=True):
                values[number][site] = values[number][site] + reduction
        return self.in_order(values)

    def in_order(self, values: Values) -> Values:
        """Reductions in the order in which readings name their sites, not that of the forward pass."""
        first, info = self.works[0], self.segment.model.info
        ordered = [
            {site: by_site[site] for site in reading.sites(info)}
            for reading, by_site in zip(first.readings, values, strict=True)
        ]
        for reading, by_site in zip(first.readings, ordered, strict=True):
            if reading.finite:
                loss = reading.loss if isinstance(reading, GradientReading) else None
                first.finite.reductions(type(reading).__name__, by_site, self.changes, loss)
        return ordered

    def _hooks(self, taps: Sequence[Owned] = ()) -> tuple[list[Hook], Callable[[], None]]:
        """Each work's hooks on its rows, then those of the readings, and a function that raises unless all fired."""
        if len(self.works) == 1:
            return self.works[0]._hooks(self.parts[0], taps)
        made = [work._hooks(part) for work, part in zip(self.works, self.parts, strict=True)]
        read, check_read = counted(taps, self.segment)

        def check() -> None:
            for _, check_part in made:
                check_part()
            check_read()

        return [*on_rows([hooks for hooks, _ in made], self.rows), *read], check


def _forward(segment: Segment, **how: Any) -> ForwardOutput:
    return segment.model.forward(
        segment.tokens, segment.mask, segment.positions, start=segment.start, **how
    )


def _cached(output: ForwardOutput, segment: Segment) -> KeyValues:
    if output.cache is None:
        raise RunError(f"{segment.model.info.architecture} returned no keys and values.")
    return output.cache


def _no_room(segment: Segment) -> RunError:
    return RunError(
        f"One prompt of {len(segment.prompts[0])} tokens does not fit into memory; use a shorter "
        "prompt, a narrower dtype or a smaller memory= (for recomputation)."
    )

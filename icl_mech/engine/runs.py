"""`run` and `run_variants`, the entry points of the engine: readings under interventions over prompts."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from icl_mech._typing import Tensor
from icl_mech.checking import Count, checked
from icl_mech.engine.finite import Finite
from icl_mech.engine.hooks import AnyReading
from icl_mech.engine.layouts import (
    Layout,
    Room,
    Shared,
    SharedVariants,
    TargetOnly,
    Unprepared,
    Whole,
    can_share,
    common_prefix,
    stacked,
)
from icl_mech.engine.memory import parse_memory, plan, plan_behind, worth_recomputing, worth_sharing
from icl_mech.engine.prepared import Prepared, prepare
from icl_mech.engine.progress import Progress, cost, passes_of
from icl_mech.engine.readings import GradientReading, Kept, Reading
from icl_mech.engine.taking import fill_taken
from icl_mech.engine.work import Stack, Work
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import LanguageModel, ModelInfo, Site, adapt, at_least_float32, exclusive
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

Path = Literal["auto", "whole"]

Laid = list[tuple[Layout, list[int]]]
"""Layouts with the indices of the works that use them."""


def run(
    model: object,
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
        batch_size: Rows of a pass at most: prompts, of each set of interventions (default: by
            length, memory and what is fastest on the device).
        memory: Budget such as `"8GB"`: sets batch size and checkpointing (default: half of
            what is free). With `"auto"`, the same half, prompts that do not fit are rejected.
        path: `whole` computes every position of every prompt; `auto` leaves out what the
            readings cannot see, and runs once what prompts share. Both give the same values.
            While the model has hooks that you added, which may depend on positions, nothing is shared.
        progress: Show a progress bar; None: when the output is a terminal or notebook.
        title: What the progress bar counts.

    Raises:
        RunError: readings with different losses, an intervention that did nothing, a hook
            that did not fire, or a prompt that does not fit into memory.
        PromptError: prompts this model cannot run.
    """
    (values,) = run_variants(
        model,
        prompts,
        readings,
        [interventions],
        batch_size=batch_size,
        memory=memory,
        path=path,
        progress=progress,
        title=title,
    )
    return values


@checked(RunError)
@exclusive
def run_variants(
    model: object,
    prompts: PromptBatch | Prepared,
    readings: Sequence[AnyReading],
    variants: Sequence[Sequence[Intervention]],
    *,
    layout: Layout | None = None,
    batch_size: Count | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
    progress: bool | None = None,
    title: str = "variants",
) -> list[list[Any]]:
    """The value of each reading for each set of interventions, as `run` would return it.

    Computation the variants have in common is done once: the common prefix of the prompts, and
    everything below the first block they change. Where all of them concern the target only, each
    costs one token per prompt. A pass computes the rows of as many variants as there is room for.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: What to run.
        readings: What to read.
        variants: Sets of interventions; an empty one is the plain model.
        layout: How to lay the prompts out (default: the cheapest); `path="whole"` shares nothing.
        batch_size: Rows of a pass at most, see `run`.
        memory: Budget, see `run`.
        path: See `run`.
        progress: Show a progress bar.
        title: What the progress bar counts.

    Raises:
        RunError: as `run`.
        PromptError: as `run`.
    """
    adapted, gradient = adapt(model), _one_loss(readings)
    prepared, batch, made = _given(prompts)
    lengths, finite = batch.lengths.tolist(), Finite(patient=True)
    tokens, checkpoint = plan(adapted, lengths, gradient=gradient, memory=memory, size=batch_size)
    filled = fill_means(adapted, prompts, variants)
    each = cost(lengths, gradient=gradient, variants=len(variants))
    bar = Progress(title, len(batch) * len(variants), progress, cost=each)
    works = [
        Work(readings, [*made, *interventions], checkpoint, finite, bar.ran)
        for interventions in filled
    ]
    choice = _Choice(adapted, prepared, batch, tokens, batch_size, memory, path)
    laid = choice.layouts(works) if layout is None else choice.of(layout, len(works))
    for chosen, numbers in laid:
        mine = [works[number] for number in numbers]
        fill_taken(adapted, chosen, mine, tokens=tokens, size=batch_size, memory=memory)
    if bar.is_shown and (rows := _work_of(laid, works)) is not None:
        bar.expect(rows, passes_of(rows, adapted.info.n_layers, gradient=gradient))
    room = Room(tokens, batch_size, parse_memory(memory, adapted) // 2)
    with bar:
        bar.ran_before(sum(chosen.before for chosen, _ in laid if isinstance(chosen, TargetOnly)))
        return _collected(readings, works, _passes(works, laid, len(batch), room, finite, bar))


def _given(
    prompts: PromptBatch | Prepared,
) -> tuple[Prepared | None, PromptBatch, Sequence[Intervention]]:
    """The prepared prompts or None, the plain prompts, and the interventions they were prepared under."""
    if not isinstance(prompts, Prepared):
        return None, prompts, ()
    prompts.check_current()
    return prompts, prompts.prompts, prompts.interventions


def _one_loss(readings: Sequence[AnyReading]) -> bool:
    """True if there is a backward pass; raise if gradient readings ask for different losses."""
    losses = {reading.loss for reading in readings if isinstance(reading, GradientReading)}
    if len(losses) > 1:
        raise RunError(
            f"One pass has one loss, but these readings ask for {sorted(losses)}; run them "
            "separately."
        )
    return bool(losses)


def _passes(
    works: Sequence[Work], laid: Laid, count: int, room: Room, finite: Finite, bar: Progress
) -> list[list[Kept]]:
    """The reductions of each reading for each work, after all passes."""
    share = sum(len(work.readings) for work in works)
    kept = [
        [Kept(count, ragged=reading.ragged, share=share) for reading in work.readings]
        for work in works
    ]
    stores = {id(work): by_reading for work, by_reading in zip(works, kept, strict=True)}
    for layout, numbers in laid:
        mine = [works[number] for number in numbers]
        for stack in _stacks(mine, layout, room):
            for work, part, values in stack.done():
                for store, value in zip(stores[id(work)], values, strict=True):
                    store.add(part.indices, value)
                bar.advance(len(part.prompts))
            finite.settle_if_due()
        for work in mine:
            work.beginning = None  # frees its autograd graph
    Kept.landed([store for by_reading in kept for store in by_reading], finite.settle)
    return kept


def _stacks(works: Sequence[Work], layout: Layout, room: Room) -> Iterator[Stack]:
    """The passes of a layout."""
    rows = room.rows if layout.rows is None else min(layout.rows, room.rows or layout.rows)
    room = room._replace(rows=rows)
    return stacked(works, layout.segments(works), room, apart=layout.apart)


def _collected(
    readings: Sequence[AnyReading], works: Sequence[Work], kept: Sequence[Sequence[Kept]]
) -> list[list[Any]]:
    for work in works:
        work.check_acted()
    return [
        [reading.collect(store) for reading, store in zip(readings, stores, strict=True)]
        for stores in kept
    ]


def _refuse_own_hooks(model: LanguageModel, layout: Layout) -> None:
    if model.has_own_hooks and not layout.whole:
        raise RunError(
            f"{model.info.name!r} has hooks that you added, which may depend on positions, but "
            "here parts of prompts are run on cached keys and values, where a hook sees other "
            "positions than in the whole prompt. Remove them, or make them an intervention."
        )


class _Choice:
    """Chooses the cheapest of the layouts, which all give the same values."""

    def __init__(
        self,
        model: LanguageModel,
        given: Prepared | None,
        prompts: PromptBatch,
        tokens: int,
        size: int | None,
        memory: str | int | None,
        path: Path,
    ) -> None:
        self.model, self.given, self.prompts = model, given, prompts
        self.tokens, self.size, self.memory = tokens, size, memory
        self.auto = path == "auto" and model.takes_cache
        self.share = path == "auto" and model.splits

    def of(self, layout: Layout, works: int) -> Laid:
        """A layout given by the caller, for all works."""
        batched = layout.within(self.tokens, self.size, share=self.share)
        _refuse_own_hooks(self.model, batched)
        return [(batched, list(range(works)))]

    def layouts(self, works: Sequence[Work]) -> Laid:
        """One layout for all works if they can share it; else one each, except that those over whole prompts share."""
        if len(works) < 2:
            return [(self.one(work), [number]) for number, work in enumerate(works)]
        numbers = list(range(len(works)))
        at_target = self.auto and all(_target_only(reading) for reading in works[0].readings)
        every = [intervention for work in works for intervention in work.interventions]
        changes = [intervention for work in works for intervention in self.own(work)]
        shared = can_share(self.model, self.prompts, every, at_target)
        apart = at_target and self.model.splits
        if apart and changes and all(i.target_only for i in changes):
            if self.given is not None:
                return [(TargetOnly(self.given), numbers)]
            # After a long beginning a few passes over the rest cost less than one over the whole.
            if not (shared and len(works) * self.mean_rest < self.mean_length):
                return [(self.at_targets(), numbers)]
        if shared:
            return [(SharedVariants(*self.batches), numbers)]
        each = [self.one(work) for work in works]
        whole = [number for number in numbers if type(each[number]) is Whole]
        laid = [(each[number], [number]) for number in numbers if number not in whole]
        return [*laid, (each[whole[0]], whole)] if whole else laid

    def at_targets(self) -> Layout:
        """The layout of the targets alone, after all keys and values before them are computed."""
        prepared = prepare(self.model, self.prompts, batch_size=self.size, memory=self.memory)
        return TargetOnly(prepared, before=Unprepared(*self.batches).before)

    def one(self, work: Work) -> Layout:
        """The layout of a single set of interventions."""
        at_target = all(_target_only(reading) for reading in work.readings)
        at_target &= all(intervention.target_only for intervention in self.own(work))
        if self.given is not None and at_target:
            return TargetOnly(self.given)
        apart = self.auto and all(
            reading.target_only if isinstance(reading, Reading) else reading.additive
            for reading in work.readings
        )
        if not can_share(self.model, self.prompts, work.interventions, apart):
            return Whole(*self.batches)
        if not any(isinstance(reading, GradientReading) for reading in work.readings):
            return Shared(*self.batches)
        lengths = self.prompts.lengths.tolist()
        common = common_prefix(self.prompts)
        if not worth_sharing(self.model, lengths, common):
            return Whole(*self.batches)
        if work.checkpoint and not worth_recomputing(self.model, lengths, common):
            return Whole(*self.batches)
        tokens, together = plan_behind(
            self.model, lengths, common, memory=self.memory, size=self.size
        )
        how: Any = {"with_beginning": together is None, "together": together}
        return Shared(self.model, self.prompts, tokens, self.size, **how)

    def own(self, work: Work) -> Sequence[Intervention]:
        """The interventions of a work beyond those the prepared keys and values already include."""
        return work.interventions[len(self.given.interventions) if self.given else 0 :]

    @property
    def mean_length(self) -> float:
        """Mean number of tokens of a prompt."""
        return float(self.prompts.lengths.double().mean())

    @property
    def mean_rest(self) -> float:
        """Mean number of tokens of a prompt after the common prefix."""
        return self.mean_length - common_prefix(self.prompts)

    @property
    def batches(self) -> tuple[LanguageModel, PromptBatch, int, int | None]:
        """The arguments of `Whole`, `Shared` and `SharedVariants`."""
        return self.model, self.prompts, self.tokens, self.size


class _Priced(_Choice):
    """The same choice, without running anything."""

    def at_targets(self) -> Layout:
        """A layout whose work alone is known."""
        return Unprepared(*self.batches)


def price(
    model: LanguageModel,
    prompts: PromptBatch,
    readings: Sequence[AnyReading],
    variants: Sequence[Sequence[Intervention]],
    *,
    layout: Layout | None = None,
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
) -> float:
    """Cost of `run_variants` with these arguments, in forward passes over 100 tokens; nothing is run."""
    lengths = prompts.lengths.tolist()
    gradient = any(isinstance(reading, GradientReading) for reading in readings)
    tokens, checkpoint = plan(model, lengths, gradient=gradient, memory=memory, size=batch_size)
    works = [Work(readings, list(variant), checkpoint) for variant in variants]
    choice = _Priced(model, None, prompts, tokens, batch_size, memory, path)
    laid = choice.layouts(works) if layout is None else choice.of(layout, len(works))
    if (rows := _work_of(laid, works)) is not None:
        return passes_of(rows, model.info.n_layers, gradient=gradient)
    each = cost(lengths, gradient=gradient, variants=len(variants))
    return each * len(prompts) * len(variants)


def _work_of(laid: Laid, works: Sequence[Work]) -> int | None:
    """Rows times blocks of all layouts; None if that is not known of one."""
    rows = 0
    for layout, numbers in laid:
        more = layout.work([works[number] for number in numbers])
        if more is None:
            return None
        rows += more
    return rows


def _target_only(reading: AnyReading) -> bool:
    return isinstance(reading, Reading) and reading.target_only


class TargetMean(Reading[list[Tensor]]):
    """Mean over prompts of activations at the target."""

    target_only = True

    def __init__(self, sites: Sequence[Site]) -> None:
        """Read these sites."""
        self._sites = sites

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The sites given."""
        return self._sites

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """The target's row."""
        return at_least_float32(segment.at_target(activation))

    def collect(self, kept: Kept) -> list[Tensor]:
        """One mean per site."""
        return list(kept.stacked().mean(0))


def fill_means(
    model: LanguageModel,
    prompts: PromptBatch | Prepared,
    variants: Sequence[Sequence[Intervention]],
) -> list[list[Intervention]]:
    """Sets of interventions, checked, with the means they need measured on these prompts.

    An intervention that is part of several sets is measured once, and is the same object in all of
    them. The means are those of the unmodified model. Values taken from other runs are filled in once
    the layout is known (`fill_taken`).

    Raises:
        RunError: an intervention this model does not support.
    """
    if isinstance(prompts, Prepared) and prompts.interventions:
        prompts = prompts.prompts
    ready: dict[int, Intervention] = {}
    for intervention in (intervention for variant in variants for intervention in variant):
        if id(intervention) in ready:
            continue
        intervention.check(model.info)
        sites = intervention.missing()
        filled = intervention
        if intervention.taken_from() is not None:
            intervention.check_prompts(
                prompts if isinstance(prompts, PromptBatch) else prompts.prompts
            )
        elif sites:
            (means,) = run(model, prompts, [TargetMean(sites)], progress=False)
            filled = intervention.filled(means)
        ready[id(intervention)] = filled
    return [[ready[id(intervention)] for intervention in variant] for variant in variants]

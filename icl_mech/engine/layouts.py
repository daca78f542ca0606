"""Ways to lay prompts out as segments; the engine chooses one, and all give the same numbers.

* `Whole`: every position of every prompt; always valid.
* `Shared`: the longest common prefix is computed once per set of interventions, all prompts attend
  to its keys and values, and only the rows after it are computed per prompt. For readings at the
  target, and gradients whose reductions add up over rows (`Beginning`).
* `SharedVariants`: the same for many sets of interventions, which also share everything below
  the first block they change.
* `TargetOnly`: keys and values of everything before the target are kept (`prepare`); each set of
  interventions computes one token per prompt, from the first block it changes. For readings and
  interventions at the target only.

Applications define further layouts, such as queries on a given cache.

`stacked` then fills passes: consecutive segments of the same form are run together, whichever work
they belong to.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from icl_mech._typing import Int, Tensor
from icl_mech.engine.memory import pass_cost, rows_together
from icl_mech.engine.prepared import Prepared
from icl_mech.engine.readings import GradientReading
from icl_mech.engine.work import Stack, Work
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import HookFunction, KeyValues, LanguageModel, Resume, Site
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment, by_length

PACKAGE = __name__.partition(".")[0]

WORTH_SHARING = 8
"""Length in tokens of the shortest common prefix that is computed separately."""


def common_prefix(prompts: PromptBatch) -> int:
    """Length of the longest prefix all prompts share, their targets excluded.

    The prompts agree there in tokens, roles, the spans of a text, and which tokens are label words
    of which class.
    """
    first, *others = (prompt.tokens for prompt in prompts)
    length = min(prompt.target for prompt in prompts)
    for tokens in others:
        while first[:length] != tokens[:length]:
            length = next(i for i in range(length) if first[i] != tokens[i])
    known = torch.stack([prompts.position_classes, prompts.position_roles, prompts.position_spans])
    known = known[..., :length]
    unlike = (known != known[:, :1]).any(0).any(0).nonzero()
    return int(unlike[0]) if len(unlike) else length


def can_share(
    model: LanguageModel, prompts: PromptBatch, interventions: Sequence[Intervention], apart: bool
) -> bool:
    """True if the shared path gives the same values as the whole path at a lower cost.

    Args:
        model: The model; hooks added by the caller may look at positions, which shift.
        prompts: The prompts to run.
        interventions: The interventions of the run.
        apart: The readings allow the common prefix to be computed separately.
    """
    if not apart or len(prompts) == 1 or not model.splits:
        return False
    length = common_prefix(prompts)
    return length >= WORTH_SHARING and all(i.shares(prompts, length) for i in interventions)


Numbered = tuple[int, Segment]
"""The index of a work (set of interventions) and a segment it is to run."""


class Room(NamedTuple):
    """Limits of a pass.

    Attributes:
        tokens: Computed tokens, padding included.
        rows: Rows of the batch; None: no limit.
        bytes: Bytes of the keys and values before the computed tokens.
    """

    tokens: int
    rows: int | None
    bytes: int

    def holds(self, parts: Sequence[Segment]) -> bool:
        """True if the parts fit into one pass."""
        rows = sum(len(part.prompts) for part in parts)
        return (
            sum(part.dest.numel() for part in parts) <= self.tokens
            and (self.rows is None or rows <= self.rows)
            and sum(0 if part.cache is None else part.cache.nbytes for part in parts) <= self.bytes
        )


def stacked(
    works: Sequence[Work], numbered: Iterable[Numbered], room: Room, *, apart: bool
) -> Iterator[Stack]:
    """Stack consecutive segments of the same form into passes that fill the room; `apart`: one pass each."""
    if apart or _are_apart(works):
        yield from (Stack([works[number]], [segment]) for number, segment in numbered)
        return
    mine: list[Work] = []
    parts: list[Segment] = []
    for number, segment in numbered:
        if parts and not (segment.form == parts[0].form and room.holds([*parts, segment])):
            yield Stack(mine, parts)
            mine, parts = [], []
        mine.append(works[number])
        parts.append(segment)
    if parts:
        yield Stack(mine, parts)


def _are_apart(works: Sequence[Work]) -> bool:
    """True if no pass may hold the rows of several works.

    A backward pass goes through the beginning last set on its work, and detects from the whole batch
    whether an intervention has cut the graph. Values taken from another run are bitwise equal only in
    equal batches. A user-defined intervention that is part of several works may keep state between its
    hooks, which holds for one pass at a time.
    """
    taken = any(work.takes for work in works)
    readings = [reading for work in works[:1] for reading in work.readings]
    gradients = any(isinstance(reading, GradientReading) for reading in readings)
    foreign = [
        number
        for work in works
        for number in {
            id(intervention)
            for intervention in work.interventions
            if not _is_of(intervention, PACKAGE)
        }
    ]
    return gradients or taken or len(foreign) > len(set(foreign))


def _is_of(intervention: Intervention, package: str) -> bool:
    return type(intervention).__module__.partition(".")[0] == package


def entries(starts: Sequence[int], *, blocks: int, each: int, most: int, fixed: int) -> list[int]:
    """The block at which each work enters, chosen to minimise the total time.

    A work may enter below its first changed block, together with others: `v` works that enter at
    block `e` take `(blocks - e) (fixed passes + v each)`, in `passes = ceil(v each / most)`. The
    unmodified model is run up to the highest entry block.

    Args:
        starts: First changed block of each work.
        blocks: Number of blocks.
        each: Tokens of a work.
        most: Tokens of a pass at most.
        fixed: Cost of a block that does not depend on its batch, in tokens.
    """
    counts = sorted(Counter(starts).items())

    def cost(works: int) -> int:
        return fixed * -(-works * each // most) + works * each

    # For each number of the lowest starts: the least cost, and where their last group begins.
    least: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, len(counts) + 1):
        choices = []
        for first in range(end):
            entry, works = counts[first][0], sum(count for _, count in counts[first:end])
            plain = entry * cost(1) if end == len(counts) else 0
            choices.append((least[first][0] + (blocks - entry) * cost(works) + plain, first))
        least.append(min(choices))
    entered, end = dict[int, int](), len(counts)
    while end:
        first = least[end][1]
        entered |= {start: counts[first][0] for start, _ in counts[first:end]}
        end = first
    return [entered[start] for start in starts]


class Layout(ABC):
    """A way to lay prompts out as segments."""

    @property
    def whole(self) -> bool:
        """True if every prompt is run whole and independently, as the original model code would."""
        return False

    def within(self, tokens: int, size: int | None, *, share: bool) -> "Layout":
        """This layout with limits on its batches; layouts the engine chooses already have them.

        Args:
            tokens: Largest number of tokens of a batch.
            size: Largest number of prompts of a batch.
            share: The common prefix of prompts may be run once for all.
        """
        return self

    def over(self, change: Callable[[PromptBatch], PromptBatch]) -> "Layout":
        """The same layout for prompts that are changed after their targets."""
        return self

    @property
    def apart(self) -> bool:
        """True if no pass may hold the rows of several works, so that values are bitwise equal."""
        return False

    @property
    def rows(self) -> int | None:
        """Largest number of rows of a pass; None: only its tokens are limited."""
        return None

    @abstractmethod
    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Segments that cover every prompt's target once for each work.

        Without gradients the next segment may be requested before the previous one is run.
        """

    def work(self, works: Sequence[Work]) -> int | None:
        """Rows times the blocks that they go through, in all passes; None if that is not known."""
        return None


@dataclass(frozen=True, eq=False, kw_only=True)
class Batched(Layout):
    """A layout that keeps its batch limits.

    Attributes:
        tokens: Largest number of tokens of a batch.
        size: Largest number of prompts of a batch.
        share: The common prefix of prompts may be run once for all.
    """

    tokens: int = 1
    size: int | None = None
    share: bool = True

    def within(self, tokens: int, size: int | None, *, share: bool) -> "Batched":
        """This layout with batches of at most this size."""
        return replace(self, tokens=tokens, size=size, share=share)


def behind_cache(
    model: LanguageModel,
    prompts: PromptBatch,
    rows: Sequence[int],
    *,
    spans: Sequence[tuple[int, int]],
    cache: KeyValues,
    cached: Int[Tensor, " cached"],
    costs: Sequence[int],
    tokens: int,
    size: int | None,
    shift: int = 0,
) -> Iterator[Segment]:
    """Batches of some prompts that attend to the same cached keys and values.

    Padding is on the right: a gap between cached and new columns would be silently wrong in layers
    with a sliding window.

    Args:
        model: The model.
        prompts: The prompts of the run.
        rows: Indices of the prompts to lay out.
        spans: Their computed positions, half-open.
        cache: Keys and values of one prompt.
        cached: Prompt position of each cached column.
        costs: Number of tokens each prompt counts for.
        tokens: Largest number of tokens of a batch.
        size: Largest number of prompts of a batch.
        shift: Position ids of the computed rows minus their prompt positions.
    """
    for batch in by_length(costs, tokens=tokens, size=size):
        indices = [rows[place] for place in batch]
        yield Segment.build(
            model,
            prompts[indices],
            indices,
            spans=[spans[place] for place in batch],
            left=False,
            cache=cache.expand(len(batch)),
            cached=cached.expand(len(batch), -1),
            shift=shift,
        )


@dataclass(frozen=True, eq=False)
class Whole(Layout):
    """Whole prompts in batches of similar length.

    Attributes:
        model: The model.
        prompts: The prompts.
        tokens: Largest number of tokens of a batch.
        size: Largest number of prompts of a batch.
    """

    model: LanguageModel
    prompts: PromptBatch
    tokens: int
    size: int | None

    @property
    def whole(self) -> bool:
        """True."""
        return type(self) is Whole

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Segments of each batch for every work, then of the next batch."""
        for indices in self._batches():
            segment = Segment.build(self.model, self.prompts[indices], indices)
            yield from ((number, segment) for number in range(len(works)))

    def work(self, works: Sequence[Work]) -> int | None:
        """All tokens of all prompts."""
        rows = _rows(self.prompts.lengths.tolist(), self._batches())
        return len(works) * rows * self.model.info.n_layers

    def _batches(self) -> Iterable[Sequence[int]]:
        return by_length(
            self.prompts.lengths.tolist(),
            tokens=self.tokens,
            size=self.size,
            # Hooks added by the caller may look at positions, which padding on the left would shift.
            padded=not self.model.has_own_hooks,
        )


@dataclass(frozen=True, eq=False)
class TargetOnly(Layout):
    """The targets alone, on prepared keys and values.

    Attributes:
        prepared: The prompts with their keys and values.
        before: Rows times blocks that were run for them, if this run is the only one to use them.
    """

    prepared: Prepared
    before: int = 0

    @property
    def rows(self) -> int:
        """Largest number of rows of a pass; single-token rows are cheap, so it is large."""
        return rows_together(self.prepared.model)

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Each prepared segment for every work, which resumes the unmodified run at the first block it changes."""
        for work in works:
            work.take_over(self.prepared.acted)
        starts = self._starts(works)
        for segment in self.prepared.segments:
            yield from _entering(segment, starts, [segment.cache] * len(works))

    def work(self, works: Sequence[Work]) -> int | None:
        """The targets of all prompts, from where each work enters."""
        blocks, count = self.prepared.model.info.n_layers, len(self.prepared.prompts)
        return self.before + count * sum(blocks - start for start in self._starts(works))

    def _starts(self, works: Sequence[Work]) -> Sequence[int]:
        # Prepared under interventions, the cache does not match an unmodified run, so none can be resumed.
        if len(works) == 1 or self.prepared.interventions:
            return [0] * len(works)
        return target_starts(self.prepared.model, len(self.prepared.prompts), works)


@dataclass(frozen=True, eq=False)
class Unprepared(Whole):
    """`TargetOnly` before the keys and values are computed: only its work is known, which includes them."""

    def work(self, works: Sequence[Work]) -> int | None:
        """All tokens once, and the targets from where each work enters."""
        blocks, count = self.model.info.n_layers, len(self.prompts)
        starts = target_starts(self.model, count, works)
        return self.before + count * sum(blocks - start for start in starts)

    @property
    def before(self) -> int:
        """Rows times blocks of preparing the prompts."""
        rows = _rows(self.prompts.lengths.tolist(), self._batches())
        return rows * self.model.info.n_layers


@dataclass(frozen=True, eq=False)
class Shared(Whole):
    """Rows after the common beginning (prefix), which each work runs once.

    Attributes:
        with_beginning: The beginning's tokens count too: a backward pass goes through it once per
            prompt.
        together: Number of prompts backpropagated at a time through a beginning whose graph is
            rebuilt block by block; None: the graph is kept.
    """

    with_beginning: bool = False
    together: int | None = None

    @property
    def length(self) -> int:
        """Length of the common beginning."""
        return common_prefix(self.prompts)

    def head(self) -> Segment:
        """The common beginning."""
        return Segment.build(self.model, self.prompts[[0]], [0], spans=[(0, self.length)])

    def behind(self, cache: KeyValues) -> Iterator[Segment]:
        """Batches of the rows after the beginning."""
        length = self.length
        return behind_cache(
            self.model,
            self.prompts,
            range(len(self.prompts)),
            spans=[(length, len(prompt)) for prompt in self.prompts],
            cache=cache,
            cached=torch.arange(length),
            costs=self._costs,
            tokens=self.tokens,
            size=self.size,
        )

    @property
    def _costs(self) -> list[int]:
        beginning = 0 if self.with_beginning else self.length
        costs: list[int] = (self.prompts.lengths - beginning).tolist()
        return costs

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Segments of the rows after the beginning, which is run first under each work's interventions."""
        for number, work in enumerate(works):
            for segment in self.behind(work.begin(self.head(), together=self.together)):
                yield number, segment

    def work(self, works: Sequence[Work]) -> int | None:
        """The rows after the beginning; the beginning itself is not a pass of theirs."""
        return len(works) * self._rest * self.model.info.n_layers

    @property
    def _rest(self) -> int:
        """Rows after the beginning, padding included."""
        batches = by_length(self._costs, tokens=self.tokens, size=self.size)
        return _rows((self.prompts.lengths - self.length).tolist(), batches)


@dataclass(frozen=True, eq=False)
class SharedVariants(Shared):
    """Many works, none with gradients: each enters at the first block it changes or reads.

    Everything below is run once per batch with the unmodified model; a work resumes from its residual
    there.
    """

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Segments of each batch for every work in turn."""
        head, starts = self.head(), self._starts(works)
        plain, at_head = _plain(head, starts, keep_cache=True)
        caches = self._caches(works, starts, plain, at_head)
        # The loop over works is inside the loop over batches, so that residuals of one batch are held at a time.
        for segment in self.behind(plain):
            count = len(segment.prompts)
            yield from _entering(segment, starts, [cache.expand(count) for cache in caches])

    def work(self, works: Sequence[Work]) -> int | None:
        """The beginning for works that change it, and the rows after it, from where each work enters."""
        head, blocks, starts = self.head(), self.model.info.n_layers, self._starts(works)
        changed = [number for number, work in enumerate(works) if _may_change(work, head)]
        at_head = self.length * sum(blocks - starts[number] for number in changed)
        return at_head + self._rest * sum(blocks - start for start in starts)

    def _starts(self, works: Sequence[Work]) -> Sequence[int]:
        return entries(
            [first_changed(self.model, work) for work in works],
            blocks=self.model.info.n_layers,
            each=int((self.prompts.lengths - self.length).sum()),
            most=self.tokens,
            fixed=pass_cost(self.model),
        )

    def _caches(
        self,
        works: Sequence[Work],
        starts: Sequence[int],
        plain: KeyValues,
        at_head: dict[int, Tensor],
    ) -> list[KeyValues]:
        """Keys and values of the common beginning under the interventions of each work."""
        head, caches = self.head(), [plain] * len(works)
        changed = [
            (number, replace(head, start=_resumed(start, at_head)))
            for number, start in sorted(enumerate(starts), key=lambda pair: pair[1])
            if any(change.hooks(head) for change in works[number].interventions)
        ]
        room = Room(self.tokens, self.size, plain.nbytes * len(works))
        order = iter(changed)
        for stack in stacked(works, changed, room, apart=self.apart):
            for cache in stack.caches():
                number, _ = next(order)
                start = starts[number]
                # Blocks below the entry were not run, so the new cache has no columns for them.
                caches[number] = KeyValues(
                    plain.keys[:start] + cache.keys[start:],
                    plain.values[:start] + cache.values[start:],
                )
        return caches


def _rows(lengths: Sequence[int], batches: Iterable[Sequence[int]]) -> int:
    """Rows of all batches, padding included."""
    return sum(len(batch) * max(lengths[number] for number in batch) for batch in batches)


def target_starts(model: LanguageModel, prompts: int, works: Sequence[Work]) -> list[int]:
    """The block at which each of several works enters with the targets alone."""
    return entries(
        [first_changed(model, work) for work in works],
        blocks=model.info.n_layers,
        each=prompts,
        most=rows_together(model),
        fixed=pass_cost(model),
    )


def _entering(
    segment: Segment, starts: Sequence[int], caches: Sequence[KeyValues | None]
) -> Iterator[Numbered]:
    """A segment for every work on its keys and values, which enters with the residual of the unmodified run."""
    _, residuals = _plain(segment, starts, keep_cache=False)
    for number, start in sorted(enumerate(starts), key=lambda pair: pair[1]):
        entered = _resumed(start, residuals)
        yield number, replace(segment, cache=caches[number], start=entered)


def _may_change(work: Work, segment: Segment) -> bool:
    """True if a work changes a segment, as far as this is known before the run.

    Means are filled later, and the hooks of a user-defined intervention may draw random numbers: neither is asked.
    """
    return any(
        not _is_of(change, PACKAGE) or change.missing() or change.hooks(segment)
        for change in work.interventions
    )


def _resumed(start: int, residuals: dict[int, Tensor]) -> Resume | None:
    """Where a work enters, with a copy of the residual: interventions may write into it in place."""
    return Resume(start, residuals[start].clone()) if start else None


def first_changed(model: LanguageModel, work: Work) -> int:
    """First block that is changed or read; everything below it equals the unmodified run."""
    info = model.info
    changed = [intervention.first_layer for intervention in work.interventions]
    read = [site.layer for reading in work.readings for site in reading.sites(info)]
    # At least one block has to run: readings see what leaves a block.
    return min([*changed, *read, info.n_layers - 1])


def _plain(
    segment: Segment, starts: Sequence[int], *, keep_cache: bool
) -> tuple[KeyValues, dict[int, Tensor]]:
    """The unmodified run of a segment: its cache, and the residuals entering some blocks."""
    residuals: dict[int, Tensor] = {}

    def keep(layer: int) -> HookFunction:
        def hook(activation: Tensor) -> None:
            # A copy: hooks after this one may write into the activation in place.
            residuals[layer] = activation.clone()

        return hook

    wanted = sorted({layer for layer in starts if layer})
    cache = segment.cache
    if wanted or keep_cache:
        stop = segment.model.info.n_layers if keep_cache else wanted[-1]
        with segment.model.undo.kept(), torch.no_grad():
            output = segment.model.forward(
                segment.tokens,
                segment.mask,
                segment.positions,
                cache=segment.cache,
                hooks=[(Site("resid_pre", la), keep(la)) for la in wanted if la < stop],
                keep_cache=keep_cache,
                stop=stop,
            )
        residuals.setdefault(stop, output.residual)
        cache = output.cache if keep_cache else segment.cache
    if cache is None:
        raise RunError(f"{segment.model.info.architecture} returned no keys and values.")
    return cache, residuals

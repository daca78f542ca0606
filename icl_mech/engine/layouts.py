"""Ways to lay prompts out as segments; the engine chooses one, and all give the same numbers.

* `Whole`: every position of every prompt; always right.
* `Shared`: the longest common beginning is computed once per set of interventions, its keys and
  values are seen by all prompts; rows after it are computed. For readings at the target, and
  gradients whose reductions add up over rows (`Beginning`).
* `SharedVariants`: the same for many sets of interventions, which also share everything below
  the first block they change.
* `TargetOnly`: keys and values of everything before the target are kept (`prepare`), each set of
  interventions computes one token per prompt, from the first block it changes. For readings and
  interventions at the target only.

Applications have layouts of their own, such as queries on a given cache.

`stacked` then fills passes: neighbouring segments of one form are run together, whatever the work they
belong to.
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

WORTH_SHARING = 8
"""Shortest common beginning that is computed apart."""


def common_prefix(prompts: PromptBatch) -> int:
    """Length of the longest beginning all prompts share, their targets excluded.

    Shared are its tokens, their roles, the spans of a text, and which of them are label words of
    which class.
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
    """True if the shared path gives what the whole path gives, for less.

    Args:
        model: What runs; hooks of the caller's own may look at positions, which move.
        prompts: What is run.
        interventions: What is changed.
        apart: The common beginning can be computed apart, as far as the readings go.
    """
    if not apart or len(prompts) == 1 or not model.splits:
        return False
    length = common_prefix(prompts)
    return length >= WORTH_SHARING and all(i.shares(prompts, length) for i in interventions)


Numbered = tuple[int, Segment]
"""A segment and the number of the work (set of interventions) it is to be run by."""


class Room(NamedTuple):
    """What a pass may take.

    Attributes:
        tokens: Computed tokens, padding included.
        rows: Rows of the batch; None: as many as there is room for.
        bytes: Keys and values that stand before the computed tokens.
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
    """Segments of one form that follow each other, in passes that fill the room; `apart`: one by one."""
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

    A backward pass goes back through the beginning that its work was given last, and tells by the whole
    batch whether an intervention has cut the graph. What is taken from another run is that run's to the
    last bit in equal batches only. An intervention of the caller's that stands in several works may keep
    something between its hooks, of one pass at a time.
    """
    taken = any(work.takes for work in works)
    readings = [reading for work in works[:1] for reading in work.readings]
    gradients = any(isinstance(reading, GradientReading) for reading in readings)
    package = __name__.partition(".")[0]
    foreign = [
        number
        for work in works
        for number in {
            id(intervention)
            for intervention in work.interventions
            if not _is_of(intervention, package)
        }
    ]
    return gradients or taken or len(foreign) > len(set(foreign))


def _is_of(intervention: Intervention, package: str) -> bool:
    return type(intervention).__module__.partition(".")[0] == package


def entries(starts: Sequence[int], *, blocks: int, each: int, most: int, fixed: int) -> list[int]:
    """Where works enter that first change something in the blocks `starts`, in as little time as possible.

    A work may enter below its first changed block, together with others: `v` of them that enter at
    block `e` take `(blocks - e) (fixed passes + v each)`, in `passes = ceil(v each / most)`. Up to the
    highest entrance the plain model is run.

    Args:
        starts: First changed block of each.
        blocks: Number of blocks.
        each: Tokens of a work.
        most: Tokens of a pass.
        fixed: What a block costs whatever its batch, in tokens.
    """
    counts = sorted(Counter(starts).items())

    def cost(works: int) -> int:
        return fixed * -(-works * each // most) + works * each

    # The least cost of the works that begin lowest, and where the last group of them begins.
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
    """How prompts become segments."""

    @property
    def whole(self) -> bool:
        """True if every prompt is run whole and by itself, as the model's own code would."""
        return False

    def within(self, tokens: int, size: int | None, *, share: bool) -> "Layout":
        """A given layout, told how large batches may be; those the engine chooses know.

        Args:
            tokens: Largest number of tokens of a batch.
            size: Largest number of prompts of a batch.
            share: What prompts have in common may be run once for all.
        """
        return self

    def over(self, change: Callable[[PromptBatch], PromptBatch]) -> "Layout":
        """The same for prompts that are changed behind their targets."""
        return self

    @property
    def apart(self) -> bool:
        """True if no pass may hold the rows of several works, for numbers equal to the last bit."""
        return False

    @property
    def rows(self) -> int | None:
        """Rows of a pass at most; None: its tokens are counted."""
        return None

    @abstractmethod
    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Every prompt's target once for each work.

        Without gradients the next segment may be asked for before the last one is run.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class Batched(Layout):
    """A layout that keeps what it was told.

    Attributes:
        tokens: Largest number of tokens of a batch.
        size: Largest number of prompts of a batch.
        share: What prompts have in common may be run once for all.
    """

    tokens: int = 1
    size: int | None = None
    share: bool = True

    def within(self, tokens: int, size: int | None, *, share: bool) -> "Batched":
        """With batches of this size."""
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
    """Batches of some prompts that see the same keys and values.

    Padding stands on the right: a hole between cached and new columns would be silently wrong
    in layers with a sliding window.

    Args:
        model: What runs them.
        prompts: The prompts of the run.
        rows: Numbers of those that are laid out.
        spans: Their computed positions, half-open.
        cache: Keys and values of one prompt.
        cached: Prompt position of each cached column.
        costs: Tokens each of them counts for.
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
        model: What runs them.
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
        """Each batch for every work, then the next."""
        batches = by_length(
            self.prompts.lengths.tolist(),
            tokens=self.tokens,
            size=self.size,
            # Hooks of others may look at positions, which padding on the left would move.
            padded=not self.model.has_own_hooks,
        )
        for indices in batches:
            segment = Segment.build(self.model, self.prompts[indices], indices)
            yield from ((number, segment) for number in range(len(works)))


@dataclass(frozen=True, eq=False)
class TargetOnly(Layout):
    """The targets alone, on kept keys and values."""

    prepared: Prepared

    @property
    def rows(self) -> int:
        """Of single tokens there may be many."""
        return rows_together(self.prepared.model)

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Each kept segment for every work, which goes on from the plain run where it changes it."""
        for work in works:
            work.take_over(self.prepared.acted)
        model, starts = self.prepared.model, [0] * len(works)
        if len(works) > 1:
            starts = entries(
                [self._start(work) for work in works],
                blocks=model.info.n_layers,
                each=len(self.prepared.prompts),
                most=self.rows,
                fixed=pass_cost(model),
            )
        for segment in self.prepared.segments:
            yield from _entering(segment, starts, [segment.cache] * len(works))

    def _start(self, work: Work) -> int:
        # Kept keys and values were made under these, which no plain run knows.
        return (
            0
            if self.prepared.interventions
            else first_changed(self.prepared.segments[0].model, work)
        )


@dataclass(frozen=True, eq=False)
class Shared(Whole):
    """Rows after the common beginning, which each work runs once.

    Attributes:
        with_beginning: The beginning's tokens count too: a backward pass goes through it once per
            prompt.
        together: Prompts that go back at a time through a beginning whose graph is not kept, but
            made again block by block; None: it is kept.
    """

    with_beginning: bool = False
    together: int | None = None

    @property
    def length(self) -> int:
        """Of the common beginning."""
        return common_prefix(self.prompts)

    def head(self) -> Segment:
        """The common beginning."""
        return Segment.build(self.model, self.prompts[[0]], [0], spans=[(0, self.length)])

    def behind(self, cache: KeyValues) -> Iterator[Segment]:
        """Batches of what follows the beginning."""
        length = self.length
        return behind_cache(
            self.model,
            self.prompts,
            range(len(self.prompts)),
            spans=[(length, len(prompt)) for prompt in self.prompts],
            cache=cache,
            cached=torch.arange(length),
            costs=(self.prompts.lengths - (0 if self.with_beginning else length)).tolist(),
            tokens=self.tokens,
            size=self.size,
        )

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """The beginning under each work's interventions, then the rows after it."""
        for number, work in enumerate(works):
            for segment in self.behind(work.begin(self.head(), together=self.together)):
                yield number, segment


@dataclass(frozen=True, eq=False)
class SharedVariants(Shared):
    """Many works, none with gradients: each enters at the first block it changes or reads.

    What lies below is the plain run's, made once per batch; its residual there is where a work
    goes on.
    """

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Each batch for every work in turn."""
        head = self.head()
        starts = entries(
            [first_changed(self.model, work) for work in works],
            blocks=self.model.info.n_layers,
            each=int((self.prompts.lengths - self.length).sum()),
            most=self.tokens,
            fixed=pass_cost(self.model),
        )
        plain, at_head = _plain(head, starts, keep_cache=True)
        caches = self._caches(works, starts, plain, at_head)
        # Works inside of batches: the plain residuals of one batch are held at a time.
        for segment in self.behind(plain):
            count = len(segment.prompts)
            yield from _entering(segment, starts, [cache.expand(count) for cache in caches])

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
            for number, start in sorted(enumerate(starts), key=lambda own: own[1])
            if any(change.hooks(head) for change in works[number].interventions)
        ]
        room = Room(self.tokens, self.size, plain.nbytes * len(works))
        order = iter(changed)
        for stack in stacked(works, changed, room, apart=self.apart):
            for own in stack.caches():
                number, _ = next(order)
                start = starts[number]
                # Blocks below were not run, so the cache has no columns of theirs.
                caches[number] = KeyValues(
                    plain.keys[:start] + own.keys[start:], plain.values[:start] + own.values[start:]
                )
        return caches


def _entering(
    segment: Segment, starts: Sequence[int], caches: Sequence[KeyValues | None]
) -> Iterator[Numbered]:
    """A segment for every work on its keys and values; it enters with the plain run's residual."""
    _, residuals = _plain(segment, starts, keep_cache=False)
    for number, start in sorted(enumerate(starts), key=lambda own: own[1]):
        entered = _resumed(start, residuals)
        yield number, replace(segment, cache=caches[number], start=entered)


def _resumed(start: int, residuals: dict[int, Tensor]) -> Resume | None:
    """Where a work enters, with a copy of the residual there: interventions may write into it."""
    return Resume(start, residuals[start].clone()) if start else None


def first_changed(model: LanguageModel, work: Work) -> int:
    """First block that changes or is read; everything below it is the plain run's."""
    info = model.info
    changed = [intervention.first_layer for intervention in work.interventions]
    read = [site.layer for reading in work.readings for site in reading.sites(info)]
    # One block at least has to run: what is read leaves a block.
    return min([*changed, *read, info.n_layers - 1])


def _plain(
    segment: Segment, starts: Sequence[int], *, keep_cache: bool
) -> tuple[KeyValues, dict[int, Tensor]]:
    """The unchanged run of a segment: its cache, and the residuals entering some blocks."""
    residuals: dict[int, Tensor] = {}

    def keep(layer: int) -> HookFunction:
        def hook(activation: Tensor) -> None:
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

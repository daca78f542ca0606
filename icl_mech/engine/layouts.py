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
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from icl_mech._typing import Int, Tensor
from icl_mech.engine.prepared import Prepared
from icl_mech.engine.work import Work
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

    @abstractmethod
    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Every prompt's target once for each work."""


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
        """All batches for one work, then for the next."""
        batches = by_length(
            self.prompts.lengths.tolist(),
            tokens=self.tokens,
            size=self.size,
            # Hooks of others may look at positions, which padding on the left would move.
            padded=not self.model.has_own_hooks,
        )
        for number in range(len(works)):
            for indices in batches:
                yield number, Segment.build(self.model, self.prompts[indices], indices)


@dataclass(frozen=True, eq=False)
class TargetOnly(Layout):
    """The targets alone, on kept keys and values."""

    prepared: Prepared

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Each kept segment for every work, which goes on from the plain run where it changes it."""
        for work in works:
            work.take_over(self.prepared.acted)
        starts = [self._start(work) if len(works) > 1 else 0 for work in works]
        entries = sorted(set(starts))
        for segment in self.prepared.segments:
            _, residuals = _plain(segment, entries, keep_cache=False)
            for number, start in enumerate(starts):
                # A copy for each: an intervention may write into what it enters with.
                entered = Resume(start, residuals[start].clone()) if start else None
                yield number, replace(segment, start=entered)

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
        whole: The beginning's tokens count too: a backward pass goes through it once per prompt.
        together: Prompts that go back at a time through a beginning whose graph is not kept, but
            made again block by block; None: it is kept.
    """

    whole: bool = False
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
            costs=(self.prompts.lengths - (0 if self.whole else length)).tolist(),
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
        starts = [first_changed(self.model, work) for work in works]
        entries = sorted(set(starts))
        head = self.head()
        plain, at_head = _plain(head, entries, keep_cache=True)
        caches = [
            _variant_cache(work, head, start, plain, at_head)
            for work, start in zip(works, starts, strict=True)
        ]
        # Works inside of batches: the plain residuals of one batch are held at a time.
        for segment in self.behind(plain):
            _, residuals = _plain(segment, entries, keep_cache=False)
            for number, (start, cache) in enumerate(zip(starts, caches, strict=True)):
                entered = Resume(start, residuals[start].clone()) if start else None
                cached = cache.expand(len(segment.prompts))
                yield number, replace(segment, cache=cached, start=entered)


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
            # Without a graph interventions write into activations themselves.
            residuals[layer] = activation.clone()

        return hook

    wanted = [layer for layer in starts if layer]
    cache = segment.cache
    if wanted or keep_cache:
        with segment.model.undo.kept(), torch.no_grad():
            output = segment.model.forward(
                segment.tokens,
                segment.mask,
                segment.positions,
                cache=segment.cache,
                hooks=[(Site("resid_pre", layer), keep(layer)) for layer in wanted],
                keep_cache=keep_cache,
            )
        cache = output.cache if keep_cache else segment.cache
    if cache is None:
        raise RunError(f"{segment.model.info.architecture} returned no keys and values.")
    return cache, residuals


def _variant_cache(
    work: Work, head: Segment, start: int, plain: KeyValues, at_head: dict[int, Tensor]
) -> KeyValues:
    """Keys and values of the common beginning under one work's interventions."""
    if not any(intervention.hooks(head) for intervention in work.interventions):
        return plain
    entered = Resume(start, at_head[start]) if start else None
    own = work.keys_and_values(replace(head, start=entered))
    # Blocks below were not run, so the cache has no columns of theirs.
    return KeyValues(
        plain.keys[:start] + own.keys[start:], plain.values[:start] + own.values[start:]
    )

"""`StandIn`: the cache that queries see instead of their demonstrations.

The stand-in is a small key/value cache: the kept columns of the demonstrations' cache,
or the cache of the kept tokens alone, run as a separate prompt (text anchors).

Where a model has layers with a sliding window, the window counts columns: on a shorter
cache kept tokens are nearer to the query than in the full prompt, and those layers may see
some that were outside their window. The model then behaves as with a shorter context.

A model that numbers positions by counting (a HookedTransformer, or ALiBi) would misplace a
query on a cut cache. It gets the whole cache, and queries are kept from attending to the
dropped columns: the same numbers, without the gain in time.

`Behind` and `BehindContext` lay queries after stand-ins. Each set of demonstrations is run once for each
set of interventions that changes it, and its keys and values are freed before the next set is run.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from icl_mech._typing import Tensor
from icl_mech.engine import Batched, Work, behind_cache
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.compression.kept import Method, Positions
from icl_mech.models import Hook, KeyValues, LanguageModel, Site, to_device
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.segments import Segment

Position = Literal["true", "overlap"]

Beginning = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Everything before a query: tokens, and positions and classes of label words."""


@dataclass(frozen=True, eq=False, repr=False)
class Unseen(Intervention):
    """Mask that keeps queries from attending to the dropped tokens of their demonstrations.

    Attributes:
        kept: Positions before the query that are seen, per prompt of the run.
        queries: Position of the first query token of each.
    """

    kept: Sequence[Positions]
    queries: Sequence[int]

    def shares(self, prompts: PromptBatch, length: int) -> bool:
        """True: only rows of the query change."""
        return True

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """Hooks that set the score of these columns to minus infinity, and their pattern to 0, in every block.

        The pattern is already 0 there, unless another intervention has written it.
        """
        rows = []
        for row, index in enumerate(segment.indices):
            (dest, src), query = (
                (positions[row] for positions in segment.on_host),
                self.queries[index],
            )
            left_out = torch.ones(query, dtype=torch.bool)
            left_out[list(self.kept[index])] = False
            columns = (src >= 0) & (src < query) & left_out[src.clamp(0, query - 1)]
            rows.append((dest >= query)[:, None] & columns)
        hidden = torch.stack(rows)[:, None]
        if not bool(hidden.any()):
            return []
        hidden = to_device(hidden, segment.tokens.device)

        def hide(scores: Tensor) -> Tensor:
            return scores.masked_fill(hidden, float("-inf"))

        def clear(pattern: Tensor) -> Tensor:
            return pattern.masked_fill(hidden, 0.0)

        layers = range(segment.model.info.n_layers)
        return [
            hook
            for layer in layers
            for hook in ((Site("scores", layer), hide), (Site("pattern", layer), clear))
        ]

    def __repr__(self) -> str:
        """Representation without the positions, which are many."""
        return "Unseen()"


@dataclass(frozen=True, eq=False)
class StandIn:
    """The cache that the queries of some prompts see instead of their demonstrations.

    Attributes:
        model: The model.
        prompts: The prompts that are run: the originals, or (text anchors) the shortened ones.
        queries: Position of the first query token of each.
        kept: Positions before the query that are seen.
        overlap: Queries start at position 0, not at their position in the prompt.
        hidden: The cache is not cut; dropped columns are hidden.
        beyond: Tokens after the target are read, too.
    """

    model: LanguageModel
    prompts: PromptBatch
    queries: Sequence[int]
    kept: Sequence[Positions]
    overlap: bool = False
    hidden: bool = False
    beyond: bool = False

    @classmethod
    def made(
        cls,
        model: LanguageModel,
        prompts: PromptBatch,
        queries: Sequence[int],
        kept: Sequence[Positions],
        method: Method,
        position: Position,
    ) -> "StandIn":
        """The stand-in that a method makes of these prompts."""
        if method == "text_anchor":
            shortened = [alone(*parts) for parts in zip(prompts, kept, queries, strict=True)]
            short = PromptBatch(tuple(shortened), prompts.source)
            counts = [len(row) for row in kept]
            return cls(model, short, counts, [tuple(range(count)) for count in counts])
        cut = any(len(row) < query for row, query in zip(kept, queries, strict=True))
        hidden = cut and not model.takes_positions
        return cls(model, prompts, queries, kept, position == "overlap", hidden)

    @property
    def interventions(self) -> list[Intervention]:
        """The intervention that hides columns, if the cache is not cut."""
        return [Unseen(self.kept, self.queries)] if self.hidden else []

    def first(self, count: int) -> "StandIn":
        """The stand-in of the first prompts."""
        return replace(
            self, prompts=self.prompts[:count], queries=self.queries[:count], kept=self.kept[:count]
        )

    def beginning(self, index: int) -> Beginning:
        """The properties that prompts must share to see one cache."""
        prompt = self.prompts[index]
        return prompt.tokens[: self.queries[index]], prompt.label_positions, prompt.label_classes

    def sharing(self, rows: Sequence[int]) -> list[list[int]]:
        """Groups of these prompts that may share one cache: those with equal beginnings."""
        return together(rows, self.beginning)

    def alike(self, rows: Sequence[int]) -> list[list[int]]:
        """Groups of these prompts that see the same positions of one cache."""
        return together(rows, lambda row: (self.beginning(row), self.kept[row]))

    def demonstrations(self, index: int) -> Segment:
        """The rows before the query of one prompt."""
        spans = [(0, self.queries[index])]
        return Segment.build(self.model, self.prompts[[index]], [index], spans=spans)

    def cut(self, cache: KeyValues, index: int) -> KeyValues:
        """The kept columns of the demonstrations' cache, if it can be cut."""
        kept = self.kept[index]
        if self.hidden or len(kept) == cache.length:
            return cache
        return cache.select(to_device(torch.tensor(kept), self.model.device))

    def behind(
        self, cache: KeyValues, rows: Sequence[int], *, tokens: int, size: int | None
    ) -> Iterator[Segment]:
        """Batches of queries, up to their targets, of prompts that are alike.

        Args:
            cache: Keys and values of the stand-in.
            rows: Numbers of the prompts.
            tokens: Largest number of tokens of a batch.
            size: Largest number of prompts of a batch.
        """
        query, kept = self.queries[rows[0]], self.kept[rows[0]]
        prompts = [self.prompts[row] for row in rows]
        spans = [(query, len(prompt) if self.beyond else prompt.target + 1) for prompt in prompts]
        return behind_cache(
            self.model,
            self.prompts,
            rows,
            spans=spans,
            cache=cache,
            cached=torch.arange(query) if self.hidden else torch.tensor(kept),
            costs=[stop - start for start, stop in spans],
            tokens=tokens,
            size=size,
            shift=-query if self.overlap else 0,
        )


Caches = dict[tuple[Beginning, tuple[int, ...]], KeyValues]
"""Keys and values of demonstrations under interventions, which are identified by their ids."""


@dataclass(frozen=True, eq=False)
class Behind(Batched):
    """Queries after stand-ins, one for each work.

    Attributes:
        groups: Numbers of the prompts, those with equal demonstrations together.
        stand_ins: What queries see, for each work.
    """

    groups: Sequence[Sequence[int]]
    stand_ins: Sequence[StandIn]

    def over(self, change: Callable[[PromptBatch], PromptBatch]) -> "Behind":
        """The same layout with changed prompts in every stand-in."""
        stand_ins = [
            replace(stand_in, prompts=change(stand_in.prompts), beyond=True)
            for stand_in in self.stand_ins
        ]
        return replace(self, stand_ins=stand_ins)

    def segments(self, works: Sequence[Work]) -> Iterator[tuple[int, Segment]]:
        """The queries of one set of demonstrations for every work, then those of the next."""
        for group in self._apart(works):
            made: Caches = {}
            for number, (work, stand_in) in enumerate(zip(works, self.stand_ins, strict=True)):
                for rows in stand_in.alike(group):
                    cache = self._cache(work, stand_in, rows[0], made)
                    for segment in stand_in.behind(cache, rows, tokens=self.tokens, size=self.size):
                        yield number, segment

    def _apart(self, works: Sequence[Work]) -> Iterator[Sequence[int]]:
        """The groups, split into single prompts where interventions distinguish the prompts of a group."""
        for group in self.groups:
            if self.share and all(
                treated_alike(work.interventions, stand_in, rows)
                for work, stand_in in zip(works, self.stand_ins, strict=True)
                for rows in stand_in.sharing(group)
            ):
                yield group
            else:
                yield from ([index] for index in group)

    def _cache(self, work: Work, stand_in: StandIn, index: int, made: Caches) -> KeyValues:
        """The cache that one prompt's query sees; works that treat the demonstrations alike compute it once."""
        demonstrations = stand_in.demonstrations(index)
        acting = tuple(map(id, work.acting(demonstrations)))
        key = (stand_in.beginning(index), acting)
        if key not in made:
            made[key] = work.begin(demonstrations)
        return stand_in.cut(made[key], index)


@dataclass(frozen=True, eq=False)
class BehindContext(Batched):
    """Queries after the keys and values of a context.

    Attributes:
        stand_in: What queries see.
        cache: Its keys and values.
    """

    stand_in: StandIn
    cache: KeyValues

    def over(self, change: Callable[[PromptBatch], PromptBatch]) -> "BehindContext":
        """The same layout with changed prompts."""
        changed = replace(self.stand_in, prompts=change(self.stand_in.prompts), beyond=True)
        return replace(self, stand_in=changed)

    def segments(self, works: Sequence[Work]) -> Iterator[tuple[int, Segment]]:
        """All queries for one work, then for the next."""
        for number, work in enumerate(works):
            for rows in self.stand_in.alike(range(len(self.stand_in.prompts))):
                # Interventions on the context were applied when its keys and values were computed.
                work.acting(self.stand_in.demonstrations(rows[0]))
                for segment in self.stand_in.behind(
                    self.cache, rows, tokens=self.tokens, size=self.size
                ):
                    yield number, segment


def treated_alike(
    interventions: Sequence[Intervention], stand_in: StandIn, rows: Sequence[int]
) -> bool:
    """True if interventions act the same in the demonstrations of these prompts, which are equal.

    Interventions may depend on the number of a prompt in the run. So they are tested on as many
    prompts, with the first of these in place of all others.
    """
    if len(rows) == 1:
        return True
    first, members = stand_in.prompts[rows[0]], set(rows)
    prompts = PromptBatch(
        tuple(
            prompt if index in members else first for index, prompt in enumerate(stand_in.prompts)
        )
    )
    length = stand_in.queries[rows[0]]
    return all(intervention.shares(prompts, length) for intervention in interventions)


def together(rows: Sequence[int], key: Callable[[int], Hashable]) -> list[list[int]]:
    """Rows grouped by key, in their order."""
    groups: dict[Hashable, list[int]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def alone(prompt: Prompt, kept: Positions, query: int) -> Prompt:
    """The kept tokens followed by the query, as a separate prompt with its roles.

    The rest of a label word whose first token is dropped counts as format.
    """
    places = (*kept, *range(query, len(prompt)))
    staying = set(places)
    displayed = iter(prompt.label_classes)
    spans: list[Span] = []
    classes: list[int] = []
    end = 0
    for span in prompt.spans:
        role = span.role
        if role == "label_word":
            shown = next(displayed)
            if span.start in staying:
                classes.append(shown)
            else:
                role = "format"
        count = sum(place in staying for place in range(span.start, span.stop))
        if count:
            spans.append(Span(role, span.demo, end, end + count))
            end += count
    return replace(
        prompt,
        tokens=tuple(prompt.tokens[place] for place in places),
        spans=tuple(spans),
        label_classes=tuple(classes),
        pieces=tuple(prompt.pieces[place] for place in places) if prompt.pieces else (),
    )


def misplaced(model: LanguageModel, first: int, kept: int) -> RunError:
    """The error for a model that would misplace a query."""
    return RunError(
        f"{model.info.name!r} ({model.info.library}) counts positions itself, so it cannot place a "
        f"query at position {first} after {kept} kept tokens. Load it with icl_mech.load_model, or "
        "use method='text_anchor'."
    )

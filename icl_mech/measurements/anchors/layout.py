"""`FromHereOn`: copies of one text, each run from a position of its own on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from icl_mech.engine import Layout, Work
from icl_mech.interventions import Intervention
from icl_mech.models import KeyValues, LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.segments import PADDING, Segment, by_length

ALIKE, SLACK = 0.8, 16
"""Copies share a batch if they run this share of the longest one's rows, or so many fewer."""


@dataclass(frozen=True, eq=False)
class FromHereOn(Layout):
    """Rows from a start on, behind keys and values of what stands before it.

    What stands before a start is the same in all copies, so it is run once for each work, without
    the suppression, whose rows all lie behind it. Keys and values are filled up on the left, so
    that none is missing between kept and new columns.

    Attributes:
        model: What runs them.
        prompts: Copies of one text.
        starts: First row that is run of each copy.
        tokens: Largest number of tokens of a batch.
        size: Largest number of prompts of a batch.
        share: False runs every copy whole.
    """

    model: LanguageModel
    prompts: PromptBatch
    starts: tuple[int, ...]
    tokens: int = 1
    size: int | None = None
    share: bool = True

    @property
    def whole(self) -> bool:
        """True if nothing is shared."""
        return not self.share

    def within(self, tokens: int, size: int | None, *, share: bool) -> "FromHereOn":
        """With batches of this size."""
        return replace(self, tokens=tokens, size=size, share=share)

    def segments(self, works: Sequence[Work]) -> Iterator[tuple[int, Segment]]:
        """All copies for one work, then for the next."""
        length = len(self.prompts[0])
        for number, work in enumerate(works):
            *others, _ = work.interventions  # the last one is the suppression
            starts = self.starts if self._shared(others) else (0,) * len(self.starts)
            cache = self._beginning(others, max(starts)) if max(starts) else None
            for alike in _alike([length - start for start in starts]):
                # A copy's keys and values take memory too, so it counts whole.
                whole = [length] * len(alike)
                for places in by_length(whole, tokens=self.tokens, size=self.size):
                    batch = [alike[place] for place in places]
                    yield number, self._segment(batch, [starts[copy] for copy in batch], cache)

    def _shared(self, others: Sequence[Intervention]) -> bool:
        return self.share and self.model.takes_cache and all(
            own.shares(self.prompts, max(self.starts)) for own in others
        )  # fmt: skip

    def _beginning(self, others: Sequence[Intervention], stop: int) -> KeyValues:
        head = Segment.build(self.model, self.prompts[[0]], [0], spans=[(0, stop)])
        return Work((), others, False).keys_and_values(head)

    def _segment(
        self, batch: Sequence[int], starts: Sequence[int], cache: KeyValues | None
    ) -> Segment:
        length, width = len(self.prompts[0]), max(starts)
        cached, kept = None, None
        if cache is not None and width:
            kept = KeyValues.stacked([_first(cache, start).padded(width) for start in starts])
            cached = torch.full((len(starts), width), PADDING)
            for row, start in enumerate(starts):
                cached[row, width - start :] = torch.arange(start)
        return Segment.build(
            self.model,
            self.prompts[list(batch)],
            batch,
            spans=[(start, length) for start in starts],
            left=False,
            cache=kept,
            cached=cached,
        )


def _alike(rows: Sequence[int]) -> list[list[int]]:
    """Copies that run about as many rows together, so that little is run for padding."""
    groups: list[list[int]] = []
    for copy in sorted(range(len(rows)), key=lambda copy: -rows[copy]):
        if not groups or rows[copy] < ALIKE * rows[groups[-1][0]] - SLACK:
            groups.append([])
        groups[-1].append(copy)
    return groups


def _first(cache: KeyValues, count: int) -> KeyValues:
    return KeyValues(
        tuple(key[:, :, :count] for key in cache.keys),
        tuple(value[:, :, :count] for value in cache.values),
    )

"""`Behind`, `BehindContext`: queries laid behind the stand-ins of their demonstrations.

Each set of demonstrations is run once for each set of interventions that changes it, and its
keys and values are freed before the next set is run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from icl_mech.engine import Layout, Work
from icl_mech.interventions import Intervention
from icl_mech.measurements.compression.stand_in import Beginning, StandIn
from icl_mech.models import KeyValues
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

Caches = dict[tuple[Beginning, tuple[int, ...]], KeyValues]
"""Keys and values of demonstrations under interventions, which are known by their ids."""


@dataclass(frozen=True, eq=False)
class Behind(Layout):
    """Queries behind stand-ins, one for each work.

    Attributes:
        groups: Numbers of the prompts, those with equal demonstrations together.
        stand_ins: What queries see, for each work.
        tokens: Largest number of tokens of a batch.
        size: Largest number of prompts of a batch.
        share: Prompts with equal demonstrations see one cache, where interventions allow it.
    """

    groups: Sequence[Sequence[int]]
    stand_ins: Sequence[StandIn]
    tokens: int = 1
    size: int | None = None
    share: bool = True

    def within(self, tokens: int, size: int | None, *, share: bool) -> "Behind":
        """With batches of this size."""
        return replace(self, tokens=tokens, size=size, share=share)

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
        """The groups, or single prompts where interventions tell those of a group apart."""
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
        """What one prompt's query sees; works that treat the demonstrations alike run them once."""
        demonstrations = stand_in.demonstrations(index)
        acting = tuple(map(id, work.acting(demonstrations)))
        key = (stand_in.beginning(index), acting)
        if key not in made:
            made[key] = work.begin(demonstrations)
        return stand_in.cut(made[key], index)


@dataclass(frozen=True, eq=False)
class BehindContext(Layout):
    """Queries behind the keys and values of a context.

    Attributes:
        stand_in: What queries see.
        cache: Its keys and values.
        tokens: Largest number of tokens of a batch.
        size: Largest number of prompts of a batch.
    """

    stand_in: StandIn
    cache: KeyValues
    tokens: int = 1
    size: int | None = None

    def within(self, tokens: int, size: int | None, *, share: bool) -> "BehindContext":
        """With batches of this size; the context is one for all prompts in any case."""
        return replace(self, tokens=tokens, size=size)

    def segments(self, works: Sequence[Work]) -> Iterator[tuple[int, Segment]]:
        """All queries for one work, then for the next."""
        for number, work in enumerate(works):
            for rows in self.stand_in.alike(range(len(self.stand_in.prompts))):
                # What acts there has acted, when the keys and values were computed.
                work.acting(self.stand_in.demonstrations(rows[0]))
                for segment in self.stand_in.behind(
                    self.cache, rows, tokens=self.tokens, size=self.size
                ):
                    yield number, segment


def treated_alike(
    interventions: Sequence[Intervention], stand_in: StandIn, rows: Sequence[int]
) -> bool:
    """True if interventions do the same in the demonstrations of these prompts, which are equal.

    Interventions may go by the number of a prompt in the run. So they are asked about as many
    prompts, with the first of these in place of all others.
    """
    if len(rows) == 1:
        return True
    first, own = stand_in.prompts[rows[0]], set(rows)
    prompts = PromptBatch(
        tuple(prompt if index in own else first for index, prompt in enumerate(stand_in.prompts))
    )
    length = stand_in.queries[rows[0]]
    return all(intervention.shares(prompts, length) for intervention in interventions)

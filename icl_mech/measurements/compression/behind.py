"""Predictions of many prompts behind the stand-ins of their demonstrations."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from icl_mech._typing import Tensor
from icl_mech.engine import Kept as Store
from icl_mech.engine.memory import is_out_of_memory, plan
from icl_mech.engine.progress import Progress
from icl_mech.engine.work import Work
from icl_mech.measurements.compression.kept import Kept
from icl_mech.measurements.compression.stand_in import (
    Demonstrations,
    Position,
    StandIn,
    misplaced,
    takes_positions,
)
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.segments import by_length

Read = tuple[Tensor, Tensor, Tensor]
"""Label logits, their log-probabilities and the likeliest next tokens."""


class Plan(NamedTuple):
    """One way to compress a set of prompts.

    Attributes:
        as_text: The kept tokens are read alone, as a prompt.
        position: Where the query stands: as in the full prompt (`true`) or at 0 (`overlap`);
            behind text it always follows the kept tokens.
        kept: Positions kept of each prompt.
    """

    as_text: bool
    position: Position
    kept: Sequence[Kept]


def same_demonstrations(prompts: PromptBatch, queries: Sequence[int]) -> list[list[int]]:
    """Indices of the prompts, those with equal tokens before their queries together."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, (prompt, query) in enumerate(zip(prompts, queries, strict=True)):
        groups.setdefault(prompt.tokens[:query], []).append(index)
    return list(groups.values())


def read_plans(
    model: LanguageModel,
    prompts: PromptBatch,
    queries: Sequence[int],
    plans: Sequence[Plan],
    *,
    top_k: int,
    batch_size: int | None,
    memory: str | int | None,
    progress: bool | None,
) -> list[Read]:
    """What the model predicts under each plan; each set of demonstrations is run once.

    Raises:
        RunError: as `Demonstrations.stand_in`.
    """
    tokens, _ = plan(model, prompts.lengths.tolist(), gradient=False, memory=memory)
    numbered = takes_positions(model)
    readers = [_Reader(model, prompts, top_k, tokens, batch_size) for _ in plans]
    with Progress("compressed prompts", len(prompts) * len(plans), progress) as bar:
        for group in same_demonstrations(prompts, queries):
            shared = Demonstrations(model, prompts[group[0]].tokens[: queries[group[0]]], numbered)
            for reader, (as_text, position, kept) in zip(readers, plans, strict=True):
                for own in dict.fromkeys(kept[index] for index in group):
                    stand_in = shared.stand_in(own, as_text=as_text, position=position)
                    reader.read(stand_in, [index for index in group if kept[index] == own])
                bar.advance(len(group))
    return [reader.value for reader in readers]


def read_behind(
    stand_in: StandIn,
    model: LanguageModel,
    prompts: PromptBatch,
    *,
    top_k: int,
    batch_size: int | None,
) -> Read:
    """What the model predicts for queries behind one stand-in.

    Raises:
        RunError: a model that counts positions itself.
    """
    if stand_in.first != len(stand_in.kept) and not takes_positions(model):
        raise misplaced(model, stand_in.first, len(stand_in.kept))
    tokens, _ = plan(model, prompts.lengths.tolist(), gradient=False, memory=None)
    reader = _Reader(model, prompts, top_k, tokens, batch_size)
    reader.read(stand_in, list(range(len(prompts))))
    return reader.value


@dataclass
class _Reader:
    """Predictions of some prompts, collected batch by batch."""

    model: LanguageModel
    prompts: PromptBatch
    top_k: int
    tokens: int
    batch_size: int | None
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(len(self.prompts))

    @property
    def value(self) -> Read:
        return PredictionReading(self.top_k).collect(self.store)

    def read(self, stand_in: StandIn, rows: list[int]) -> None:
        """Read some of the prompts, in batches of similar length."""
        lengths = [self.prompts[row].target + 1 - stand_in.query for row in rows]
        for batch in by_length(lengths, tokens=self.tokens, size=self.batch_size):
            self._add(stand_in, [rows[i] for i in batch])

    def _add(self, stand_in: StandIn, rows: list[int]) -> None:
        """Read one batch; in halves if it does not fit into memory."""
        work = Work([PredictionReading(self.top_k)], stand_in.interventions, checkpoint=False)
        try:
            (values,) = work.values(stand_in.segment(self.model, self.prompts, rows))
        except RuntimeError as error:
            if not is_out_of_memory(error) or len(rows) == 1:
                raise
        else:
            self.store.add(rows, values)
            return
        self._add(stand_in, rows[: len(rows) // 2])
        self._add(stand_in, rows[len(rows) // 2 :])

"""Side effects of a vector: accuracy on other tasks, and next-token loss on neutral texts.

On other tasks the vector is added at the target, as on its task. On texts it is added at every position; the loss
is the mean of `-log P(token | tokens before it)` over the tokens of a text but the first, in nats: the logarithm of its
perplexity.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Reading
from icl_mech.engine.readings import OfLast, target_loss
from icl_mech.errors import PromptError
from icl_mech.interventions import AddVector
from icl_mech.measurements.base import Variants
from icl_mech.measurements.reading import PredictionReading, predicted
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.segments import Segment

STATES = ("plain", "vector", "random")
"""Without a vector, with it, and the mean over random directions of the same norm, block and strength."""

NEUTRAL = (
    "The river rises in the hills to the north and flows for about ninety kilometres before it reaches the sea. "
    "Most of the valley is used for grazing, and a railway line follows the eastern bank.",
    "To make the dough, mix the flour and the salt in a large bowl, add the water slowly and knead for ten minutes. "
    "Cover it with a cloth and leave it in a warm place until it has doubled in size.",
    "The library opens at nine in the morning on weekdays and at ten on Saturdays. Books can be borrowed for three "
    "weeks, and most of them can be renewed twice unless another reader has asked for them.",
    "Bees communicate the direction of flowers by moving in a particular pattern inside the hive. The angle of the "
    "movement corresponds to the position of the sun, and its length to the distance.",
    "She took the early train and read for most of the journey. When she arrived, the streets were still wet, and the "
    "only shop that was open sold newspapers, stamps and coffee in paper cups.",
    "The bridge was built in the nineteenth century from local stone. It has five arches, of which the central one is "
    "the widest, and it was closed to heavy vehicles after the road to the south was finished.",
    "Water expands when it freezes, which is why pipes may burst in winter. Ice is therefore less dense than liquid "
    "water and floats on it, so that lakes freeze from the surface downwards.",
    "The meeting began with a short report on the repairs to the roof. After that the members discussed the plan for "
    "the garden, agreed on a date for planting the trees and thanked the treasurer for her work.",
)
"""Passages of plain English on unrelated subjects, written for this package."""

MOST_UNKNOWN = 0.1
"""Largest fraction of unknown tokens in a text of the tokenizer's language."""


@dataclass(frozen=True)
class SideEffects:
    """Where side effects are measured.

    Attributes:
        tasks: Prompts of other tasks.
        texts: Texts, see `passages`; None: no texts.
    """

    tasks: Sequence[PromptBatch]
    texts: PromptBatch | None

    def passes(
        self, vectors: Sequence[Float[Tensor, " d_model"]], layer: int, strength: float
    ) -> list[Variants]:
        """All prompts and texts without a vector and with each, the first of which is not random."""

        def variants(at: Any) -> list[list[AddVector]]:
            return [[], *([AddVector(vector, layer, strength, at)] for vector in vectors)]

        made = [
            Variants(task, [PredictionReading(1)], title="other tasks", variants=variants("target"))
            for task in self.tasks
        ]
        if self.texts is not None:
            made.append(
                Variants(self.texts, [NextTokenLoss()], title="texts", variants=variants("all"))
            )
        return made

    def right(self, read: Sequence[Any]) -> Float[Tensor, "query task state"] | None:
        """Whether answers to other tasks are right, by state; not-a-number after the last prompt of a task that has fewer."""
        if not self.tasks:
            return None
        most = max(map(len, self.tasks))
        values = torch.full((most, len(self.tasks), len(STATES)), torch.nan, dtype=torch.float64)
        for place, (task, runs) in enumerate(zip(self.tasks, read, strict=False)):
            right = torch.stack(
                [(predicted(run[0], run[2], task) == task.answers).double() for (run,) in runs], 1
            )
            values[: len(task), place] = _by_state(right)
        return values

    def loss(self, read: Sequence[Any]) -> Float[Tensor, "text state"] | None:
        """Loss of each text in nats per token, by state."""
        if self.texts is None:
            return None
        return _by_state(torch.stack([loss.double() for (loss,) in read[len(self.tasks)]], 1))


def _by_state(runs: Float[Tensor, "row run"]) -> Float[Tensor, "row state"]:
    return torch.cat([runs[:, :2], runs[:, 2:].mean(1, keepdim=True)], 1)


class NextTokenLoss(OfLast, Reading[Tensor]):
    """Loss of the next token in nats per token, averaged over all tokens after the target."""

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Float[Tensor, " batch"]:
        """The mean loss of each text."""
        counts = [len(prompt.tokens) - 1 - prompt.target for prompt in segment.prompts]
        losses: Tensor = target_loss(activation, segment, "rest")
        return losses / torch.tensor(counts).to(losses)


def passages(model: LanguageModel, texts: Sequence[str] | None) -> PromptBatch | None:
    """Texts as prompts whose target is their first token; None: `NEUTRAL`, if the tokenizer knows English.

    Returns:
        The prompts; None without texts, or if most of `NEUTRAL` would be unknown tokens.

    Raises:
        PromptError: a text of fewer than two tokens, or a model without a tokenizer.
    """
    if texts is not None and not texts:
        return None
    if model.tokenizer is None:
        if texts is None:
            return None
        raise PromptError(
            "The model has no tokenizer to read texts with; load it with its tokenizer, or use texts=[]."
        )
    reader = TextTokenizer(model.tokenizer, "text")
    start = reader.start_tokens(None)
    rows = [
        (*start, *reader.encode(text, [(0, len(text))]).ids)
        for text in (NEUTRAL if texts is None else texts)
    ]
    unknown = getattr(model.tokenizer, "unk_token_id", None)
    if texts is None and sum(row.count(unknown) for row in rows) > MOST_UNKNOWN * sum(
        map(len, rows)
    ):
        return None
    short = [number for number, row in enumerate(rows) if len(row) < 2]
    if short:
        raise PromptError(
            f"Text {short[0]} has {len(rows[short[0]])} tokens, but a next-token loss needs at least two; give "
            "longer texts."
        )
    made = [
        Prompt.from_positions(
            row, label_positions=[], label_classes=[], label_tokens=[0, 1], target=0
        )
        for row in rows
    ]
    return PromptBatch(tuple(made), {"texts": "neutral" if texts is None else "given"})

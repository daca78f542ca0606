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
from icl_mech.interventions import AddVector
from icl_mech.interventions.base import At
from icl_mech.measurements.base import Variants
from icl_mech.measurements.reading import PredictionReading, predicted
from icl_mech.models import Site
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

STATES = ("plain", "vector", "random")
"""Without a vector, with it, and the mean over random directions of the same norm, block and strength."""


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

        def variants(at: At) -> list[list[AddVector]]:
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

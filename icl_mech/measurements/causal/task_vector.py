"""Task vectors: the residual stream at the last token of prompts with demonstrations.

`v_l` = mean over prompts of the output of block `l` at the last token. Put in place of the output of
block `l` at the last token of a prompt without demonstrations (`steer`), it can replace them. The vector must
be tested on other queries than those it was computed from, as it also encodes their content.

Source: Hendel et al. 2023, *In-context learning creates task vectors*, §3.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch.nn.functional import cosine_similarity

from icl_mech._typing import Float, Tensor
from icl_mech.engine import RowsReading
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Result, quantity

HENDEL = "Hendel et al. 2023, In-context learning creates task vectors, §3"

TASK = Definition(
    "task vector",
    r"v_l = \frac{1}{N} \sum_n h_{l+1}[n, q]",
    "Mean output of block l at the last token of prompts with demonstrations, whose queries "
    "differ from those it is tested on.",
    HENDEL,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskVectorResult(Result):
    """Mean output of every block at the target, and its similarity across prompts.

    Attributes:
        vectors: Mean over prompts.
        similarity: Cosine of each prompt's output with the mean of the others'; not-a-number for a single
            prompt.
    """

    definitions: ClassVar[tuple[Definition, ...]] = (TASK,)

    vectors: Float[Tensor, "layer d_model"]
    similarity: Float[Tensor, "batch layer"] = quantity("cosine with the mean of the other prompts")

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.similarity)

    @property
    def most_alike(self) -> int:
        """The block after which the outputs of different prompts are most similar."""
        return int(self.similarity.mean(0).argmax())

    def is_drawn(self, show: str) -> bool:
        """False for a single prompt, which has no other to compare with."""
        return self.count > 1


@dataclass(frozen=True)
class TaskVector(Measurement[TaskVectorResult]):
    """Mean output of every block at the target.

    Raises:
        PromptError: prompts this model cannot run.

    Source: Hendel et al. 2023, §3.
    """

    side: ClassVar[Literal["true", "false"] | None] = "true"
    takes = ANSWER_KINDS

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The outputs of all blocks at the target."""
        sites = [Site("resid_post", layer) for layer in range(model.info.n_layers)]
        reading = RowsReading(sites, data.targets[:, None], only_target=True)
        return [Pass(data, [reading], title="task vectors")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> TaskVectorResult:
        """Mean outputs, and the similarity of each prompt to the mean of the others."""
        states = torch.stack([output[:, 0].double() for output in read[0][0].values()], dim=1)
        others = (states.sum(0) - states) / max(len(states) - 1, 1)
        similarity = cosine_similarity(states, others, dim=-1)
        if len(states) == 1:
            similarity = torch.full_like(similarity, torch.nan)
        return TaskVectorResult(vectors=states.mean(0).float(), similarity=similarity)


task_vector = door(
    TaskVector,
    "task_vector",
    prompts="Prompts with demonstrations; their queries differ from those `steer` is tested on.",
)

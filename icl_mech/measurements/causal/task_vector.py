"""Task vectors: the residual stream at the last token of prompts with demonstrations.

`v_l` = mean over prompts of the output of block `l` at the last token. Put in place of the output of
block `l` at the last token of a prompt without demonstrations (`steer`), it can stand in for them. The
queries must be others than those it is tested on: what is taken also knows its own query.

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
from icl_mech.results import Definition, Figure, Result, basis, quantity
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said
from icl_mech.shapes import LayerCurves

HENDEL = "Hendel et al. 2023, In-context learning creates task vectors, §3"

TASK = Definition(
    "task vector",
    r"v_l = \frac{1}{N} \sum_n h_{l+1}[n, q]",
    "Mean output of block l at the last token of prompts with demonstrations whose query is another one.",
    HENDEL,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskVectorResult(Result):
    """Mean output of every block at the target, and how alike the prompts are.

    Attributes:
        vectors: Mean over prompts.
        similarity: Cosine of each prompt's output with the mean of the others'; not-a-number of a single
            prompt.
    """

    title: ClassVar[str] = "Task vectors"
    definitions: ClassVar[tuple[Definition, ...]] = (TASK,)

    vectors: Float[Tensor, "layer d_model"]
    similarity: Float[Tensor, "batch layer"] = quantity("cosine with the mean of the other prompts")

    def drawing(self) -> LayerCurves:
        """Similarity by layer."""
        return self.sel().curves(
            "How alike prompts are at the last token",
            x_title="output of block",
            note=basis(self),
            meanings=("target",),
        )

    def figures(self) -> list[Figure]:
        """Where prompts with different queries are alike."""
        count = len(self.similarity)
        answer = "One prompt has nothing to be compared with."
        if count > 1:
            best = int(self.similarity.mean(0).argmax())
            answer = (
                f"Most of all after block {best}: cosine "
                f"{said(self.interval('similarity', layer=best))} with the mean of the other prompts."
            )
        return [
            Figure(
                "",
                "Where are prompts with different queries alike at the last token?",
                answer,
                "**Cosine of the residual stream at the last token with its mean over the other prompts**, by "
                f"block. Bands: 95 % intervals over {counted(count, 'prompt')}{given(self)}.",
                limits="that what is alike is the task: the template and the last token are alike too. See "
                "what the vector does in prompts without demonstrations.",
                short="Task vectors",
                drawn=count > 1,
            )
        ]

    def summary(self) -> str:
        """Number of layers and prompts."""
        return f"outputs of {len(self.vectors)} blocks at the last token, means over {len(self.similarity)} prompts"


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
        """Means, and every prompt beside the mean of the others."""
        states = torch.stack([own[:, 0].double() for own in read[0][0].values()], dim=1)
        others = (states.sum(0) - states) / max(len(states) - 1, 1)
        similarity = cosine_similarity(states, others, dim=-1)
        if len(states) == 1:
            similarity = torch.full_like(similarity, torch.nan)
        return TaskVectorResult(vectors=states.mean(0).float(), similarity=similarity)


task_vector = door(
    TaskVector,
    "task_vector",
    prompts="With demonstrations; their queries are others than those `steer` is tested on.",
)

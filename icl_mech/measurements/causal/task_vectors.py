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
from icl_mech.measurements.causal.definitions import TASK
from icl_mech.measurements.doors import door
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said
from icl_mech.shapes import LayerCurves


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskVector(Result):
    """Mean output of every block at the target, and how alike the prompts are.

    Attributes:
        vectors: Mean over prompts.
        similarity: Cosine of each prompt's output with the mean of the others'; not-a-number of a single
            prompt.
    """

    title: ClassVar[str] = "Task vectors"
    definitions: ClassVar[tuple[Definition, ...]] = (TASK,)

    vectors: Float[Tensor, "layer d_model"]
    similarity: Float[Tensor, "batch layer"]

    def quantities(self) -> dict[str, Quantity]:
        """How alike the outputs of different prompts are."""
        unit = "cosine with the mean of the other prompts"
        return {"similarity": Quantity(("layer",), self.similarity, unit=unit)}

    def drawing(self) -> LayerCurves:
        """Similarity by layer."""
        found = self.quantities()["similarity"]
        low, high = found.ends()
        return LayerCurves(
            title="How alike prompts are at the last token",
            names=("similarity",),
            values=found.value()[None],
            low=low[None],
            high=high[None],
            y_title=found.unit,
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
                f"Most of all behind block {best}: cosine "
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
class TakeTaskVector(Measurement[TaskVector]):
    """Mean output of every block at the target.

    Raises:
        PromptError: prompts this model cannot run.

    Source: Hendel et al. 2023, §3.
    """

    name: ClassVar[str] = "task_vector"
    side: ClassVar[Literal["true", "false"] | None] = "true"

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The outputs of all blocks at the target."""
        sites = [Site("resid_post", layer) for layer in range(model.info.n_layers)]
        reading = RowsReading(sites, data.targets[:, None], only_target=True)
        return [Pass(data, [reading], title="task vectors")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> TaskVector:
        """Means, and every prompt beside the mean of the others."""
        states = torch.stack([own[:, 0].double() for own in read[0][0].values()], dim=1)
        others = (states.sum(0) - states) / max(len(states) - 1, 1)
        similarity = cosine_similarity(states, others, dim=-1)
        if len(states) == 1:
            similarity = torch.full_like(similarity, torch.nan)
        return TaskVector(vectors=states.mean(0).float(), similarity=similarity)


task_vector = door(
    TakeTaskVector,
    "task_vector",
    prompts="With demonstrations; their queries are others than those `steer` is tested on.",
)

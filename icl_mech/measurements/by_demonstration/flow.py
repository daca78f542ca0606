"""Information flow demonstration by demonstration: which of many are read?

With the saliency `I_l`, label positions `p_d` of demonstrations `d` and the target `q`:

* `S_wp^d` = mean of `I_l[p_d, j]` over `j < p_d`, and `S_pq^d` = `I_l[q, p_d]`. Means over
  demonstrations weighted by their numbers of edges (`p_d`, and 1) are `S_wp` and `S_pq`;
* what the target reads of a whole demonstration: the sum of `I_l[q, j]` over all its tokens `j`, but
  for the first one of the prompt, which models attend to whatever it is.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1, one demonstration at a time; the paper
reports sums over all.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements.base import Pass
from icl_mech.measurements.by_demonstration.flow_result import DemonstrationFlow
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.doors import door
from icl_mech.measurements.saliency.edges import RoleFlowReading
from icl_mech.measurements.saliency.reduction import OfSaliency
from icl_mech.models import LanguageModel, ServerModel
from icl_mech.prompts import PromptBatch


@dataclass(frozen=True)
class FlowByDemonstration(OfSaliency[DemonstrationFlow]):
    """`S_wp` and `S_pq` of every demonstration, and what the target reads of each as a whole.

    Raises:
        RunError: unknown variant, or a model on a server.
        PromptError: prompts without demonstrations or with different numbers of them, or without
            answers the loss needs.

    Source: Wang et al. 2023, §2.1, one demonstration at a time.
    """

    name: ClassVar[str] = "flow_by_demonstration"

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts whose demonstrations do not stand in the same places of a row.

        Raises:
            PromptError: prompts without demonstrations, with different numbers of them, or with
                nothing before a label word.
            RunError: a model on a server, which adds up too little.
        """
        super().check(model, data)
        check_demonstrations(data, "flow by demonstration")
        counts = sorted({len(prompt.label_positions) for prompt in data})
        if len(counts) > 1:
            raise PromptError(
                f"The prompts have {counts[0]} to {counts[-1]} demonstrations; averages over prompts, "
                "demonstration by demonstration, need the same number in each."
            )
        for number, prompt in enumerate(data):
            if prompt.label_positions[0] == 0 or prompt.label_positions[-1] >= prompt.target:
                raise PromptError(
                    f"Prompt {number} has a label word at its first token or behind its target; "
                    "flow by demonstration needs text before each label word, and the target last."
                )
        if isinstance(model, ServerModel):
            raise RunError(
                "A model on a server adds up saliency by three kinds of edges only; measure flow by "
                "demonstration with a local model."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One backward pass, that of the flow scores."""
        assert self.loss is not None
        reading = RoleFlowReading.of(data, self.loss, self.reduction)
        return [Pass(data, [reading], title="flow by demonstration")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> DemonstrationFlow:
        """What stands at the label words, and at all tokens of their demonstrations."""
        reading = RoleFlowReading.of(data, "label", self.reduction)
        _, _, into, out_of = reading.parted(read[0][0])
        places = data.label_positions[:, None].expand(-1, into.shape[1], -1)
        wp = into.double().gather(2, places) / places
        pq = out_of.double().gather(2, places)
        parts = None
        if all(prompt.has_text_roles for prompt in data):
            tokens = _of_demonstrations(data, out_of.shape[2])
            parts = torch.einsum("bls,bds->bdl", out_of.double(), tokens)
        return DemonstrationFlow(
            wp=wp.transpose(1, 2).contiguous(),
            pq=pq.transpose(1, 2).contiguous(),
            read=parts,
            received=out_of.double().sum(2),
            edges=data.label_positions,
            distance=data.targets[:, None] - data.label_positions,
            classes=data.label_classes,
            labels=data.labels,
        )


def _of_demonstrations(prompts: PromptBatch, width: int) -> Float[Tensor, "batch demo pos"]:
    """1 at the tokens of each demonstration: its text, label word and template.

    The first token of a prompt counts in none: models attend to it whatever it is.
    """
    found = torch.zeros(len(prompts), prompts.n_demos, width, dtype=torch.float64)
    for row, prompt in enumerate(prompts):
        for span in prompt.spans:
            if span.demo is not None:
                found[row, span.demo, span.start : span.stop] = 1
    found[..., 0] = 0
    return found


flow_by_demonstration = door(
    FlowByDemonstration,
    "flow_by_demonstration",
    prompts="Prompts with the same number of demonstrations each.",
    interventions="Made before reading; saliency is that of the edited pattern.",
)

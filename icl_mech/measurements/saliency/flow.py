"""Information flow: how saliency is shared between three kinds of edges, by layer.

Over the saliency `I_l` of `icl_mech.measurements.saliency.maps`, diagonal excluded:

* `wp`: `S_wp` = mean of `I_l[p, j]` over label positions `p` and all `j < p` (text to label words);
* `pq`: `S_pq` = mean of `I_l[q, p]` over label positions `p` (label words to target `q`);
* `ww`: `S_ww` = mean of everything else below the diagonal.

The normalised curve takes the mean over prompts first, then divides each layer by the sum
over the three kinds. In the last layer `S_wp` is exactly 0: only row `q` has a gradient.

Beside the means per edge stand sums, which these hide: how all saliency of a layer is shared
between the roles of destination and source, and the same scores with random tokens in the label
words' place.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.errors import PromptError
from icl_mech.measurements.base import Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.saliency.edges import FlowReading, RoleFlowReading
from icl_mech.measurements.saliency.kinds import SCORES
from icl_mech.measurements.saliency.null import matched_positions, null_scores
from icl_mech.measurements.saliency.reduction import OfSaliency
from icl_mech.measurements.saliency.scores import FlowScores
from icl_mech.metrics import bootstrap_interval, flow_counts, normalised_flow
from icl_mech.models import LanguageModel, ServerModel
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.spans import ROLES

__all__ = ["SCORES", "Flow", "FlowReading", "FlowScores", "flow_scores"]


@dataclass(frozen=True)
class Flow(OfSaliency[FlowScores]):
    """Information flow by layer: `S_wp`, `S_pq`, `S_ww` of every prompt.

    With them, in the same pass, total saliency by role, and the scores of random tokens in the label
    words' place. A model on a server gives the three scores only.

    Attributes:
        draws: Number of draws of random tokens.
        seed: Of the first draw.

    Raises:
        RunError: unknown variant.
        PromptError: prompts without demonstrations, or without answers the loss needs.

    Source: Wang et al. 2023, §2.1.
    """

    draws: Count = 20
    seed: Natural = 0

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts whose scores would divide by zero.

        Raises:
            PromptError: a prompt without demonstrations, or with nothing before its label words.
        """
        super().check(model, data)
        counts = flow_counts(data.label_positions, data.targets)
        if bool((counts[:, :2] <= 0).any()):
            raise PromptError(
                "Flow scores need at least one demonstration with text before its label word in "
                "every prompt; build the prompts with shots >= 1."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One backward pass."""
        assert self.loss is not None
        if isinstance(model, ServerModel):
            reading: FlowReading = FlowReading(self.loss, self.reduction)
        else:
            reading = RoleFlowReading.of(data, self.loss, self.reduction)
        return [Pass(data, [reading], title="information flow")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> FlowScores:
        """Scores from sums: divided by the numbers of edges, averaged, normalised."""
        (sums,) = read[0]
        found = self.scores(sums[:, :, :3], data)
        if isinstance(model, ServerModel):
            return found
        reading = RoleFlowReading.of(data, "label", self.reduction)
        kinds, by_role, into, out_of = reading.parted(sums)
        drawn = matched_positions(data, self.draws, self.seed)
        null = None
        if drawn is not None:
            null = null_scores(drawn, kinds, into, out_of, data.targets).float().contiguous()
        return replace(
            found,
            roles=tuple(ROLES[place] for place in reading.roles),
            role_saliency=by_role.movedim(1, -1).contiguous(),
            null=null,
        )

    def scores(self, sums: Float[Tensor, "batch layer 3"], data: PromptBatch) -> FlowScores:
        """The three scores alone."""
        counts = flow_counts(data.label_positions, data.targets)
        # A prompt can lack other edges altogether (two tokens); its S_ww is then 0, not 0/0.
        per_prompt = torch.where(
            counts[:, None] > 0, sums.double() / counts[:, None].clamp(min=1), 0.0
        ).transpose(1, 2)
        low, high = bootstrap_interval(per_prompt, normalised_flow)
        return FlowScores(
            per_prompt=per_prompt.contiguous(),
            values=normalised_flow(per_prompt.mean(0)),
            low=low,
            high=high,
        )


flow_scores = door(
    Flow,
    "flow_scores",
    prompts="Prompts with at least one demonstration each.",
    interventions="Made before reading; saliency is that of the edited pattern.",
)

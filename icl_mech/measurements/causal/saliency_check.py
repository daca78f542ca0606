"""Agreement of saliency with attention knockouts, layer by layer, for the edges into and out of label words.

Saliency `I_l` of an edge is a first-order estimate of how the loss changes without it. Here the edges of a
group are knocked out in one layer at a time (their attention set to 0, the rest left as it is), and the change
of the loss is compared with `I_l` summed over the same edges: rank correlation over layers, for each prompt.

* `wp`: edges from all earlier tokens to the label words;
* `pq`: edges from the label words to the target.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1 (saliency); the comparison is ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch.nn.functional import cross_entropy

from icl_mech._typing import Float, Tensor
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions import Intervention, Isolate, Reweight
from icl_mech.measurements.base import Measurement, Pass, Variants
from icl_mech.measurements.causal.answers import AnswerReading
from icl_mech.measurements.doors import door
from icl_mech.measurements.saliency.reduction import FlowReading
from icl_mech.metrics import Interval, rank_agreement
from icl_mech.models import LanguageModel, ModelInfo
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result, quantity
from icl_mech.results.judging import Status, judged, together

GROUPS = ("wp", "pq")

CLOSED = -200.0
"""Logarithm of a factor that is 0 in float32."""

CUT = Definition(
    "agreement of saliency with cutting",
    r"\rho_n = \operatorname{Spearman}_l\left(\sum_{(i,j) \in G} I_l[i,j],\ "
    r"\left|L(A_l[G] \leftarrow 0) - L\right|\right)",
    "Rank correlation over layers l, for each prompt, between saliency summed over a group G of "
    "edges and the absolute change of the loss L when their attention is set to 0 in that layer.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class SaliencyCheckResult(Result):
    """Saliency of two groups of edges and the effect of cutting them, by layer.

    Attributes:
        saliency: Sum over the edges of a group.
        change: Change of the loss when they are cut in that layer; positive if the loss rises.
    """

    definitions: ClassVar[tuple[Definition, ...]] = (CUT,)

    axis_labels: ClassVar[Mapping[str, Sequence[str]]] = {"group": GROUPS}

    saliency: Float[Tensor, "batch group layer"] = quantity("saliency")
    change: Float[Tensor, "batch group layer"] = quantity("change of the loss, in nats")

    def quantities(self) -> dict[str, Quantity]:
        """Rank agreement by group, where it is defined for all prompts; saliency and change by layer."""
        by_prompt, unit = self.agreement, "rank correlation over layers"
        if bool(by_prompt.isnan().any()):
            return super().quantities()
        agreement = Quantity(("group",), by_prompt, unit=unit, kind="correlation")
        return {"agreement": agreement, **super().quantities()}

    @property
    def agreement(self) -> Float[Tensor, "batch group"]:
        """Rank correlation over layers between saliency and the absolute change of the loss."""
        pairs = zip(self.saliency.unbind(1), self.change.abs().unbind(1), strict=True)
        return torch.stack(
            [rank_agreement(saliency.double(), change.double()) for saliency, change in pairs], 1
        )

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.change)

    @property
    def agreements(self) -> dict[str, Interval]:
        """Mean rank correlation by group; groups where it is undefined for a prompt (constant over layers) are left out."""
        groups = GROUPS if "agreement" in self.quantities() else ()
        return {group: self.interval("agreement", group=group) for group in groups}

    @property
    def status(self) -> Status:
        """Status of the claim that cutting changes the loss more where saliency is higher, in both groups."""
        return together(*(judged(each, prompts=self.count) for each in self.agreements.values()))


@dataclass(frozen=True)
class SaliencyCheck(Measurement[SaliencyCheckResult]):
    """Saliency of edges compared with the effect of cutting them, layer by layer.

    Costs one backward pass, and two forward passes for each layer.

    Raises:
        PromptError: prompts without answers or demonstrations.
        RunError: a model of one layer.
    """

    side: ClassVar[Literal["true", "false"] | None] = "true"
    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts without answers or demonstrations, and models of one layer.

        Raises:
            PromptError: says what is missing.
            RunError: a model of one layer.
        """
        _ = data.answers
        if min(len(prompt.label_positions) for prompt in data) < 1:
            raise PromptError(
                "Every prompt needs at least one demonstration, because edges into and from label "
                "words are cut."
            )
        if model.info.n_layers < 2:
            raise RunError(f"{model.info.name!r} has only one layer, so layers cannot be ranked.")

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Saliency in one backward pass; the loss uncut, and with each group cut in each layer."""
        reading = AnswerReading()
        return [
            Pass(data, [FlowReading("label")], title="saliency"),
            Variants(data, [reading], title="cut edges", variants=[[], *_cuts(model.info, data)]),
        ]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> SaliencyCheckResult:
        """Sums of saliency, and changes of the loss."""
        ((sums,), runs) = read
        losses = torch.stack(
            [
                cross_entropy(answers.label_logits.double(), data.answers, reduction="none")
                for (answers,) in runs
            ],
            dim=1,
        )
        change = (losses[:, 1:] - losses[:, :1]).unflatten(1, (len(GROUPS), -1))
        saliency = sums[:, :, : len(GROUPS)].transpose(1, 2)
        return SaliencyCheckResult(saliency=saliency.contiguous(), change=change.contiguous())


def _cuts(info: ModelInfo, data: PromptBatch) -> list[list[Intervention]]:
    """One cut for each group in each layer."""
    cuts: list[list[Intervention]] = [
        [Isolate([layer], mode="zero")] for layer in range(info.n_layers)
    ]
    for layer in range(info.n_layers):
        beta = torch.zeros(info.n_layers, info.n_heads, data.n_labels)
        beta[layer] = CLOSED
        cuts.append([Reweight(beta)])
    return cuts


saliency_check = door(SaliencyCheck, "saliency_check", prompts="With demonstrations and answers.")

"""The study of anchors in any text: which spans and tokens later text rests on."""

from dataclasses import dataclass
from typing import Any

from icl_mech.engine import Loss
from icl_mech.errors import PromptError
from icl_mech.measurements.anchors.agreement import agreement
from icl_mech.measurements.anchors.span_result import RECEIVERS, SpanMatrices
from icl_mech.measurements.anchors.spans import SpanFlow
from icl_mech.measurements.anchors.suppression import Suppression
from icl_mech.measurements.anchors.suppression_result import SuppressionEffects
from icl_mech.measurements.anchors.tokens import AnchorTokens
from icl_mech.measurements.base import AnyMeasurement
from icl_mech.measurements.running import Item
from icl_mech.measurements.saliency.reduction import Reduction
from icl_mech.prompts import PromptBatch
from icl_mech.studies.bench import Bench

ORDER = ("suppression", "anchor_agreement", "span_flow", "span_saliency", "anchor_tokens")
"""Of the results on a page."""

PROXIMITIES = {4: 12, 2: 7, 1: 0}
"""Following spans that scores leave out, and the fewest spans of a text for it."""


@dataclass(frozen=True)
class Anchors:
    """Attention and saliency between spans, suppression, their agreement, and anchor tokens.

    Attributes:
        reduction: Of saliency.
        loss: Of saliency.
    """

    reduction: Reduction = "sum_then_abs"
    loss: Loss | None = None

    def run(self, bench: Bench, prompts: PromptBatch) -> None:
        """Put everything that these texts give on the bench.

        Raises:
            PromptError: prompts with demonstrations.
        """
        if prompts.has_classes:
            raise PromptError(
                "The study of anchors takes texts, and these prompts have demonstrations. Build prompts "
                "with texts(list_of_texts, model); of label words anchor_tokens tells the same."
            )
        shortest = min(map(len, prompts.text_spans))
        proximity = next(p for p, least in PROXIMITIES.items() if shortest >= least)
        if proximity < max(PROXIMITIES):
            bench.notes.append(
                f"The shortest text has {shortest} spans; scores of spans are over those that follow at a "
                f"distance of {proximity} or more, not of {max(PROXIMITIES)}, which takes "
                f"{PROXIMITIES[max(PROXIMITIES)]} spans."
            )
        found: dict[str, AnyMeasurement[Any, Any]] = {
            "span_flow": SpanFlow(proximity=proximity),
            "span_saliency": SpanFlow(self.loss, self.reduction, "saliency", proximity),
            "anchor_tokens": AnchorTokens(self.loss, self.reduction),
            "suppression": Suppression(),
        }
        bench.run(
            {
                name: Item.checked(own, bench.model, prompts, bench.options)
                for name, own in found.items()
            }
        )
        self._agreement(bench, shortest, proximity)
        bench.order(ORDER)

    def _agreement(self, bench: Bench, shortest: int, proximity: int) -> None:
        """Attention against suppression, where texts have enough spans."""
        attention, saliency, effects = (
            bench.results[name] for name in ("span_flow", "span_saliency", "suppression")
        )
        assert isinstance(attention, SpanMatrices)
        assert isinstance(saliency, SpanMatrices)
        assert isinstance(effects, SuppressionEffects)
        if shortest < proximity + 3:
            bench.notes.append(
                f"Agreement of attention and suppression left out: a rank correlation takes "
                f"{proximity + 3} spans in every text, and one has {shortest}."
            )
            return
        heads = bench.model.info.n_layers * bench.model.info.n_heads
        top = min(RECEIVERS, heads)
        bench.keep("anchor_agreement", agreement(attention, effects, saliency, top=top))

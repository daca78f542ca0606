"""Accuracy by layer with true and with false demonstrations, their gap and critical layer.

Entry `l` of the logit lens is read as if the model ended there. The *gap* is the accuracy
with true minus with false demonstrations; the *critical layer* is the first entry from which
the gap stays at or above half its final value (`reference`: the first crossing).

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech.measurements.accuracy.layer_result import LayerAccuracy
from icl_mech.measurements.accuracy.pairs import OfPairs, entry_scores, taught_classes
from icl_mech.measurements.base import Pair
from icl_mech.measurements.doors import door
from icl_mech.models import LanguageModel

__all__ = ["AccuracyByLayer", "LayerAccuracy", "layer_accuracy"]


@dataclass(frozen=True)
class AccuracyByLayer(OfPairs[LayerAccuracy]):
    """Accuracy at every layer with true and with false demonstrations of the same queries.

    Raises:
        PromptError: sets that are not pairs, or have no answers.
        RunError: unknown variant or interval, or a lens of another model.

    Source: Halawi et al. 2023, §4.
    """

    name: ClassVar[str] = "layer_accuracy"

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> LayerAccuracy:
        """Scores at the targets of both sides."""
        true, false = data
        sides = [
            entry_scores(
                lens, 0, true.answers, taught_classes(false), true.label_tokens,
                exact_ties=self.variant == "reference",
            )
            for (lens,) in read
        ]  # fmt: skip
        return LayerAccuracy(
            scores=torch.stack([side.scores for side in sides], dim=1),
            true_probs=sides[0].probs,
            false_probs=sides[1].probs,
            tie_counts=torch.stack([side.tie_counts for side in sides], dim=1),
            answers=true.answers,
            variant=self.variant,
            interval_kind=self.interval,
        )


layer_accuracy = door(
    AccuracyByLayer,
    "layer_accuracy",
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones, see `build_prompt_pairs`.",
)

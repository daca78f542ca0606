"""Accuracy by layer with true and with false demonstrations, their gap and critical layer.

Entry `l` of the logit lens is read as if the model ended there. The *gap* is the accuracy
with true minus with false demonstrations; the *critical layer* is the first entry from which
the gap stays at or above half its final value (`reference`: the first crossing).

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech.engine import Path
from icl_mech.interventions import Intervention
from icl_mech.measurements.accuracy.layer_result import LayerAccuracy
from icl_mech.measurements.accuracy.pairs import OfPairs, entry_scores, taught_classes
from icl_mech.measurements.base import Pair
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.residuals import LensVariant
from icl_mech.measurements.running import measured
from icl_mech.metrics import IntervalKind
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch

__all__ = ["AccuracyByLayer", "LayerAccuracy", "layer_accuracy"]


@dataclass(frozen=True)
class AccuracyByLayer(OfPairs[LayerAccuracy]):
    """Accuracy at every layer with true and with false demonstrations of the same queries."""

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


def layer_accuracy(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    *,
    interventions: Sequence[Intervention] = (),
    variant: LensVariant = "sound",
    interval: IntervalKind = "score",
    lens: FittedLens | None = None,
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
    progress: bool | None = None,
) -> LayerAccuracy:
    """Accuracy at every layer with true and with false demonstrations of the same queries.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true demonstrations.
        false: The same prompts with false ones, see `build_prompt_pairs`.
        interventions: Made during both passes.
        variant: `sound`, or `reference`: the paper's lens, exact ties and first crossing.
        interval: `score` (see `score_interval`), `bootstrap` or `reference`: mean +- 1.96 sd /
            sqrt(N).
        lens: A fitted lens (`fit_tuned_lens`, `fit_jacobian_lens`) that maps every entry but the
            last before it is read; None: the logit lens.
        batch_size: Prompts per batch at most.
        memory: Budget such as `"8GB"`.
        path: `auto` or `whole`, see `engine.run`.
        progress: Show a progress bar.

    Raises:
        PromptError: sets that are not pairs, or have no answers.
        RunError: unknown variant or interval, or a lens of another model.

    Source: Halawi et al. 2023, §4.
    """
    return measured(
        AccuracyByLayer(variant, interval, lens), model, (true, false), interventions=interventions,
        batch_size=batch_size, memory=memory, path=path, progress=progress,
    )  # fmt: skip

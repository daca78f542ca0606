"""Accuracy by layer with true and with false demonstrations, their gap and critical layer.

Entry `l` of the logit lens is read as if the model ended there. The *gap* is the accuracy
with true minus with false demonstrations; the *critical layer* is the first entry from which
the gap stays at or above half its final value (`reference`: the first crossing).

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import run
from icl_mech.errors import RunError, near_matches
from icl_mech.interventions import Intervention
from icl_mech.measurements._old import provenance
from icl_mech.measurements.accuracy.pairs import (
    METRIC_NAMES,
    METRICS,
    SIDES,
    PairScores,
    check_pairs,
    entry_scores,
    pair_source,
    taught_classes,
)
from icl_mech.measurements.lens.residuals import LayerLensReading, LensRows, LensVariant
from icl_mech.metrics import Interval, IntervalKind, bootstrap_interval, critical_layer
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
from icl_mech.shapes import LayerCurves

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerAccuracy(PairScores):
    """Scores of every pair of prompts at every entry; entry 0 is the embedding.

    Attributes:
        scores: By metric, side, prompt and entry.
        true_probs: Normalised label probabilities with true demonstrations.
        false_probs: The same with false ones.
        answers: True class of each query.
        variant: Of lens and critical layer.
        interval: Kind of the intervals.
    """

    title: ClassVar[str] = "True and false demonstrations by layer"

    true_probs: Float[Tensor, "batch entry label"]
    false_probs: Float[Tensor, "batch entry label"]
    answers: Int[Tensor, " batch"]
    variant: LensVariant = "sound"

    @property
    def pair_scores(self) -> Float[Tensor, "batch side entry"]:
        """Calibrated scores, paired."""
        return self.scores[0].transpose(0, 1)

    @property
    def gap(self) -> Float[Tensor, " entry"]:
        """Calibrated accuracy with true minus with false demonstrations."""
        return self.accuracy("true") - self.accuracy("false")

    @property
    def gap_ends(self) -> tuple[Tensor, Tensor]:
        """Ends of the gap's interval, paired over prompts."""
        return bootstrap_interval(self.pair_scores[:, 0] - self.pair_scores[:, 1])

    @property
    def final_gap(self) -> Interval:
        """The gap at the last entry."""
        low, high = self.gap_ends
        return Interval(float(self.gap[-1]), float(low[-1]), float(high[-1]))

    @property
    def critical(self) -> Interval | None:
        """The critical layer with its bootstrap interval.

        None where it is not defined: the interval of the final gap includes 0. Resamples
        without a final gap are left out.
        """
        if self.final_gap.low <= 0:
            return None

        def statistic(means: Tensor) -> Tensor:
            gap = means[:, 0] - means[:, 1]
            layer = critical_layer(gap, self.variant).double()
            return torch.where(gap[:, -1] > 0, layer, torch.nan)

        low, high = bootstrap_interval(self.pair_scores, statistic)
        return Interval(float(critical_layer(self.gap, self.variant)), float(low), float(high))

    def drawing(self, metric: str = "calibrated") -> LayerCurves:
        """Accuracy by entry on both sides, with the critical layer marked."""
        sides = [self.ends(side, metric) for side in SIDES]
        critical = self.critical if metric == "calibrated" else None
        marks = () if critical is None else ((critical.value, "critical layer"),)
        chance = 1 / self.true_probs.shape[-1]
        return LayerCurves(
            title=f"{METRIC_NAMES[metric][0].upper()}{METRIC_NAMES[metric][1:]} by layer",
            names=("true demonstrations", "false demonstrations"),
            values=torch.stack([self.accuracy(side, metric) for side in SIDES]),
            low=torch.stack([low for low, _ in sides]),
            high=torch.stack([high for _, high in sides]),
            y_title=METRIC_NAMES[metric],
            x_title="entry (0: embedding, l: after l blocks)",
            note=f"{len(self.answers)} pairs of prompts, 95 % intervals over prompts",
            marks=marks,
            levels=() if metric in ("top_labels", "label_space") else ((chance, "chance"),),
        )

    def summary(self) -> str:
        """Final accuracies, gap and critical layer."""
        critical = self.critical
        where = (
            "no critical layer (the gap's interval includes 0)"
            if critical is None
            else f"critical layer {critical}"
        )
        last = {
            side: Interval(
                float(self.accuracy(side)[-1]), *(float(end[-1]) for end in self.ends(side))
            )
            for side in SIDES
        }
        return (
            f"calibrated accuracy {last['true']} with true and {last['false']} with false "
            f"demonstrations, gap {self.final_gap}; {where}{self.ties.note}"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per metric, side and entry."""
        import pandas as pd

        rows = []
        for metric in METRICS:
            if not self.defined(metric):
                continue
            for side in SIDES:
                low, high = self.ends(side, metric)
                values = self.accuracy(side, metric)
                rows += [
                    {
                        "metric": metric,
                        "demonstrations": side,
                        "layer": layer,
                        "value": float(values[layer]),
                        "low": float(low[layer]),
                        "high": float(high[layer]),
                    }
                    for layer in range(len(values))
                ]
        return pd.DataFrame(rows)


def layer_accuracy(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    *,
    interventions: Sequence[Intervention] = (),
    variant: LensVariant = "sound",
    interval: IntervalKind = "bootstrap",
    batch_size: int | None = None,
    progress: bool | None = None,
) -> LayerAccuracy:
    """Accuracy at every layer with true and with false demonstrations of the same queries.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true demonstrations.
        false: The same prompts with false ones, see `build_prompt_pairs`.
        interventions: Made during both passes.
        variant: `sound`, or `reference`: the paper's lens, exact ties and first crossing.
        interval: `bootstrap`, or `reference`: mean +- 1.96 sd / sqrt(N).
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Raises:
        PromptError: sets that are not pairs, or have no answers.
        RunError: unknown variant or interval.

    Source: Halawi et al. 2023, §4.
    """
    for name, value, kind in (("variant", variant, LensVariant), ("interval", interval, IntervalKind)):
        if value not in get_args(kind):
            raise RunError(f"{name}={value!r}. {near_matches(value, get_args(kind))}")
    check_pairs(true, false)
    adapted = adapt(model)
    lenses = [
        run(
            adapted, prompts, [LayerLensReading(variant)], interventions,
            batch_size=batch_size, progress=progress, title=f"{side} demonstrations",
        )[0]
        for side, prompts in zip(SIDES, (true, false), strict=True)
    ]  # fmt: skip
    origin = provenance(adapted, true, interventions, lens=variant, interval=interval)
    return layer_result(lenses, true, false, variant, interval, origin)


def layer_result(
    lenses: Sequence[LensRows],
    true: PromptBatch,
    false: PromptBatch,
    variant: LensVariant,
    interval: IntervalKind,
    origin: dict[str, Any],
) -> LayerAccuracy:
    """Scores from what `LayerLensReading` read at the targets of both sides."""
    sides = [
        entry_scores(
            lens, 0, true.answers, taught_classes(false), true.label_tokens,
            exact_ties=variant == "reference",
        )
        for lens in lenses
    ]  # fmt: skip
    return LayerAccuracy(
        scores=torch.stack([side.scores for side in sides], dim=1),
        true_probs=sides[0].probs,
        false_probs=sides[1].probs,
        tie_counts=torch.stack([side.tie_counts for side in sides], dim=1),
        answers=true.answers,
        variant=variant,
        interval=interval,
        provenance={**origin, **pair_source(true, false)},
    )

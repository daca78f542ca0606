"""Accuracy by layer with true and with false demonstrations, their gap and critical layer.

Entry `l` of the logit lens is read as if the model ended there. The *gap* is the accuracy
with true minus with false demonstrations; the *critical layer* is the first entry from which
the gap stays at or above half its final value (`reference`: the first crossing).

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Path
from icl_mech.interventions import Intervention
from icl_mech.measurements.accuracy.pairs import (
    METRIC_NAMES,
    METRICS,
    OfPairs,
    PairScores,
    entry_scores,
    taught_classes,
)
from icl_mech.measurements.base import Pair
from icl_mech.measurements.lens.residuals import LensVariant
from icl_mech.measurements.running import measured
from icl_mech.metrics import Interval, IntervalKind, bootstrap_interval, critical_layer
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Figure, Quantity, basis
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
        interval_kind: Kind of the intervals.
    """

    title: ClassVar[str] = "True and false demonstrations by layer"
    shows: ClassVar[tuple[str, ...]] = METRICS

    true_probs: Float[Tensor, "batch entry label"]
    false_probs: Float[Tensor, "batch entry label"]
    answers: Int[Tensor, " batch"]
    variant: LensVariant = "sound"

    def quantities(self) -> dict[str, Quantity]:
        """The metrics by side and layer, and the `gap`, paired over prompts."""
        paired = self.pair_scores[:, 0] - self.pair_scores[:, 1]
        return {**super().quantities(), "gap": Quantity(("layer",), paired, unit="accuracy gap")}

    @property
    def pair_scores(self) -> Float[Tensor, "batch side entry"]:
        """Calibrated scores, paired."""
        return self.scores[0].transpose(0, 1)

    @property
    def gap(self) -> Float[Tensor, " entry"]:
        """Calibrated accuracy with true minus with false demonstrations."""
        return self.accuracy("true") - self.accuracy("false")

    @property
    def final_gap(self) -> Interval:
        """The gap at the last entry."""
        return self.interval("gap", layer=self.scores.shape[-1] - 1)

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

        # Not a quantity: which layer is critical must not hang on how a mean is rounded.
        low, high = bootstrap_interval(self.pair_scores, statistic)
        return Interval(float(critical_layer(self.gap, self.variant)), float(low), float(high))

    def drawing(self, show: str = "calibrated") -> LayerCurves:
        """One metric by entry on both sides; with calibrated accuracy the critical layer."""
        self.check_show(show)
        found = self.sel(show)
        critical = self.critical if show == "calibrated" else None
        chance = 1 / self.true_probs.shape[-1]
        return LayerCurves(
            title=f"{METRIC_NAMES[show][0].upper()}{METRIC_NAMES[show][1:]} by layer",
            names=("true demonstrations", "false demonstrations"),
            values=found.values,
            low=found.low,
            high=found.high,
            y_title=METRIC_NAMES[show],
            x_title="entry (0: embedding, l: after l blocks)",
            note=basis(self, f"{len(self.answers)} pairs of prompts"),
            marks=() if critical is None else ((critical.value, "critical layer"),),
            levels=() if show in ("top_labels", "label_space") else ((chance, "chance"),),
        )

    def figures(self) -> list[Figure]:
        """Calibrated and plain accuracy, and the probability of all label words."""
        return [
            *super().figures(),
            Figure("plain", "plain accuracy", "The same entries, argmax over the label words."),
            Figure(
                "label_space",
                "label space",
                "Probability of all label words together: where the format is understood.",
            ),
        ]

    def summary(self) -> str:
        """Final accuracies, gap and critical layer."""
        critical = self.critical
        where = (
            "no critical layer (the gap's interval includes 0)"
            if critical is None
            else f"critical layer {critical}"
        )
        last = self.sel(layer=self.scores.shape[-1] - 1)
        true, false = (last.interval(side=side) for side in ("true", "false"))
        return (
            f"calibrated accuracy {true} with true and {false} with false "
            f"demonstrations, gap {self.final_gap}; {where}{self.ties.note}"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per metric, side and entry."""
        import pandas as pd

        metrics = [name for name in METRICS if self.defined(name)]
        tables = [self.sel(name).to_pandas() for name in metrics]
        found = pd.concat(tables, keys=metrics, names=["metric"]).reset_index(level=0)
        return found.reset_index(drop=True).rename(columns={"side": "demonstrations"})


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
    interval: IntervalKind = "bootstrap",
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
        interval: `bootstrap`, or `reference`: mean +- 1.96 sd / sqrt(N).
        batch_size: Prompts per batch at most.
        memory: Budget such as `"8GB"`.
        path: `auto` or `whole`, see `engine.run`.
        progress: Show a progress bar.

    Raises:
        PromptError: sets that are not pairs, or have no answers.
        RunError: unknown variant or interval.

    Source: Halawi et al. 2023, §4.
    """
    return measured(
        AccuracyByLayer(variant, interval), model, (true, false), interventions=interventions,
        batch_size=batch_size, memory=memory, path=path, progress=progress,
    )  # fmt: skip

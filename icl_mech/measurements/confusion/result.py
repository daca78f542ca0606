"""What a diagnosis of confusion gives: both matrices, their figures and what they say."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.measurements.confusion import texts
from icl_mech.measurements.confusion.agreement import agreement, limits
from icl_mech.measurements.confusion.distances import label_pairs, normalised
from icl_mech.measurements.confusion.drawings import confusion_matrices, correlation_curve
from icl_mech.measurements.confusion.numbers import ConfusionNumbers
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, basis
from icl_mech.shapes import LabelMatrices, LayerCurves

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfusionDiagnosis(ConfusionNumbers):
    """Predicted and measured confusion of every pair of classes.

    Attributes:
        distances: Predicted confusion of each layer in `layers`: 0 most, 1 least confusable.
        confusion_auc: Measured confusion: 0.5 chance, 1 told apart; not-a-number for classes
            without prompts.
        auc_low: Lower end of its 95 % interval over prompts.
        auc_high: Upper end.
        correlation: Spearman correlation of both over pairs, per layer; not-a-number if undefined.
        low: Lower end of its 95 % bootstrap interval over prompts, distances fixed.
        high: Upper end.
        per_prompt: Distances of each context, not divided.
        label_logits: Logits of the label words the measured confusion comes from.
        answers: True classes of those prompts.
        layers: Blocks the distances are of.
        layer: Block shown by default.
        labels: Names of the classes.
        notes: What limits these numbers.
    """

    title: ClassVar[str] = "Which classes are confused"
    shows: ClassVar[tuple[str, ...]] = ("matrices", "layers")
    definitions: ClassVar[tuple[Definition, ...]] = texts.DEFINITIONS

    def drawing(
        self, show: str = "matrices", *, layer: int | None = None
    ) -> LabelMatrices | LayerCurves:
        """Both matrices side by side, or the correlation by layer.

        Args:
            show: `matrices` or `layers`.
            layer: Block whose distances are shown (default `layer`).

        Raises:
            ResultError: unknown choice, a layer that was not read, or an undefined correlation.
        """
        self.check_show(show)
        if show == "layers":
            return self._correlation_curve()
        shown = self.layer if layer is None else layer
        return confusion_matrices(
            shown,
            self.distances[self.index(shown)],
            torch.stack([self.confusion_auc, self.auc_low, self.auc_high]),
            self.labels,
            self.correlation_text(shown),
        )

    def _correlation_curve(self) -> LayerCurves:
        if bool(self.correlation.isnan().all()):
            raise ResultError(
                f"There is no rank correlation to draw with {len(self.labels)} classes. "
                + " ".join(self.notes)
            )
        note = f"{len(self.pairs)} pairs; {basis(self)}; distances and classes fixed"
        return correlation_curve(self.layers, self.correlation, self.low, self.high, note)

    def figures(self) -> list[Figure]:
        """Both matrices, and the correlation by layer where there is one."""
        found = [texts.matrices(self)]
        if len(self.layers) > 1 and not bool(self.correlation.isnan().all()):
            found.append(texts.layers(self))
        return found

    def summary(self) -> str:
        """The rank correlation in `layer`, and what limits it."""
        return "; ".join([f"layer {self.layer}: {self.correlation_text(self.layer)}", *self.notes])

    def to_pandas(self) -> "pd.DataFrame":
        """One row per layer and pair of classes."""
        import pandas as pd

        return pd.DataFrame(
            {
                "layer": layer,
                "first": self.labels[a],
                "second": self.labels[b],
                "distance": float(self.distances[place, a, b]),
                "auc": float(self.confusion_auc[a, b]),
                "auc_low": float(self.auc_low[a, b]),
                "auc_high": float(self.auc_high[a, b]),
            }
            for place, layer in enumerate(self.layers)
            for a, b in label_pairs(len(self.labels))
        )


def diagnosis(
    label_logits: Float[Tensor, "batch label"],
    prompts: PromptBatch,
    per_prompt: Float[Tensor, "context layer label label"],
    layers: tuple[int, ...],
) -> ConfusionDiagnosis:
    """The result, from label logits and the distances of every context."""
    distances = normalised(per_prompt.mean(0))
    found = agreement(label_logits, prompts.answers, distances)
    auc, auc_low, auc_high = found.auc
    correlation, low, high = found.correlation
    return ConfusionDiagnosis(
        distances=distances,
        confusion_auc=auc,
        auc_low=auc_low,
        auc_high=auc_high,
        correlation=correlation,
        low=low,
        high=high,
        per_prompt=per_prompt,
        label_logits=label_logits,
        answers=prompts.answers,
        layers=layers,
        layer=layers[min(len(layers) - 1, len(layers) * 2 // 3)],
        labels=prompts.labels,
        notes=tuple(limits(prompts.labels, layers, distances, found)),
    )

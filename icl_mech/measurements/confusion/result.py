"""What a diagnosis of confusion gives: both matrices, their agreement, and intervals over prompts."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.confusion.agreement import agreement, limits
from icl_mech.measurements.confusion.distances import (
    label_pairs,
    normalised,
    pair_aucs,
    rank_correlation,
)
from icl_mech.measurements.confusion.drawings import confusion_matrices, correlation_curve
from icl_mech.metrics import Interval
from icl_mech.prompts import PromptBatch
from icl_mech.results import Figure, Quantity, Result, basis
from icl_mech.shapes import LabelMatrices, LayerCurves

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfusionDiagnosis(Result):
    """Predicted and measured confusion of every pair of classes.

    Attributes:
        distances: Predicted confusion of each layer in `layers`: 0 most, 1 least confusable.
        confusion_auc: Measured confusion: 0.5 chance, 1 told apart; not-a-number for classes
            without prompts.
        auc_low: Lower end of its 95 % bootstrap interval over prompts.
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

    distances: Float[Tensor, "layer label label"]
    confusion_auc: Float[Tensor, "label label"]
    auc_low: Float[Tensor, "label label"]
    auc_high: Float[Tensor, "label label"]
    correlation: Float[Tensor, " layer"]
    low: Float[Tensor, " layer"]
    high: Float[Tensor, " layer"]
    per_prompt: Float[Tensor, "context layer label label"]
    label_logits: Float[Tensor, "batch label"]
    answers: Int[Tensor, " batch"]
    layers: tuple[int, ...]
    layer: int
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def distance(self) -> Float[Tensor, "label label"]:
        """Predicted confusion in `layer`."""
        return self.distances[self._index(self.layer)]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of classes whose confusion was measured."""
        return [
            (a, b)
            for a, b in label_pairs(len(self.labels))
            if not bool(self.confusion_auc[a, b].isnan())
        ]

    def quantities(self) -> dict[str, Quantity]:
        """Measured confusion of each pair, its `correlation` with distances, and these `distances`.

        Distances are estimated over prompts only if their contexts are the prompts themselves.
        """
        pairs = self.pairs
        if not pairs:
            return {}
        first, second = (list(side) for side in zip(*pairs, strict=True))
        margins = self.label_logits[:, first] - self.label_logits[:, second]

        def aucs(weights: Tensor) -> Tensor:
            counts = (weights * len(self.answers)).round().float()
            return pair_aucs(self.label_logits, self.answers, pairs, counts)

        def correlations(weights: Tensor) -> Tensor:
            return rank_correlation(self.distances[:, first, second], aucs(weights))

        def distances(weights: Tensor) -> Tensor:
            layers = self.per_prompt.double().unbind(1)
            # One layer at a time: resamples of all pairs of all layers are large.
            means = ((weights @ own.flatten(1)).unflatten(1, own.shape[1:]) for own in layers)
            return torch.stack([normalised(own)[:, first, second] for own in means], dim=1)

        auc_ends = (self.auc_low[first, second], self.auc_high[first, second])
        found = {
            "auc": Quantity(("pair",), margins, aucs, "ROC-AUC of P(a)/P(b)", auc_ends),
            # No prompt has a correlation of its own.
            "correlation": Quantity(
                ("layer",), self.answers, correlations, "Spearman correlation over pairs",
                (self.low, self.high),
            ),
        }  # fmt: skip
        elsewhere = self.provenance.get("variants", {}).get("contexts") is not None
        if len(self.per_prompt) == len(self.answers) and not elsewhere:
            apart = self.per_prompt[:, :, first, second]
            unit = "distance, share of the largest"
            found["distance"] = Quantity(("layer", "pair"), apart, distances, unit)
        return found

    def coordinates(self) -> dict[str, tuple[Any, ...]]:
        """Layers, and the names of both classes of each pair."""
        names = tuple(f"{self.labels[a]} / {self.labels[b]}" for a, b in self.pairs)
        return {"layer": self.layers, "pair": names}

    @checked(ResultError)
    def rank_correlation(self, layer: int | None = None) -> Interval:
        """Spearman correlation of predicted and measured confusion in one layer.

        Raises:
            ResultError: a layer that was not read.
        """
        place = self._index(self.layer if layer is None else layer)
        return Interval(*(float(ends[place]) for ends in (self.correlation, self.low, self.high)))

    def _index(self, layer: int) -> int:
        if layer not in self.layers:
            raise ResultError(f"Layer {layer} was not read; there are {list(self.layers)}.")
        return self.layers.index(layer)

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
            f"predicted: key distance, layer {shown}",
            self.distances[self._index(shown)],
            self.confusion_auc,
            self.labels,
            self._correlation_text(shown),
        )

    def _correlation_curve(self) -> LayerCurves:
        if bool(self.correlation.isnan().all()):
            raise ResultError(
                f"There is no rank correlation to draw with {len(self.labels)} classes. "
                + " ".join(self.notes)
            )
        note = f"{len(self.pairs)} pairs; {basis(self)}; distances and classes fixed"
        return correlation_curve(self.layers, self.correlation, self.low, self.high, note)

    def _correlation_text(self, layer: int) -> str:
        pairs = len(self.pairs)
        found = self.rank_correlation(layer)
        if math.isnan(found.value):
            return f"no rank correlation over {pairs} pair{'s' * (pairs != 1)} of classes"
        return f"Spearman correlation over {pairs} pairs of classes: {found}"

    def figures(self) -> list[Figure]:
        """Both matrices, and the correlation by layer where there is one."""
        found = [Figure("matrices", "", self.summary())]
        if not bool(self.correlation.isnan().all()):
            sentence = "Rank correlation of both matrices in every layer."
            found.append(Figure("layers", "by layer", sentence))
        return found

    def summary(self) -> str:
        """The rank correlation in `layer`, and what limits it."""
        return "; ".join([f"layer {self.layer}: {self._correlation_text(self.layer)}", *self.notes])

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

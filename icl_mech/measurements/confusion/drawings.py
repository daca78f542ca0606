"""The figures of the diagnosis, from its numbers."""

import math

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.shapes import LabelMatrices, LabelMatrix, LayerCurves


def confusion_matrices(
    layer: int,
    distance: Float[Tensor, "label label"],
    auc: Float[Tensor, "end label label"],
    labels: tuple[str, ...],
    note: str,
) -> LabelMatrices:
    """Predicted and measured confusion side by side; a class with itself is framed and blank."""
    alone = torch.eye(len(labels), dtype=torch.bool)
    value, low, high = (own.masked_fill(alone, math.nan) for own in auc)
    return LabelMatrices(
        title="Which classes are confused",
        matrices=(
            LabelMatrix(
                f"Predicted: distance of keys, layer {layer}",
                distance.masked_fill(alone, math.nan), labels, labels, "", "",
                "distance, share of the largest", diagonal=True, ends=(1.0, 0.0),
            ),
            LabelMatrix(
                "Measured: AUC of the two label words", value, labels, labels, "", "", "AUC",
                diagonal=True, low=low, high=high, ends=(1.0, min(0.5, _lowest(value))),
            ),
        ),
        note=f"dark: near, or hard to tell apart; {note}",
    )  # fmt: skip


def correlation_curve(
    layers: tuple[int, ...],
    values: Float[Tensor, " layer"],
    low: Float[Tensor, " layer"],
    high: Float[Tensor, " layer"],
    note: str,
) -> LayerCurves:
    """Rank correlation of predicted and measured confusion by layer."""
    return LayerCurves(
        title="Do distances between keys predict confusion?",
        names=("rank correlation",),
        values=values[None],
        low=low[None],
        high=high[None],
        y_title="Spearman correlation over pairs of classes",
        note=note,
        x=tuple(float(layer) for layer in layers),
        levels=((0.0, "no relation"),),
        meanings=("label",),
        y_range=(-1.08, 1.08),
    )


def _lowest(values: Float[Tensor, "label label"]) -> float:
    known = values[values.isfinite()]
    return float(known.min()) if known.numel() else 0.5

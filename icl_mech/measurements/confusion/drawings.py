"""The figures of the diagnosis, from its numbers."""

import math

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.shapes import LabelMatrices, LabelMatrix, LayerCurves


def confusion_matrices(
    title: str,
    distance: Float[Tensor, "label label"],
    auc: Float[Tensor, "label label"],
    labels: tuple[str, ...],
    note: str,
) -> LabelMatrices:
    """Predicted and measured confusion side by side; a class with itself is left blank."""
    alone = torch.eye(len(labels), dtype=torch.bool)
    sides = ((title, distance, "distance"), ("measured: ROC-AUC", auc, "AUC"))
    return LabelMatrices(
        title="Confusion of classes: low values are confused",
        matrices=tuple(
            LabelMatrix(name, values.masked_fill(alone, math.nan), labels, labels, "", "", quantity)
            for name, values, quantity in sides
        ),
        note=note,
    )


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
    )

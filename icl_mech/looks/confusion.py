"""Figures of confusion: predicted and measured confusion as matrices side by side, and their correlation by layer."""

import math

import torch

from icl_mech.errors import ResultError
from icl_mech.measurements.confusion.confusion import ConfusionResult
from icl_mech.results import basis
from icl_mech.shapes import LabelMatrices, LabelMatrix, LayerCurves


def drawing(
    result: ConfusionResult, show: str = "matrices", *, layer: int | None = None
) -> LabelMatrices | LayerCurves:
    """Both matrices side by side, or the correlation by layer.

    Args:
        result: The result to draw.
        show: `matrices` or `layers`.
        layer: Block whose distances are shown (default: `result.layer`).

    Raises:
        ResultError: the layer was not measured, or the correlation is undefined.
    """
    return _curve(result) if show == "layers" else _matrices(result, layer)


def _matrices(result: ConfusionResult, layer: int | None) -> LabelMatrices:
    """Both matrices; the diagonal is framed and blank."""
    layer = result.layer if layer is None else layer
    tables = (
        result.distances[result.index(layer)],
        result.confusion_auc,
        result.auc_low,
        result.auc_high,
    )
    alone = torch.eye(len(result.labels), dtype=torch.bool)
    distance, auc, low, high = (table.masked_fill(alone, math.nan) for table in tables)
    known, names = auc[auc.isfinite()], (result.labels, result.labels, "", "")
    lowest = float(known.min()) if known.numel() else 0.5
    predicted = LabelMatrix(
        f"Predicted: distance of keys, layer {layer}",
        distance,
        *names,
        "distance, fraction of the largest",
        diagonal=True,
        ends=(1.0, 0.0),
    )
    measured = LabelMatrix(
        "Measured: AUC of the two label words",
        auc,
        *names,
        "AUC",
        diagonal=True,
        low=low,
        high=high,
        ends=(1.0, min(0.5, lowest)),
    )
    correlation = result.sentences.say("correlation", result=result, layer=layer)
    note = f"dark: close, or hard to distinguish; {correlation}"
    return LabelMatrices("Which classes are confused", (predicted, measured), note)


def _curve(result: ConfusionResult) -> LayerCurves:
    if bool(result.correlation.isnan().all()):
        raise ResultError(
            f"There is no rank correlation to draw with {len(result.labels)} classes. "
            + " ".join(result.notes)
        )
    return LayerCurves(
        title="Do distances between keys predict confusion?",
        names=("rank correlation",),
        values=result.correlation[None],
        low=result.low[None],
        high=result.high[None],
        y_title="Spearman correlation over pairs of classes",
        note=f"{len(result.pairs)} pairs; {basis(result)}; distances and classes fixed",
        x=tuple(map(float, result.layers)),
        levels=((0.0, "no relation"),),
        meanings=("label",),
        y_range=(-1.08, 1.08),
    )

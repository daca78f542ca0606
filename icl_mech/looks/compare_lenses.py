"""Figure of two lenses: their accuracies by layer, and the paired difference."""

import torch

from icl_mech.looks.lenses import AFTER, NAMES
from icl_mech.measurements.lens.compare_lenses import CompareLensesResult
from icl_mech.results import basis
from icl_mech.results.wording import told
from icl_mech.shapes import LayerCurves, Panel


def drawing(result: CompareLensesResult) -> LayerCurves:
    """Accuracy by layer with both lenses, and the paired difference."""
    accuracy, gain = result.sel("accuracy"), result.sel("gain")
    values, low, high = (
        torch.cat([of_lenses, of_gain[None]])
        for of_lenses, of_gain in (
            (accuracy.values, gain.values),
            (accuracy.low, gain.low),
            (accuracy.high, gain.high),
        )
    )
    chance, fitted = 1 / len(result.labels), NAMES[result.kind]
    levels = ((chance, f"chance {told(chance)}"),)
    return LayerCurves(
        title="Accuracy by layer with each lens",
        names=(fitted, NAMES["logit"], "difference"),
        values=values,
        low=low,
        high=high,
        y_title=accuracy.unit,
        x_title=AFTER,
        note=basis(result),
        meanings=("label", "reference", "other"),
        panels=(
            Panel("Accuracy", (0, 1), accuracy.unit, levels, y_range=(-0.03, 1.05)),
            Panel(f"{fitted} minus logit lens", (2,), gain.unit, ((0.0, "no difference"),)),
        ),
    )

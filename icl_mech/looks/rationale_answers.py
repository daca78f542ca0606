"""Figures of the answer after each sentence of a rationale: curves over sentences, and a map by layer."""

import torch

from icl_mech.looks.layer_accuracy import ENDS
from icl_mech.measurements.rationales.rationale_answers import RationaleAnswersResult
from icl_mech.results import basis
from icl_mech.results.wording import told
from icl_mech.shapes import Grid, LayerCurves, Panel


def drawing(result: RationaleAnswersResult, show: str = "prefixes") -> LayerCurves | Grid:
    """Log-probability and accuracy by number of sentences, or the lens by sentences and layers.

    Args:
        result: The result to draw.
        show: `prefixes` or `layers`.
    """
    if show == "layers":
        by_layer = result.sel("lens_log_prob")
        return Grid(
            "Right answer by layer, after each sentence",
            by_layer.values.double().T.exp(),
            row_title="layer (0: embedding)",
            column_title="sentences of the rationale",
            quantity="probability of the right answer (geometric mean)",
            note=basis(result),
            low=by_layer.low.double().T.exp(),
            high=by_layer.high.double().T.exp(),
        )
    both = [result.sel(quantity) for quantity in ("log_prob", "accuracy")]
    values, low, high = (
        torch.stack([getattr(samples, end).double() for samples in both])
        for end in ("values", "low", "high")
    )
    level = result.chance
    chance = () if level is None else ((level, f"chance {told(level)}"),)
    return LayerCurves(
        "The answer after each sentence of the rationale",
        ("log-probability", "accuracy"),
        *(values, low, high),
        y_title=both[0].unit,
        note=basis(result),
        x_title="sentences of the rationale",
        meanings=("label", "label"),
        panels=(
            Panel("Right answer", (0,), both[0].unit),
            Panel("Accuracy", (1,), both[1].unit, chance, y_range=ENDS),
        ),
    )

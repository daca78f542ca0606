"""Figures of a circuit: the metric with it alone and without it, and faithfulness by size."""

import torch

from icl_mech.measurements.circuits.circuit_faithfulness import CircuitFaithfulnessResult
from icl_mech.results import basis
from icl_mech.shapes import Bars, LayerCurves

CONDITIONS = {
    "metric": "whole model",
    "alone": "circuit alone",
    "random_alone": "random sets alone",
    "cut": "without the circuit",
    "random_cut": "without random sets",
    "empty": "everything ablated",
}


def drawing(result: CircuitFaithfulnessResult, show: str = "circuit") -> Bars | LayerCurves:
    """The metric under each condition, or faithfulness by size.

    Args:
        result: The result to draw.
        show: `circuit` or `faithfulness`.
    """
    if show == "circuit":
        return _conditions(result)
    curves = [result.sel(name) for name in ("faithfulness", "random")]
    return LayerCurves(
        title="Faithfulness by size",
        names=("largest scores", "random sets"),
        values=torch.stack([curve.values for curve in curves]),
        low=torch.stack([curve.low for curve in curves]),
        high=torch.stack([curve.high for curve in curves]),
        y_title="faithfulness",
        x_title=f"number of {result.granularity} kept, of {len(result.components)}",
        x_names=tuple(map(str, result.sizes)),
        note=basis(result, f"{result.count} pairs of prompts", quantity="faithfulness"),
        meanings=("target", "target"),
        nulls=(1,),
        levels=((1.0, "whole model"), (0.0, "everything ablated")),
    )


def _conditions(result: CircuitFaithfulnessResult) -> Bars:
    intervals = [result.interval(name) for name in CONDITIONS]
    value, low, high = torch.tensor(intervals, dtype=torch.float64).T[..., None]
    spread = [
        (row, 0, tuple(drawn.double().mean(0).tolist()))
        for row, drawn in ((2, result.random_alone), (4, result.random_cut))
    ]
    return Bars(
        "The answer with the circuit alone and without it",
        tuple(CONDITIONS.values()),
        ("logits",),
        *(value, low, high),
        y_title="right minus wrong label (logits)",
        note=basis(result, f"{result.count} pairs of prompts", quantity="metric"),
        meanings=("target",),
        spread=tuple(spread),
    )

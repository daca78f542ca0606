"""Figure of the exit with a guarantee: risk and layers saved by threshold, on the prompts not used for calibration."""

import torch

from icl_mech.measurements.accuracy.guaranteed_exit import GuaranteedExitResult
from icl_mech.results import basis
from icl_mech.results.wording import counted, told
from icl_mech.shapes import LayerCurves, Panel


def drawing(result: GuaranteedExitResult) -> LayerCurves:
    """Risk and layers saved at every threshold, with the calibrated one marked.

    Args:
        result: The result to draw.
    """
    samples = [result.sel(name) for name in ("risk", "saved")]
    values, low, high = (
        torch.stack([getattr(sample, end) for sample in samples])
        for end in ("values", "low", "high")
    )
    panels = (
        Panel(
            "Risk against zero-shot",
            (0,),
            "change of the error" if result.loss == "difference" else "right answers lost",
            ((result.epsilon, f"tolerated {told(result.epsilon)}"), (0.0, "zero-shot")),
        ),
        Panel("Layers saved", (1,), "fraction of the layers"),
    )
    return LayerCurves(
        "Early exit above a confidence",
        ("risk", "layers saved"),
        *(values, low, high),
        y_title=samples[0].unit,
        note=basis(result, f"{counted(result.tested, 'prompt')} not used for calibration"),
        x=result.shown_thresholds,
        x_title="threshold of confidence",
        meanings=("false", "label"),
        panels=panels,
        marks=() if result.threshold is None else ((result.threshold, "calibrated"),),
    )

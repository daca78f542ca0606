"""Figures of calibration: accuracies of all methods as points, priors by label."""

from icl_mech.measurements.calibration.calibration import PRIORS, CalibrationResult
from icl_mech.results import basis
from icl_mech.results.wording import told
from icl_mech.shapes import Bars

METHODS = {
    "plain": "plain",
    "contextual": "contextual calibration",
    "domain": "domain calibration",
    "batch": "batch calibration",
    "reweighted": "re-weighted attention",
    "more_shots": "more demonstrations",
}


def drawing(result: CalibrationResult, show: str = "accuracy") -> Bars:
    """Accuracy of each method, or the priors of each label.

    Args:
        result: The result to draw.
        show: `accuracy` or `priors`.
    """
    if show == "priors":
        prior = result.sel("prior")
        return Bars(
            "Label probabilities without content",
            result.labels,
            PRIORS,
            prior.values.T,
            prior.low.T,
            prior.high.T,
            prior.unit,
            note=basis(result),
            levels=((result.chance, f"no preference {told(result.chance)}"),),
        )
    return result.sel("accuracy").dots(
        "Calibration beside plain in-context learning",
        [METHODS[name] for name in result.methods],
        ["accuracy"],
        note=basis(result),
        meanings=("label",),
        levels=((result.chance, f"chance {told(result.chance)}"),),
    )

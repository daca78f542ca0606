"""Figure of accuracy by layer: curves of both sides, for calibrated accuracy with the critical layer; or their gap."""

from typing import Any

from icl_mech.looks.lenses import AFTER, class_curves, noted
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.lens.fitted import lens_used
from icl_mech.results import basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.wording import counted, told
from icl_mech.shapes import LayerCurves

ENDS = (-0.03, 1.05)
"""Range of the axes of accuracies."""


def drawing(result: LayerAccuracyResult, show: str = "calibrated") -> LayerCurves:
    """One metric, one of `shows`, after each layer on both sides, the gap between them, or each class.

    Args:
        result: The result to draw.
        show: The metric, `gap`, or `classes` (true demonstrations).

    Raises:
        ResultError: the metric is not defined for these prompts.
    """
    note = noted(lens_used(result)) + basis(result, f"{counted(result.pairs, 'pair')} of prompts")
    if show == "classes":
        return class_curves(result.by_class, note=note)
    samples, names = result.sel(show), ("true demonstrations", "false demonstrations")
    title = f"{samples.unit[0].upper()}{samples.unit[1:]} by layer"
    about: dict[str, Any] = {"x": None, "x_title": AFTER, "note": note}
    if show == "gap":
        zero = ((0.0, "no gap"),)
        return samples.curves(title, ("gap",), meanings=("other",), levels=zero, **about)
    about |= {"levels": _levels(result, show), "y_range": ENDS, "meanings": ("true", "false")}
    critical = result.critical
    if show == "calibrated" and critical is not None and result.pairs >= FEWEST_PROMPTS:
        about["marks"] = ((critical.value, "critical layer"),)
    return samples.curves(title, names, **about)


def _levels(result: LayerAccuracyResult, metric: str) -> tuple[tuple[float, str], ...]:
    """Reference levels of a metric."""
    chance = (result.chance, f"chance {told(result.chance)}")
    if metric in ("top_labels", "label_space"):
        return ()
    if metric == "calibrated" and not result.own_choices:
        return chance, (result.reachable, f"highest reachable {told(result.reachable)}")
    if metric != "plain" or result.own_choices:
        return (chance,)
    constant = "any constant answer" if result.even else "always the majority class"
    level = (result.commonest, f"{constant} {told(result.commonest)}")
    return (level,) if result.commonest <= result.chance else (chance, level)

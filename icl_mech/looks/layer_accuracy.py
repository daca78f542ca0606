"""Figure of accuracy by layer: curves of both sides; for calibrated accuracy also the gap with its critical layer."""

from typing import Any

import torch

from icl_mech.looks.lenses import AFTER, noted
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.lens.fitted import lens_used
from icl_mech.results import basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.wording import counted, told
from icl_mech.shapes import LayerCurves, Panel

ENDS = (-0.03, 1.05)
"""Range of the axes of accuracies."""


def drawing(result: LayerAccuracyResult, show: str = "calibrated") -> LayerCurves:
    """One metric, one of `shows`, after each layer on both sides; for calibrated accuracy also the gap.

    Args:
        result: The result to draw.
        show: The metric, or `gap` alone.

    Raises:
        ResultError: the metric is not defined for these prompts.
    """
    samples, names = result.sel(show), ("true demonstrations", "false demonstrations")
    title = f"{samples.unit[0].upper()}{samples.unit[1:]} by layer"
    about: dict[str, Any] = {
        "x": None,
        "x_title": AFTER,
        "note": noted(lens_used(result))
        + basis(result, f"{counted(result.pairs, 'pair')} of prompts"),
    }
    if show == "gap":
        zero = ((0.0, "no gap"),)
        return samples.curves(title, ("gap",), meanings=("other",), levels=zero, **about)
    levels = _levels(result, show)
    if show != "calibrated":
        about |= {"levels": levels, "y_range": ENDS, "meanings": ("true", "false")}
        return samples.curves(title, names, **about)
    gap, critical = result.sel("gap"), result.critical
    if critical is not None and result.pairs >= FEWEST_PROMPTS:
        about["marks"] = ((critical.value, "critical layer"),)
    rows = ((samples.values, gap.values), (samples.low, gap.low), (samples.high, gap.high))
    values, low, high = (torch.cat([sides, last[None]]) for sides, last in rows)
    accuracy = result.accuracy_name.capitalize()
    return LayerCurves(
        title,
        (*names, "gap"),
        *(values, low, high),
        y_title=samples.unit,
        meanings=("true", "false", "other"),
        panels=(
            Panel(accuracy, (0, 1), samples.unit, levels, y_range=ENDS),
            Panel("Gap, true minus false", (2,), "accuracy gap", ((0.0, "no gap"),)),
        ),
        **about,
    )


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

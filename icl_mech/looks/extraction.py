"""Figures of extraction: AUC and R by layer in separate panels, and the attention they are based on."""

import torch

from icl_mech.measurements.extraction.extraction import ExtractionResult
from icl_mech.metrics import mean_ends
from icl_mech.results import basis
from icl_mech.shapes import LayerCurves, Meaning, Panel

LEAST_LAYERS = 6
"""Minimum number of layers at which the thirds are wide enough to be marked."""


def drawing(result: ExtractionResult, show: str = "auc") -> LayerCurves:
    """AUC and, where it is defined, R in a separate panel; or the attention they are based on.

    Args:
        result: The result to draw.
        show: `auc` or `attention`.
    """
    return _attention(result) if show == "attention" else _curves(result)


def _curves(result: ExtractionResult) -> LayerCurves:
    about: tuple[Meaning, ...] = ("label", "label")
    values = [(result.auc, result.auc_low, result.auc_high)]
    panels = [Panel("AUC by layer", (0,), "AUC", levels=((0.5, "chance"),), y_range=(-0.04, 1.06))]
    if result.cumulative_defined:
        values.append((result.cumulative, result.cumulative_low, result.cumulative_high))
        title = "Fraction of its sum up to each layer, R"
        panels.append(Panel(title, (1,), "R", levels=((0.5, "one half"),)))
    rows = [torch.stack(column) for column in zip(*values, strict=True)]
    third = max(1, len(result.auc) // 3)
    last = len(result.auc) - 1
    first = (0.0, third - 1.0, "first third")
    stretches = (first, (last - third + 1.0, float(last), "last third"))
    marked = len(result.auc) >= LEAST_LAYERS and len(values) == 1
    truth = "true classes" if result.truth == "true" else "own predictions"
    return LayerCurves(
        title="Extraction from label words by layer",
        names=("AUC", "R")[: len(values)],
        values=rows[0],
        low=rows[1],
        high=rows[2],
        y_title="AUC",
        note="; ".join([basis(result), f"truth: {truth}", *result.notes]),
        meanings=about[: len(values)],
        panels=tuple(panels),
        stretches=stretches if marked else (),
    )


def _attention(result: ExtractionResult) -> LayerCurves:
    pair = torch.stack(result.matching_and_others, dim=1)
    low, high = mean_ends(pair)
    return LayerCurves(
        title="Attention from the target to label words",
        names=(
            f"its {result.truth} class",
            "the other class" if len(result.labels) == 2 else "other classes, mean",
        ),
        values=pair.mean(0),
        low=low,
        high=high,
        y_title="attention, summed over heads",
        note=basis(result),
        meanings=("label", "other"),
    )

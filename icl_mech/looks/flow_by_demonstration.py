"""Figures of flow by demonstration: flow from each one, counted back from the query, and by layer."""

import torch

from icl_mech.measurements.by_demonstration.flow_by_demonstration import (
    AMONG,
    FlowByDemonstrationResult,
)
from icl_mech.results import basis
from icl_mech.shapes import Grid, LayerCurves, Meaning, Panel

NAMES = {"pq_share": "label words", "read_share": "whole demonstrations"}
MEANINGS: tuple[Meaning, ...] = ("label", "text")


def drawing(result: FlowByDemonstrationResult, show: str = "") -> LayerCurves | Grid:
    """Flow from each demonstration to the target, counted back from the query.

    Args:
        result: The result to draw.
        show: "": fractions in the last third of the layers; `layers`: fractions in every layer.
    """
    if show == "layers":
        return result.sel("pq_share", demo=[*reversed(range(result.count))]).heatmap(
            "Saliency from each label word to the target",
            row_title="demonstrations back",
            rows=tuple(range(1, result.count + 1)),
        )
    shares = result.shares_of("last")
    values, low, high = torch.stack([*shares.values()], dim=1).flip(-1)
    panels = (
        Panel("label words", (0,), AMONG, ((1 / result.count, "uniform"),)),
        Panel("whole demonstrations", (1,), "fraction of all that the target receives"),
    )
    return LayerCurves(
        "Which demonstrations the target reads, last third of the layers",
        tuple(NAMES[name] for name in shares),
        *(values, low, high),
        y_title=AMONG,
        note=basis(result),
        x=tuple(map(float, range(1, result.count + 1))),
        x_title="demonstrations back from the query",
        meanings=MEANINGS[: len(shares)],
        panels=panels[: len(shares)],
    )

"""Figures of the function vector by demonstration: routing against values, the parts, and their additivity."""

import torch

from icl_mech.looks.leave_one_out import with_effects
from icl_mech.measurements.by_demonstration.function_vector_by_demonstration import (
    FunctionVectorByDemonstrationResult,
)
from icl_mech.measurements.by_demonstration.leave_one_out import means_where
from icl_mech.results import basis
from icl_mech.shapes import Bars, LayerCurves, Panel

REPLACED = ("attention (routing)", "values", "attention and values", "demonstrations' parts")
ADDED = ("whole vector", "sum over demonstrations", "rest", "single parts, effects summed")


def drawing(result: FunctionVectorByDemonstrationResult, show: str = "split") -> Bars | LayerCurves:
    """Losses by what is replaced, parts by demonstration counted back from the query, or effects of added vectors.

    Args:
        result: The result to draw.
        show: `split`, `demonstrations` or `additivity`.
    """
    if show == "demonstrations":
        return _parts(result)
    return _added(result) if show == "additivity" else _lost(result)


def _lost(result: FunctionVectorByDemonstrationResult) -> Bars:
    lost, random = (result.sel(name) for name in ("lost", "random_lost"))
    value, low, high = (
        torch.stack([getattr(samples, end) for samples in (lost, random)], dim=1)
        for end in ("values", "low", "high")
    )
    return Bars(
        "Replacing parts of the heads' output",
        REPLACED,
        ("chosen heads", "random heads"),
        *(value, low, high),
        y_title=lost.unit,
        note=f"{basis(result)}; random heads: mean of {result.random.shape[2]} draws",
        meanings=("label", "other"),
        sides=("right answer gains", "right answer loses"),
    )


def _parts(result: FunctionVectorByDemonstrationResult) -> LayerCurves:
    removed, attention = result.sel("removed"), result.sel("attention")
    every = torch.stack([removed.values, removed.low, removed.high])
    sides = [means_where(result.removed, of) for of in (result.of_class, ~result.of_class)]
    runs = [
        torch.stack([getattr(attention, end)[run] for end in ("values", "low", "high")])
        for run in range(2)
    ]
    names, meanings, effects = with_effects([every, *sides])
    value, low, high = torch.stack([*effects, *runs]).flip(-1).unbind(1)
    count = len(effects)
    return LayerCurves(
        "Parts of the function vector by demonstration",
        (*names, "full prompt", "cut from each other"),
        *(value, low, high),
        y_title=removed.unit,
        note=basis(result),
        x=tuple(map(float, range(1, result.count + 1))),
        x_title="demonstrations back from the query",
        meanings=(*meanings, "target", "reference"),
        panels=(
            Panel("Effect", tuple(range(count)), removed.unit, ((0.0, "no effect"),)),
            Panel(
                "Attention of the chosen heads", (count, count + 1), "attention, mean over heads"
            ),
        ),
    )


def _added(result: FunctionVectorByDemonstrationResult) -> Bars:
    added, summed = result.sel("added"), result.interval("summed")
    value, low, high = (
        torch.cat([getattr(added, end), torch.tensor([last]).to(added.values)])[:, None]
        for end, last in zip(("values", "low", "high"), summed, strict=True)
    )
    return Bars(
        "Vectors added to queries without demonstrations",
        ADDED,
        ("increase",),
        *(value, low, high),
        y_title=added.unit,
        note=basis(result),
        meanings=("label",),
        sides=("right answer loses", "right answer gains"),
    )

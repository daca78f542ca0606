"""Figure of leaving one demonstration out: mean effects, counted back from the query."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from icl_mech.measurements.by_demonstration.leave_one_out import LeaveOneOutResult
from icl_mech.results import basis
from icl_mech.shapes import LayerCurves
from icl_mech.shapes.curves import Meaning


def drawing(result: LeaveOneOutResult) -> LayerCurves:
    """Mean effects by position, counted back from the query: all, of the query's class, of other classes.

    The latter two only where enough prompts have such a demonstration.

    Args:
        result: The result to draw.
    """
    names, meanings, effects = with_effects(result.effects())
    values, low, high = torch.stack(effects).flip(-1).unbind(1)
    return LayerCurves(
        "Effect of a demonstration",
        names,
        *(values, low, high),
        y_title="log-probability of the true label (nats)",
        note=basis(result),
        x=tuple(map(float, range(1, result.count + 1))),
        x_title="demonstrations back from the query",
        meanings=meanings,
        levels=((0.0, "no change"),),
    )


SIDES: tuple[tuple[str, Meaning], ...] = (
    ("all", "other"),
    ("of the query's class", "label"),
    ("of other classes", "text"),
)
"""Demonstrations whose effects are drawn, and the meaning that gives their colour."""


def with_effects(
    effects: Iterable[Float[Tensor, "end demo"]],
) -> tuple[tuple[str, ...], tuple[Meaning, ...], tuple[Float[Tensor, "end demo"], ...]]:
    """Names, meanings and effects of the `SIDES` that have an effect at any position."""
    kept = [
        (*side, effect)
        for side, effect in zip(SIDES, effects, strict=True)
        if effect.isfinite().any()
    ]
    names, meanings, effects = zip(*kept, strict=True)
    return names, meanings, effects

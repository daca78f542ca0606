"""Figure of leaving one demonstration out: mean effects, counted back from the query."""

from icl_mech.measurements.by_demonstration.leave_one_out import LeaveOneOutResult
from icl_mech.results import basis
from icl_mech.shapes import LayerCurves


def drawing(result: LeaveOneOutResult) -> LayerCurves:
    """Mean effects by position, counted back from the query: all, of the query's class, of other classes.

    The latter two only where enough prompts have such a demonstration.

    Args:
        result: The result to draw.
    """
    values, low, high = result.effects().flip(-1).unbind(1)
    return LayerCurves(
        "Effect of a demonstration",
        ("all", "of the query's class", "of other classes"),
        *(values, low, high),
        y_title="log-probability of the true label (nats)",
        note=basis(result),
        x=tuple(map(float, range(1, result.count + 1))),
        x_title="demonstrations back from the query",
        meanings=("other", "label", "text"),
        levels=((0.0, "no change"),),
    )

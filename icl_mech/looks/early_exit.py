"""Figure of early exit: the change of accuracy, as dots around 0."""

from icl_mech.measurements.accuracy.early_exit import UNIT, EarlyExitResult
from icl_mech.measurements.accuracy.scores import without_thresholds
from icl_mech.results import basis
from icl_mech.shapes import Bars


def drawing(result: EarlyExitResult) -> Bars:
    """Change of accuracy by task and side.

    Args:
        result: The result to draw.
    """
    prompts = f"prompts {'also used to choose the layer' if result.same else 'not used to choose the layer'}"
    if result.changes is not None:
        prompts = f"{int(result.changes[:, 0].isfinite().sum())} pairs of {prompts}"
    # Not from `sel`: results of earlier versions have no changes by prompt.
    return Bars(
        f"Reading out after layer {result.layer} instead of the last",
        result.tasks,
        ("true demonstrations", "false demonstrations"),
        *(result.change, result.low, result.high),
        y_title=without_thresholds(UNIT, result.own_choices),
        note=basis(result, prompts),
        meanings=("true", "false"),
        sides=("hurts", "helps"),
    )

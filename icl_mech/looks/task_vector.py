"""Figure of task vectors: similarity of prompts by block."""

from icl_mech.measurements.causal.task_vector import TaskVectorResult
from icl_mech.results import basis
from icl_mech.shapes import LayerCurves


def drawing(result: TaskVectorResult) -> LayerCurves:
    """Similarity of prompts by layer."""
    return result.sel().curves(
        "Similarity of prompts at the last token",
        x_title="output of block",
        note=basis(result),
        meanings=("target",),
    )

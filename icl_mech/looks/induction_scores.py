"""Figure of induction scores: a heatmap of all heads."""

from icl_mech.looks.head_maps import head_map
from icl_mech.measurements.causal.head_maps import FRAMED
from icl_mech.measurements.causal.induction_scores import InductionScoresResult
from icl_mech.results import basis
from icl_mech.shapes import Grid


def drawing(result: InductionScoresResult) -> Grid:
    """A heatmap of the scores, with layers as columns and heads as rows."""
    name = f"Attention to {result.sentences.say('attended', result=result)}"
    return head_map(
        result.sel("score"),
        name if result.variant == "sound" else f"{name}: {result.variant}",
        result.top(),
        quantity="score",
        signed=False,
        note=f"{basis(result, over='sequence')}; framed: the {FRAMED} highest",
    )

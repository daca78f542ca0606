"""Figure of the agreement between attention and effect: dots by score, for raw values and for ranks within rows."""

from icl_mech.measurements.anchors.anchor_agreement import AnchorAgreementResult
from icl_mech.shapes import Bars

SCORES = ("attention of all heads", "receiver heads", "saliency")


def drawing(result: AnchorAgreementResult) -> Bars:
    """Correlations with intervals, with and without control for depth.

    Args:
        result: The result to draw.
    """
    correlations = result.sel()
    return Bars(
        "Do spans that are read much matter?",
        SCORES,
        ("raw values", "ranks within rows"),
        correlations.values.T,
        correlations.low.T,
        correlations.high.T,
        "rank correlation with the effect of hiding a span",
        note=correlations.note,
        sides=("opposite", "agree"),
    )

"""Figures of suppression: effects between the spans of a text, by distance over texts, or as a coloured text."""

from icl_mech.looks.spans import numbered, strips
from icl_mech.measurements.anchors.suppression import SuppressionResult
from icl_mech.shapes import LabelMatrix, LayerCurves, TokenStrips


def drawing(
    result: SuppressionResult, show: str = "", prompt: int = 0
) -> LabelMatrix | LayerCurves | TokenStrips:
    """Effects between the spans of one text, by distance over texts, or as a coloured text.

    Args:
        result: The result to draw.
        show: "", `distance` or `text`.
        prompt: Index of the text.

    Raises:
        ResultError: no such text.
    """
    result.check_prompt(prompt)
    if show == "distance":
        title = "Effect of hiding a span by distance"
        return result.sel().curves(title, along="distance", x_title="distance in spans")
    if show == "text":
        return _text(result, prompt)
    names = numbered(result, prompt)
    return LabelMatrix(
        title="What hiding a span changes later",
        values=result.divergence[prompt],
        rows=names,
        columns=names,
        row_title="changed",
        column_title="hidden",
        quantity="KL divergence (nats)",
        note=f"text {prompt}, {len(names)} spans",
    )


def _text(result: SuppressionResult, prompt: int) -> TokenStrips:
    return strips(
        result,
        prompt,
        {"divergence of later spans": result.scores(prompt, result.proximity)},
        title="Text coloured by what hiding its spans changes later",
        quantity="mean KL divergence of later spans (nats)",
        note=f"text {prompt}; spans at a distance of {result.proximity} or more; undefined (0) at the end",
    )

"""Figure of saliency maps: one prompt by segment with a slider over layers, or all its tokens."""

from icl_mech.errors import ResultError
from icl_mech.measurements.saliency.saliency_maps import SaliencyMapsResult
from icl_mech.shapes import TokenMatrix

TELLING = ("label words read texts", "target reads label words")
"""Captions of the early and of the late layer worth looking at."""


def drawing(
    result: SaliencyMapsResult, show: str = "", prompt: int = 0, layer: int | None = None
) -> TokenMatrix:
    """One prompt by segment with a slider over layers, or all its tokens in one layer.

    Args:
        result: The result to draw.
        show: `tokens` for all tokens.
        prompt: Index of the prompt.
        layer: Layer shown first; None: the layer of the first half with the most saliency per edge
            from the texts to the label words.

    Raises:
        ResultError: no such prompt or layer.
    """
    telling = result.telling_layers(prompt)
    values, count = result.values[prompt], len(result.values[prompt])
    if layer is None:
        layer = result.usual_layer(prompt)
    if not 0 <= layer < count:
        raise ResultError(
            f"layer={layer} does not exist; the model has {count} layers, counted from 0."
        )
    by_segment = None if show else result.by_segment(prompt)
    return TokenMatrix(
        title="Saliency of attention between " + ("tokens" if show else "parts of a prompt"),
        values=values,
        tokens=result.tokens[prompt],
        roles=result.roles[prompt],
        quantity="saliency",
        layer=layer,
        segments=by_segment.segments if by_segment else (),
        means=by_segment.values if by_segment else None,
        telling=tuple(zip(telling, TELLING, strict=True)) if telling else (),
        note=f"prompt {prompt}, {len(result.tokens[prompt])} tokens",
    )

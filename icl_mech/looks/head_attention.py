"""Figures of head attention: a prompt as text, coloured by the attention of heads, and a heatmap of all heads."""

from icl_mech.checking import Head
from icl_mech.errors import ResultError
from icl_mech.measurements.heads.head_attention import HeadAttentionResult
from icl_mech.shapes import Grid, TokenStrips
from icl_mech.shapes.tokens import MANY

MARKS = {
    "matching": "label word demonstrated for the last text",
    "other": "other label word",
    "label": "label word",
}


def drawing(
    result: HeadAttentionResult, prompt: int = 0, head: int | Head | None = None, show: str = "text"
) -> TokenStrips | Grid:
    """The prompt as text, coloured by attention, to browse by head; or a heatmap of all heads.

    Args:
        result: The result to draw.
        prompt: Index of the prompt.
        head: The head shown first, as (layer, head) or by its index in `heads`; None: the first or,
            among more than twelve, the one with the largest fraction of attention on label words.
        show: `text`, or `grid` for all heads: the mean fraction on label words by layer and head, or the
            mean entropy if there are none.

    Raises:
        ResultError: no such prompt or head, or a grid if not all heads were measured.
    """
    if show == "text":
        return strips(result, prompt, head)
    if result.shape is None:
        raise ResultError("A grid needs all heads; measure head_attention without heads=.")
    return result.sel(result.mapped).heatmap(f"Attention of all heads from {result.row}")


def strips(
    result: HeadAttentionResult, prompt: int = 0, head: int | Head | None = None
) -> TokenStrips:
    """The text of a prompt, see `drawing`."""
    result.check_number("prompt", prompt, len(result.values))
    marks = result.marks[prompt]
    return TokenStrips(
        title=f"Attention from {result.row}",
        names=tuple(f"layer {layer}, head {index}" for layer, index in result.heads),
        values=result.values[prompt],
        tokens=result.tokens[prompt],
        marks=tuple(MARKS.get(mark, "") for mark in marks),
        quantity="attention",
        note="label words of the demonstrations are framed" if any(marks) else "",
        first=_place(result, head),
        heads=result.heads,
    )


def _place(result: HeadAttentionResult, head: int | Head | None) -> int:
    """Index of a head among those measured."""
    if head is None:
        return result.names.index(result.looking[0].name) if len(result.heads) > MANY else 0
    if isinstance(head, int):
        result.check_number("head", head, len(result.heads))
        return head
    if tuple(head) not in result.heads:
        raise ResultError(f"head={tuple(head)} was not measured; give one of `heads`.")
    return result.heads.index((head[0], head[1]))

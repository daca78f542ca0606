"""Figures of anchor tokens: the tokens compared with nearby ones, and a prompt as text."""

from icl_mech.measurements.anchors.anchor_tokens import AnchorTokensResult
from icl_mech.shapes import Bars, TokenStrips


def drawing(result: AnchorTokensResult, show: str = "", prompt: int = 0) -> Bars | TokenStrips:
    """The tokens compared with position-matched ones, or one prompt as text.

    Args:
        result: The result to draw.
        show: "" or `text`.
        prompt: Index of the prompt.

    Raises:
        ResultError: no such prompt.
    """
    return _text(result, prompt) if show == "text" else _compared(result)


def _compared(result: AnchorTokensResult) -> Bars:
    multiples = result.sel("multiple")
    values, low, high = (end[None] for end in (multiples.values, multiples.low, multiples.high))
    return Bars(
        f"Do {result.compared} stand out?",
        (f"column mass of {result.of}",),
        (result.compared, "tokens near them"),
        values,
        low,
        high,
        "times the median of nearby tokens",
        note=multiples.note,
        meanings=("label", "other"),
        levels=((1.0, "median nearby"), *([(result.ratio, "anchors")] if result.ratio else [])),
    )


def _text(result: AnchorTokensResult, prompt: int) -> TokenStrips:
    result.check_prompt(prompt)
    times = result.times[prompt]
    return TokenStrips(
        title="Text by column mass",
        names=(f"layers {result.layers[0]} to {result.layers[-1]}",),
        values=times.nan_to_num()[None],
        tokens=result.tokens[prompt][: len(times)],
        marks=tuple("anchor" * stands for stands in result.stands(prompt)),
        quantity=f"{result.of}, times the median nearby",
        note=f"prompt {prompt}; anchors are framed",
    )

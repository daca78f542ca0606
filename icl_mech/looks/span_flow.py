"""Figures of attention between spans: a matrix with a slider over layers, heads by kurtosis, or a text."""

import torch

from icl_mech.checking import Heads
from icl_mech.errors import ResultError
from icl_mech.looks.spans import numbered, strips
from icl_mech.measurements.anchors.span_flow import SpanFlowResult
from icl_mech.metrics.intervals import known_mean
from icl_mech.shapes import Grid, TokenMatrix, TokenSegment, TokenStrips


def drawing(
    result: SpanFlowResult, show: str = "", prompt: int = 0, layer: int | None = None
) -> TokenMatrix | Grid | TokenStrips:
    """The spans of one text with a slider over layers; heads by kurtosis; or a text.

    Args:
        result: The result to draw.
        show: "", `heads` (not of saliency) or `text`.
        prompt: Index of the text.
        layer: Layer shown first; None: the one with the largest mean kurtosis.

    Raises:
        ResultError: no such text or layer, or `heads` of saliency.
    """
    result.check_prompt(prompt)
    if show == "heads":
        return _heads(result)
    return _text(result, prompt) if show else _matrix(result, prompt, layer)


def _matrix(result: SpanFlowResult, prompt: int, layer: int | None) -> TokenMatrix:
    values = known_mean(result.matrices[prompt].double(), 1)
    if layer is None:
        layer = int(result.kurtosis.nanmean((0, 2)).nan_to_num(nan=-torch.inf).argmax())
    if not 0 <= layer < len(values):
        raise ResultError(
            f"layer={layer} does not exist; the model has {len(values)} layers, counted from 0."
        )
    below = torch.ones(values.shape[1:], dtype=torch.bool).tril()
    names = numbered(result, prompt)
    return TokenMatrix(
        title=f"{result.of.capitalize()} between spans",
        values=values.tril(),
        tokens=names,
        roles=("span",) * len(names),
        quantity=result.of,
        layer=layer,
        segments=tuple(TokenSegment(name, "span", i, i + 1) for i, name in enumerate(names)),
        means=values.masked_fill(~below, torch.nan),
        note=f"text {prompt}, {len(names)} spans"
        + (", mean over heads" if result.of == "attention" else ""),
    )


def _heads(result: SpanFlowResult) -> Grid:
    """A heatmap of the mean kurtosis of every head, with receiver heads framed."""
    if result.of != "attention":
        raise ResultError(
            "Saliency is summed over heads, so it has no map of heads; measure with of='attention'."
        )
    kurtosis, heads = result.sel("kurtosis"), result.receivers
    return Grid(
        "Receiver heads",
        kurtosis.values.T,
        "head",
        "layer",
        "kurtosis",
        note=f"mean over {result.count} texts; framed: the {len(heads)} largest",
        signed=bool((kurtosis.values < 0).any()),
        low=kurtosis.low.T,
        high=kurtosis.high.T,
        marked=tuple((head, layer) for layer, head in heads),
        names=tuple(f"{layer}.{head}" for layer, head in heads),
    )


def _text(result: SpanFlowResult, prompt: int) -> TokenStrips:
    rows: dict[str, Heads | None] = {
        "mean over all heads" if result.of == "attention" else "mean over layers": None
    }
    if heads := result.receivers:
        rows = {f"{len(heads)} receiver heads": heads, **rows}
    return strips(
        result,
        prompt,
        {name: result.scores(prompt, heads) for name, heads in rows.items()},
        title="Text coloured by the vertical score of its spans",
        quantity=f"mean {result.of} from later spans",
        note=f"text {prompt}; undefined (0) for the last {result.proximity} spans",
    )

"""Receiver heads: heads whose vertical scores are most peaked, because they read a few spans much.

Source: Bogdan et al. 2025, *Thought Anchors: Which LLM Reasoning Steps Matter?*, §5.
"""

from collections.abc import Sequence

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.measurements.anchors.between import THOUGHT_ANCHORS
from icl_mech.metrics import Interval
from icl_mech.results import Definition, Figure, Samples
from icl_mech.results.quantities import Statistic
from icl_mech.results.wording import listed, said
from icl_mech.shapes import Grid

RECEIVERS = 5
"""Receiver heads unless told otherwise."""

Receivers = Sequence[tuple[int, int]]
"""Layer and head of each."""

RECEIVER_HEADS = Definition(
    "receiver heads",
    r"k_{lh} = \frac{m_4(v_{lh})}{m_2(v_{lh})^2} - 3",
    "Heads whose vertical scores are most peaked: the largest mean over texts of Fisher's "
    "kurtosis (biased moments) over the spans of a text.",
    f"{THOUGHT_ANCHORS}, §5",
)


def most_peaked(
    means: Float[Tensor, "layer head"], top: int, first_layer: int, proximity: int
) -> tuple[tuple[int, int], ...]:
    """(layer, head) of the largest mean kurtosis, largest first; heads of lower layers are left out.

    Raises:
        ResultError: more heads than there are with a kurtosis.
    """
    means[:first_layer] = torch.nan
    known = int(means.isfinite().sum())
    if top > known:
        raise ResultError(
            f"top={top}; {known} heads have a kurtosis, which takes texts of at least "
            f"{proximity + 4} spans. Use longer texts or a smaller proximity."
        )
    order = means.flatten().nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True)
    n_heads = means.shape[1]
    return tuple((i // n_heads, i % n_heads) for i in order[:top].tolist())


def mean_of_known(values: Tensor, known: Tensor) -> Statistic:
    """The mean over the texts in which each is known."""
    flat = values.double().nan_to_num().flatten(1)
    counted = known.double().flatten(1)

    def statistic(weights: Float[Tensor, "r batch"]) -> Tensor:
        mean = (weights @ flat) / (weights @ counted)  # 0 / 0 where no text is drawn that has one
        return mean.reshape(len(weights), *values.shape[1:])

    return statistic


def head_map(found: Samples, heads: Receivers, texts: int) -> Grid:
    """Mean kurtosis of every head, these ones framed."""
    return Grid(
        "Receiver heads",
        found.values.T,
        "head",
        "layer",
        "kurtosis",
        note=f"mean over {texts} texts; framed: the {len(heads)} largest",
        signed=bool((found.values < 0).any()),
        low=found.low.T,
        high=found.high.T,
        marked=tuple((head, layer) for layer, head in heads),
        names=tuple(f"{layer}.{head}" for layer, head in heads),
    )


def receiver_figure(found: Receivers, value: Interval, texts: str) -> Figure:
    """What a page says of the heads with the largest kurtosis."""
    layer, head = found[0]
    return Figure(
        "heads",
        "Which heads read a few spans much more than the others?",
        f"Head {layer}.{head} (layer.head) has the most peaked vertical scores: kurtosis {said(value)}. "
        f"The largest are {listed(f'{a}.{b}' for a, b in found)}.",
        "**Kurtosis of the vertical scores of every head**, mean over "
        f"{texts}; 0 is that of a normal distribution. Framed are the largest; they were chosen among "
        "all heads on these texts, so the interval of the largest is too high on average.",
        "Which heads attend to single spans from all over the later text.",
        "Which spans these are, and whether the model needs them. Chosen heads must be tested on other "
        "texts.",
        "Receiver heads",
    )

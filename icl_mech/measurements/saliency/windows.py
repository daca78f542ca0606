"""Existing edges: a layer with windowed attention has none longer than its window, and no means over them."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.metrics import flow_counts
from icl_mech.results.wording import layers_named, listed

Windows = Sequence[int | None]
"""Number of tokens that a row of attention sees, including itself, by layer; None: all tokens up to it."""


def edge_means(
    sums: Float[Tensor, "batch layer 3"],
    label_positions: Int[Tensor, "batch demo"],
    targets: Int[Tensor, " batch"],
    windows: Windows,
) -> Float[Tensor, "batch layer 3"]:
    """Scores `S_wp`, `S_pq` and `S_ww`: sums divided by the numbers of edges.

    Not-a-number where the window leaves no edge; 0 where the prompt, such as one of two tokens, has none.
    """
    everywhere = flow_counts(label_positions, targets)
    counts = {window: flow_counts(label_positions, targets, window) for window in {*windows}}
    edges = torch.stack([counts[window] for window in windows], dim=1)
    nothing = torch.where(everywhere > 0, torch.nan, 0.0)[:, None]
    return torch.where(edges > 0, sums.double() / edges.clamp(min=1), nothing)


def without_label_words(
    label_positions: Int[Tensor, "batch demo"], targets: Int[Tensor, " batch"], windows: Windows
) -> Bool[Tensor, "batch layer"]:
    """True where the window of a layer reaches no label word from the target of a prompt."""
    everywhere = flow_counts(label_positions, targets)[:, 1] > 0
    reached = [flow_counts(label_positions, targets, window)[:, 1] > 0 for window in windows]
    return everywhere[:, None] & ~torch.stack(reached, dim=1)


def without_edges(
    what: str, missing: Bool[Tensor, "batch layer"], windows: Windows
) -> Iterator[str]:
    """Sentences on the layers in which a score has no edges because of their windows.

    Args:
        what: Name of the score.
        missing: True for the prompts in which it has no edges.
        windows: Attention windows of the layers.
    """
    none, some = missing.all(0), missing.any(0) & ~missing.all(0)
    if none.any():
        yield f"{what} has no edges in {_named(none, windows)}: it is undefined there"
    if some.any():
        yield f"{what} has no edges in some prompts in {_named(some, windows)}: means are over the others"


def _named(which: Bool[Tensor, " layer"], windows: Windows) -> str:
    """The layers, and the lengths of their windows."""
    layers = which.nonzero()[:, 0].tolist()
    runs = [
        [layer for _, layer in run]
        for _, run in groupby(enumerate(layers), lambda at: at[1] - at[0])
    ]
    sizes = sorted({size for layer in layers if (size := windows[layer]) is not None})
    named = listed(layers_named(run[0], run[-1]) for run in runs)
    return f"{named} (attention in a window of {listed(map(str, sizes), 'or')} tokens)"

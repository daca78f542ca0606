"""Heatmaps of all heads by layer (columns) and head (rows), with some heads framed."""

from collections.abc import Sequence
from typing import Any

from icl_mech.measurements.causal.head_maps import Head
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.results import Samples
from icl_mech.shapes import Grid


def head_map(samples: Samples, title: str, framed: Sequence[Head], **more: Any) -> Grid:
    """A heatmap with layers as columns and heads as rows.

    Args:
        samples: Values by layer and head.
        title: Title of the figure.
        framed: Heads with a frame.
        **more: Options of `icl_mech.results.figures.heatmap`.
    """
    marked = tuple((head, layer) for layer, head in framed)
    return samples.heatmap(title, marked=marked, names=tuple(map(head_name, framed)), **more)

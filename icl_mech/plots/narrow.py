"""Figures as a phone shows them: panels one below the other, maps of heads in small cells."""

from dataclasses import replace
from textwrap import wrap

import plotly.graph_objects as go

from icl_mech.plots.bars import bars
from icl_mech.plots.curves import layer_curves
from icl_mech.plots.grids import grid, grids
from icl_mech.plots.windows import windows
from icl_mech.shapes import Bars, Grid, Grids, LayerCurves, Shape, Windows

ACROSS = 250
"""Pixels of a plot area on a phone."""

LETTERS = 28
"""Of a line of an axis' name."""


def narrow_figure(shape: Shape) -> go.Figure | None:
    """The figure for a narrow page; None where the usual one serves."""
    found: go.Figure | None = None
    if isinstance(shape, LayerCurves) and len(shape.panels) > 1 and shape.columns > 1:
        found = layer_curves(replace(shape, columns=1))
    elif isinstance(shape, Bars) and len(shape.apart) > 1:
        found = bars(replace(shape, columns=1))
    elif isinstance(shape, Windows) and len(shape.names) > 1:
        found = windows(replace(shape, columns=1))
    elif isinstance(shape, Grids):
        found = grids(shape, ACROSS)
    elif isinstance(shape, Grid):
        found = grid(shape, ACROSS)
    if found is not None and isinstance(shape, Bars | Windows):
        found.for_each_xaxis(
            lambda axis: axis.update(
                title_text="<br>".join(wrap(axis.title.text or "", LETTERS)) or None
            )
        )
    return found

"""Figures: one function per shape, each returns a plotly figure and shows nothing."""

from functools import singledispatch

import plotly.graph_objects as go

from icl_mech.errors import ResultError
from icl_mech.plots.bars import bars
from icl_mech.plots.curves import layer_curves
from icl_mech.plots.grids import grid, grids
from icl_mech.plots.lens import lens_table
from icl_mech.plots.matrices import label_matrices, label_matrix
from icl_mech.plots.notebook import show
from icl_mech.plots.points import scatter
from icl_mech.plots.strips import token_strips
from icl_mech.plots.tables import table
from icl_mech.plots.tokens import token_matrix
from icl_mech.plots.windows import windows
from icl_mech.shapes import (
    Bars,
    Grid,
    Grids,
    LabelMatrices,
    LabelMatrix,
    LayerCurves,
    LensTable,
    Scatter,
    Shape,
    Table,
    TokenMatrix,
    TokenStrips,
    Windows,
)

__all__ = ["figure", "show"]


@singledispatch
def figure(shape: Shape) -> go.Figure:
    """The figure of any shape.

    Raises:
        ResultError: it is no shape.
    """
    raise ResultError(
        f"No figure for a {type(shape).__name__}; give a shape of icl_mech.shapes, or draw a result "
        "with its plot()."
    )


figure.register(LayerCurves, layer_curves)
figure.register(TokenMatrix, token_matrix)
figure.register(TokenStrips, token_strips)
figure.register(Windows, windows)
figure.register(LabelMatrix, label_matrix)
figure.register(LabelMatrices, label_matrices)
figure.register(Grid, grid)
figure.register(Grids, grids)
figure.register(LensTable, lens_table)
figure.register(Scatter, scatter)
figure.register(Bars, bars)
figure.register(Table, table)

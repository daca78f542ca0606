"""Figures: one function per shape, each returns a plotly figure and shows nothing."""

from functools import singledispatch

import plotly.graph_objects as go

from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.plots.curves import bars, layer_curves, scatter
from icl_mech.plots.matrices import grid, label_matrices, label_matrix
from icl_mech.plots.style import PALETTE
from icl_mech.plots.tables import table
from icl_mech.plots.tokens import token_matrix, token_strips
from icl_mech.shapes import (
    Bars,
    Grid,
    LabelMatrices,
    LabelMatrix,
    LayerCurves,
    Scatter,
    Shape,
    Table,
    TokenMatrix,
    TokenStrips,
)

__all__ = ["PALETTE", "figure", "to_notebook"]


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
figure.register(LabelMatrix, label_matrix)
figure.register(LabelMatrices, label_matrices)
figure.register(Grid, grid)
figure.register(Scatter, scatter)
figure.register(Bars, bars)
figure.register(Table, table)


@checked(ResultError)
def to_notebook(fig: go.Figure) -> str:
    """HTML of a figure for a notebook cell; the plotly script is loaded from its CDN."""
    html: str = fig.to_html(full_html=False, include_plotlyjs="cdn")
    return html

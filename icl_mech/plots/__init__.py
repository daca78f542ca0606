"""Figures: one function per shape returns a plotly figure without showing it; `show` shows it.

Notebooks get figures as plotly data, which they render offline.

JupyterLab, Notebook, VS Code and others render `application/vnd.plotly.v1+json` with their own plotly;
where it is not installed, they use the static picture in the same output. HTML with a script, which
plotly offers too, needs a network connection there or is not run at all.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html import escape
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from icl_mech.errors import ResultError
from icl_mech.plots.curves import layer_curves
from icl_mech.plots.grids import grid, grids, label_matrices, label_matrix
from icl_mech.plots.points import bars, scatter
from icl_mech.plots.still import still
from icl_mech.plots.strips import token_strips
from icl_mech.plots.tables import lens_table, table
from icl_mech.plots.tokens import token_matrix
from icl_mech.plots.vector import save
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

__all__ = ["figure", "narrow_figure", "show"]


def _displayed(fig: go.Figure) -> None:
    """Display a figure as data with a static picture, unless another plotly renderer was chosen."""
    from IPython.display import display

    others = set((pio.renderers.default or "").split("+")) - DRAWN_BY_FRONTEND
    if others or not pio.renderers.render_on_display:
        go.Figure._ipython_display_(fig)
    else:
        display(bundle(fig), raw=True)


Drawn = type("Drawn", (go.Figure,), {"_ipython_display_": _displayed, "save": save})
"""A figure with a static picture for notebooks without plotly, and vector export for papers."""

DRAW: dict[type, Callable[[Any], go.Figure]] = {
    LayerCurves: layer_curves,
    TokenMatrix: token_matrix,
    TokenStrips: token_strips,
    Windows: windows,
    LabelMatrix: label_matrix,
    LabelMatrices: label_matrices,
    Grid: grid,
    Grids: grids,
    LensTable: lens_table,
    Scatter: scatter,
    Bars: bars,
    Table: table,
}


def figure(shape: Shape) -> go.Figure:
    """The figure of any shape.

    Raises:
        ResultError: the argument is not a shape.
    """
    if type(shape) not in DRAW:
        raise ResultError(
            f"A {type(shape).__name__} cannot be drawn; give a shape of icl_mech.shapes, or draw a result "
            "with its plot()."
        )
    fig = DRAW[type(shape)](shape)
    fig.__class__ = Drawn  # plotly would validate and copy everything again
    fig._forms = partial(DRAW[type(shape)], shape), partial(_column, shape)
    return fig


ACROSS = 250
"""Width of a plot area on a phone, in pixels."""

COLUMN = 410
"""Width of the figure in a column of a paper, in pixels of the screen."""

LETTERS = 28
"""Maximum characters of a line of an axis title."""


def narrow_figure(shape: Shape) -> go.Figure | None:
    """The figure for a narrow page; None if the usual one fits."""
    fig: go.Figure | None = None
    if isinstance(shape, LayerCurves) and len(shape.panels) > 1 and shape.columns > 1:
        fig = layer_curves(replace(shape, columns=1))
    elif isinstance(shape, Bars) and len(shape.apart) > 1:
        fig = bars(replace(shape, columns=1))
    elif isinstance(shape, Windows) and len(shape.names) > 1:
        fig = windows(replace(shape, columns=1))
    elif isinstance(shape, Grids):
        fig = grids(shape, ACROSS)
    elif isinstance(shape, Grid):
        fig = grid(shape, ACROSS)
    if fig is not None and isinstance(shape, Bars | Windows):
        fig.for_each_xaxis(
            lambda axis: axis.update(
                title_text="<br>".join(wrap(axis.title.text or "", LETTERS)) or None
            )
        )
    return fig


def _column(shape: Shape) -> go.Figure | None:
    """The figure for the column of a paper, which has no legend; None if the usual one fits."""
    if isinstance(shape, LayerCurves):
        return layer_curves(replace(shape, columns=1), across=COLUMN)
    return narrow_figure(shape)


MIME = "application/vnd.plotly.v1+json"

CONFIG = {"displaylogo": False, "showSendToCloud": False}
"""Figures have no button that uploads data."""

DRAWN_BY_FRONTEND = frozenset(
    {"", "plotly_mimetype", "jupyterlab", "nteract", "vscode", "notebook"}
)


def show(*parts: "str | go.Figure") -> None:
    """Show sentences and figures below the cell, one after the other.

    Figures go to the frontend as data, unless another plotly renderer was chosen, such as
    `colab`, which plotly detects itself.
    """
    from IPython.display import display

    for part in parts:
        if isinstance(part, str):
            display({"text/html": f"<p>{escape(part)}</p>", "text/plain": part}, raw=True)
        else:
            part._ipython_display_()


def bundle(figure: go.Figure) -> dict[str, object]:
    """A figure by media type, for `IPython.display.display(..., raw=True)`."""
    title = figure.layout.title.text or "A figure"
    media = {MIME: {**json.loads(figure.to_json()), "config": CONFIG}, "text/plain": title}
    with suppress(Exception):  # users may have added elements that `still` cannot draw
        media["image/svg+xml"] = still(figure)
    return media

"""The shapes that results are drawn as; `icl_mech.plots` has one figure for each."""

from icl_mech.shapes.cells import Bars, Grid, Grids, LabelMatrices, LabelMatrix, Scatter, Table
from icl_mech.shapes.curves import MEANINGS, Behind, LayerCurves, Meaning, Panel, Published, Windows
from icl_mech.shapes.tokens import LensTable, TokenMatrix, TokenSegment, TokenStrips, shortened

__all__ = [
    "MEANINGS",
    "Bars",
    "Behind",
    "Grid",
    "Grids",
    "LabelMatrices",
    "LabelMatrix",
    "LayerCurves",
    "LensTable",
    "Meaning",
    "Panel",
    "Published",
    "Scatter",
    "Shape",
    "Table",
    "TokenMatrix",
    "TokenSegment",
    "TokenStrips",
    "Windows",
    "shortened",
]

Shape = (
    LayerCurves
    | TokenMatrix
    | TokenStrips
    | Windows
    | LabelMatrix
    | LabelMatrices
    | Grid
    | Grids
    | LensTable
    | Scatter
    | Bars
    | Table
)

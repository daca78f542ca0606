"""Results: labelled values with provenance, the shapes they are drawn as, and their files."""

from icl_mech.results.base import Result, load_result, write_result
from icl_mech.results.shapes import (
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
from icl_mech.results.storage import FORMAT, atomic_folder, jsonable, read_json

__all__ = [
    "FORMAT",
    "Bars",
    "Grid",
    "LabelMatrices",
    "LabelMatrix",
    "LayerCurves",
    "Result",
    "Scatter",
    "Shape",
    "Table",
    "TokenMatrix",
    "TokenStrips",
    "atomic_folder",
    "jsonable",
    "load_result",
    "read_json",
    "write_result",
]

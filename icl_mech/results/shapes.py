"""The few shapes results are drawn as; `icl_mech.plots` has one figure for each."""

from dataclasses import dataclass

from icl_mech._typing import Float, Tensor


@dataclass(frozen=True)
class LayerCurves:
    """Curves over layers with interval bands.

    Attributes:
        title: Of the figure.
        names: Of the curves; a curve keeps its colour by its place.
        values: One row per curve.
        low: Lower ends of the bands.
        high: Upper ends.
        y_title: Quantity and unit.
        note: How sure it is, below the title.
    """

    title: str
    names: tuple[str, ...]
    values: Float[Tensor, "curve layer"]
    low: Float[Tensor, "curve layer"]
    high: Float[Tensor, "curve layer"]
    y_title: str
    note: str = ""


@dataclass(frozen=True)
class TokenMatrix:
    """One destination x source matrix per layer over the tokens of one prompt.

    Attributes:
        title: Of the figure.
        values: Layer, destination, source.
        tokens: Text of each token.
        roles: Role of each token.
        quantity: Name of the value in hover texts.
        layer: Layer shown first.
    """

    title: str
    values: Float[Tensor, "layer dest src"]
    tokens: tuple[str, ...]
    roles: tuple[str, ...]
    quantity: str
    layer: int = 0


@dataclass(frozen=True)
class LabelMatrix:
    """A small matrix over named rows and columns."""

    title: str
    values: Float[Tensor, "row column"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_title: str
    column_title: str
    quantity: str


Shape = LayerCurves | TokenMatrix | LabelMatrix

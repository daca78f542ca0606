"""The few shapes results are drawn as; `icl_mech.plots` has one figure for each."""

from dataclasses import dataclass

from icl_mech._typing import Float, Tensor


@dataclass(frozen=True)
class LayerCurves:
    """Curves over layers (or another number) with interval bands.

    Attributes:
        title: Of the figure.
        names: Of the curves; a curve keeps its colour by its place.
        values: One row per curve; not-a-number leaves a gap.
        low: Lower ends of the bands.
        high: Upper ends.
        y_title: Quantity and unit.
        note: How sure it is, below the title.
        x: Where the columns stand (default 0, 1, ...).
        x_title: What the columns are.
        right: Names of the curves drawn against a second axis on the right.
        right_title: Quantity and unit of that axis.
        marks: Vertical lines: where, and what they say.
        levels: Horizontal dashed lines, such as chance: height and what they say.
    """

    title: str
    names: tuple[str, ...]
    values: Float[Tensor, "curve x"]
    low: Float[Tensor, "curve x"]
    high: Float[Tensor, "curve x"]
    y_title: str
    note: str = ""
    x: tuple[float, ...] | None = None
    x_title: str = "layer"
    right: tuple[str, ...] = ()
    right_title: str = ""
    marks: tuple[tuple[float, str], ...] = ()
    levels: tuple[tuple[float, str], ...] = ()


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
class TokenStrips:
    """Numbers over the tokens of one prompt, drawn on its text; several, one shown at a time.

    Attributes:
        title: Of the figure.
        names: Of the rows of `values`, as the slider shows them.
        values: One number per row and token, 0 or more.
        tokens: Text of each token.
        marks: What each token is framed as, or "".
        quantity: Name of the value in hover texts.
        note: How to read it, below the title.
        first: Row shown first.
    """

    title: str
    names: tuple[str, ...]
    values: Float[Tensor, "row token"]
    tokens: tuple[str, ...]
    marks: tuple[str, ...]
    quantity: str
    note: str = ""
    first: int = 0


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


@dataclass(frozen=True)
class LabelMatrices:
    """Small matrices of one kind side by side, with one colour range."""

    title: str
    matrices: tuple[LabelMatrix, ...]
    note: str = ""


@dataclass(frozen=True)
class Grid:
    """A heatmap over two numbers, such as layer and head.

    Attributes:
        title: Of the figure.
        values: One number per cell; not-a-number leaves it blank.
        row_title: What the rows count.
        column_title: What the columns count.
        quantity: Name of the value.
        note: How sure it is, below the title.
        rows: Numbers of the rows (default 0, 1, ...).
        columns: Numbers of the columns.
        signed: Values stand around 0, so the colours do too.
        marked: (row, column) indices of cells to mark.
        low: Lower interval ends, for hovering.
        high: Upper interval ends.
        dark_low: Low values are the dark ones.
    """

    title: str
    values: Float[Tensor, "row column"]
    row_title: str
    column_title: str
    quantity: str
    note: str = ""
    rows: tuple[int, ...] | None = None
    columns: tuple[int, ...] | None = None
    signed: bool = False
    marked: tuple[tuple[int, int], ...] = ()
    low: Float[Tensor, "row column"] | None = None
    high: Float[Tensor, "row column"] | None = None
    dark_low: bool = False


@dataclass(frozen=True)
class Scatter:
    """Named points over two quantities.

    Attributes:
        title: Of the figure.
        x: Of each point.
        y: Of each point.
        names: Of each point, shown on hovering.
        groups: What each point belongs to (legend), e.g. `chosen` or `other heads`.
        x_title: Quantity and unit.
        y_title: Quantity and unit.
        note: How sure it is, below the title.
    """

    title: str
    x: Float[Tensor, " point"]
    y: Float[Tensor, " point"]
    names: tuple[str, ...]
    groups: tuple[str, ...]
    x_title: str
    y_title: str
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """Named values with interval ends, in groups of bars.

    Attributes:
        title: Of the figure.
        groups: Along the axis.
        names: Of the bars within each group; a bar keeps its colour by its place.
        values: One number per group and bar; not-a-number leaves it out.
        low: Lower interval ends.
        high: Upper interval ends.
        y_title: Quantity and unit.
        note: How sure it is, below the title.
    """

    title: str
    groups: tuple[str, ...]
    names: tuple[str, ...]
    values: Float[Tensor, "group bar"]
    low: Float[Tensor, "group bar"]
    high: Float[Tensor, "group bar"]
    y_title: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of texts, as papers print their results."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


Shape = (
    LayerCurves
    | TokenMatrix
    | TokenStrips
    | LabelMatrix
    | LabelMatrices
    | Grid
    | Scatter
    | Bars
    | Table
)

"""Shapes made of cells, points and rows."""

from dataclasses import dataclass

from icl_mech._typing import Float, Tensor
from icl_mech.shapes.curves import Meaning


@dataclass(frozen=True)
class LabelMatrix:
    """A small matrix over named rows and columns.

    Attributes:
        title: Title of the figure, or of this matrix among several.
        values: One number per cell; NaN leaves a cell blank.
        rows: Names of the rows.
        columns: Names of the columns.
        row_title: What the rows are.
        column_title: What the columns are.
        quantity: Name of the value.
        note: How to read it, shown below the title.
        counts: Values are counts, written as integers where they are whole.
        diagonal: Frame the cells of the diagonal (each class with itself).
        low: Lower ends of the intervals, shown on hover.
        high: Upper ends of the intervals.
        ends: Values of the lightest and of the darkest colour; None: 0 and the largest value.
    """

    title: str
    values: Float[Tensor, "row column"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_title: str
    column_title: str
    quantity: str
    note: str = ""
    counts: bool = False
    diagonal: bool = False
    low: Float[Tensor, "row column"] | None = None
    high: Float[Tensor, "row column"] | None = None
    ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class LabelMatrices:
    """Small matrices side by side, each with its own colour scale and its numbers written in the cells."""

    title: str
    matrices: tuple[LabelMatrix, ...]
    note: str = ""


@dataclass(frozen=True)
class Grid:
    """A heatmap over two integer axes, such as head and layer, with square cells.

    Attributes:
        title: Title of the figure, or of this map among several.
        values: One number per cell; NaN leaves it blank.
        row_title: What the rows count.
        column_title: What the columns count.
        quantity: Name of the value.
        note: How certain the values are, shown below the title.
        rows: Numbers of the rows (default 0, 1, ...).
        columns: Numbers of the columns.
        signed: Values are centred on 0, and so are the colours; otherwise colours start at 0, and
            negative values are drawn as 0.
        marked: (row, column) indices of cells to frame.
        names: Names of the framed cells, written above their columns.
        low: Lower ends of the intervals, shown on hover.
        high: Upper ends of the intervals.
        dark_low: Low values are dark.
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
    names: tuple[str, ...] = ()
    low: Float[Tensor, "row column"] | None = None
    high: Float[Tensor, "row column"] | None = None
    dark_low: bool = False


@dataclass(frozen=True)
class Grids:
    """Heatmaps over the same rows and columns, one above the other, each with its own scale."""

    title: str
    grids: tuple[Grid, ...]
    note: str = ""


@dataclass(frozen=True)
class Scatter:
    """Named points over two quantities.

    Attributes:
        title: Title of the figure.
        x: Horizontal value of each point.
        y: Vertical value of each point.
        names: Name of each point, shown on hover.
        groups: Group of each point, e.g. `chosen` or `other heads`.
        x_title: Quantity and unit.
        y_title: Quantity and unit.
        note: How certain the values are, shown below the title.
        order: Names of the groups, the most important first; empty: in order of appearance.
        meanings: What each group is about, in that order; empty: by its index.
        named: Indices of the points whose names are written next to them.
        corner: Label of the upper right corner: what would lie there.
        levels: Horizontal lines: height and label.
    """

    title: str
    x: Float[Tensor, " point"]
    y: Float[Tensor, " point"]
    names: tuple[str, ...]
    groups: tuple[str, ...]
    x_title: str
    y_title: str
    note: str = ""
    order: tuple[str, ...] = ()
    meanings: tuple[Meaning, ...] = ()
    named: tuple[int, ...] = ()
    corner: str = ""
    levels: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Bars:
    """Named values with intervals, one line for each group, drawn as dots.

    Attributes:
        title: Title of the figure.
        groups: Names of the lines, from top to bottom.
        names: Names of the dots within each group; a dot has the same look in every group.
        values: One number per group and dot; NaN leaves the dot out.
        low: Lower ends of the intervals.
        high: Upper ends of the intervals.
        y_title: Quantity and unit.
        note: How certain the values are, shown below the title.
        meanings: What each dot is about; empty: by its index.
        sides: Meaning of values below and above 0, such as `hurts` and `helps`; empty: no line is
            drawn at 0.
        spread: Single values behind a dot, such as random draws: group, dot, values.
        levels: Lines across all groups, such as chance: value and label.
        published: A paper's values: group, dot, value.
        source: The paper of these values.
        apart: Axis titles, one for each dot, where the dots are different measures: each then has
            its own axes, and levels are drawn in the first.
        columns: Maximum number of such axes side by side.
        single: What a single value is, such as `seed`.
    """

    title: str
    groups: tuple[str, ...]
    names: tuple[str, ...]
    values: Float[Tensor, "group bar"]
    low: Float[Tensor, "group bar"]
    high: Float[Tensor, "group bar"]
    y_title: str
    note: str = ""
    meanings: tuple[Meaning, ...] = ()
    sides: tuple[str, str] | tuple[()] = ()
    spread: tuple[tuple[int, int, tuple[float, ...]], ...] = ()
    levels: tuple[tuple[float, str], ...] = ()
    published: tuple[tuple[int, int, float], ...] = ()
    source: str = ""
    apart: tuple[str, ...] = ()
    columns: int = 2
    single: str = "draw"


@dataclass(frozen=True)
class Table:
    """Rows of texts, as papers print their results.

    Attributes:
        title: Title of the table.
        columns: Column headings; the first column names the rows.
        rows: Texts, one for each column.
        note: How to read it, shown below the title.
        bold: Indices of the rows in bold.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    bold: tuple[int, ...] = ()

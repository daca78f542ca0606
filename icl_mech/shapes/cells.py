"""Cells, points and rows."""

from dataclasses import dataclass

from icl_mech._typing import Float, Tensor
from icl_mech.shapes.curves import Meaning


@dataclass(frozen=True)
class LabelMatrix:
    """A small matrix over named rows and columns.

    Attributes:
        title: Of the figure, or of this one among several.
        values: Not-a-number leaves a cell blank.
        rows: Names of the rows.
        columns: Names of the columns.
        row_title: What the rows are.
        column_title: What the columns are.
        quantity: Name of the value.
        note: How to read it, below the title.
        counts: Values are counts, written as integers where they are whole.
        diagonal: Cells of a class with itself are framed.
        low: Lower interval ends, for hovering.
        high: Upper interval ends.
        ends: Values of the lightest and of the darkest colour; None: 0 and the largest.
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
    """Small matrices side by side; each has its own colours and writes its numbers."""

    title: str
    matrices: tuple[LabelMatrix, ...]
    note: str = ""


@dataclass(frozen=True)
class Grid:
    """A heatmap over two numbers, such as head and layer, with square cells.

    Attributes:
        title: Of the figure, or of the map where there are several.
        values: One number per cell; not-a-number leaves it blank.
        row_title: What the rows count.
        column_title: What the columns count.
        quantity: Name of the value.
        note: How sure it is, below the title.
        rows: Numbers of the rows (default 0, 1, ...).
        columns: Numbers of the columns.
        signed: Values stand around 0, so the colours do too; else they start at 0, and what is
            below 0 is drawn as 0.
        marked: (row, column) indices of cells to frame.
        names: Of the framed cells, written above their columns.
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
    names: tuple[str, ...] = ()
    low: Float[Tensor, "row column"] | None = None
    high: Float[Tensor, "row column"] | None = None
    dark_low: bool = False


@dataclass(frozen=True)
class Grids:
    """Maps over the same rows and columns, one above the other, each with its own scale."""

    title: str
    grids: tuple[Grid, ...]
    note: str = ""


@dataclass(frozen=True)
class Scatter:
    """Named points over two quantities.

    Attributes:
        title: Of the figure.
        x: Of each point.
        y: Of each point.
        names: Of each point, shown on hovering.
        groups: What each point belongs to, e.g. `chosen` or `other heads`.
        x_title: Quantity and unit.
        y_title: Quantity and unit.
        note: How sure it is, below the title.
        order: Names of the groups, the most important first; empty: as they come.
        meanings: What each group is about, in that order; empty: by its place.
        named: Places of the points whose names are written beside them.
        corner: What would stand far right and high.
        levels: Horizontal lines: height and what they say.
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
        title: Of the figure.
        groups: Lines, from top to bottom.
        names: Of the dots within each group; a dot keeps its look by its place.
        values: One number per group and dot; not-a-number leaves it out.
        low: Lower interval ends.
        high: Upper interval ends.
        y_title: Quantity and unit.
        note: How sure it is, below the title.
        meanings: What each dot is about; empty: by its place.
        sides: What values below and above 0 mean, such as `hurts` and `helps`; empty: 0 is no
            line of its own.
        spread: Single values behind a dot, such as random draws: group, dot, values.
        levels: Lines across all groups, such as chance: value and what it says.
        published: A paper's values: group, dot, value.
        source: Whose these are.
        apart: Names of the axes, one for each dot, of dots that are different measures: each has
            axes of its own. Levels stand in the first.
        columns: Such axes side by side at most.
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
        title: Of the table.
        columns: Heads of the columns; the first names the rows.
        rows: Texts, one for each column.
        note: How to read it, below the title.
        bold: Rows that stand out.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    bold: tuple[int, ...] = ()

"""Curves over layers, their panels, and the meanings of series."""

from dataclasses import dataclass
from typing import Literal, get_args

from icl_mech._typing import Float, Tensor

Meaning = Literal["text", "label", "other", "query", "target", "true", "false", "reference"]
"""What a series is about; sets its colour, line and marker in every figure."""

MEANINGS: tuple[Meaning, ...] = get_args(Meaning)


@dataclass(frozen=True)
class Panel:
    """One of several axes of a figure, with some of its curves.

    Attributes:
        title: What distinguishes this panel from the others.
        curves: Indices of its curves in `LayerCurves.names`.
        y_title: Quantity and unit; empty: the figure's.
        levels: Horizontal dashed lines: height and label.
        y_range: Ends of the axis; None: from 0, or as the values require.
    """

    title: str
    curves: tuple[int, ...]
    y_title: str = ""
    levels: tuple[tuple[float, str], ...] = ()
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Published:
    """A published curve, drawn thin and grey, or as hollow triangles if it has few points.

    Attributes:
        name: Model and data of the curve.
        x: Positions of its points on the axis of the figure.
        y: Values of its points.
        panel: Index of its panel.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    panel: int = 0


@dataclass(frozen=True)
class Behind:
    """The outline of an area beside a curve, in its colour: the range of a control.

    Attributes:
        name: Name of the control.
        curve: Index of the curve.
        low: Lower edge, one value per column; NaN leaves a gap.
        high: Upper edge.
    """

    name: str
    curve: int
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class LayerCurves:
    """Curves over layers (or another number) with intervals.

    Attributes:
        title: Title of the figure.
        names: Names of the curves, written next to them.
        values: One row per curve; NaN leaves a gap.
        low: Lower ends of the intervals.
        high: Upper ends of the intervals.
        y_title: Quantity and unit.
        note: How certain the values are, shown below the title.
        x: Positions of the columns (default 0, 1, ...).
        x_title: What the columns are.
        x_names: Names of the columns if they are categories, whose points no line joins; empty: none.
        meanings: What each curve is about; empty: by its index.
        panels: Axes side by side; empty: one panel with all curves. Curves that may coincide and
            measures with different units go into separate panels.
        columns: Panels in a row.
        marks: Vertical lines: position and label.
        levels: Horizontal dashed lines, such as chance: height and label.
        stretches: Bars above the axes: first x, last x and label.
        published: Curves of a paper.
        percent: Values are fractions, shown as percentages.
        y_range: Ends of the axis; None: from 0, or as the values require.
        spread: Single values behind a curve, such as seeds: index of the curve, one value per column.
        behind: Outlined areas beside curves, such as the range of randomly initialised models.
        nulls: Indices of curves that are the baseline of another curve, whose meaning they share: hollow markers
            on a thin line, the interval as an outline.
        weak: Columns where the values say little, whose points and lines are pale; empty: none.
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
    x_names: tuple[str, ...] = ()
    meanings: tuple[Meaning, ...] = ()
    panels: tuple[Panel, ...] = ()
    columns: int = 2
    marks: tuple[tuple[float, str], ...] = ()
    levels: tuple[tuple[float, str], ...] = ()
    stretches: tuple[tuple[float, float, str], ...] = ()
    published: tuple[Published, ...] = ()
    percent: bool = False
    y_range: tuple[float, float] | None = None
    spread: tuple[tuple[int, tuple[float, ...]], ...] = ()
    behind: tuple[Behind, ...] = ()
    nulls: tuple[int, ...] = ()
    weak: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Windows:
    """Values of windows of consecutive layers: bars from the first to the last layer of each.

    Windows of one width share a row of axes; every measure has its own column.

    Attributes:
        title: Title of the figure.
        first: First layer of each window.
        last: Last layer of each window, included.
        names: Names of the measures.
        values: One row per measure; NaN leaves a window out.
        low: Lower ends of the intervals.
        high: Upper ends of the intervals.
        n_layers: Number of layers of the model.
        x_title: What the layers are.
        note: How certain the values are, shown below the title.
        meanings: What each measure is about; empty: by its index.
        levels: Horizontal dashed lines of each measure: height and label.
        y_range: Ends of the axes; None: from 0, or as the values require.
        columns: Maximum number of axes side by side.
    """

    title: str
    first: tuple[int, ...]
    last: tuple[int, ...]
    names: tuple[str, ...]
    values: Float[Tensor, "measure window"]
    low: Float[Tensor, "measure window"]
    high: Float[Tensor, "measure window"]
    n_layers: int
    x_title: str = "layer"
    note: str = ""
    meanings: tuple[Meaning, ...] = ()
    levels: tuple[tuple[tuple[float, str], ...], ...] = ()
    y_range: tuple[float, float] | None = None
    columns: int = 2

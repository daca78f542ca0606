"""What a series is about; curves over layers, and what panels share."""

from dataclasses import dataclass
from typing import Literal, get_args

from icl_mech._typing import Float, Tensor

Meaning = Literal["text", "label", "other", "query", "target", "true", "false", "reference"]
"""It decides colour, line and marker in every figure."""

MEANINGS: tuple[Meaning, ...] = get_args(Meaning)


@dataclass(frozen=True)
class Panel:
    """One of several axes of a figure, with some of its curves.

    Attributes:
        title: What sets it apart from the others.
        curves: Places of its curves in `LayerCurves.names`.
        y_title: Quantity and unit; empty: that of the figure.
        levels: Horizontal dashed lines: height and what they say.
        remark: Words in the panel, such as `both exactly 1`.
        y_range: Ends of the axis; None: from 0, or what the values need.
    """

    title: str
    curves: tuple[int, ...]
    y_title: str = ""
    levels: tuple[tuple[float, str], ...] = ()
    remark: str = ""
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Published:
    """A published curve, thin and grey, or hollow triangles where it has few points.

    Attributes:
        name: Model and data it is of.
        x: Where its points stand on the axis of the figure.
        y: Their values.
        panel: Place of its panel.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    panel: int = 0


@dataclass(frozen=True)
class Behind:
    """A grey area behind a curve: what a control gives there.

    Attributes:
        name: Of the control.
        curve: Place of the curve.
        low: Lower edge, one value per column; not-a-number leaves a gap.
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
        title: Of the figure.
        names: Of the curves, written beside them.
        values: One row per curve; not-a-number leaves a gap.
        low: Lower ends of the intervals.
        high: Upper ends.
        y_title: Quantity and unit.
        note: How sure it is, below the title.
        x: Where the columns stand (default 0, 1, ...).
        x_title: What the columns are.
        meanings: What each curve is about; empty: by its place.
        panels: Axes side by side; none: one with all curves. Curves that may coincide and measures
            with other units go into panels of their own.
        columns: Panels in a row.
        marks: Vertical lines: where, and what they say.
        levels: Horizontal dashed lines, such as chance: height and what they say.
        stretches: Bars above the axes: first x, last x and what they say.
        published: Curves of a paper.
        apart: Points of the curves of a panel are set apart by this much.
        percent: Values are shares, shown as percentages.
        y_range: Ends of the axis; None: from 0, or what the values need.
        spread: Single values behind a curve, such as seeds: place of the curve, one value per column.
        behind: Grey areas behind curves, such as what untrained networks show.
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
    meanings: tuple[Meaning, ...] = ()
    panels: tuple[Panel, ...] = ()
    columns: int = 2
    marks: tuple[tuple[float, str], ...] = ()
    levels: tuple[tuple[float, str], ...] = ()
    stretches: tuple[tuple[float, float, str], ...] = ()
    published: tuple[Published, ...] = ()
    apart: float = 0.0
    percent: bool = False
    y_range: tuple[float, float] | None = None
    spread: tuple[tuple[int, tuple[float, ...]], ...] = ()
    behind: tuple[Behind, ...] = ()


@dataclass(frozen=True)
class Windows:
    """Values of stretches of neighbouring layers: bars from the first to the last layer of each.

    Stretches of one width share a row of axes; every measure has a column of its own.

    Attributes:
        title: Of the figure.
        first: First layer of each window.
        last: Last layer of each window, included.
        names: Of the measures.
        values: One row per measure; not-a-number leaves a window out.
        low: Lower ends of the intervals.
        high: Upper ends.
        n_layers: Layers of the model.
        x_title: What the layers are.
        note: How sure it is, below the title.
        meanings: What each measure is about; empty: by its place.
        levels: For each measure horizontal dashed lines: height and what they say.
        y_range: Ends of the axes; None: from 0, or what the values need.
        columns: Axes side by side at most.
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

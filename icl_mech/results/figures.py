"""Drawings of labelled numbers (curves, a heatmap, dots or a table) and the text of a figure on a page.

A result gives the quantity, the words and the reference lines of its figure; values, ends, names and units
come from the numbers themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.quantities import Quantity
from icl_mech.shapes import Bars, Grid, LayerCurves, Meaning, Shape, Table, Windows

ABOUT: dict[str, Meaning] = {
    "wp": "text",
    "pq": "label",
    "ww": "other",
    "true": "true",
    "false": "false",
    "label": "label",
    "random": "other",
}
"""Meanings of curves with these labels, the same in every figure."""


@dataclass(frozen=True)
class Definition:
    r"""One quantity as a formula and in words.

    Attributes:
        name: Name of the quantity, such as `label loyalty`.
        formula: LaTeX without dollar signs, such as `S_{wp} = \\frac{1}{|P|} \\sum_p I_l[p, j]`.
        words: Definition in words, with its symbols.
        source: Paper and section.
    """

    name: str
    formula: str
    words: str
    source: str = ""


@dataclass(frozen=True)
class Figure:
    """One section of a page: the figure of `drawing(show=...)` and its text.

    All texts are written from the result, so that none of them can contradict it. `**bold**`
    marks emphasis.

    Attributes:
        show: The option of `drawing` that gives the figure.
        question: The heading, a question; empty: the title of the result.
        answer: One sentence that opens with Yes, No, Not shown, Perhaps or Cannot be judged if
            possible, and gives effect, interval and comparison.
        caption: What is drawn, the meaning of bars and bands, the number of prompts.
        establishes: Conclusions that follow.
        limits: Conclusions that do not follow.
        short: The heading in a table of contents; empty: the title of the result.
        drawn: False if there is nothing to draw; the answer then says why.
    """

    show: str = ""
    question: str = ""
    answer: str = ""
    caption: str = ""
    establishes: str = ""
    limits: str = ""
    short: str = ""
    drawn: bool = True


MOST_CURVES = 12
"""More rows than this are drawn as a heatmap, not as curves or bars."""


@runtime_checkable
class Labelled(Protocol):
    """Numbers with ends and labels, such as `Samples`."""

    @property
    def name(self) -> str:
        """Name of the quantity."""

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes."""

    @property
    def labels(self) -> tuple[tuple[Any, ...], ...]:
        """Labels along each axis."""

    @property
    def values(self) -> Float[Tensor, " *cell"]:
        """Estimates."""

    @property
    def low(self) -> Float[Tensor, " *cell"]:
        """Lower ends."""

    @property
    def high(self) -> Float[Tensor, " *cell"]:
        """Upper ends."""

    @property
    def unit(self) -> str:
        """Quantity and unit."""

    @property
    def note(self) -> str:
        """Prompts and assumptions behind the numbers."""


def curves(
    found: Labelled, title: str, names: Sequence[str] = (), *, along: str = "layer", **more: Any
) -> LayerCurves:
    """Curves along one axis, one for each label of the other.

    Args:
        found: Numbers over one or two axes.
        title: Of the figure.
        names: Names of the curves; by default their labels, or the quantity for a single curve.
        along: Axis that the curves follow.
        **more: Other fields of `LayerCurves`, also in place of those that follow from the numbers.

    Raises:
        ResultError: other axes.
    """
    if along not in found.dims or len(found.dims) > 2:
        raise ResultError(
            f"{found.name} has the axes {found.dims}; curves need {along!r} and at most one more. Select with sel()."
        )
    ends = found.values, found.low, found.high
    curve_names: tuple[str, ...] = (found.name,)
    rows = [end[None] for end in ends]
    if len(found.dims) == 2:
        axis = 1 - found.dims.index(along)
        curve_names, rows = (
            tuple(map(str, found.labels[axis])),
            [end.movedim(axis, 0) for end in ends],
        )
    places = found.labels[found.dims.index(along)]
    numbers = all(isinstance(place, int | float) for place in places)
    values, low, high = rows
    given: dict[str, Any] = {
        "y_title": found.unit,
        "note": found.note,
        "x": tuple(map(float, places)) if numbers else None,
        "meanings": tuple(ABOUT[name] for name in curve_names)
        if set(curve_names) <= set(ABOUT)
        else (),
    }
    return LayerCurves(title, tuple(names) or curve_names, values, low, high, **given | more)


FEW = "too few for intervals"

INTERVALS = "95 % intervals over prompts"
"""Wording of a figure's note about its intervals."""


def points_of_few(shape: Shape, quantities: Mapping[str, Quantity]) -> Shape:
    """The shape without intervals if there are fewer than `FEWEST_PROMPTS` prompts.

    Student's interval of two prompts extends 13 standard errors to either side, and a Wilson interval of
    two covers at least half of the axis.
    """
    count = max((quantity.count for quantity in quantities.values()), default=FEWEST_PROMPTS)
    if count >= FEWEST_PROMPTS or not isinstance(shape, LayerCurves | Bars | Windows):
        return shape
    none, few = torch.full_like(shape.values, torch.nan), f"{FEW} (at least {FEWEST_PROMPTS})"
    note = shape.note.replace(INTERVALS, few) if INTERVALS in shape.note else f"{shape.note}; {few}"
    return replace(shape, low=none, high=none, note=note.removeprefix("; "))


def heatmap(found: Labelled, title: str, **more: Any) -> Grid:
    """Numbers over two axes as a map; its colour scale is centred on 0 if any number is negative.

    Layers are columns and heads rows, in whichever order the axes are.

    Args:
        found: Numbers over two axes: down and across.
        title: Of the figure.
        **more: Other fields of `Grid`, also in place of those that follow from the numbers.

    Raises:
        ResultError: other axes.
    """
    if len(found.dims) != 2:
        raise ResultError(
            f"{found.name} has the axes {found.dims}; a map needs two. Select with sel()."
        )
    turned, ends = found.dims == ("layer", "head"), (found.values, found.low, found.high)
    values, low, high = (end.T if turned else end for end in ends)
    rows, columns = found.dims[:: -1 if turned else 1]
    given: dict[str, Any] = {
        "row_title": rows,
        "column_title": columns,
        "quantity": found.unit,
        "note": found.note,
        "low": low,
        "high": high,
        "signed": bool((values < 0).any()),
    }
    return Grid(title, values, **given | more)


def dots(
    found: Labelled, title: str, groups: Sequence[str] = (), names: Sequence[str] = (), **more: Any
) -> Bars:
    """Numbers as dots with intervals: a line for each label of the first axis, a dot for each of the second.

    Args:
        found: Numbers over at most two axes.
        title: Of the figure.
        groups: Names of the lines; by default the labels of the first axis.
        names: Names of the dots in a line; by default the labels of the second axis.
        **more: Other fields of `Bars`, also in place of those that follow from the numbers.

    Raises:
        ResultError: more axes.
    """
    if len(found.dims) > 2:
        raise ResultError(
            f"{found.name} has the axes {found.dims}; dots need at most two. Select with sel()."
        )
    ends = found.values, found.low, found.high
    rows = list(ends) if len(found.dims) == 2 else [end.reshape(-1, 1) for end in ends]
    axis_labels = [tuple(map(str, labels)) for labels in found.labels]
    lines = tuple(groups) or (axis_labels[0] if axis_labels else (found.name,))
    inside = tuple(names) or (
        axis_labels[1] if len(axis_labels) == 2 else (found.unit or found.name,)
    )
    given: dict[str, Any] = {"y_title": found.unit or found.name, "note": found.note}
    values, low, high = rows
    return Bars(title, lines, inside, values, low, high, **given | more)


def usual(
    found: Labelled, title: str, rows: Sequence[Sequence[Any]], columns: Sequence[str]
) -> Shape:
    """Layers by heads as a map, else curves over layers, a map over two axes, dots, or a table.

    Args:
        found: Numbers.
        title: Of the figure.
        rows: The numbers as rows of a table, used if no other drawing fits.
        columns: Column heads of that table.
    """
    sizes = dict(zip(found.dims, found.values.shape, strict=True))
    others = [size for dim, size in sizes.items() if dim != "layer"]
    if (
        "layer" in sizes
        and "head" not in sizes
        and (not others or (len(others) == 1 and others[0] <= MOST_CURVES))
    ):
        return curves(found, title, y_title=found.unit or found.name)
    if len(sizes) == 2:
        return heatmap(found, title, quantity=found.unit or found.name)
    if len(sizes) < 2 and found.values.numel() <= MOST_CURVES:
        return dots(found, title)
    texts = tuple(tuple(map(str, row)) for row in rows)
    return Table(title, tuple(columns), texts, found.note)

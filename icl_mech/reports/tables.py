"""HTML tables from data frames and from shapes shown as tables."""

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

from icl_mech.plots.pieces import alone, quoted, visible
from icl_mech.results.wording import MINUS, RESOLVED, largest, power_of_ten, told
from icl_mech.shapes import LabelMatrices, LabelMatrix, LensTable, Shape, Table, shortened

if TYPE_CHECKING:
    import pandas as pd

FIRST, LONGEST = 8, 400
"""Rows of a table of numbers: visible ones, and the maximum with folded ones; the CSV file has all."""

WIDEST, TALLEST = 14, 30
"""Maximum columns and rows of a matrix shown as a table; larger ones are drawn as figures."""

WIDE = 20
"""Maximum characters of a row or column name of a matrix."""

FEW = 4
"""Up to this many columns, a table of words also shows their probabilities."""


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: Text of the cell.
        interval: Interval after the text, in lighter type.
        shade: Strength of its colour from 0 to 1; None: not coloured.
        framed: It has a frame.
        bold: It is in bold type.
        number: It is a number, right-aligned.
        whole: Text shown on hover, in full if `text` is shortened.
    """

    text: str
    interval: str = ""
    shade: float | None = None
    framed: bool = False
    bold: bool = False
    number: bool = False
    whole: str = ""


@dataclass(frozen=True)
class HtmlTable:
    """A table; the first cell of a row is its heading.

    Attributes:
        columns: Headings.
        rows: Cells of each row.
        caption: What the table shows.
        left_out: Number of rows that are not shown.
        first: Number of visible rows if the table is long, the others are folded; 0: all.
        matrix: Cells are styled as a matrix: centred and coloured.
        row_title: Title of the rows, above their headings.
        column_title: Title of the columns.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    left_out: int = 0
    first: int = 0
    matrix: bool = False
    row_title: str = ""
    column_title: str = ""


def written(value: object, beside: float = 0.0) -> str:
    """A value as a table shows it: integers unchanged, other numbers as in sentences, three decimals below 0.1.

    Args:
        value: The value.
        beside: Size of the numbers that stand beside it, see `told`.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) or value is None:
        return value or ""
    if hasattr(value, "item"):
        return written(value.item(), beside)
    if isinstance(value, list | tuple):
        return ", ".join(map(written, value))
    if not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return str(value).replace("-", MINUS)
    if math.isnan(value):
        return "–"
    size = 0.0 if abs(value) < RESOLVED * beside else abs(value)
    if 0 < size < 0.0005:
        return power_of_ten(value)
    return told(value, digits=3 if 0 < size < 0.1 else 2 if size < 1000 else 0, beside=beside)


def _of_interval(value: object, low: object, high: object) -> tuple[str, str]:
    """A value as a table shows it, and its interval in brackets; empty if it has none."""
    ends = [float(end) for end in (value, low, high) if isinstance(end, int | float)]
    texts = [written(end, largest(*ends)) for end in (value, low, high)]
    return texts[0], f"[{texts[1]}, {texts[2]}]" if texts[1] not in ("", "–") else ""


@singledispatch
def shape_tables(shape: Shape) -> list[HtmlTable]:
    """The tables that show a shape on a page; none for shapes drawn as figures."""
    return []


@shape_tables.register
def _(shape: Table) -> list[HtmlTable]:
    rows = []
    for number, row in enumerate(shape.rows):
        bold = number in shape.bold
        rows.append(
            tuple(
                Cell(text, bold=bold, number=place > 0 and _numeric(text))
                for place, text in enumerate(row)
            )
        )
    return [HtmlTable(shape.columns, tuple(rows))]


@shape_tables.register
def _(shape: LabelMatrix) -> list[HtmlTable]:
    rows, columns = shape.values.shape
    return [_matrix(shape)] if rows <= TALLEST and columns <= WIDEST else []


@shape_tables.register
def _(shape: LabelMatrices) -> list[HtmlTable]:
    by_matrix = [shape_tables(matrix) for matrix in shape.matrices]
    return [table for group in by_matrix for table in group] if all(by_matrix) else []


@shape_tables.register
def _(shape: LensTable) -> list[HtmlTable]:
    """A table with layers as rows and readouts as columns."""
    labels, rows = {word.strip() for word in shape.bold} - {""}, []
    few, shades = len(shape.words) <= FEW, shape.probs[..., 0]
    if shape.shades is not None:
        few, shades = False, shape.shades / (float(shape.shades.max()) or 1.0)
    for layer in range(shape.probs.shape[1]):
        cells = [Cell(str(layer))]
        for i, words in enumerate(shape.words):
            word, probs = (words[layer] or ("",))[0], shape.probs[i, layer].tolist()
            pairs = zip(words[layer], probs, strict=False)
            cells.append(
                Cell(
                    alone(word),
                    written(probs[0]) if few else "",
                    min(1.0, max(0.0, float(shades[i, layer]))),
                    bold=word.strip() in labels,
                    whole=", ".join(f"{quoted(candidate)} {prob:.3f}" for candidate, prob in pairs),
                )
            )
        rows.append(tuple(cells))
    how = f"followed by its {shape.quantity}" if few else f"coloured by {shape.quantity}"
    caption = f"Most probable word after each layer (0: the embedding), {how}"
    caption += "; label words are bold." if labels else "."
    columns = (visible(name.strip(" ") or name) for name in shape.columns)
    return [HtmlTable(("after layer", *columns), tuple(rows), caption, matrix=True)]


def _matrix(shape: LabelMatrix) -> HtmlTable:
    light, dark = shape.ends or (0.0, _largest(shape))
    rows = []
    for i, name in enumerate(shape.rows):
        cells = [Cell(shortened(name, WIDE), whole=name)]
        for j, value in enumerate(shape.values[i].tolist()):
            known = math.isfinite(value)
            whole = shape.counts and known and value == round(value)
            shade = min(1.0, max(0.0, (value - light) / ((dark - light) or 1.0))) if known else None
            text, interval = written(int(value)) if whole else written(value) if known else "", ""
            if shape.low is not None and shape.high is not None and known:
                ends = float(shape.low[i, j]), float(shape.high[i, j])
                text, interval = _of_interval(int(value) if whole else value, *ends)
            if shape.counts and known and not whole:
                text = f"{value:.1f}"
            cells.append(Cell(text, interval, shade, framed=shape.diagonal and i == j))
        rows.append(tuple(cells))
    caption = ": ".join(part for part in (shape.title, shape.quantity) if part)
    return HtmlTable(
        ("", *(shortened(name, WIDE) for name in shape.columns)),
        tuple(rows),
        caption,
        matrix=True,
        row_title=shape.row_title,
        column_title=shape.column_title,
    )


def _largest(shape: LabelMatrix) -> float:
    return max([v for v in shape.values.flatten().tolist() if math.isfinite(v)] + [0.0]) or 1.0


def frame_table(frame: "pd.DataFrame") -> HtmlTable:
    """A data frame as a table; long ones show their first rows, and intervals follow their values."""
    if any(str(name).endswith("_low") for name in frame.columns):
        frame = frame.drop(
            columns=["low", "high"], errors="ignore"
        )  # earlier names of the same columns
    names = list(map(str, frame.columns))
    ends = {
        place: place + 1
        for place, name in enumerate(names[:-2])
        if names[place + 1].endswith("low") and names[place + 2].endswith("high")
    }
    shown = [
        place
        for place in range(len(names))
        if place - 1 not in ends and place - 2 not in ends  # the ends themselves
    ]
    rows = []
    for row in frame.head(LONGEST).itertuples(index=False):
        cells = []
        for place in shown:
            value = row[place]
            text, interval = written(value), ""
            if place in ends:
                text, interval = _of_interval(value, row[place + 1], row[place + 2])
            number = isinstance(value, int | float) or hasattr(value, "item")
            cells.append(Cell(text, interval, number=number and place > 0))
        rows.append(tuple(cells))
    columns = tuple(names[place].replace("_", " ") for place in shown)
    caption = "Square brackets: 95 % intervals." if ends else ""
    return HtmlTable(columns, tuple(rows), caption, max(0, len(frame) - LONGEST), FIRST)


def _numeric(text: str) -> bool:
    return text[:1].isdigit() or text[:1] in "-+–" + MINUS

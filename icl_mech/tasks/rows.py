"""From rows to examples: columns, texts and label values."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from icl_mech.errors import TaskError
from icl_mech.tasks.label_column import LabelColumn, LabelsAs, classes
from icl_mech.tasks.types import Example, first_unfit


class Columns(NamedTuple):
    """What the columns are called; `text2` is for pairs."""

    text: str = "text"
    label: str = "label"
    text2: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that hold texts."""
        return (self.text, self.text2) if self.text2 else (self.text,)


class Part(NamedTuple):
    """Rows of one file or split, and its name for messages."""

    origin: str
    rows: Sequence[Mapping[str, Any]]


def to_examples(
    parts: Sequence[Part],
    words: Sequence[str],
    columns: Columns,
    *,
    labels_as: LabelsAs | None = None,
    label_map: Mapping[str, str] | None = None,
) -> list[tuple[Example, ...]]:
    """The examples of each part; what its labels mean is decided for a part at a time.

    Raises:
        TaskError: if a column is missing, a text empty or none, or a label unknown; names the row.
    """
    for origin, rows in parts:
        for number, row in enumerate(rows, start=1):
            if not row.keys() >= {*columns.texts, columns.label}:
                refuse_missing(columns, list(row), f"{origin}, row {number}")
        for column in columns.texts:
            texts = [row[column] for row in rows]
            if unfit := first_unfit(texts):
                number, fault = unfit
                raise TaskError(
                    f"{origin}, row {number + 1}: the text in column {column!r} {fault}."
                )
    found = classes(
        [LabelColumn(origin, [row[columns.label] for row in rows]) for origin, rows in parts],
        words,
        labels_as=labels_as,
        label_map=label_map,
    )
    return [
        tuple(
            Example(row[columns.text], label, row[columns.text2] if columns.text2 else None)
            for row, label in zip(part.rows, labels, strict=True)
        )
        for part, labels in zip(parts, found, strict=True)
    ]


def refuse_missing(columns: Columns, there: Sequence[str], where: str) -> None:
    """Refuse data without a column.

    Raises:
        TaskError: names those there are.
    """
    for column in (*columns.texts, columns.label):
        if column not in there:
            raise TaskError(
                f"{where} has no column {column!r}; it has {', '.join(map(repr, there))}. Name the "
                "right one with text_column=, label_column= or text2_column=."
            )

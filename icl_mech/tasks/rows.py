"""Conversion of rows to examples: columns, texts, and the interpretation of label values, decided once per file."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, NamedTuple, NoReturn, get_args

from icl_mech.errors import TaskError, did_you_mean, near_matches
from icl_mech.tasks.types import Example, first_unfit

LabelsAs = Literal["names", "indices"]
"""Interpretation of a label column: label words, or class indices from 0."""


MOST_SHOWN = 12
"""Maximum number of label values listed in a message."""


class LabelColumn(NamedTuple):
    """Values of a label column, and their origin for messages."""

    origin: str
    values: Sequence[Any]


def classes(
    columns: Sequence[LabelColumn],
    words: Sequence[str],
    *,
    labels_as: LabelsAs | None = None,
    label_map: Mapping[str, str] | None = None,
) -> list[list[int]]:
    """Class index of every value of every column.

    A value is a label word or a class index. If a label word is the index of another class
    ("1" ... "5"), a column holds either words or indices; if both interpretations fit, `labels_as` decides,
    or else another column of the same task.

    Args:
        columns: Label columns of the training and test examples.
        words: Label words in class order.
        labels_as: Interpretation of the values.
        label_map: Label word of each value; values are then names.

    Raises:
        TaskError: a missing or unknown value, or an ambiguous column.
    """
    if labels_as is not None and labels_as not in get_args(LabelsAs):
        near = near_matches(str(labels_as), get_args(LabelsAs))
        raise TaskError(f"labels_as={labels_as!r} is not an option. {near}")
    names = {word: number for number, word in enumerate(words)}
    indices = {str(number): number for number in range(len(words))}
    expected = names | indices if label_map is None else label_map
    written = [[_key(value, expected) for value in column.values] for column in columns]
    distinct = [set(values) for values in written]
    read: Sequence[Mapping[str, int]]
    if label_map is not None:
        read = [{value: names[word] for value, word in label_map.items()}] * len(columns)
    elif labels_as is not None:
        read = [names if labels_as == "names" else indices] * len(columns)
    elif all(names[word] == number for word, number in indices.items() if word in names):
        read = [indices | names] * len(columns)
    else:
        read = _decided(columns, distinct, names, indices)
    for column, values, known in zip(columns, written, read, strict=True):
        if not known.keys() >= set(values):
            _refuse(column.origin, values, known, words, mapped=label_map is not None)
    return [
        [known[value or ""] for value in values]
        for values, known in zip(written, read, strict=True)
    ]


def _decided(
    columns: Sequence[LabelColumn],
    distinct: Sequence[set[str | None]],
    names: dict[str, int],
    indices: dict[str, int],
) -> list[dict[str, int]]:
    """The interpretation of each column that fits all its values.

    Raises:
        TaskError: both interpretations fit every column, or columns require different ones.
    """
    fitting = [[ways for ways in (names, indices) if values <= set(ways)] for values in distinct]
    sure = [ways[0] for ways in fitting if len(ways) == 1]
    for column, values, ways in zip(columns, distinct, fitting, strict=True):
        if (len(ways) == 2 and not sure) or (names in sure and indices in sure):
            shown = ", ".join(sorted(map(str, values))[:6])
            raise TaskError(
                f"The labels of {column.origin} ({shown}) could be label words "
                f"({', '.join(names)}) or class indices from 0. Give labels_as='names' "
                "or labels_as='indices' to choose, or label_map=."
            )
    return [ways[0] if len(ways) == 1 else sure[0] if sure else names for ways in fitting]


def words_of(label_map: object) -> tuple[Any, ...]:
    """Label words of a `label_map`, in its order.

    Raises:
        TaskError: not a mapping, empty, or with a single label word.
    """
    words = tuple(dict.fromkeys(_mapping(label_map).values()))
    if len(words) < 2:
        raise TaskError(
            f"label_map= gives only the label word {words[0]!r}; a task needs at least two."
        )
    return words


def checked_label_map(label_map: object, words: Sequence[str]) -> dict[str, str]:
    """Label words by the values of a label column, in the spelling of a file.

    Raises:
        TaskError: not a mapping, an unknown label word, or a value given twice.
    """
    read: dict[str, str] = {}
    for value, word in _mapping(label_map).items():
        key, name = as_written(value), word.strip() if isinstance(word, str) else word
        if name not in words:
            raise TaskError(
                f"label_map= gives {value!r} the label word {word!r}, but the label words are "
                f"{', '.join(words)}; use one of them."
            )
        if key is None or read.setdefault(key, name) != name:
            raise TaskError(
                f"label_map= has a missing value, or the same value twice ({key!r}); give each value once."
            )
    return read


def _mapping(label_map: object) -> Mapping[Any, Any]:
    if not isinstance(label_map, Mapping) or not label_map:
        raise TaskError(
            f"label_map={label_map!r} is not a mapping with entries; give the label word of each value, as in "
            "{'neg': 'Negative', 'pos': 'Positive'}."
        )
    return label_map


def as_written(value: object) -> str | None:
    """A value as a file would spell it; None if it is missing."""
    if value is None or (isinstance(value, Real) and value != value):  # NaN
        return None
    if isinstance(value, float) and value.is_integer():  # a column of numbers with gaps
        value = int(value)
    return str(value).strip()


def _key(value: object, expected: Container[str]) -> str | None:
    """Label of a value; 1.0 is read as 1 unless it is a label itself."""
    written = as_written(value)
    if written is None or written in expected:
        return written
    whole = re.fullmatch(r"(-?[0-9]+)\.0+", written)
    return whole[1] if whole else written


def _refuse(
    origin: str,
    values: Sequence[str | None],
    known: Mapping[str, int],
    words: Sequence[str],
    *,
    mapped: bool,
) -> NoReturn:
    """Reject the first unknown value of a label column."""
    row, value = next(
        numbered for numbered in enumerate(values, start=1) if numbered[1] not in known
    )
    where = f"{origin}, row {row}"
    if value is None:
        raise TaskError(f"{where}: the label is missing; drop the row or fill in the label.")
    if mapped:
        raise TaskError(
            f"{where}: label_map= has no entry for {value!r}. {near_matches(value, known)} "
            "Give a label word for every value of the column."
        )
    line = _line_to_write({*filter(None, values)}, words)
    if _is_number(value) and "0" in known:
        raise TaskError(
            f"{where}: label {value} is out of range; classes are 0 to {len(words) - 1}. "
            f"If the column numbers its classes differently, {line}"
        )
    named = set(known) & set(words) or known
    raise TaskError(
        f"{where}: unknown label {value!r}. {near_matches(value, named)} "
        f"If the column spells its labels differently, {line}"
    )


def _is_number(value: str) -> bool:
    return re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) is not None


def _line_to_write(values: Iterable[str | None], words: Sequence[str]) -> str:
    """Advice for an error message: the `label_map=` that would cover the values of a column."""
    held = sorted(map(str, values))
    if all(map(_is_number, held)):
        held.sort(key=float)
    written = [
        value if value in ("True", "False") or _is_number(value) else repr(value) for value in held
    ]
    if len(held) > MOST_SHOWN:
        return (
            f"give label_map={{{written[0]}: {words[0]!r}, ...}} with a label word for each of its "
            f"{len(held)} values."
        )
    if len(held) == len(words):
        pairs = ", ".join(f"{value}: {word!r}" for value, word in zip(written, words, strict=True))
        return f"give label_map={{{pairs}}}, or the words in another order."
    shown = ", ".join(f"{value}: ..." for value in written)
    return f"give label_map={{{shown}}} with one of {', '.join(map(repr, words))} for each."


class Columns(NamedTuple):
    """Column names; `text2` is for pairs, `label` also for free-form answers; `options`: argument names for messages.

    With free-form answers, `other` holds those of another relation, and `choice`, if given, says
    which item of `label` is correct. `rationale` holds the reasons for the answer.
    """

    text: str = "text"
    label: str = "label"
    text2: str | None = None
    options: str = "label_column="
    other: str | None = None
    choice: str | None = None
    rationale: str | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*self.texts, self.label, *filter(None, [self.other, self.choice]))

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that hold texts."""
        return (self.text, *filter(None, [self.text2, self.rationale]))


class Part(NamedTuple):
    """Rows of one file or split, and its name in messages."""

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
    """Examples of each part; the interpretation of labels is decided for a whole part.

    Raises:
        TaskError: a missing column, an empty or invalid text, or an unknown label; the message names the row.
    """
    for origin, rows in parts:
        for number, row in enumerate(rows, start=1):
            if not row.keys() >= set(columns.needed):
                refuse_missing(columns, list(row), f"{origin}, row {number}")
        for column in columns.texts:
            texts = [row[column] for row in rows]
            if unfit := first_unfit(texts):
                number, fault = unfit
                raise TaskError(
                    f"{origin}, row {number + 1}: the text in column {column!r} {fault}."
                )
    class_indices = classes(
        [LabelColumn(origin, [row[columns.label] for row in rows]) for origin, rows in parts],
        words,
        labels_as=labels_as,
        label_map=label_map,
    )
    return [
        tuple(
            Example(
                row[columns.text],
                label,
                row[columns.text2] if columns.text2 else None,
                rationale=row[columns.rationale] if columns.rationale else None,
            )
            for row, label in zip(part.rows, labels, strict=True)
        )
        for part, labels in zip(parts, class_indices, strict=True)
    ]


def refuse_missing(columns: Columns, there: Sequence[str], where: str) -> None:
    """Reject data that lacks a needed column.

    Raises:
        TaskError: a column is missing; the message lists the columns of the data.
    """
    names = ["text_column=", columns.options, "text2_column="]
    names += ["rationale="] * (columns.rationale is not None)
    for column in columns.needed:
        if column not in there:
            raise TaskError(
                f"{where} has no column {column!r}, only {', '.join(map(repr, there))}. Name the right one with "
                f"{', '.join(names[:-1])} or {names[-1]}. {did_you_mean(column, there)}".rstrip()
            )

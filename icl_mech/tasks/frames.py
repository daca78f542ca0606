"""Rows of a pandas.DataFrame, an Arrow table (polars, pyarrow), a datasets.Dataset or a stream of rows."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from icl_mech.errors import TaskError
from icl_mech.tasks.files import refuse_repeated
from icl_mech.tasks.rows import Columns, LabelsAs, Part, refuse_missing

if TYPE_CHECKING:
    import datasets
    import pandas as pd

EXPECTED = (
    "a name, a path, a frame (pandas, polars, pyarrow), a datasets.Dataset, or several of these by split "
    '({"train": ..., "test": ...}, a datasets.DatasetDict)'
)
LONGEST_STREAM = 100_000
"""Maximum number of rows read from a stream, which may be endless; a longer stream is rejected."""


def split_names(
    there: Sequence[str], train: str | None, test: str | None, origin: str
) -> tuple[str, str]:
    """Names of the training and test splits; if they are equal, that split is to be divided.

    The default test split is "test", or the only split.

    Raises:
        TaskError: no such split, or no clear default.
    """
    if train is None:
        train = there[0] if len(there) == 1 else "train"
    if test is None:
        test = train if len(there) == 1 else "test"
    for option, name in (("train_split", train), ("test_split", test)):
        if name not in there:
            raise TaskError(
                f"{origin} has no split {name!r}, only {', '.join(map(repr, there))}. Choose one "
                f"with {option}=; if train_split= and test_split= are the same, that split is divided."
            )
    return train, test


def part_of(data: object, columns: Columns, origin: str) -> Part:
    """The needed columns of one frame, table, data set or stream, or of the rows of a file.

    Raises:
        TaskError: an unsupported type, a missing column, or no rows.
    """
    import datasets
    import pandas as pd

    rows: Sequence[Mapping[str, Any]]
    if isinstance(data, list):
        rows = data
    elif isinstance(data, pd.DataFrame):
        rows = _of_frame(data, columns, origin)
    elif isinstance(data, datasets.Dataset):
        refuse_missing(columns, data.column_names, origin)
        rows = data.select_columns([*columns.needed]).with_format(None).to_list()
    elif isinstance(data, datasets.IterableDataset):
        rows = _of_stream(data, origin)
    else:
        rows = _of_table(data, columns, origin)
    if not rows:
        raise TaskError(f"{origin} holds no rows.")
    refuse_missing(columns, [*rows[0]], f"{origin}, row 1")
    return Part(origin, rows)


def _of_frame(frame: "pd.DataFrame", columns: Columns, origin: str) -> list[dict[str, Any]]:
    names = [str(name) for name in frame.columns]
    refuse_repeated(names, origin)
    refuse_missing(columns, names, origin)
    chosen = frame.set_axis(names, axis="columns")[[*columns.needed]].astype(object)
    rows: list[dict[str, Any]] = chosen.where(chosen.notna(), None).to_dict("records")
    return rows


def _of_table(table: object, columns: Columns, origin: str) -> list[dict[str, Any]]:
    """Rows of any object that supports the Arrow protocol."""
    import pyarrow as pa

    try:
        read = pa.table(table)
    except (TypeError, pa.ArrowInvalid) as error:  # objects without columns
        lazy = " Collect it first: frame.collect()." if hasattr(table, "collect") else ""
        raise TaskError(
            f"Cannot load a task from a {type(table).__name__}; expected {EXPECTED}.{lazy}"
        ) from error
    refuse_repeated(read.column_names, origin)
    refuse_missing(columns, read.column_names, origin)
    rows: list[dict[str, Any]] = read.select([*columns.needed]).to_pylist()
    return rows


def _of_stream(stream: "datasets.IterableDataset", origin: str) -> list[dict[str, Any]]:
    try:
        rows = [*islice(stream.with_format(None), LONGEST_STREAM + 1)]
    except Exception as error:
        raise TaskError(
            f"Reading the stream {origin} failed ({type(error).__name__}: {error}); fix its source, or "
            "pass its rows as a frame or a file."
        ) from error
    if len(rows) > LONGEST_STREAM:
        raise TaskError(
            f"{origin} is a stream of more than {LONGEST_STREAM:,} rows, possibly endless, but a task needs all its "
            f"rows in memory. Take some of them: load_task(stream.take({LONGEST_STREAM}), ...), "
            "after stream.shuffle(seed=0) if they are sorted."
        )
    return rows


def class_names(data: object, column: str) -> tuple[str, ...] | None:
    """Class names in the metadata of a data set's label column; None if there are none.

    Tables written by a data set (Parquet, Arrow) hold them too.
    """
    import datasets
    import pyarrow as pa

    features = getattr(data, "features", None) or {}
    if isinstance(data, pa.Table) and b"huggingface" in (data.schema.metadata or {}):
        features = datasets.Features.from_arrow_schema(data.schema)
    names = getattr(features.get(column), "names", None)
    return tuple(names) if names else None


def by_name(
    parts: Sequence[Part],
    names: Sequence[str],
    words: Sequence[str],
    column: str,
    label_map: Mapping[str, str] | None,
) -> tuple[list[Part], Mapping[str, str] | None, LabelsAs | None]:
    """Parts whose label column holds indices of named classes, prepared for `to_examples`.

    Without `label_map`, classes are matched with label words by name; if no label word is the name of
    a class, label words are taken in class order.

    Raises:
        TaskError: a class without a name, or label words that match class names only partly.
    """
    folded = {word.casefold(): word for word in words}
    if label_map is None:
        matches = {name: folded.get(name.strip().casefold()) for name in names}
        if not any(matches.values()) and len(names) == len(words):
            return list(parts), None, "indices"
        if len({*matches.values()} - {None}) < len(names):
            raise TaskError(
                f"{parts[0].origin} has the classes {', '.join(names)}, but the label words are "
                f"{', '.join(words)}; give the label word of each class with label_map="
                f"{{{names[0]!r}: {words[0]!r}, ...}}."
            )
        label_map = {name: str(word) for name, word in matches.items()}
        if list(label_map.values()) != list(words):
            warnings.warn(
                f"{parts[0].origin} has its classes in the order {', '.join(names)}; the label words are "
                f"{', '.join(words)}. Classes are matched to label words by name, regardless of "
                "order; to match them differently, give label_map=.",
                stacklevel=5,
            )
    elif not set(label_map) & set(names):  # the map is keyed by the indices themselves
        return list(parts), label_map, None
    return [_named(part, names, column) for part in parts], label_map, None


def _named(part: Part, names: Sequence[str], column: str) -> Part:
    rows = []
    for number, row in enumerate(part.rows, start=1):
        value = row[column]
        if value is not None and not 0 <= value < len(names):
            raise TaskError(
                f"{part.origin}, row {number}: label {value} is not one of the {len(names)} classes "
                f"({', '.join(names)}); a split with hidden labels cannot be used."
            )
        rows.append({**row, column: value if value is None else names[value]})
    return Part(part.origin, rows)

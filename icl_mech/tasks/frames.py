"""Rows of a pandas.DataFrame, a datasets.Dataset, or several of them by split."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from icl_mech.errors import TaskError
from icl_mech.tasks.files import refuse_repeated
from icl_mech.tasks.rows import Columns, LabelsAs, Part, refuse_missing

EXPECTED = (
    "a name, a path, a pandas.DataFrame, a datasets.Dataset, or several of these by split "
    '({"train": ..., "test": ...}, a datasets.DatasetDict)'
)


def split_names(
    there: Sequence[str], train: str | None, test: str | None, origin: str
) -> tuple[str, str]:
    """The splits of training and test examples; if they are one, it is to be divided.

    Without `test` that is "test", or the only split there is.

    Raises:
        TaskError: no such split, or none that is plainly the test split.
    """
    if train is None:
        train = there[0] if len(there) == 1 else "train"
    if test is None:
        test = train if len(there) == 1 else "test"
    for option, name in (("train_split", train), ("test_split", test)):
        if name not in there:
            raise TaskError(
                f"{origin} has no split {name!r}; it has {', '.join(map(repr, there))}. Say where "
                f"to draw from with {option}=; if train_split= and test_split= are one, it is divided."
            )
    return train, test


def part_of(frame: object, columns: Columns, origin: str) -> Part:
    """The wanted columns of one frame, as rows.

    Raises:
        TaskError: neither a DataFrame nor a Dataset, no such column, or no rows.
    """
    import datasets
    import pandas as pd

    wanted = [*columns.needed]
    rows: Sequence[Mapping[str, Any]]
    if isinstance(frame, pd.DataFrame):
        names = [str(name) for name in frame.columns]
        refuse_repeated(names, origin)
        refuse_missing(columns, names, origin)
        chosen = frame.set_axis(names, axis="columns")[wanted].astype(object)
        rows = chosen.where(chosen.notna(), None).to_dict("records")
    elif isinstance(frame, datasets.Dataset):
        refuse_missing(columns, frame.column_names, origin)
        rows = frame.select_columns(wanted).with_format(None).to_list()
    elif isinstance(frame, datasets.IterableDataset):
        raise TaskError(
            f"{origin} is a stream (IterableDataset), which cannot be drawn from; load it without "
            "streaming=True, or give datasets.Dataset.from_list(list(stream.take(1000)))."
        )
    else:
        raise TaskError(f"Cannot load a task from a {type(frame).__name__}; expected {EXPECTED}.")
    if not rows:
        raise TaskError(f"{origin} holds no rows.")
    return Part(origin, rows)


def class_names(frame: object, column: str) -> tuple[str, ...] | None:
    """Names of the classes a datasets.Dataset says its label column counts; None if it does not."""
    names = getattr(getattr(frame, "features", {}).get(column), "names", None)
    return tuple(names) if names else None


def by_name(
    parts: Sequence[Part],
    names: Sequence[str],
    words: Sequence[str],
    column: str,
    label_map: Mapping[str, str] | None,
) -> tuple[list[Part], Mapping[str, str] | None, LabelsAs | None]:
    """Parts whose label column counts named classes, as `to_examples` takes them.

    Without `label_map` the classes are the label words of the same name; if none has the name of
    a class, the label words are other ones in class order.

    Raises:
        TaskError: a class that has no name, or label words that fit only in part.
    """
    folded = {word.casefold(): word for word in words}
    if label_map is None:
        found = {name: folded.get(name.strip().casefold()) for name in names}
        if not any(found.values()) and len(names) == len(words):
            return list(parts), None, "indices"
        if len({*found.values()} - {None}) < len(names):
            raise TaskError(
                f"{parts[0].origin} has the classes {', '.join(names)}, the label words are "
                f"{', '.join(words)}; say which belong together with label_map="
                f"{{{names[0]!r}: {words[0]!r}, ...}}."
            )
        label_map = {name: str(word) for name, word in found.items()}
        if list(label_map.values()) != list(words):
            warnings.warn(
                f"{parts[0].origin} counts its classes {', '.join(names)}; the label words are "
                f"{', '.join(words)}. Classes take the label word of their own name, whatever the "
                "order; if you mean others, say so with label_map=.",
                stacklevel=5,
            )
    elif not set(label_map) & set(names):  # it speaks of the indices themselves
        return list(parts), label_map, None
    return [_named(part, names, column) for part in parts], label_map, None


def _named(part: Part, names: Sequence[str], column: str) -> Part:
    rows = []
    for number, row in enumerate(part.rows, start=1):
        value = row[column]
        if value is not None and not 0 <= value < len(names):
            raise TaskError(
                f"{part.origin}, row {number}: label {value} is none of the {len(names)} classes "
                f"({', '.join(names)}); a split whose labels are hidden cannot be used."
            )
        rows.append({**row, column: value if value is None else names[value]})
    return Part(part.origin, rows)

"""Examples from local CSV, TSV and JSON-lines files."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icl_mech.errors import TaskError, near_matches
from icl_mech.tasks.types import Example

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a data file as dictionaries.

    Raises:
        TaskError: if the file is missing, empty, of an unknown kind or malformed.
    """
    if not path.is_file():
        raise TaskError(f"No data file {str(path)!r}; give the path of a CSV, TSV or JSONL file.")
    if path.suffix in (".jsonl", ".json"):
        rows = _read_json_lines(path)
    elif path.suffix in (".csv", ".tsv"):
        import pandas as pd

        try:
            frame = pd.read_csv(
                path,
                sep="\t" if path.suffix == ".tsv" else ",",
                dtype=str,  # "007" stays a text
                keep_default_na=False,
            )
        except (ValueError, UnicodeDecodeError, pd.errors.ParserError) as error:
            raise TaskError(f"{str(path)!r} cannot be read as {path.suffix}: {error}") from error
        if not isinstance(frame.index, pd.RangeIndex):  # pandas took the surplus as an index
            raise TaskError(
                f"The rows of {str(path)!r} have more fields than its {len(frame.columns)} columns; "
                "put texts with separators in quotes."
            )
        rows = [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]
    else:
        raise TaskError(
            f"{str(path)!r} ends in {path.suffix!r}; expected one of {', '.join(SUFFIXES)}."
        )
    if not rows:
        raise TaskError(f"{str(path)!r} holds no rows.")
    return rows


def _read_json_lines(path: Path) -> list[dict[str, Any]]:
    rows = []
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # splitlines() also cuts texts
    except UnicodeDecodeError as error:
        raise TaskError(f"{str(path)!r} is not UTF-8 text: {error}.") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise TaskError(f"{path}, line {number} is not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise TaskError(f"{path}, line {number} is a {type(row).__name__}, expected an object.")
        rows.append(row)
    return rows


def to_examples(
    rows: Iterable[Mapping[str, Any]],
    labels: Sequence[str],
    *,
    origin: str,
    text_column: str = "text",
    label_column: str = "label",
    text2_column: str | None = None,
) -> tuple[Example, ...]:
    """Rows as examples; a label is a class index or a label name.

    Raises:
        TaskError: if a column is missing, a label unknown or a text empty; names the row.
    """
    wanted = [text_column, label_column] + ([text2_column] if text2_column else [])
    examples = []
    for number, row in enumerate(rows, start=1):
        for column in wanted:
            if column not in row:
                raise TaskError(
                    f"{origin}, row {number} has no column {column!r}; it has "
                    f"{', '.join(map(repr, row))}. Name the right one with text_column=, "
                    "label_column= or text2_column=."
                )
        label = _class_index(row[label_column], labels, f"{origin}, row {number}")
        for column in wanted:
            if column != label_column and (row[column] is None or not str(row[column]).strip()):
                raise TaskError(f"{origin}, row {number}: the text in column {column!r} is empty.")
        text2 = str(row[text2_column]) if text2_column else None
        examples.append(Example(str(row[text_column]), label, text2))
    return tuple(examples)


def _class_index(value: Any, labels: Sequence[str], where: str) -> int:
    name = str(value).strip()
    if name in labels:
        return list(labels).index(name)
    if name.lstrip("-").isdigit():
        if 0 <= int(name) < len(labels):
            return int(name)
        raise TaskError(
            f"{where}: label {name} is out of range; classes are 0 to {len(labels) - 1}."
        )
    raise TaskError(f"{where}: unknown label {name!r}. {near_matches(name, labels)}")


def split_examples(
    examples: Sequence[Example], n_classes: int, *, origin: str, test_fraction: float, seed: int
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """A random split into (train, test), the same share of every class in both.

    Pairs that share their first text stay together, so that no query's text is shown.

    Raises:
        TaskError: if the fraction is not between 0 and 1, or one of the two would be empty.
    """
    if not 0 < test_fraction < 1:
        raise TaskError(
            f"test_fraction={test_fraction}; it is the share of the rows kept for testing, "
            "so it must lie between 0 and 1."
        )
    generator = np.random.default_rng(seed)
    split = _split_pairs if any(example.text2 for example in examples) else _split_texts
    train, test = split(examples, n_classes, test_fraction, generator)
    if not train or not test:
        raise TaskError(
            f"test_fraction={test_fraction} leaves no {'test' if train else 'training'} examples "
            f"of the {len(examples)} in {origin}. Give more rows, another test_fraction= or, for "
            "files, a second one with test_path=."
        )
    return tuple(train), tuple(test)


def _split_texts(
    examples: Sequence[Example], n_classes: int, fraction: float, generator: np.random.Generator
) -> tuple[list[Example], list[Example]]:
    train: list[Example] = []
    test: list[Example] = []
    for label in range(n_classes):
        members = [example for example in examples if example.label == label]
        order = generator.permutation(len(members))
        n_test = round(fraction * len(members))
        test += [members[i] for i in order[:n_test]]
        train += [members[i] for i in order[n_test:]]
    return train, test


def _split_pairs(
    examples: Sequence[Example], n_classes: int, fraction: float, generator: np.random.Generator
) -> tuple[list[Example], list[Example]]:
    groups: dict[str, list[Example]] = {}
    for example in examples:
        groups.setdefault(example.text, []).append(example)
    counts = Counter(example.label for example in examples)
    room = [round(fraction * counts[label]) for label in range(n_classes)]
    train: list[Example] = []
    test: list[Example] = []
    members = list(groups.values())
    for group in (members[i] for i in generator.permutation(len(members))):
        needed = Counter(example.label for example in group)
        if all(needed[label] <= room[label] for label in needed):
            test += group
            room = [room[label] - needed[label] for label in range(n_classes)]
        else:
            train += group
    return train, test

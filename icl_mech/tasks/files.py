"""Rows of local CSV, TSV and JSON-lines files, read right or refused."""

import codecs
import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os.path import isfile
from pathlib import Path
from typing import Any, NoReturn

from icl_mech.errors import TaskError

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json")
_MARKS = {  # the mark of UTF-16 begins that of UTF-32
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a data file as dictionaries.

    Raises:
        TaskError: if the file is missing, empty, of an unknown kind, encoding or form.
    """
    if not isfile(path):
        raise TaskError(f"No data file {str(path)!r}; give the path of a CSV, TSV or JSONL file.")
    if path.suffix in (".jsonl", ".json"):
        rows = _read_json_lines(path)
    elif path.suffix in (".csv", ".tsv"):
        rows = _read_table(path)
    else:
        raise TaskError(
            f"{str(path)!r} ends in {path.suffix!r}; expected one of {', '.join(SUFFIXES)}."
        )
    if not rows:
        raise TaskError(f"{str(path)!r} holds no rows.")
    return rows


def split_file(folder: Path, split: str) -> Path:
    """The file of one split in a task folder.

    Raises:
        TaskError: no such file, or several.
    """
    files = [folder / f"{split}{suffix}" for suffix in (".jsonl", ".csv", ".tsv", ".json")]
    found = [file for file in files if file.is_file()]
    if not found:
        raise TaskError(
            f"Folder {str(folder)!r} has no {split}.jsonl, {split}.csv or {split}.tsv; "
            "a task folder holds train.* and test.*."
        )
    if len(found) > 1:
        raise TaskError(
            f"Folder {str(folder)!r} has {' and '.join(file.name for file in found)}; "
            "leave one, or give a file and test_path=."
        )
    return found[0]


def refuse_repeated(names: Iterable[str], where: str) -> None:
    """Refuse columns of one name, of which only one could be read.

    Raises:
        TaskError: names the column.
    """
    for name, count in Counter(names).items():
        if count > 1 and name:
            raise TaskError(f"{where} has {count} columns {name!r}; rename or drop all but one.")


def _text_of(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TaskError(f"{str(path)!r} cannot be opened: {error}.") from error
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8-sig")
    remedy = (
        "Save it as UTF-8, or read it yourself and give the frame: "
        "load_task(pandas.read_csv(path, encoding=...), ...)."
    )
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise TaskError(f"{str(path)!r} is not UTF-8 text: {error}. {remedy}") from error
    if "\0" in text:
        raise TaskError(
            f"{str(path)!r} holds NUL characters, as in UTF-16 without a byte order mark. {remedy}"
        )
    return text


def _read_table(path: Path) -> list[dict[str, Any]]:
    def refuse(why: str) -> NoReturn:
        raise TaskError(f"{str(path)!r} cannot be read as {path.suffix}: {why}")

    source = io.StringIO(_text_of(path), newline="")  # line ends inside texts stay as they are
    reader = csv.reader(source, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
    rows = []
    with _fields_of_any_length():
        try:
            header = next(reader, [])
            if not header:
                refuse("it is empty, or its first line is; that must name the columns.")
            refuse_repeated(header, repr(str(path)))
            for row in filter(None, reader):
                if len(row) != len(header):
                    refuse(
                        f"the row that ends in line {reader.line_num} has {len(row)} fields, "
                        f"{'more' if len(row) > len(header) else 'fewer'} fields than its "
                        f"{len(header)} columns; put texts with separators in quotes."
                    )
                rows.append(dict(zip(header, row, strict=True)))
        except csv.Error as error:
            refuse(
                f"{error} (line {reader.line_num}). A quote that opens a field must be closed, "
                "and quotes inside it doubled."
            )
    return rows


@contextmanager
def _fields_of_any_length() -> Iterator[None]:
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _read_json_lines(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(_text_of(path).split("\n"), start=1):  # splitlines() cuts texts
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line, object_pairs_hook=_row, parse_constant=_no_constant)
        except TaskError as error:
            raise TaskError(f"{where}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise TaskError(
                f"{where} is not JSON: {error}. Expected one object a line, such as "
                '{"text": "a dull film", "label": "Negative"}.'
            ) from error
        if not isinstance(row, dict):
            raise TaskError(f"{where} is a {type(row).__name__}, expected an object.")
        rows.append(row)
    return rows


def _row(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    refuse_repeated((name for name, _ in pairs), "it")
    return dict(pairs)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")

"""Rows of local files (CSV, JSON, JSON lines, Parquet, Arrow, compressed or not), with strict parsing."""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from icl_mech.errors import TaskError

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]

SEPARATORS = (",", ";", "\t", "|")
_MARKS = {  # UTF-32 first: the UTF-16 mark is a prefix of the UTF-32 one
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class _File(NamedTuple):
    """Unpacked content of a file; `kind` is the file extension that selects the reader."""

    path: Path
    kind: str
    data: bytes

    def refuse(self, why: object) -> NoReturn:
        """Report why the file cannot be read.

        Raises:
            TaskError: always.
        """
        raise TaskError(f"{str(self.path)!r} cannot be read as {self.kind}: {why}")


def read_file(path: Path) -> "list[Row] | pa.Table":
    """Rows of a data file as dictionaries, or the table it holds.

    Raises:
        TaskError: the file is missing, empty, or of an unknown type, encoding or layout.
    """
    if not isfile(path):
        raise TaskError(f"There is no data file {str(path)!r}; give the path of a {KINDS} file.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TaskError(f"{str(path)!r} cannot be opened: {error}.") from error
    name = path.name
    if packing := _PACKINGS.get(path.suffix.lower()):
        try:
            name, data = packing(path, data)
        except TaskError:
            raise
        except _DAMAGED as error:
            raise TaskError(
                f"{str(path)!r} cannot be unpacked ({type(error).__name__}: {error}); it is damaged, "
                "encrypted, or its extension is wrong. Unpack it and give the file it contains."
            ) from error
    kind = Path(name).suffix.lower()
    if kind not in _READERS:
        raise TaskError(
            f"{str(path)!r}: a file that ends in {kind!r} cannot be read; expected one of {', '.join(_READERS)}, "
            f"plain or compressed ({', '.join(_PACKINGS)})."
        )
    content = _READERS[kind](_File(path, kind, data))
    if not len(content):
        raise TaskError(f"{str(path)!r} holds no rows.")
    return content


def read_rows(path: Path) -> list[Row]:
    """Rows of a data file as dictionaries.

    Raises:
        TaskError: as `read_file`.
    """
    content = read_file(path)
    return content if isinstance(content, list) else content.to_pylist()


def is_data(name: str) -> bool:
    """True if a name has the extension of a data file, compressed or not."""
    path = Path(name)
    packed = path.suffix.lower() in _PACKINGS
    return (
        path.suffix.lower() == ".zip"
        or Path(path.stem if packed else name).suffix.lower() in _READERS
    )


def plain_name(path: Path) -> str:
    """Name of a data file without the extensions of compression and format."""
    unpacked = path.stem if path.suffix.lower() in _PACKINGS else path.name
    return Path(unpacked).stem


def files_by_split(folder: Path) -> dict[str, list[Path]]:
    """Data files of a folder by split name, such as `train.csv.gz` under `train`.

    Raises:
        TaskError: the folder has no data files.
    """
    files: dict[str, list[Path]] = {}
    for file in sorted(folder.iterdir()):
        if is_data(file.name) and file.is_file():
            files.setdefault(plain_name(file), []).append(file)
    if not files:
        raise TaskError(
            f"Folder {str(folder)!r} contains no {KINDS} file; expected a folder with train.* and test.*, or one "
            "that save_to_disk() of a data set wrote."
        )
    return files


def refuse_repeated(names: Iterable[str], where: str) -> None:
    """Reject repeated column names, since only one of the columns could be read.

    Raises:
        TaskError: a name is repeated; the message gives it.
    """
    for name, count in Counter(names).items():
        if count > 1 and name:
            raise TaskError(
                f"{where} has {count} columns named {name!r}; rename or drop all but one."
            )


# Compressed files


def _unzipped(path: Path, data: bytes) -> tuple[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [
            member
            for member in archive.infolist()
            if not member.is_dir() and not member.filename.startswith("__MACOSX/")
        ]
        if len(members) != 1:
            shown = ", ".join(repr(member.filename) for member in members[:4])
            raise TaskError(
                f"{str(path)!r} contains {len(members)} files ({shown}), but expected one; unpack it and give "
                "the file, or the folder with train.* and test.*."
            )
        return members[0].filename, archive.read(members[0])


def _unpacked_zstd(path: Path, data: bytes) -> tuple[str, bytes]:
    import pyarrow as pa

    with pa.input_stream(pa.py_buffer(data), compression="zstd") as stream:
        return path.stem, stream.read()


_PACKINGS: dict[str, Callable[[Path, bytes], tuple[str, bytes]]] = {
    ".gz": lambda path, data: (path.stem, gzip.decompress(data)),
    ".bz2": lambda path, data: (path.stem, bz2.decompress(data)),
    ".xz": lambda path, data: (path.stem, lzma.decompress(data)),
    ".zst": _unpacked_zstd,
    ".zip": _unzipped,
}
"""Functions that return the name and content of the packed file, by extension of the archive."""


_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
)
"""Errors that these raise if a file does not match its extension."""


# Text


def _text_of(file: _File) -> str:
    name = repr(str(file.path))
    encoding = next(
        (codec for mark, codec in _MARKS.items() if file.data.startswith(mark)), "utf-8-sig"
    )
    remedy = (
        "Save it as UTF-8, or read it yourself and pass the frame: "
        "load_task(pandas.read_csv(path, encoding=...), ...)."
    )
    try:
        text = file.data.decode(encoding)
    except UnicodeDecodeError as error:
        raise TaskError(f"{name} is not UTF-8 text: {error}. {remedy}") from error
    if "\0" in text:
        raise TaskError(
            f"{name} contains NUL characters, as does UTF-16 without a byte order mark. {remedy}"
        )
    return text


def _read_table(file: _File) -> list[Row]:
    """Rows of a CSV or TSV file; its separator splits header and rows into equally many fields."""
    text = _text_of(file)
    named = re.match(r"sep=(.)\r?\n", text)  # a separator line written and read by Excel
    if named:
        return _divided(file, text[named.end() :], named[1])
    usual = "\t" if file.kind == ".tsv" else ","
    heads = {separator: next(_lines(text, separator), []) for separator in SEPARATORS}
    dividing = [separator for separator, head in heads.items() if len(head) > 1] or [usual]
    if len(dividing) == 1:
        return _divided(file, text, dividing[0])
    attempts = {separator: _attempted(file, text, separator) for separator in dividing}
    read = {separator: rows for separator, rows in attempts.items() if isinstance(rows, list)}
    for error in (attempts.get(usual), *attempts.values()):
        if not read and isinstance(error, TaskError):
            raise error
    if len(read) > 1:
        ways = "; ".join(
            f"{separator!r}: {', '.join(map(repr, heads[separator]))}" for separator in read
        )
        file.refuse(
            f"several separators split all its lines evenly, each into other columns ({ways}). Rename the columns, or "
            f"choose a separator: load_task(pandas.read_csv({str(file.path)!r}, sep={next(iter(read))!r}, "
            "dtype=str, keep_default_na=False), ...)."
        )
    return next(iter(read.values()))


def _attempted(file: _File, text: str, separator: str) -> list[Row] | TaskError:
    try:
        return _divided(file, text, separator)
    except TaskError as error:
        return error


def _divided(file: _File, text: str, separator: str) -> list[Row]:
    rows = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    with _fields_of_any_length():
        try:
            header = next(reader, [])
            if not header:
                file.refuse("it or its first line is empty; the first line must name the columns.")
            refuse_repeated(header, repr(str(file.path)))
            for row in filter(None, reader):
                if len(row) != len(header):
                    file.refuse(
                        f"the row that ends in line {reader.line_num} has {len(row)} fields, "
                        f"{'more' if len(row) > len(header) else 'fewer'} fields than the "
                        f"{len(header)} columns; put texts that contain separators in quotes."
                    )
                rows.append(dict(zip(header, row, strict=True)))
        except csv.Error as error:
            file.refuse(
                f"{error} (line {reader.line_num}). A quote that opens a field must be closed, "
                "and quotes inside the field must be doubled."
            )
    return rows


def _lines(text: str, separator: str) -> Iterator[list[str]]:
    """Lines up to the first that cannot be parsed."""
    with _fields_of_any_length():
        try:
            yield from csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        except csv.Error:
            return


@contextmanager
def _fields_of_any_length() -> Iterator[None]:
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


# JSON


_OBJECT = '{"text": "a dull film", "label": "Negative"}'


def _read_json_lines(file: _File) -> list[Row]:
    rows = []
    for number, line in enumerate(
        _text_of(file).split("\n"), start=1
    ):  # splitlines() would split inside texts
        if not line.strip():
            continue
        where = f"{file.path}, line {number}"
        row, end = _decoded(line, where, f"one object per line, such as {_OBJECT}")
        if line[end:].strip():
            raise TaskError(f"{where} contains more than one value; expected one object per line.")
        if not isinstance(row, dict):
            raise TaskError(f"{where} is a {type(row).__name__}; expected an object.")
        rows.append(row)
    return rows


def _read_json(file: _File) -> list[Row]:
    """Rows of a list of objects, an object of columns, or JSON lines in a .json file."""
    text = _text_of(file)
    if not text.strip():
        return []
    value, end = _decoded(text, str(file.path), f"a list of objects, such as [{_OBJECT}, ...]")
    if text[end:].strip():
        return _read_json_lines(file)
    if isinstance(value, dict) and len(value) == 1:  # {"data": [...]}
        (only,) = value.values()
        value = only if _are(dict, only) else value
    if isinstance(value, list):
        for number, row in enumerate(value):
            if not isinstance(row, dict):
                file.refuse(
                    f"item {number} of its list is a {type(row).__name__}; expected an object such as {_OBJECT}."
                )
        return value
    if not isinstance(value, dict):
        file.refuse(
            f"it is a {type(value).__name__}; expected a list of objects such as {_OBJECT}."
        )
    return _rows_of_object(file, value)


def _rows_of_object(file: _File, value: Row) -> list[Row]:
    columns: list[Any] = [*value.values()]
    loaded = f"json.load(open({str(file.path)!r}))"
    if _are(dict, columns):
        counted = [str(number) for number in range(len(columns[0]))]
        if any([*column] != counted for column in columns):
            file.refuse(
                f"it is an object of objects ({_shown(value)}), which could be rows or columns. Load it as either: "
                f"load_task(pandas.DataFrame.from_dict({loaded}, orient='index'), ...) if each is a row, "
                "orient='columns' if each is a column."
            )
        columns = [[*column.values()] for column in columns]
    elif not _are(list, columns):
        return [value]
    if all(_are(dict, column) for column in columns):
        file.refuse(
            f"it contains several tables ({_shown(value)}). Pass them by split: "
            f"load_task({{name: pandas.DataFrame(rows) for name, rows in {loaded}.items()}}, ...)."
        )
    lengths = {name: len(column) for name, column in zip(value, columns, strict=True)}
    if len({*lengths.values()}) > 1:
        file.refuse(
            f"its columns differ in length ({lengths}); every row needs a value in every column."
        )
    return [dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _are(value_type: type, values: object) -> bool:
    """True for a non-empty list of values of one type."""
    return (
        isinstance(values, list)
        and bool(values)
        and all(isinstance(value, value_type) for value in values)
    )


def _shown(names: Iterable[str]) -> str:
    first = [*names][:5]
    return ", ".join(map(repr, first[:4])) + (", ..." if len(first) > 4 else "")


def _decoded(text: str, where: str, expected: str) -> tuple[Any, int]:
    """First JSON value of a text, and its end position."""
    try:
        return _JSON.raw_decode(text, len(text) - len(text.lstrip()))
    except TaskError as error:
        raise TaskError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{where} is not JSON: {error}. Expected {expected}.") from error


def _row(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        refuse_repeated((name for name, _ in pairs), "it")
    return row


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


_JSON = json.JSONDecoder(object_pairs_hook=_row, parse_constant=_no_constant)


# Arrow


def _read_parquet(file: _File) -> "pa.Table":
    import pyarrow.parquet

    with _arrow_errors(file):
        return pyarrow.parquet.read_table(io.BytesIO(file.data))


def _read_arrow(file: _File) -> "pa.Table":
    import pyarrow.ipc

    opened = pyarrow.ipc.open_file if file.data.startswith(b"ARROW1") else pyarrow.ipc.open_stream
    with _arrow_errors(file), opened(file.data) as reader:
        return reader.read_all()


@contextmanager
def _arrow_errors(file: _File) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        file.refuse(
            f"{' '.join(str(error).split()).rstrip('.')}. Write the file again from its source."
        )


_READERS: Mapping[str, Callable[[_File], "list[Row] | pa.Table"]] = {
    ".csv": _read_table,
    ".tsv": _read_table,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}
KINDS = "CSV, TSV, JSON, JSON lines, Parquet or Arrow"

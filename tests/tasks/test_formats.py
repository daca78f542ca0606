"""Files of every kind, packed or not: the same rows from each, or a refusal that says what to write."""

import bz2
import gzip
import json
import lzma
import zipfile

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from icl_mech.errors import TaskError
from icl_mech.tasks import load_task
from icl_mech.tasks.files import read_rows
from tests.said import Words

WORDS = Words(__file__)

PATTERN = "Review: {text}\nSentiment: {label}"
LABELS = ("bad", "good")
ROWS = [
    {"text": text, "label": LABELS[number % 2]}
    for number, text in enumerate(
        ["NA", "None", "null", "007", "1.50", "café, 電影", 'say "so"; or|not', "two\nlines"]
    )
]
FRAME = pd.DataFrame(ROWS)
COLUMNS = FRAME.to_dict("list")


def arrow_of(kind):
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(ROWS)
    with kind(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def as_bytes(write):
    sink = pa.BufferOutputStream()
    write(sink)
    return sink.getvalue().to_pybytes()


CONTENTS = {
    "a.csv": FRAME.to_csv(index=False).encode(),
    "semicolons.csv": FRAME.to_csv(index=False, sep=";").encode(),
    "tabs.csv": FRAME.to_csv(index=False, sep="\t").encode(),
    "bars.csv": FRAME.to_csv(index=False, sep="|").encode(),
    "excel.csv": b"sep=;\r\n" + FRAME.to_csv(index=False, sep=";").encode(),
    "CAPITALS.CSV": FRAME.to_csv(index=False).encode(),
    "commas.tsv": FRAME.to_csv(index=False).encode(),
    "a.tsv": FRAME.to_csv(index=False, sep="\t").encode(),
    "list.json": json.dumps(ROWS, indent=1).encode(),
    "columns.json": json.dumps(COLUMNS).encode(),
    "pandas.json": FRAME.to_json().encode(),
    "wrapped.json": json.dumps({"data": ROWS}).encode(),
    "lines.json": "\n".join(map(json.dumps, ROWS)).encode(),
    "a.jsonl": "\n".join(map(json.dumps, ROWS)).encode(),
    "a.ndjson": "\n".join(map(json.dumps, ROWS)).encode("utf-16"),
    "a.parquet": as_bytes(lambda sink: pa.parquet.write_table(pa.Table.from_pylist(ROWS), sink)),
    "file.arrow": arrow_of(pa.RecordBatchFileWriter),
    "stream.arrow": arrow_of(pa.RecordBatchStreamWriter),
}
PACKED = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


def refused(path, **options):
    with pytest.raises(TaskError) as caught:
        load_task(path, **{"template": PATTERN, "labels": LABELS, **options})
    return str(caught.value)


def file_of(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", CONTENTS)
def test_every_kind_gives_the_same_rows(tmp_path, name):
    assert read_rows(file_of(tmp_path, name, CONTENTS[name])) == ROWS


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("name", ["semicolons.csv", "list.json", "a.jsonl", "a.parquet"])
def test_packed_files_give_the_same_rows(tmp_path, name, packing):
    path = file_of(tmp_path, name + packing, PACKED[packing](CONTENTS[name]))
    assert read_rows(path) == ROWS
    cut = file_of(tmp_path, "cut." + name + packing, path.read_bytes()[:-9])
    WORDS(refused(cut), "damaged", repr(str(cut)))
    WORDS(refused(file_of(tmp_path, name + packing, b"no such packing")), "not_packed_so")


def test_a_zip_holds_one_file(tmp_path):
    path = tmp_path / "films.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__MACOSX/._semicolons.csv", "of the file system")
        archive.writestr("semicolons.csv", CONTENTS["semicolons.csv"])
    assert read_rows(path) == ROWS
    assert load_task(path, template=PATTERN, labels=LABELS).name == "films"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("second.csv", CONTENTS["a.csv"])
    message = refused(path)
    WORDS(message, "zip_of_two", "2", "'semicolons.csv'", "'second.csv'")
    assert "unpacked" not in message
    WORDS(refused(file_of(tmp_path, "b.zip", b"PK")), "no_zip")
    WORDS(refused(file_of(tmp_path, "b.gz", gzip.compress(b"text,label"))), "kind_not_named")


def test_a_separator_that_divides_header_and_rows_alike_is_the_one(tmp_path):
    texts = file_of(tmp_path, "a.csv", "text;label|old\nso, so;good\n well ;bad\n")
    assert [[*row.values()] for row in read_rows(texts)] == [["so, so", "good"], [" well ", "bad"]]
    two = file_of(tmp_path, "b.csv", "text,label;id\ngood,1;2\n")
    message = refused(two)
    WORDS(message, "two_separators", "'text', 'label;id'", "'text,label', 'id'")
    assert f"load_task(pandas.read_csv({str(two)!r}, sep=','" in message
    neither = file_of(tmp_path, "c.csv", "text,label;id\ngood\n")
    WORDS(refused(neither), "no_separator", "1 fields", "2 columns")


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ({"train": ROWS, "test": ROWS}, "splits"),
        ({"a": {"text": "x", "label": "y"}, "b": {"text": "x", "label": "y"}}, "rows_or_columns"),
        ({"text": ["a", "b"], "label": ["good"]}, "lengths"),
        ([ROWS[0], ["b", "good"]], "item"),
        ([], "no_rows"),
        ("text", "no_list"),
    ],
)
def test_json_that_could_mean_several_things(tmp_path, value, key):
    WORDS(refused(file_of(tmp_path, "a.json", json.dumps(value))), key)


def test_one_object_is_one_row_and_repeated_names_are_refused(tmp_path):
    assert read_rows(file_of(tmp_path, "a.json", json.dumps(ROWS[0]))) == ROWS[:1]
    twice = file_of(tmp_path, "b.json", '[{"text": "a", "text": "b", "label": "good"}]')
    WORDS(refused(twice), "name_twice", "2", "'text'")
    WORDS(refused(file_of(tmp_path, "c.json", "[" * 100_000)), "no_json")


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_damaged_tables(tmp_path, name):
    WORDS(
        refused(file_of(tmp_path, name, CONTENTS[name][:40])),
        "damaged_table",
        f".{name.rpartition('.')[2]}",
    )


def test_a_folder_of_packed_files_and_other_names_of_splits(tmp_path):
    half = len(ROWS) // 2
    train = FRAME[:half].to_csv(index=False, sep=";").encode()
    file_of(tmp_path, "train.csv.gz", gzip.compress(train))
    FRAME[half:].to_parquet(tmp_path / "validation.parquet")
    file_of(tmp_path, "README.md", "no data")
    WORDS(refused(tmp_path), "no_test_split", "'train', 'validation'")
    options = {"template": PATTERN, "labels": LABELS}
    task = load_task(tmp_path, test_split="validation", **options)
    assert [example.text for example in (*task.train, *task.test)] == COLUMNS["text"]
    assert task.source == f"file {tmp_path.name}"
    both = load_task(
        tmp_path, train_split="train", test_split="train", test_fraction=0.5, **options
    )
    assert len(both.train) == len(both.test) == half // 2
    file_of(tmp_path, "validation.csv", "text,label\n")
    WORDS(refused(tmp_path, test_split="validation"), "two_of_a_split")
    empty = tmp_path / "empty"
    empty.mkdir()
    WORDS(refused(empty), "empty_folder")


def test_data_sets_saved_to_disk(tmp_path):
    whole = datasets.Dataset.from_list(ROWS)
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list(LABELS))}
    )
    whole.save_to_disk(tmp_path / "whole")
    task = load_task(tmp_path / "whole", template=PATTERN, labels=LABELS)
    assert len(task.train) + len(task.test) == len(ROWS)
    parts = whole.cast(features).train_test_split(test_size=2, shuffle=False)
    parts.save_to_disk(tmp_path / "parts")
    task = load_task(str(tmp_path / "parts"), template=PATTERN)  # its classes have names
    assert (task.name, task.labels, len(task.train), len(task.test)) == ("parts", LABELS, 6, 2)
    parts["train"].to_parquet(tmp_path / "named.parquet")
    assert load_task(tmp_path / "named.parquet", template=PATTERN).labels == LABELS
    (tmp_path / "whole" / "state.json").write_text("{}")
    WORDS(refused(tmp_path / "whole"), "damaged_data_set", "KeyError")

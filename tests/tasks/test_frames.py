"""Tasks from frames and from any data set of the hub."""

import datasets
import pandas as pd
import pyarrow as pa
import pytest

from icl_mech.errors import TaskError
from icl_mech.tasks import Example, frames, load_task
from icl_mech.tasks.types import label_names
from tests.said import Words

WORDS = Words(__file__)

PATTERN = "Review: {text}\nSentiment: {label}"
LABELS = ("Negative", "Positive")
FRAME = pd.DataFrame({"text": ["a", "b", "c", "d"], "label": ["Positive", "Negative"] * 2})
CLASS_OF = {"a": 1, "b": 0, "c": 1, "d": 0}


def load(data, **options):
    return load_task(data, **{"template": PATTERN, "labels": LABELS, **options})


def labels_of(task):
    return {example.text: example.label for example in (*task.train, *task.test)}


def named(names=("neg", "pos"), values=(1, 0, 1, 0), texts="abcd"):
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list(names))}
    )
    return datasets.Dataset.from_dict(
        {"text": list(texts), "label": list(values)}, features=features
    )


def refused(data, **options):
    with pytest.raises(TaskError) as caught:
        load(data, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME,
        FRAME.assign(label=FRAME.label.astype("category")),
        FRAME.assign(label=[1, 0, 1, 0]),
        FRAME.assign(label=pd.array([1, 0, 1, 0], dtype="Int64")),
        FRAME.set_index(pd.Index([7, 7, 8, 9])),
        datasets.Dataset.from_pandas(FRAME),
        datasets.Dataset.from_pandas(FRAME).with_format("torch"),
        named(),
    ],
)
def test_every_kind_of_frame_gives_the_same_examples(frame):
    task = load(frame)
    assert labels_of(task) == CLASS_OF
    assert len(task.train) == len(task.test) == 2
    assert task.name == "frame"
    WORDS.exactly(task.source, "every_kind_frame_gives", type(frame).__name__)


def test_columns_and_label_map():
    frame = pd.DataFrame({"id": range(4), "said": list("abcd"), "mood": ["pos", "neg"] * 2})
    task = load_task(
        frame, template=PATTERN, text_column="said", label_column="mood",
        label_map={"neg": "Negative", "pos": "Positive"}, name="moods",
    )  # fmt: skip
    assert (task.name, task.labels, labels_of(task)) == ("moods", LABELS, CLASS_OF)


def test_a_dictionary_of_columns_is_no_dictionary_of_splits():
    WORDS(refused(FRAME.to_dict("list")), "dictionary_columns_no_dictionary")


def test_frames_by_split():
    train, test = FRAME.iloc[:2], FRAME.iloc[2:]
    for data in (
        {"train": train, "test": test},
        datasets.DatasetDict(
            train=datasets.Dataset.from_pandas(train), test=datasets.Dataset.from_pandas(test)
        ),
    ):
        task = load(data)
        assert task.train == (Example("a", 1), Example("b", 0))
        assert task.test == (Example("c", 1), Example("d", 0))
    assert load({"all": FRAME}).train == load(FRAME).train
    both = {"train": FRAME, "validation": FRAME.assign(text=list("efgh"))}
    WORDS(refused(both), "frames_split", "'test'", "'train'", "'validation'")
    assert labels_of(load(both, test_split="validation")) == {
        **CLASS_OF,
        "e": 1,
        "f": 0,
        "g": 1,
        "h": 0,
    }
    assert labels_of(load(both, train_split="validation", test_split="validation")).keys() == set(
        "efgh"
    )


@pytest.mark.parametrize(
    ("options", "labels", "classes"),
    [
        ({"labels": None}, ("neg", "pos"), CLASS_OF),
        ({}, LABELS, CLASS_OF),  # other names, in class order
        ({"labels": ("Pos", "Neg")}, ("Pos", "Neg"), {"a": 0, "b": 1, "c": 0, "d": 1}),
        ({"labels": None, "label_map": {"pos": "Positive", "neg": "Negative"}}, LABELS[::-1],
         {"a": 0, "b": 1, "c": 0, "d": 1}),
        ({"label_map": {0: "Positive", 1: "Negative"}}, LABELS, {"a": 0, "b": 1, "c": 0, "d": 1}),
        ({"labels": ("Pos", "Neg"), "labels_as": "indices"}, ("Pos", "Neg"), CLASS_OF),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*are matched to label words by name")
def test_names_of_classes(options, labels, classes):
    task = load(named(), **options)
    assert (task.labels, labels_of(task)) == (labels, classes)


def test_names_in_another_order_are_told():
    with WORDS.warns(UserWarning, "names_another_order_told"):
        load(named(), labels=("Pos", "Neg"))


def test_classes_that_differ_in_case_only_are_not_run_together():
    WORDS(refused(named(("US", "us")), labels=("US", "us")), "classes_differ_case_only")


def test_names_of_classes_that_fit_only_in_part():
    message = refused(named(("negative", "mixed")))
    WORDS(message, "names_classes_fit_only")
    assert "label_map={'negative': 'Negative', ...}" in message
    WORDS(refused(named(("a", "b", "c"))), "names_classes_fit_only_2")
    WORDS(
        refused(named(values=(-1, -1, -1, -1)), labels=None), "names_classes_fit_only_3", "-1", "2"
    )


def test_splits_that_name_their_classes_differently():
    splits = {"train": named(), "test": named(("pos", "neg"), texts="efgh")}
    WORDS(refused(splits, labels=None), "splits_name_their_classes")


def test_a_missing_column_names_those_there_are():
    for frame in (FRAME, datasets.Dataset.from_pandas(FRAME)):
        message = refused(frame, text_column="said")
        WORDS(message, "missing_column_names_there", "'said'", "'text'", "'label'")
        assert "text_column=" in message


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Data sets of the hub are folders of CSV files here."""
    real = datasets.load_dataset
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    asked = []

    def load_dataset(path, **options):
        asked.append((path, options))
        folder = tmp_path / path.replace("/", "_")
        if not folder.is_dir():
            raise datasets.exceptions.DatasetNotFoundError(f"Dataset '{path}' doesn't exist")
        return real("csv", data_files={f.stem: str(f) for f in sorted(folder.iterdir())})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return tmp_path, asked


def test_any_data_set_of_the_hub(hub):
    folder, asked = hub
    (folder / "films_small").mkdir()
    FRAME.rename(columns={"text": "said"}).to_csv(folder / "films_small" / "train.csv")
    FRAME.assign(text=list("efgh")).rename(columns={"text": "said"}).to_csv(
        folder / "films_small" / "test.csv"
    )
    options = {"text_column": "said", "config": "plain", "revision": "v1"}
    task = load("films/small", **options)
    assert asked == [("films/small", {"name": "plain", "revision": "v1"})]
    assert (task.name, task.source) == ("small", "hub films/small plain v1")
    assert (task.train[0], task.test[0]) == (Example("a", 1), Example("e", 1))
    WORDS(refused("films/small"), "any_data_set_hub", "'train'", "'text'")
    WORDS(refused("films/small", text_column="said", test_fraction=0.2), "any_data_set_hub_2")


def test_a_data_set_that_is_nowhere(hub):
    message = refused("films/none")
    WORDS(message, "data_set_nowhere_2", "'films/none'", "DatasetNotFoundError", "owner/name")
    WORDS(refused("films/none.csv"), "data_set_nowhere", "'films/none.csv'")
    assert "'owner/name'" in refused("fims")


class OfAnotherLibrary:
    """A frame of a library that is not known here, such as polars: it hands out an Arrow stream."""

    def __init__(self, columns):
        self.table = pa.table(columns)

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


COLUMNS = FRAME.to_dict("list")
ROWS = FRAME.to_dict("records")


def stream(rows=tuple(ROWS), **options):
    return datasets.IterableDataset.from_generator(lambda: iter(rows), **options)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME.astype("string"),
        FRAME.convert_dtypes(dtype_backend="pyarrow"),
        FRAME.rename_axis(columns="of the frame"),
        FRAME.assign(label=[1.0, 0.0] * 2),
        pa.table(COLUMNS),
        pa.table({**COLUMNS, "label": pa.array(COLUMNS["label"]).dictionary_encode()}),
        OfAnotherLibrary({"id": range(4), **COLUMNS}),
        OfAnotherLibrary({"text": pa.array(list("abcd"), pa.large_string()), "label": [1, 0] * 2}),
        stream(),
        stream(features=datasets.Features.from_arrow_schema(pa.table(COLUMNS).schema)),
        stream().with_format("torch"),
        {"all": stream()},
        {0: FRAME},
    ],
)
def test_frames_of_other_kinds_give_the_same_examples(frame):
    assert labels_of(load(frame)) == CLASS_OF
    assert load(frame).train == load(FRAME).train


def test_streams_that_name_their_classes():
    features = named().features
    task = load(stream([*named()], features=features), labels=None)
    assert task.labels == ("neg", "pos")
    assert labels_of(task) == CLASS_OF


def test_streams_that_cannot_be_read_whole(monkeypatch):
    monkeypatch.setattr(frames, "LONGEST_STREAM", 3)
    message = refused(stream())
    WORDS(message, "long_stream")
    assert "stream.take(3)" in message
    assert len(load(stream(ROWS[:3]), overlap="keep").train) == 2

    def broken():
        yield ROWS[0]
        raise KeyError("gone")

    WORDS(refused(datasets.IterableDataset.from_generator(broken)), "broken_stream", "'gone'")
    WORDS(refused(stream([])), "empty_stream")
    WORDS(refused(stream([*ROWS[:2], {"text": "c"}])), "ragged_stream", "row 3", "'label'")


@pytest.mark.parametrize("data", [FRAME.text, pa.array(["a"]), pa.chunked_array([["a"]]), object()])
def test_what_has_no_columns(data):
    WORDS(refused(data), "no_columns", type(data).__name__)


def test_tables_with_columns_of_one_name():
    texts = pa.array(list("abcd"))
    table = pa.Table.from_arrays([texts, texts, texts], names=["text", "label", "text"])
    WORDS(refused(table), "repeated_columns", "2", "'text'")
    WORDS(refused(pa.table({"text": texts})), "no_label_column", "'label'", "'text'")


def test_files_by_split(tmp_path):
    FRAME[:2].to_csv(tmp_path / "a.csv", index=False)
    FRAME[2:].to_parquet(tmp_path / "b.parquet")
    task = load({"train": str(tmp_path / "a.csv"), "test": tmp_path / "b.parquet"})
    assert task.train == (Example("a", 1), Example("b", 0))
    assert task.test == (Example("c", 1), Example("d", 0))


@pytest.mark.parametrize("labels", [set(LABELS), frozenset(LABELS)])
def test_a_set_of_labels_has_no_order(labels):
    WORDS(refused(FRAME, labels=labels), "set_of_labels", type(labels).__name__)
    with WORDS.raises(TaskError, "set_of_labels", type(labels).__name__):
        label_names(labels, "label_words")
    for ordered in (dict.fromkeys(LABELS).keys(), (own for own in LABELS), pd.Series(LABELS)):
        assert load(FRAME, labels=ordered).labels == LABELS

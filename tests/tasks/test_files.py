"""Tasks from local files: kinds, columns, labels, splits, and what is refused."""

import json

import pytest

from icl_mech.errors import TaskError
from icl_mech.tasks import Example, load_task
from tests.said import Words

WORDS = Words(__file__)

PATTERN = "Review: {text}\nSentiment: {label}"
LABELS = ("Negative", "Positive")
TEXTS = ("dull, very dull", 'the "best"', "007", "NA")
EXAMPLES = tuple(Example(text, number % 2) for number, text in enumerate(TEXTS))
AS_NAMES = (
    '{"text": "dull, very dull", "label": "Negative"}\n'
    '{"text": "the \\"best\\"", "label": "Positive"}\n'
    "\n"
    '{"text": "007", "label": " Negative "}\n'
    '{"text": "NA", "label": "Positive"}\n'
)
FILES = {
    "a.csv": 'text,label\n"dull, very dull",0\n"the ""best""",1\n007,0\nNA,1\n',
    "a.tsv": 'text\tlabel\ndull, very dull\tNegative\n"the ""best"""\tPositive\n007\t0\nNA\t1\n',
    "a.jsonl": AS_NAMES,
    "a.json": AS_NAMES,
}


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def load(path, **options):
    keep = {"overlap": "keep"} if "test_path" in options else {}
    return load_task(path, **{"template": PATTERN, "labels": LABELS, **keep, **options})


def refused(path, **options):
    with pytest.raises(TaskError) as caught:
        load(path, **options)
    return str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_same_examples(tmp_path, name):
    file = write(tmp_path / name, FILES[name])
    task = load(file, test_path=file)
    assert task.train == task.test == EXAMPLES
    assert task.name == "a"
    assert task.source == f"file {name}"


def test_a_column_of_numbers_is_read_as_written(tmp_path):
    file = write(tmp_path / "a.csv", "text,label\n007,0\n1.50,1\n1e3,1\n")
    texts = [example.text for example in load(file, test_path=file).train]
    assert texts == ["007", "1.50", "1e3"]


def test_line_separators_inside_a_json_text_do_not_end_the_line(tmp_path):
    text = "one\u2028two\x85three"
    line = json.dumps({"text": text, "label": 1}, ensure_ascii=False)
    file = write(tmp_path / "a.jsonl", f"{line}\r\n{line}\n")
    assert load(file, test_path=file).train == (Example(text, 1), Example(text, 1))


def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path):
    for name in FILES:
        file = write(tmp_path / name, "\ufeff" + FILES[name])
        assert load(file, test_path=file).train == EXAMPLES


def test_a_folder_holds_both_splits(tmp_path):
    write(tmp_path / "train.csv", "text,label\na,0\nb,1\n")
    write(tmp_path / "test.jsonl", '{"text": "c", "label": "Positive"}\n')
    task = load(tmp_path)
    assert task.train == (Example("a", 0), Example("b", 1))
    assert task.test == (Example("c", 1),)
    assert task.name == tmp_path.name


def test_test_path_is_the_second_file(tmp_path):
    train = write(tmp_path / "x.csv", "text,label\na,0\n")
    test = write(tmp_path / "y.tsv", "text\tlabel\nb\t1\n")
    task = load(train, test_path=str(test))
    assert (task.train, task.test) == ((Example("a", 0),), (Example("b", 1),))


def test_other_columns(tmp_path):
    file = write(tmp_path / "a.csv", "id,sentence,gold,text,label\n1,good,1,x,9\n2,bad,0,y,9\n")
    task = load(file, test_path=file, text_column="sentence", label_column="gold")
    assert task.train == (Example("good", 1), Example("bad", 0))


@pytest.mark.parametrize("column", [None, "answer"])
def test_pair_texts(tmp_path, column):
    header = f"text,{column or 'text2'},label"
    file = write(tmp_path / "a.csv", f"{header}\nA man sleeps,He rests,1\nA dog,A cat,0\n")
    task = load(file, test_path=file, template="{text}\nSo: {text2}? {label}", text2_column=column)
    assert task.train == (Example("A man sleeps", 1, "He rests"), Example("A dog", 0, "A cat"))


@pytest.fixture
def one_file(tmp_path):
    # 10 Negative and 20 Positive ones.
    rows = [f"t{number},{int(number % 3 > 0)}" for number in range(30)]
    return write(tmp_path / "a.csv", "\n".join(["text,label", *rows]))


@pytest.mark.parametrize(("fraction", "counts"), [(0.5, (5, 10)), (0.2, (2, 4)), (0.3, (3, 6))])
def test_one_file_is_split_alike_in_every_class(one_file, fraction, counts):
    task = load(one_file, test_fraction=fraction)
    assert tuple(map(len, task.by_class("test"))) == counts
    assert tuple(map(len, task.by_class("train"))) == (10 - counts[0], 20 - counts[1])
    assert sorted(example.text for example in (*task.train, *task.test)) == sorted(
        f"t{number}" for number in range(30)
    )


def test_the_split_depends_on_the_seed_alone(one_file):
    assert load(one_file, seed=3) == load(one_file, seed=3)
    splits = {frozenset(load(one_file, seed=seed).test) for seed in range(5)}
    assert len(splits) == 5


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, 1.5, float("nan"), float("inf")])
def test_shares_that_are_none(one_file, fraction):
    message = refused(one_file, test_fraction=fraction)
    assert message.startswith(f"test_fraction={fraction} ")
    assert "between 0 and 1" in message


@pytest.mark.parametrize(("fraction", "part"), [(0.01, "test"), (0.99, "training")])
def test_a_split_that_would_be_empty(one_file, tmp_path, fraction, part):
    message = refused(one_file, test_fraction=fraction)
    WORDS(message, "split_would_empty", fraction, part)
    assert "test_path=" in message
    pair = write(tmp_path / "b.csv", "text,text2,label\na,b,0\na,c,1\n")
    message = refused(pair, template="{text}/{text2}: {label}")
    assert "leaves no" in message
    WORDS(message, "split_would_empty_2", "2")


def test_pairs_with_the_same_first_text_stay_together(tmp_path):
    # 12 first texts; each twice, with both labels or one of them.
    rows = [f"t{n // 2},u{n},{int(n % 2 == 0 or n % 8 == 3)}" for n in range(24)]
    file = write(tmp_path / "a.csv", "\n".join(["text,text2,label", *rows]))
    splits = set()
    for seed in range(5):
        task = load(file, template="{text}/{text2}: {label}", seed=seed)
        train, test = ({example.text for example in part} for part in (task.train, task.test))
        assert not train & test
        assert len(task.train) + len(task.test) == 24
        for in_train, in_test in zip(task.by_class("train"), task.by_class("test"), strict=True):
            assert abs(len(in_train) - len(in_test)) <= 3
        splits.add(frozenset(test))
        assert task == load(file, template="{text}/{text2}: {label}", seed=seed)
    assert len(splits) == 5


def test_options_that_a_folder_or_a_second_file_leave_without_effect(tmp_path, one_file):
    folder = tmp_path / "both"
    folder.mkdir()
    for split in ("train", "test"):
        write(folder / f"{split}.csv", "text,label\na,0\n")
    for option in ({"test_path": one_file}, {"test_fraction": 0.2}):
        message = refused(folder, **option)
        WORDS(message, "options_folder_second_file_2", next(iter(option)))
    message = refused(one_file, test_path=one_file, test_fraction=0.2)
    WORDS(message, "options_folder_second_file")


def test_template_of_a_built_in_task(tmp_path):
    file = write(tmp_path / "a.csv", "text,label\ngood,Positive\n")
    task = load_task(file, template="sst2", test_path=file, overlap="keep")
    known = load_task("reviews")
    assert (task.template, task.labels) == (known.template, known.labels)
    assert task.train == (Example("good", 1),)


def test_own_labels_and_layout_over_a_built_in_template(tmp_path):
    file = write(tmp_path / "a.csv", "text,label\ngood,nice\n")
    task = load_task(
        file,
        template="unnatural",
        labels=("awful", "nice"),
        narrative="",
        test_path=file,
        overlap="keep",
    )
    assert task.labels == ("awful", "nice")
    assert task.train == (Example("good", 1),)
    assert (task.template.pattern, task.template.separator) == ("{text}: {label}.", "\n\n")
    assert task.template.narrative == ""


def test_missing_column_names_those_there_are(tmp_path):
    message = refused(write(tmp_path / "a.csv", "sentence,gold\ngood,1\n"))
    WORDS(message, "missing_column", "row 1", "'text'", "'sentence', 'gold'", "text_column=")


def test_missing_second_text_column(tmp_path):
    file = write(tmp_path / "a.csv", "text,label\ngood,1\n")
    message = refused(file, template="{text}/{text2}: {label}")
    assert "no column 'text2'" in message
    assert "text2_column=" in message


@pytest.mark.parametrize(
    ("label", "fragments"),
    [
        ("Positiv", ["Positiv Positive", "row 2", "'Positiv'", "'Positive'"]),
        ("zzz", ["zzz", "row 2", "'zzz'", "Negative, Positive"]),
        ("2", ["label 2", "row 2", "label 2", "0 to 1"]),
        ("-1", ["label -1", "row 2", "label -1"]),
        ("", ["no label", "row 2", "''"]),
    ],
)
def test_labels_not_in_the_task(tmp_path, label, fragments):
    message = refused(write(tmp_path / "a.csv", f"text,label\na,1\nb,{label}\n"))
    WORDS(message, *fragments)


@pytest.mark.parametrize("text", ['"  "', '""', "null"])
def test_empty_texts(tmp_path, text):
    good = '{"text": "a", "label": 0, "text2": "b"}\n'
    file = write(tmp_path / "a.jsonl", f'{good}{{"text": {text}, "label": 1}}\n')
    WORDS(refused(file), "empty_texts", "2", "'text'")
    pair = write(tmp_path / "b.jsonl", f'{good}{{"text": "a", "label": 1, "text2": {text}}}\n')
    message = refused(pair, template="{text}/{text2}: {label}")
    WORDS(message, "empty_texts_2", "2", "'text2'")


def test_malformed_json_names_the_line(tmp_path):
    good = '{"text": "a", "label": 0}\n'
    WORDS(
        refused(write(tmp_path / "a.jsonl", good + "\n" + good + '{"text": \n')),
        "malformed_json_names_line",
        "4",
    )
    WORDS(
        refused(write(tmp_path / "b.jsonl", good + "[1, 2]\n")), "malformed_json_names_line_2", "2"
    )


def test_rows_with_more_fields_than_columns(tmp_path):
    # Read by pandas as an index, these rows would lose the first half of their texts.
    message = refused(write(tmp_path / "a.csv", "text,label\nGood, bad film,1\nDull, sad,0\n"))
    WORDS(message, "rows_more_fields_than", "2")
    assert "quotes" in message
    file = write(tmp_path / "b.csv", "text,label\ngood,1\nDull, sad,0\n")
    WORDS(refused(file), "rows_more_fields_than_2")


def test_files_that_are_no_data(tmp_path):
    WORDS(refused(write(tmp_path / "a.csv", "text,label\n")), "files_no_data")
    WORDS(refused(write(tmp_path / "a.jsonl", "\n")), "files_no_data")
    WORDS(refused(write(tmp_path / "b.csv", "")), "files_no_data_2")
    message = refused(write(tmp_path / "a.xlsx", "x"))
    assert "ends in '.xlsx'" in message
    assert ".csv, .tsv, .jsonl" in message
    for name in ("c.csv", "c.jsonl"):
        file = tmp_path / name
        file.write_bytes(b'{"text": "caf\xe9", "label": 1}\n')
        assert str(file) in refused(file)


def test_paths_that_do_not_exist(tmp_path):
    missing = str(tmp_path / "missing.csv")
    WORDS(refused(missing), "paths_exist", repr(missing))
    file = write(tmp_path / "a.csv", "text,label\na,1\n")
    WORDS(refused(file, test_path=missing), "paths_exist_2", repr(missing))


def test_a_folder_without_a_split(tmp_path):
    write(tmp_path / "train.csv", "text,label\na,1\n")
    message = refused(tmp_path)
    WORDS(message, "folder_without_split")


@pytest.mark.parametrize("given", [{"template": PATTERN}, {"labels": LABELS}, {}])
def test_files_need_a_template_and_labels(tmp_path, given):
    file = write(tmp_path / "a.csv", "text,label\na,1\n")
    with pytest.raises(TaskError) as caught:
        load_task(file, **given)
    assert "needs template=" in str(caught.value)
    assert "labels=" in str(caught.value)


# Read right or refused


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("name", FILES)
def test_encodings_that_say_what_they_are(tmp_path, name, encoding):
    file = tmp_path / name
    file.write_bytes(FILES[name].replace("dull,", "döll 🎬,").encode(encoding))
    texts = [example.text for example in load(file, test_path=file).train]
    assert texts == ["döll 🎬, very dull", *TEXTS[1:]]


@pytest.mark.parametrize(
    ("encoding", "fragment"),
    [("latin-1", "not UTF-8"), ("cp1252", "not UTF-8"), ("utf-16-le", "NUL"), ("utf-16-be", "NUL")],
)
def test_encodings_that_do_not(tmp_path, encoding, fragment):
    file = tmp_path / "a.csv"
    text = "café" if fragment == "not UTF-8" else "cafe"
    file.write_bytes(f"text,label\n{text},1\n".encode(encoding))
    message = refused(file)
    assert fragment in message
    assert "load_task(pandas.read_csv(path, encoding=...), ...)" in message


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(tmp_path, end):
    file = tmp_path / "a.csv"
    file.write_bytes(f'text,label{end}a,0{end}{end}"b{end}c",1{end}'.encode())
    assert load(file, test_path=file).train == (Example("a", 0), Example(f"b{end}c", 1))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_very_long_texts(tmp_path, name):
    text = "long " * 100_000 + "end"
    rows = {"a.csv": f"text,label\n{text},1\n", "a.jsonl": json.dumps({"text": text, "label": 1})}
    file = write(tmp_path / name, rows[name])
    assert load(file, test_path=file).train == (Example(text, 1),)


@pytest.mark.parametrize(
    ("rows", "fragments"),
    [
        ('a,0\n"b,1\nc,0\n', ["no .csv", ".csv"]),
        ('a,0\n"b" c,1\n', ["quote line 3", "line 3"]),
        ("a,0\nb\n", ["fields line 3", "line 3", "1", "2"]),
    ],
)
def test_torn_rows(tmp_path, rows, fragments):
    message = refused(write(tmp_path / "a.csv", f"text,label\n{rows}"))
    WORDS(message, *fragments)


def test_columns_of_one_name(tmp_path):
    message = refused(write(tmp_path / "a.csv", "text,label,text\na,0,b\n"))
    WORDS(message, "two_columns", "2", "'text'")
    message = refused(write(tmp_path / "a.jsonl", '{"text": "a", "label": 0, "text": "b"}\n'))
    WORDS(message, "columns_name", "1", "2", "'text'")


@pytest.mark.parametrize(
    ("value", "fragment"),
    [
        ("NaN", "1 JSON"),
        ("Infinity", "infinity value"),
        ("[" * 100_000, "JSON"),
        ("9" * 5000, "JSON"),
        ('["a", "b"]', "text a b"),
        ('{"a": 1}', "dict"),
        ("1.5", "float 1.5"),
        ("true", "bool"),
        (r'"a \ud83d b"', "ud83d 2"),
    ],
)
def test_what_is_no_text(tmp_path, value, fragment):
    WORDS(refused(write(tmp_path / "a.jsonl", f'{{"text": {value}, "label": 0}}\n')), fragment)


def test_two_files_of_one_split(tmp_path):
    for name in ("train.csv", "train.jsonl", "test.csv"):
        write(tmp_path / name, FILES[f"a.{name.split('.')[1]}"])
    WORDS(refused(tmp_path), "two_files_split")

"""What the values of a label column mean: decided once for a column, or asked."""

import pytest

from icl_mech.errors import TaskError
from icl_mech.tasks import load_task
from icl_mech.tasks.rows import LabelColumn, classes
from tests.said import Words

WORDS = Words(__file__)

STARS = ("1", "2", "3", "4", "5")
PATTERN = "Review: {text}\nStars: {label}"


def read(*columns, words=STARS, **options):
    parts = [LabelColumn(f"part {n}", values) for n, values in enumerate(columns)]
    return classes(parts, words, **options)


def refused(*columns, **options):
    with pytest.raises(TaskError) as caught:
        read(*columns, **options)
    return str(caught.value)


@pytest.mark.parametrize("kind", [int, str, float])
def test_label_words_that_are_numbers_are_read_one_way(kind):
    assert read([kind(n) for n in (5, 1, 3)])[0] == [4, 0, 2]  # 5 can only be a name
    if kind is not float:
        assert read([kind(n) for n in (0, 4, 1)])[0] == [0, 4, 1]  # 0 can only be an index


def test_a_column_that_could_mean_either_is_refused():
    message = refused(["1", "2", "4"])
    for fragment in ("part 0 (1, 2, 4)", "label words (1, 2, 3, 4, 5)", "labels_as='indices'"):
        assert fragment in message
    assert read(["1", "2", "4"], labels_as="names") == [[0, 1, 3]]
    assert read(["1", "2", "4"], labels_as="indices") == [[1, 2, 4]]
    assert read(["1", "2"], label_map={"1": "5", "2": "1"}) == [[4, 0]]


def test_the_other_part_decides():
    assert read(["1", "2"], ["0", "1"]) == [[1, 2], [0, 1]]
    assert read(["5", "2"], ["1"]) == [[4, 1], [0]]
    WORDS(refused(["0", "1"], ["5", "1"]), "other_part_decides")


def test_a_column_with_names_and_indices_of_number_words():
    WORDS(refused(["5", "0"]), "column_names_indices_number", "2", "'0'")
    WORDS(refused(["5", "0"], labels_as="indices"), "column_names_indices_number_2", "1", "5")


def test_both_readings_are_one_where_words_are_their_own_index():
    assert read(["0", "1"], words=("0", "1")) == [[0, 1]]
    assert read(["0", "1"], words=("0", "5")) == [[0, 1]]
    WORDS(refused(["1", "0"], words=("1", "0")), "both_readings_where_words")


@pytest.mark.parametrize("value", ["²", "--1", "1.5", "٣", "1e1", "9" * 5000])
def test_what_looks_like_a_number(value):
    assert "row 1" in refused([value], words=("no", "yes"))


def test_values_of_other_kinds():
    assert read([True, False], words=("False", "True")) == [[1, 0]]
    assert read([1.0, 0.0], words=("no", "yes")) == [[1, 0]]
    for missing in (None, float("nan")):
        WORDS(refused([0, missing], words=("no", "yes")), "values_other_kinds", "2")


def test_a_file_of_stars_keeps_its_classes(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("text,label\n" + "".join(f"text {n},{n % 5 + 1}\n" for n in range(20)))
    task = load_task(file, template=PATTERN, labels=STARS)
    for example in (*task.train, *task.test):
        assert example.label == int(example.text.split()[1]) % 5


def test_label_map(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("text,label\na,pos\nb,neg\nc,pos \nd,neg\n")
    label_map = {"neg": "Negative", "pos": "Positive"}
    task = load_task(file, template=PATTERN, label_map=label_map)
    assert task.labels == ("Negative", "Positive")
    assert {e.text: e.label for e in (*task.train, *task.test)} == {"a": 1, "b": 0, "c": 1, "d": 0}
    turned = load_task(file, template=PATTERN, label_map=label_map, labels=("Positive", "Negative"))
    assert {e.text: e.label for e in (*turned.train, *turned.test)} == {
        "a": 0,
        "b": 1,
        "c": 0,
        "d": 1,
    }
    assert load_task(file, template="sst2", label_map=label_map).labels == task.labels
    with WORDS.raises(TaskError, "label_map", "1", "'pos'"):
        load_task(file, template=PATTERN, labels=task.labels, label_map={"neg": "Negative"})


@pytest.mark.parametrize("twice", [{"1": "Negative", 1: "Positive"}, {None: "Negative"}])
def test_a_label_map_that_says_two_things(tmp_path, twice):
    file = tmp_path / "a.csv"
    file.write_text("text,label\na,1\nb,2\n")
    label_map = {**twice, 2: "Positive", 3: "Negative"}
    with WORDS.raises(TaskError, "label_map_says_two"):
        load_task(file, template=PATTERN, label_map=label_map)


@pytest.mark.parametrize(
    ("values", "words", "line"),
    [
        ([-1, 0, 1], ("a", "b", "c"), "label_map={-1: 'a', 0: 'b', 1: 'c'}"),
        ([2.0, 10.0, 1.0], ("a", "b", "c"), "label_map={1: 'a', 2: 'b', 10: 'c'}"),
        ([True, False], ("a", "b"), "label_map={False: 'a', True: 'b'}"),
        (["pos", "neg"], ("a", "b"), "label_map={'neg': 'a', 'pos': 'b'}"),
        (["pos", "neg"], ("a", "b", "c"), "label_map={'neg': ..., 'pos': ...} with one of 'a', 'b', 'c'"),
        ([*map(str, range(3, 40))], ("a", "b"), "label_map={3: 'a', ...} with a label word for each of its 37"),
    ],
)  # fmt: skip
def test_labels_written_in_another_way_are_refused_with_the_line_to_write(values, words, line):
    with pytest.raises(TaskError) as caught:
        classes([LabelColumn("here", values)], words)
    assert f"give {line}" in str(caught.value)


def test_whole_numbers_with_a_point_are_the_whole_numbers():
    for values in ([1.0, 2.0], ["1.0", "2.00"], ["1", "2.0"], [True + 0.0, 2]):
        assert classes([LabelColumn("here", values)], ("1", "2")) == [[0, 1]]
    assert classes([LabelColumn("here", ["1.0", "1"])], ("1", "1.0")) == [[1, 0]]
    for value in ("v1.0", "1.05", "1.0.0"):
        with pytest.raises(TaskError):
            classes([LabelColumn("here", [value])], ("a", "v1"))


@pytest.mark.parametrize("value", [[0, 1], {"a": 0}, b"a", float("nan"), None])
def test_what_is_no_label(value):
    with pytest.raises(TaskError):
        classes([LabelColumn("here", ["a", value])], ("a", "b"))

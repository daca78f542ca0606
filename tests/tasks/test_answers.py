"""Columns of open answers as data sets write them: one way for a column, and each read as what it is."""

from datetime import date

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from icl_mech.errors import TaskError
from icl_mech.tasks import load_task
from tests.said import Words

WORDS = Words(__file__)

PATTERN = "Q: {text}\nA: {label}"
TEXTS = ["one", "two"]
CHOICES = [["a", "b", "a"], ["c", "d", "e"]]


def answers_of(data, answers="answer", **options):
    task = load_task(data, template=PATTERN, answers=answers, **options)
    found = {example.text: example.answers for example in (*task.train, *task.test)}
    return [found[text] for text in TEXTS]


def frame(cells, **more):
    return pd.DataFrame({"text": TEXTS, "answer": cells, **more})


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["Kyiv|Kiev", "Rome"], [("Kyiv", "Kiev"), ("Rome",)]),
        ([1, 2], [("1",), ("2",)]),
        ([1.0, 2.5], [("1",), ("2.5",)]),
        ([["x", "y", "x"], [" z "]], [("x", "y"), ("z",)]),
        ([np.array(["x", "y"]), np.array(["z"])], [("x", "y"), ("z",)]),
        ([[3], ["three", 3]], [("3",), ("three", "3")]),
        (
            [{"text": ["x", "x", "y"], "answer_start": [1, 1, 2]}, {"text": ["z"], "answer_start": [0]}],
            [("x", "y"), ("z",)],
        ),
        (
            [{"value": "x", "aliases": ["X", "x"], "type": "w"}, {"value": "z", "aliases": [], "type": "w"}],
            [("x", "X"), ("z",)],
        ),
    ],
)  # fmt: skip
def test_every_way_of_writing_answers(cells, expected):
    data = frame(cells)
    assert answers_of(data) == expected
    if not isinstance(cells[0], list):  # Arrow has no lists of texts and numbers
        assert answers_of(pa.Table.from_pandas(data)) == expected
        assert answers_of(datasets.Dataset.from_pandas(data)) == expected


@pytest.mark.parametrize(
    ("cells", "key"),
    [
        (["x", ["y"]], "mixed"),
        ([{"text": ["x"], "answer_start": [0]}, ["y"]], "mixed_objects"),
        ([1, "x"], "mixed_numbers"),
        (["x", None], "missing"),
        ([["x"], ["y", float("nan")]], "missing_in_list"),
        ([["x"], []], "empty_list"),
        ([["x"], [["y"]]], "nested"),
        ([b"x", b"y"], "bytes"),
        ([{"x", "y"}, {"z"}], "set"),
        ([{"answer": "x"}, {"answer": "y"}], "unknown_object"),
        ([{"text": "x"}, {"text": "y"}], "object_of_one_text"),
        ([{"text": ["x"], "label": ["A"]}] * 2, "choices_alone"),
        ([[{"text": "x", "answer_start": 0}]] * 2, "list_of_objects"),
        ([date(2020, 1, 1), date(2020, 1, 2)], "dates"),
    ],
)
def test_what_is_not_plainly_an_answer(cells, key):
    with WORDS.raises(TaskError, key):
        answers_of(frame(cells))


def test_one_way_in_both_parts():
    parts = {"train": frame(["x", "y"]), "test": frame([["x"], ["y"]])}
    with WORDS.raises(TaskError, "mixed_parts", "'test'"):
        answers_of(parts, overlap="keep")


@pytest.mark.parametrize("marks", [[1, 2], ["B", "C"], ["1", "2"], [1.0, 2.0]])
def test_the_choice_that_another_column_names(marks):
    data = frame(marks, choices=CHOICES)
    assert answers_of(data, "choices[answer]") == [("b",), ("e",)]
    labelled = [{"text": own, "label": ["1", "2", "3"]} for own in CHOICES]
    by_label = frame(["3", "1"], choices=labelled)
    assert answers_of(by_label, "choices[answer]") == [("a",), ("c",)]


@pytest.mark.parametrize("mark", [3, -1, "D", "b", None, True])
def test_a_choice_that_is_not_there(mark):
    with WORDS.raises(TaskError, "no_choice", 2, repr(mark)):
        answers_of(frame([0, mark], choices=CHOICES).astype({"answer": object}), "choices[answer]")


def test_columns_of_choices_that_are_missing():
    with WORDS.raises(TaskError, "no_column", "'choices'"):
        answers_of(frame([0, 1]), "choices[answer]")
    with WORDS.raises(TaskError, "no_column", "'marks'"):
        answers_of(frame([0, 1], choices=CHOICES), "choices[marks]")


def test_answers_of_another_relation_are_texts():
    with WORDS.raises(TaskError, "other", "'other'"):
        answers_of(frame(["x", "y"], other=[{"a": 1}] * 2), other_answers="other")

"""The offline open answers: enough rows, every one unambiguous, no word both to learn and to test."""

import csv
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from icl_mech import demo

HEADER = ["text", "answer", "other", "split"]
NAMES = ("antonyms", "plurals", "past_tense", "capitals", "english_french")
CATEGORIES = {"capitals"}
"""Files whose other answers are categories (languages), which rows share."""


def read(name):
    source = Path(demo.__file__).with_name(f"{name}.csv")
    with source.open(encoding="utf-8", newline="") as lines:
        header, *rows = csv.reader(lines, strict=True)
    assert header == HEADER
    assert [row for row in rows if len(row) != len(HEADER)] == []
    return [dict(zip(HEADER, row, strict=True)) for row in rows]


def answers(row):
    return row["answer"].split("|")


def words(name, row):
    """All words of a row that no row of the other split may hold."""
    found = [row["text"], *answers(row), *([] if name in CATEGORIES else [row["other"]])]
    return {word.casefold() for word in found}


def test_the_files_are_those_of_the_package():
    found = Path(demo.__file__).parent.glob("*.csv")
    assert sorted(path.stem for path in found) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_enough_to_learn_and_to_test(name):
    splits = Counter(row["split"] for row in read(name))
    assert set(splits) == {"train", "test"}
    assert splits["train"] == 60
    assert splits["test"] >= 70


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_tidy(name):
    texts = [text for row in read(name) for text in (row["text"], *answers(row), row["other"])]
    assert "" not in texts
    assert [text for text in texts if text != " ".join(text.split())] == []
    assert [text for text in texts if text != unicodedata.normalize("NFC", text)] == []
    assert [row["other"] for row in read(name) if len(row["other"].split()) != 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_a_row_holds_is_distinct(name):
    # The other answer must be wrong, and copying the text too.
    same = [row for row in read(name) if len({*answers(row)}) != len(answers(row))]
    same += [row for row in read(name) if {row["text"], row["other"]} & {*answers(row)}]
    same += [row for row in read(name) if row["text"] == row["other"]]
    assert same == []


@pytest.mark.parametrize("name", NAMES)
def test_no_text_and_no_answer_occurs_twice(name):
    # Answers that are dealt out anew among rows are then all wrong.
    rows = read(name)
    texts = Counter(row["text"].casefold() for row in rows)
    given = Counter(answer for row in rows for answer in {a.casefold() for a in answers(row)})
    assert [word for counts in (texts, given) for word, n in counts.items() if n > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_word_is_in_both_splits(name):
    splits = defaultdict(set)
    for row in read(name):
        splits[row["split"]] |= words(name, row)
    assert splits["train"] & splits["test"] == set()


@pytest.mark.parametrize("name", sorted({*NAMES} - CATEGORIES))
def test_a_word_is_lower_case_unless_it_is_a_name(name):
    names = {"Monday", "Saturday", "January", "August"}
    rows = read(name)
    texts = {text for row in rows for text in (row["text"], *answers(row))}
    assert {text for text in texts if text != text.lower()} <= names
    raised = str.upper if name == "plurals" else str.lower
    assert [row for row in rows if row["other"] != raised(row["other"])] == []


def test_the_other_answer_of_plurals_is_the_text_in_capitals():
    assert [row for row in read("plurals") if row["other"] != row["text"].upper()] == []


def test_the_other_answer_of_past_tenses_is_the_ing_form():
    assert [row for row in read("past_tense") if not row["other"].endswith("ing")] == []


def test_countries_capitals_and_languages_are_names():
    rows = read("capitals")
    texts = [text for row in rows for text in (row["text"], *answers(row), row["other"])]
    assert [text for text in texts if not text[0].isupper()] == []

"""No text stands in training and test examples."""

from dataclasses import replace

import pytest

from icl_mech.errors import TaskError
from icl_mech.prompts import build_prompts
from icl_mech.prompts.drawing import examples_digest
from icl_mech.tasks import Example, Task, Template, load_task
from icl_mech.tasks.parts import apart, divide
from tests.prompts.cases import texts_of
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

PATTERN = "Review: {text}\nSentiment: {label}"
LABELS = ("Negative", "Positive")
VARIANTS = ("a film", " a film", "a  film ", "a\tfilm\n", "a\xa0film")


def texts(examples):
    return {" ".join(example.text.split()) for example in examples}


@pytest.mark.parametrize("seed", range(4))
def test_equal_texts_stay_in_one_part(seed):
    rows = [Example(text, n % 2) for n in range(12) for text in (f"t{n}", f" t{n} ", f"u{n}")]
    with WORDS.warns(UserWarning, "equal_texts_stay_part", "12", "36"):
        parts = divide(rows, 2, origin="here", test_fraction=0.5, seed=seed)
    assert len(parts.train) + len(parts.test) == 36
    assert not texts(parts.train) & texts(parts.test)
    assert abs(len(parts.test) - 18) <= 2


def test_white_space_and_composition_do_not_tell_texts_apart():
    assert len({Example(text, 0).keys for text in VARIANTS}) == 1
    assert Example("cafe\u0301", 0).keys == Example("caf\xe9", 0).keys
    assert Example("a film", 0).keys != Example("A film", 0).keys


def test_texts_that_were_compared_leave_no_trace():
    examples = [Example("a film", 0), Example("a", 1, "b")]
    before = examples_digest(examples), repr(examples)
    assert examples[1].keys == ("a", "b")
    assert (examples_digest(examples), repr(examples)) == before
    assert replace(examples[1], text="c").keys == ("c", "b")


def test_a_file_of_which_all_rows_are_one_text(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("text,label\n" + "same,0\nsame,1\n" * 3)
    with pytest.raises(TaskError) as caught:
        load_task(file, template=PATTERN, labels=LABELS)
    WORDS(str(caught.value), "file_all_rows_text", "6")
    WORDS(str(caught.value), "file_all_rows_text_2")


def test_repeated_rows_can_be_refused_or_kept():
    rows = [Example(text, n % 2) for n in range(8) for text in (f"t{n}", f"t{n} ")]
    with WORDS.raises(TaskError, "repeated_rows_can_refused", "8", "16"):
        divide(rows, 2, origin="here", test_fraction=0.5, seed=0, overlap="refuse")
    kept = divide(rows, 2, origin="here", test_fraction=0.5, seed=0, overlap="keep")
    assert texts(kept.train) & texts(kept.test)


def test_without_repeats_nothing_changes():
    rows = [Example(f"t{n}", n % 2) for n in range(12)]
    plain = divide(rows, 2, origin="here", test_fraction=0.5, seed=1)
    assert plain == divide(rows, 2, origin="here", test_fraction=0.5, seed=1, overlap="keep")


def test_pairs_tied_by_either_text_stay_together():
    rows = [Example(f"t{n}", n % 2, f"s{n // 2}") for n in range(16)]
    rows += [Example(f"s{n}", n % 2, f"swapped {n}") for n in range(8)]
    parts = divide(rows, 2, origin="here", test_fraction=0.5, seed=0)
    train, test = ({key for e in part for key in e.keys} for part in (parts.train, parts.test))
    assert not train & test
    assert len(parts.train) + len(parts.test) == 24


def test_pairs_without_a_common_text_are_divided_evenly():
    rows = [Example(f"t{n}", n % 2, f"s{n}") for n in range(16)]
    parts = divide(rows, 2, origin="here", test_fraction=0.5, seed=0)
    assert [[e.label for e in part].count(1) for part in (parts.train, parts.test)] == [4, 4]
    assert len(parts.train) == len(parts.test) == 8


def test_a_second_text_of_the_test_part_counts_too():
    train = [Example("a", 0, "s"), Example("b", 1, "t"), Example("u", 0, "c")]
    with WORDS.warns(UserWarning, "second_text_test_part", "2", "3"):
        parts = apart(train, [Example("d", 1, "s"), Example("e", 1, "u")], origin="here")
    assert parts.train == (train[1],)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\na film,0\nb,1\nc,0\n")
    (tmp_path / "test.csv").write_text("text,label\nd,0\n a  film,1\n")
    return tmp_path


def load(folder, **options):
    return load_task(folder, template=PATTERN, labels=LABELS, name="films", **options)


def test_training_examples_with_a_test_text_are_left_out(folder):
    with WORDS.warns(UserWarning, "training_examples_test_text", "1", "3", "'a film'"):
        task = load(folder)
    assert task.train == (Example("b", 1), Example("c", 0))
    assert len(task.test) == 2
    WORDS.ends(task.source, "training_examples_test_text_2", "1")
    assert task.name == "films"


def test_parts_with_common_texts_can_be_kept_or_refused(folder):
    with WORDS.warns(UserWarning, "contradicting_labels", "1 of the 4", "'a film'"):
        assert len(load(folder, overlap="keep").train) == 3
    with WORDS.raises(TaskError, "parts_common_texts_can", "1", "3"):
        load(folder, overlap="refuse")
    (folder / "all.csv").write_text("text,label\na,0\na,1\nb,0\nc,1\n")
    with WORDS.raises(TaskError, "parts_common_texts_can_2", "1", "4"):
        load(folder / "all.csv", overlap="refuse")


def test_one_file_for_both_parts_is_refused(folder):
    with WORDS.raises(TaskError, "file_both_parts_refused", "3", "'keep'"):
        load(folder / "train.csv", test_path=folder / "train.csv")


def test_parts_without_common_texts_stay_as_they_are():
    train, test = [Example("a", 0)], [Example("b", 0)]
    assert apart(train, test, origin="here") == ((train[0],), (test[0],), "")


def test_a_query_from_the_training_part_is_not_shown_in_other_spaces():
    train = tuple(
        Example(text, label)
        for label in (0, 1)
        for n in range(3)
        for text in (f"film {label} {n}", f"film  {label} {n} ")
    )
    task = Task("twice", Template(PATTERN), LABELS, train, ())
    for demonstrations in ("shared", "per_prompt"):
        for prompt in build_prompts(
            task, tiny_tokenizer("bpe"), n=4, split="train", demonstrations=demonstrations, seed=2
        ):
            *shown, query = (" ".join(text.split()) for text in texts_of(prompt))
            assert query not in shown


def test_texts_with_labels_that_contradict_are_named(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("text,label\n" + "".join(f"t{n},{n % 2}\n" for n in range(6)) + "t0,1\nt1,1\n")
    with WORDS.warns(UserWarning, "texts_labels_contradict_named") as told:
        load_task(file, template=PATTERN, labels=LABELS)
    first, second = (str(own.message) for own in told)
    WORDS(first, "texts_labels_contradict_named_2", "1", "6")
    assert "such as 't0'" in first
    WORDS(second, "texts_labels_contradict_named_3", "2", "8")

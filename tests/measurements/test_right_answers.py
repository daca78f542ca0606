"""Right answers beside constant ones: levels, classes and words, from planned answers."""

from dataclasses import replace

import pytest
import torch

from icl_mech.looks.predictions import levels
from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.right_answers import MOST_CLASSES
from icl_mech.metrics import wilson_interval
from tests.said import Words

WORDS = Words(__file__)


def predicted(answers, said, labels):
    """Predictions of these classes with these true answers."""
    logits = torch.zeros(len(said), len(labels))
    return Predictions(
        label_logits=logits,
        log_probs=logits.log_softmax(-1),
        predicted=torch.tensor(said),
        top_tokens=torch.zeros(len(said), 1, dtype=torch.long),
        answers=None if answers is None else torch.tensor(answers),
        labels=tuple(labels),
    )


# 12 prompts: 6 a, 4 b, 2 c; the model prefers b.
ANSWERS = [0] * 6 + [1] * 4 + [2] * 2
SAID = [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2]


@pytest.fixture(scope="module")
def found():
    return predicted(ANSWERS, SAID, "abc")


def test_the_commonest_class_and_the_favourite_one_have_their_levels(found):
    heights, names = zip(*levels(found.right), strict=True)
    assert heights == (0.5, pytest.approx(1 / 3))
    WORDS.exactly(names[0], "commonest_class", "“a”", "0.50")
    WORDS.exactly(names[1], "favourite_class", "“b”", "0.33")


def test_levels_of_one_height_are_one_line():
    four = predicted([0, 0, 1, 2], [0] * 4, "abcd")
    assert levels(four.right) == [(0.5, "always “a” 0.50"), (0.25, "chance 0.25")]
    even = predicted([0, 1, 2, 3], [1] * 4, "abcd")
    ((height, level),) = levels(even.right)
    assert height == 0.25
    WORDS.exactly(level, "one_height", "0.25")


def test_each_class_has_its_own_wilson_interval(found):
    drawn = found.drawing("accuracy")
    assert drawn.groups == ("all prompts (12)", "a (6)", "b (4)", "c (2)")
    rights = [[True] * 8 + [False] * 4, [True, False] * 3, [True] * 4, [True, False]]
    for row, own in enumerate(rights):
        ends = [float(end[row, 0]) for end in (drawn.values, drawn.low, drawn.high)]
        assert ends == pytest.approx(list(wilson_interval(torch.tensor(own))))


def test_classes_without_prompts_have_no_line():
    drawn = predicted([0, 0, 2, 2], [0, 1, 2, 2], "abc").drawing("accuracy")
    assert drawn.groups == ("all prompts (4)", "a (2)", "c (2)")
    assert drawn.values[:, 0].tolist() == pytest.approx([0.75, 0.5, 1.0])


def test_of_many_classes_those_of_most_prompts_are_shown():
    """Class 0 has one prompt, all others two or three."""
    count = MOST_CLASSES + 3
    answers = [0, *list(range(1, count)) * 2, 3, 5]
    labels = [f"k{i}" for i in range(count)]
    found = predicted(answers, answers, labels)
    names = found.drawing("accuracy").groups[1:]
    assert len(names) == MOST_CLASSES
    assert "k0 (1)" not in names
    assert {"k3 (3)", "k5 (3)"} <= set(names)
    numbers = [int(name.split(" ")[0][1:]) for name in names]
    assert numbers == sorted(numbers)
    WORDS(found.figures()[0].caption, "classes_of_most_prompts", MOST_CLASSES, count)
    WORDS(found.figures()[0].caption, "some_have_a_line")
    fewer = predicted([0, 1], [0, 1], "ab").figures()[0]
    WORDS.only_if(False, fewer.caption, "some_have_a_line")


@pytest.mark.parametrize(
    ("said", "opening"),
    [
        (ANSWERS, "Yes, 1.00 [0.76, 1.00]"),
        (SAID, "Not shown, 0.67"),
        ([1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0], "No, 0.00"),
    ],
)
def test_answers_are_judged_against_the_commonest_class(said, opening):
    figure = predicted(ANSWERS, said, "abc").figures()[0]
    WORDS.starts(figure.answer, opening, *opening.split(", ", 1))
    WORDS(figure.answer, "answers_judged_against_commonest", "0.50")
    assert bool(figure.establishes) == opening.startswith("Yes")


def test_few_prompts_cannot_be_judged():
    figure = predicted([0, 1, 1, 0], [0, 1, 1, 0], "ab").figures()[0]
    WORDS.starts(figure.answer, "few_prompts_cannot_judged", "Cannot be judged", "4", "1.00")
    assert not figure.establishes


def test_the_commonest_confusion_and_words_never_said(found):
    table = found.drawing()
    expected = [[3.0, 3.0, 0.0], [0.0, 4.0, 0.0], [0.0, 1.0, 1.0]]
    assert table.values.tolist() == expected
    shown = found.figures()[1]
    WORDS.exactly(shown.answer, "commonest_confusion_words_never", "3", "4")
    WORDS(found.figures()[0].answer, "commonest_confusion_words_never_2", "8", "12")
    silent = replace(found, predicted=torch.full((12,), 1)).figures()[1]
    WORDS.ends(silent.answer, "commonest_confusion_words_never_3")
    WORDS(silent.answer, "commonest_confusion_words_never_4", "6", "8")


def test_classes_that_never_are_right_are_not_missed():
    """Class c has no prompts: never to say it is no fault."""
    shown = predicted([0, 0, 1, 1], [0, 1, 1, 1], "abc").figures()[1]
    assert "never" not in shown.answer


def test_a_class_without_a_name():
    (figure,) = predicted(None, [1, 1, 0], ()).figures()
    WORDS.starts(figure.answer, "class_without_name", "1", "2", "3")

"""`Task`: what it refuses, and how it groups examples."""

import pytest

from icl_mech.errors import TaskError
from icl_mech.tasks import Example, Task, Template, load_task
from tests.said import Words

WORDS = Words(__file__)

TEMPLATE = Template("{text}: {label}")
EXAMPLES = (Example("a", 0), Example("b", 1), Example("c", 0))


def task(labels=("no", "yes"), train=EXAMPLES, test=EXAMPLES, template=TEMPLATE):
    return Task("toy", template, labels, train, test)


def test_labels_are_as_they_are_given():
    glued = Template("{text}={label}")
    assert task((" no", "yes "), template=glued).labels == (" no", "yes ")
    with WORDS.raises(TaskError, "two blanks", "' no'", "'no'"):
        task((" no", "yes "), template=Template("{text}: {label}"))


def test_by_class_keeps_the_order_of_the_examples():
    assert task().by_class("train") == ((Example("a", 0), Example("c", 0)), (Example("b", 1),))
    assert task(test=()).by_class("test") == ((), ())


def test_describe_names_all_that_shapes_a_prompt():
    template = Template("{text}={label};", separator="\n\n", narrative="Sort them.")
    assert Task("toy", template, ("no", "yes"), (), (), source="a file").describe() == {
        "name": "toy",
        "source": "a file",
        "template": "{text}={label};",
        "spelling": "literal",
        "separator": "\n\n",
        "narrative": "Sort them.",
        "labels": ["no", "yes"],
    }


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"labels": ("no",)}, ["one label", "'toy'", "('no',)"]),
        ({"labels": ()}, ["no labels"]),
        ({"labels": ("no", "no ")}, ["label twice", "'no'"]),
        ({"labels": ("no", " ")}, ["empty label", "label ' '"]),
        (
            {"train": (Example("a", 0), Example("b", 2))},
            ["label 2", "train example 1", "label 2", "'toy'", "0 to 1"],
        ),
        ({"test": (Example("a", -1),)}, ["label -1", "test example 0", "label -1"]),
        ({"test": (Example("a", 1), Example("\t", 1))}, ["empty text", "test example 1"]),
    ],
)
def test_refusals(changes, fragments):
    with WORDS.raises(TaskError, *fragments):
        task(**changes)


def test_a_task_is_one_line_and_a_card():
    task = load_task("reviews")
    assert len(repr(task)) < 500
    WORDS(repr(task), "task_line_card", "2")
    many = Task(
        "x" * 999, Template("R: {text}\nS: {label}"), tuple(f"l{i}" for i in range(999)), (), ()
    )
    assert len(repr(many)) < 500
    hostile = Example("<script>alert(1)</script>", 0)
    card = Task("t", Template("R: {text}\nS: {label}"), ("A", "B"), (hostile,), ())._repr_html_()
    assert "<script>" not in card
    WORDS(card, "task_line_card_2")
    assert "1, 0" in card

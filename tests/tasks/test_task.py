"""`Task`: what it refuses, and how it groups examples."""

import pytest

from icl_mech.errors import TaskError
from icl_mech.tasks import Example, Task, Template, load_task

TEMPLATE = Template("{text}:{label}")
EXAMPLES = (Example("a", 0), Example("b", 1), Example("c", 0))


def task(labels=("no", "yes"), train=EXAMPLES, test=EXAMPLES):
    return Task("toy", TEMPLATE, labels, train, test)


def test_label_words_bring_one_leading_space():
    assert task((" no", "yes ")).labels == ("no", "yes")
    assert task((" no", "yes ")).label_words == (" no", " yes")


def test_by_class_keeps_the_order_of_the_examples():
    assert task().by_class("train") == ((Example("a", 0), Example("c", 0)), (Example("b", 1),))
    assert task(test=()).by_class("test") == ((), ())


def test_describe_names_all_that_shapes_a_prompt():
    template = Template("{text}={label};", separator="\n\n", narrative="Sort them.")
    assert Task("toy", template, ("no", "yes"), (), (), source="a file").describe() == {
        "name": "toy",
        "source": "a file",
        "template": "{text}={label};",
        "separator": "\n\n",
        "narrative": "Sort them.",
        "labels": ["no", "yes"],
    }


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"labels": ("no",)}, ["'toy'", "('no',)", "at least two"]),
        ({"labels": ()}, ["at least two"]),
        ({"labels": ("no", "no ")}, ["label 'no' twice"]),
        ({"labels": ("no", " ")}, ["label ''", "empty"]),
        (
            {"train": (Example("a", 0), Example("b", 2))},
            ["train example 1", "label 2", "labels of 'toy' are 0 to 1: no, yes"],
        ),
        ({"test": (Example("a", -1),)}, ["test example 0", "label -1"]),
        ({"test": (Example("a", 1), Example("\t", 1))}, ["test example 1", "its text is empty"]),
    ],
)
def test_refusals(changes, fragments):
    with pytest.raises(TaskError) as caught:
        task(**changes)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_a_task_is_one_line_and_a_card():
    task = load_task("reviews")
    assert len(repr(task)) < 500
    assert "2 classes: Negative, Positive" in repr(task)
    many = Task(
        "x" * 999, Template("R: {text}\nS:{label}"), tuple(f"l{i}" for i in range(999)), (), ()
    )
    assert len(repr(many)) < 500
    hostile = Example("<script>alert(1)</script>", 0)
    card = Task("t", Template("R: {text}\nS:{label}"), ("A", "B"), (hostile,), ())._repr_html_()
    assert "<script>" not in card
    assert "R: &lt;script&gt;" in card
    assert "1, 0" in card

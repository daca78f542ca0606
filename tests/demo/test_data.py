"""The offline data: enough of every class, nothing twice, nothing both to learn and to test."""

from collections import Counter

import pytest

from icl_mech import demo
from icl_mech.tasks import known_tasks, load_task

LABELS = {
    "reviews": ("Negative", "Positive"),
    "headlines": ("World", "Sports", "Business", "Technology"),
    "questions": ("Abbreviation", "Entity", "Description", "Person", "Location", "Number"),
    "unnatural": ("animal", "plant/vegetable", "sport"),
    "comparisons": ("More", "Fewer", "Equal"),
}
PER_CLASS = {"reviews": 100, "headlines": 60, "questions": 40, "unnatural": 60, "comparisons": 60}


def test_the_offline_tasks_are_the_folders_of_the_package():
    assert [t.name for t in known_tasks() if t.offline and not t.is_open] == list(demo.NAMES)
    assert set(demo.NAMES) == set(LABELS)


@pytest.mark.parametrize("name", demo.NAMES)
def test_labels_in_class_order(name):
    assert load_task(name).labels == LABELS[name]


@pytest.mark.parametrize("name", demo.NAMES)
def test_classes_are_balanced_and_large_enough(name):
    task = load_task(name)
    train, test = (Counter(example.label for example in part) for part in (task.train, task.test))
    both = train + test
    assert sorted(train) == sorted(test) == list(range(len(task.labels)))
    assert len(set(train.values())) == 1
    assert len(set(test.values())) == 1
    assert min(both.values()) >= PER_CLASS[name]
    assert len(task.test) >= 100


@pytest.mark.parametrize("name", demo.NAMES)
def test_no_text_occurs_twice(name):
    task = load_task(name)
    texts = Counter(example.text.strip().lower() for example in (*task.train, *task.test))
    assert [text for text, count in texts.items() if count > 1] == []


@pytest.mark.parametrize("name", demo.NAMES)
def test_texts_are_one_tidy_line(name):
    task = load_task(name)
    untidy = [
        example.text
        for example in (*task.train, *task.test)
        if example.text != " ".join(example.text.split())
    ]
    assert untidy == []


def test_classes_are_mixed_in_the_files():
    # Taking the first n lines of a file must not give one class only.
    for name in demo.NAMES:
        first = [example.label for example in load_task(name).train[:30]]
        assert len(set(first)) == len(LABELS[name])


def test_rationales_of_comparisons_say_what_is_true():
    task = load_task("comparisons")
    for example in (*task.train, *task.test):
        words = example.text.replace(".", " ").split()
        first, moved, other = (int(word) for word in words if word.isdigit())
        said = example.rationale.replace(".", " ").split()
        begin, by, after, again, rival = (int(word) for word in said if word.isdigit())
        assert (begin, by, rival) == (first, moved, other)
        assert after == again == (first + moved if "plus" in said else first - moved)
        assert example.label == (0 if after > other else 1 if after < other else 2)
        relation = ("more than", "fewer than", "equal to")[example.label]
        assert example.rationale.endswith(f"{after} is {relation} {other}.")

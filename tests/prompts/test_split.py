"""Queries from the training examples, behind the demonstrations of the test prompts."""

from collections import Counter

import pytest

from icl_mech.errors import PromptError
from icl_mech.prompts import build_prompts
from icl_mech.tasks import Task
from tests.prompts.cases import KINGDOMS, OBJECT, texts_of, toy_task
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

BPE = tiny_tokenizer("bpe")
TASK = toy_task(KINGDOMS, OBJECT)


def demonstrations(prompts):
    return {tuple(texts_of(prompt)[:-1]) for prompt in prompts}


def queries(prompts):
    return [texts_of(prompt)[-1] for prompt in prompts]


@pytest.mark.parametrize("shots", [1, 3])
def test_both_splits_share_their_demonstrations(shots):
    options = {"shots": shots, "seed": 3}
    test = build_prompts(TASK, BPE, n=7, **options)
    train = build_prompts(TASK, BPE, n=9, split="train", **options)
    assert len(demonstrations(test)) == 1
    assert demonstrations(test) == demonstrations(train)
    assert test[0].label_classes == train[0].label_classes
    other = build_prompts(TASK, BPE, n=9, shots=shots, seed=4, split="train")
    assert demonstrations(other) != demonstrations(train)


def test_shared_demonstrations_do_not_depend_on_the_number_of_prompts():
    batches = [build_prompts(TASK, BPE, n=n, shots=2, seed=1) for n in (1, 4, 18)]
    assert (
        len({*demonstrations(batches[0]), *demonstrations(batches[1]), *demonstrations(batches[2])})
        == 1
    )


@pytest.mark.parametrize("drawn", ["shared", "per_prompt"])
@pytest.mark.parametrize("balanced", [True, False])
def test_queries_are_training_examples_that_no_demonstration_shows(drawn, balanced):
    prompts = build_prompts(
        TASK, BPE, n=12, shots=2, split="train", demonstrations=drawn, balanced=balanced
    )
    assert {text.split()[0] for text in queries(prompts)} == {"train"}
    assert len(set(queries(prompts))) == 12
    for prompt in prompts:
        *shown, query = texts_of(prompt)
        assert query not in shown
        assert len(set(shown)) == 6
        assert prompt.answer == int(query.split()[1])
    if balanced:
        assert Counter(prompts.answers.tolist()) == dict.fromkeys(range(3), 4)
    assert prompts.source["split"] == "train"


def test_every_example_left_over_can_be_asked_for():
    prompts = build_prompts(TASK, BPE, n=12, shots=2, split="train")
    (shown,) = demonstrations(prompts)
    assert {*shown, *queries(prompts)} == {example.text for example in TASK.train}


def test_a_copy_of_a_demonstration_is_no_query():
    twice = Task("twice", OBJECT, KINGDOMS, (*TASK.train, *TASK.train), TASK.test)
    prompts = build_prompts(twice, BPE, n=6, shots=4, split="train")
    (shown,) = demonstrations(prompts)
    assert not set(shown) & set(queries(prompts))


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"n": 7, "shots": 4}, ["n 7", "2", "n <= 6"]),
        ({"n": 7, "shots": 4, "balanced": False}, ["n 7 not balanced", "6", "n=7"]),
        ({"n": 3, "shots": 6, "demonstrations": "per_prompt"}, ["shots 6", "5", "shots=6"]),
    ],
)
def test_too_much_asked_for(options, fragments):
    with WORDS.raises(PromptError, *fragments):
        build_prompts(TASK, BPE, split="train", **options)


def test_unknown_split():
    with pytest.raises(PromptError) as caught:
        build_prompts(TASK, BPE, split="tests")
    WORDS(str(caught.value), "unknown_split", "'tests'", "'test'")

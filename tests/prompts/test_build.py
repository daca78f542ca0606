"""`build_prompts`: what is drawn, what stays the same, and what is refused."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from icl_mech.corruption import SETTINGS
from icl_mech.errors import PromptError, TaskError
from icl_mech.prompts import Prompt, build_prompt_pairs, build_prompts
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.prompts.identity import tokenizer_identity
from icl_mech.tasks import Example, Task, Template, as_task, load_task
from tests.prompts.cases import KINDS, KINGDOMS, OBJECT, REVIEW, TOPICS, texts_of, toy_task
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

BPE = tiny_tokenizer("bpe")
TASK = toy_task(KINGDOMS, OBJECT)


def true_classes(prompt):
    """The classes the texts of a toy task name: of the demonstrations, and of the query."""
    *demonstrations, query = [int(text.split()[1]) for text in texts_of(prompt)]
    return demonstrations, query


# What is drawn


def test_same_seed_same_prompts():
    for demonstrations in ("shared", "per_prompt"):
        options = {"n": 6, "shots": 2, "demonstrations": demonstrations}
        first, second, other = (
            build_prompts(TASK, BPE, seed=seed, **options).prompts for seed in (4, 4, 5)
        )
        assert first == second
        assert first != other


def test_demonstrations_come_from_train_and_queries_from_test():
    for prompt in build_prompts(TASK, BPE, n=9, shots=2, demonstrations="per_prompt"):
        *demonstrations, query = texts_of(prompt)
        assert {text.split()[0] for text in demonstrations} == {"train"}
        assert query.split()[0] == "test"


@pytest.mark.parametrize("shots", [1, 2, 6])
def test_shots_count_per_class_and_never_repeat(shots):
    for prompt in build_prompts(TASK, BPE, n=6, shots=shots, demonstrations="per_prompt"):
        assert Counter(prompt.label_classes) == dict.fromkeys(range(3), shots)
        demonstrations = texts_of(prompt)[:-1]
        assert len(set(demonstrations)) == 3 * shots


def test_shared_demonstrations_are_one_set():
    prompts = build_prompts(TASK, BPE, n=9, shots=2)
    assert len({tuple(texts_of(prompt)[:-1]) for prompt in prompts}) == 1
    assert len({prompt.label_classes for prompt in prompts}) == 1
    assert prompts.source["demonstrations"] == "shared"


def test_demonstrations_per_prompt_differ():
    prompts = build_prompts(TASK, BPE, n=9, shots=2, demonstrations="per_prompt")
    assert len({tuple(texts_of(prompt)[:-1]) for prompt in prompts}) == 9
    assert len({prompt.label_classes for prompt in prompts}) > 1  # the order is drawn, too


def test_all_classes_come_first_and_last_in_some_order():
    orders = {
        prompt.label_classes
        for prompt in build_prompts(TASK, BPE, n=18, demonstrations="per_prompt", seed=1)
    }
    assert {order[0] for order in orders} == {order[-1] for order in orders} == {0, 1, 2}


def test_queries_are_different_and_answered():
    prompts = build_prompts(TASK, BPE, n=18)
    queries = [texts_of(prompt)[-1] for prompt in prompts]
    assert len(set(queries)) == 18
    assert [prompt.answer for prompt in prompts] == [int(query.split()[1]) for query in queries]


@pytest.mark.parametrize(("n", "counts"), [(3, [1, 1, 1]), (7, [2, 2, 3]), (18, [6, 6, 6])])
def test_answers_are_balanced(n, counts):
    prompts = build_prompts(TASK, BPE, n=n, seed=2)
    assert sorted(Counter(prompts.answers.tolist()).values()) == counts


def test_answers_are_not_sorted_by_class():
    answers = build_prompts(TASK, BPE, n=18).answers.tolist()
    changes = sum(a != b for a, b in pairwise(answers))
    assert changes > 6  # two if every class came in one run


def test_no_class_is_always_the_one_with_more_answers():
    more = {
        Counter(build_prompts(TASK, BPE, n=4, seed=seed).answers.tolist()).most_common(1)[0][0]
        for seed in range(15)
    }
    assert more == {0, 1, 2}


def test_unbalanced_answers_follow_the_data():
    test = tuple(Example(f"test {int(i > 8)} {i}", int(i > 8)) for i in range(10))
    task = Task("odd", REVIEW, ("Negative", "Positive"), toy_task().train, test)
    prompts = build_prompts(task, BPE, n=10, balanced=False)
    assert Counter(prompts.answers.tolist()) == {0: 9, 1: 1}
    assert len({texts_of(prompt)[-1] for prompt in prompts}) == 10


def test_source_records_the_draw():
    source = build_prompts(TASK, BPE, n=4, shots=2, seed=7, labels="random").source
    assert source == {
        "task": TASK.describe(),
        "shots": 2,
        "n": 4,
        "seed": 7,
        "labels": "random",
        "demonstrations": "shared",
        "balanced": True,
        "split": "test",
        "pool": 18,
        "tokens_of": "whole text",
        "score": "first",
        "bos": False,
        "tokenizer": tokenizer_identity(BPE),
    }
    forced = build_prompts(TASK, tiny_tokenizer("sentencepiece"), n=4)
    assert forced.source["bos"] is True


def test_repr_names_task_and_sizes():
    prompts = build_prompts(toy_task(name="films"), BPE, n=3, shots=2)
    lengths = sorted(map(len, prompts))
    WORDS.exactly(repr(prompts), "repr_names_task_sizes", lengths[0], lengths[-1])


# Zero shots


def test_zero_shot_prompts_hold_the_query_alone():
    task = toy_task(per_class=1)
    prompts = build_prompts(task, BPE, n=2, shots=0)
    for prompt in prompts:
        assert "".join(prompt.pieces) == f"Review: test {prompt.answer} 0\nSentiment:"
        assert prompt.label_positions == prompt.label_classes == ()
        assert len(prompt.label_words) == 2
    assert prompts.n_demos == 0
    assert prompts.position_classes.eq(-1).all()


def test_zero_shot_prompts_keep_the_narrative():
    prompt = build_prompts(toy_task(KINGDOMS, OBJECT, per_class=1), BPE, n=1, shots=0)[0]
    assert "".join(prompt.pieces) == f"Sort them.\n\ntest {prompt.answer} 0:"
    assert [span.role for span in prompt.spans] == ["narrative", "query_text", "target"]


# Label settings


@pytest.mark.parametrize("demonstrations", ["shared", "per_prompt"])
def test_texts_and_answers_are_the_same_in_all_settings(demonstrations):
    batches = [
        build_prompts(TASK, BPE, n=9, shots=2, seed=3, labels=labels, demonstrations=demonstrations)
        for labels in SETTINGS
    ]
    texts = [[texts_of(prompt) for prompt in batch] for batch in batches]
    assert all(other == texts[0] for other in texts)
    assert all(batch.answers.tolist() == batches[0].answers.tolist() for batch in batches)
    shown = {tuple(tuple(prompt.label_classes) for prompt in batch) for batch in batches}
    assert len(shown) == len(SETTINGS)


def test_correct_labels_and_no_false_answer():
    for prompt in build_prompts(TASK, BPE, n=9, shots=2, demonstrations="per_prompt"):
        assert (list(prompt.label_classes), prompt.answer) == true_classes(prompt)
        assert prompt.false_answer is None


def test_permuted_labels_have_one_shift_per_prompt():
    shifts = []
    prompts = build_prompts(
        TASK, BPE, n=18, shots=2, labels="permuted", demonstrations="per_prompt"
    )
    for prompt in prompts:
        demonstrations, query = true_classes(prompt)
        shift = {
            (shown - true) % 3
            for shown, true in zip(prompt.label_classes, demonstrations, strict=True)
        }
        assert len(shift) == 1
        shifts += shift
        assert prompt.answer == query
        assert prompt.false_answer == (query + shifts[-1]) % 3
    assert set(shifts) == {1, 2}


def test_half_permuted_labels_mix_true_and_shifted():
    shares = []
    for prompt in build_prompts(
        TASK, BPE, n=18, shots=4, labels="half_permuted", demonstrations="per_prompt"
    ):
        demonstrations, query = true_classes(prompt)
        shift = (prompt.false_answer - query) % 3
        assert shift != 0
        differences = [
            (shown - true) % 3
            for shown, true in zip(prompt.label_classes, demonstrations, strict=True)
        ]
        assert set(differences) <= {0, shift}
        shares.append(differences.count(0) / len(differences))
    assert abs(sum(shares) / len(shares) - 0.5) < 0.12


def test_random_labels_have_no_false_answer():
    for labels in ("random", "random_incorrect"):
        prompts = build_prompts(TASK, BPE, n=3, shots=4, labels=labels)
        assert [prompt.false_answer for prompt in prompts] == [None] * 3
        shown, (true, _) = prompts[0].label_classes, true_classes(prompts[0])
        if labels == "random_incorrect":
            assert all(a != b for a, b in zip(shown, true, strict=True))


def test_pairs_are_the_two_settings_of_one_seed():
    options = {"n": 6, "shots": 2, "seed": 9, "demonstrations": "per_prompt"}
    true, false = build_prompt_pairs(TASK, BPE, **options)
    assert true.prompts == build_prompts(TASK, BPE, labels="correct", **options).prompts
    assert false.prompts == build_prompts(TASK, BPE, labels="permuted", **options).prompts
    assert [texts_of(prompt) for prompt in true] == [texts_of(prompt) for prompt in false]
    for a, b in zip(true, false, strict=True):
        assert all(x != y for x, y in zip(a.label_classes, b.label_classes, strict=True))
    _, random = build_prompt_pairs(TASK, BPE, false_labels="random", **options)
    assert random.source["labels"] == "random"


def test_pairs_set_labels_themselves():
    with pytest.raises(PromptError, match="give false_labels="):
        build_prompt_pairs(TASK, BPE, labels="random")


# Refusals


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"n": 0}, ["n 0", "n=0", "1"]),
        ({"shots": -1}, ["shots -1", "shots=-1", "0"]),
        ({"n": 19}, ["n 19", "6", "n=19", "7", "n <= 18"]),
        ({"n": 19, "balanced": False}, ["n 19 not balanced", "18", "n=19"]),
        ({"n": 3, "shots": 7}, ["shots 7", "6", "'animal'", "shots=7"]),
    ],
)
def test_too_much_asked_for(options, fragments):
    with WORDS.raises(PromptError, *fragments):
        build_prompts(TASK, BPE, **options)


def test_unknown_ways_of_drawing():
    with pytest.raises(PromptError) as caught:
        build_prompts(TASK, BPE, demonstrations="per_promt")
    WORDS(str(caught.value), "unknown_ways_drawing", "'per_promt'", "'per_prompt'")
    with WORDS.raises(PromptError, "unknown_ways_drawing_2", "'shot'", "'shots'"):
        build_prompts(TASK, BPE, shot=1)


@pytest.mark.usefixtures("unchecked")
def test_numbers_of_arrays_are_plain_ones():
    examples = [
        [Example(example.text, np.int64(example.label)) for example in part]
        for part in (TASK.train, TASK.test)
    ]
    task = replace(TASK, train=examples[0], test=examples[1])
    plain = build_prompts(TASK, BPE, shots=1, n=4, seed=3, balanced=True)
    other = build_prompts(
        task, BPE, shots=np.int64(1), n=torch.tensor(4), seed=np.uint8(3), balanced=np.True_
    )
    assert other.digest == plain.digest
    assert json.dumps(other.source) == json.dumps(plain.source)
    assert other[np.int64(1)] is other[1]


def test_label_words_that_share_their_first_token_are_scored_whole():
    task = toy_task(("animal", "animal sport", "plant"), OBJECT)
    for kind in ("bpe", "sentencepiece"):
        batch = build_prompts(task, tiny_tokenizer(kind), n=3)
        assert batch.score == batch.source["score"] == "sum"
        # The first label word begins the second, so that its end counts, too.
        assert [own.text for own in batch.candidates] == [" animal.", " animal sport", " plant"]
        assert build_prompts(task, tiny_tokenizer(kind), n=3, score="mean").score == "mean"
        with WORDS.raises(PromptError, "same_first_token", "'animal'", "'animal sport'"):
            build_prompts(task, tiny_tokenizer(kind), n=3, score="first")


@pytest.mark.parametrize("place", ["cfg", "info"])
def test_prompts_longer_than_the_context(place):
    def model(n_ctx):
        return SimpleNamespace(tokenizer=BPE, **{place: SimpleNamespace(n_ctx=n_ctx)})

    task = toy_task(per_class=2)
    lengths = sorted(len(prompt) for prompt in build_prompts(task, BPE, n=4))
    longest = lengths[-1]
    assert len(build_prompts(task, model(longest), n=4)) == 4
    over = sum(length > longest - 3 for length in lengths)
    with WORDS.raises(PromptError, "longer_than_the_context", over, longest - 3, longest, "3"):
        build_prompts(task, model(longest - 3), n=4)


def test_the_tokenizer_s_own_limit_counts():
    with WORDS.raises(PromptError, "tokenizer_s_own_limit", "512"):
        build_prompts(toy_task(TOPICS, per_class=12), BPE, n=4, shots=12)


def test_what_has_no_tokenizer():
    for thing in (SimpleNamespace(), SimpleNamespace(tokenizer=None), "gpt2"):
        with WORDS.raises(PromptError, "no_tokenizer", type(thing).__name__):
            build_prompts(TASK, thing)


def test_tasks_by_name():
    by_name = build_prompts("reviews", BPE, n=2)
    assert by_name.prompts == build_prompts(load_task("reviews"), BPE, n=2).prompts
    true, false = build_prompt_pairs("unnatural", BPE, n=3)
    assert {batch.source["task"]["name"] for batch in (true, false)} == {"unnatural"}
    with pytest.raises(TaskError, match="'reviews'"):
        build_prompts("review", BPE)
    with WORDS.raises(TaskError, "tasks_name"):
        as_task({"text": "a"})


def test_pair_tasks_without_a_second_text():
    task = toy_task(template=Template("{text}\n{text2}? {label}"))
    with pytest.raises(TaskError, match="empty 'text2'"):
        build_prompts(task, BPE, n=2)


def test_pair_tasks_show_both_texts():
    train = (Example("a", 0, "b"), Example("c", 1, "d"))
    task = Task(
        "pairs", Template("{text}\nSo: {text2}? {label}"), ("Negative", "Positive"), train, train
    )
    prompt = build_prompts(task, BPE, n=1)[0]
    for demo, label in enumerate(prompt.label_classes):
        shown = [text.strip() for text in texts_of(prompt)][2 * demo : 2 * demo + 2]
        assert shown == [train[label].text, train[label].text2]
    assert texts_of(prompt)[4:] == [train[prompt.answer].text, train[prompt.answer].text2]


def test_a_share_of_false_labels_is_recorded_and_changes_the_false_side_only():
    tokenizer = tiny_tokenizer("bpe")
    options = {"shots": 2, "n": 6, "demonstrations": "per_prompt"}
    true, whole = build_prompt_pairs("reviews", tokenizer, **options)
    same, part = build_prompt_pairs("reviews", tokenizer, false_share=0.5, **options)
    assert same.digest == true.digest
    assert "false_share" not in true.source
    assert "false_share" not in same.source
    assert part.source["false_share"] == 0.5
    assert part.digest not in (true.digest, whole.digest)
    assert [p.false_answer for p in part] == [p.false_answer for p in whole]
    wrong = sum(
        a != b for p, t in zip(part, true, strict=True)
        for a, b in zip(p.label_classes, t.label_classes, strict=True)
    )  # fmt: skip
    assert 0 < wrong < 6 * 4


# And back: `Prompt.examples`


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", [OBJECT, REVIEW, Template("{text}\nSo: {text2}? {label}")])
def test_examples_of_a_prompt_make_the_same_prompt(kind, template):
    tokenizer = tiny_tokenizer(kind)
    task = toy_task(KINGDOMS, template)
    if "{text2}" in template.pattern:
        parts = (
            [replace(e, text2=f"{e.text} 😀 ü") for e in own] for own in (task.train, task.test)
        )
        task = Task("pairs", template, KINGDOMS, *map(tuple, parts))
    options = {"n": 6, "shots": 2, "labels": "permuted", "demonstrations": "per_prompt"}
    for prompt in build_prompts(task, tokenizer, **options):
        shown, query = prompt.examples(tokenizer)
        assert [example.label for example in shown] == list(prompt.label_classes)
        assert query in task.test
        how = {"demonstrations": shown, "queries": [query]}
        (again,) = build_prompts(task, tokenizer, **how)
        assert (again.tokens, again.spans) == (prompt.tokens, prompt.spans)
        assert (again.label_classes, again.answer) == (prompt.label_classes, prompt.answer)
        if "{text2}" not in template.pattern:
            assert prompt.examples() == (shown, query)


def test_prompts_without_examples():
    (prompt,) = build_prompts(TASK, BPE, n=1)
    with WORDS.raises(PromptError, "prompts_without_examples"):
        replace(prompt, answer=None).examples()
    bare = Prompt.from_positions(
        range(9), label_positions=[2], label_classes=[1], label_tokens=[2, 3], answer=0
    )
    with WORDS.raises(PromptError, "prompts_without_examples_2"):
        bare.examples()
    task = replace(TASK, train=tuple(replace(e, text=f"{e.text} 😀") for e in TASK.train))
    (prompt,) = build_prompts(task, BPE, n=1)
    assert prompt.examples()[0][0].text.endswith("😀")
    earlier = replace(prompt, parts=(), pieces=TextTokenizer(BPE).words(prompt.tokens))
    with WORDS.raises(PromptError, "prompts_without_examples_3"):
        earlier.examples()
    assert earlier.examples(BPE)[0][0].text.endswith("😀")

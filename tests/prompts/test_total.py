"""`total=`: demonstrations in all, with classes drawn independently; `max`; and chosen examples."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from scipy.stats import chisquare

from icl_mech.errors import PromptError
from icl_mech.measurements.demonstrations import check_pairs, without_demonstrations
from icl_mech.prompts import build_prompt_pairs, build_prompts
from icl_mech.prompts.drawing import said_demonstrations
from icl_mech.tasks import Example, Task
from tests.prompts.cases import KINGDOMS, OBJECT, REVIEW, SENTIMENTS, texts_of, toy_task
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

BPE = tiny_tokenizer("bpe")
TASK = toy_task(KINGDOMS, OBJECT, per_class=24)


def demonstrations_of(prompt):
    return texts_of(prompt)[:-1]


def _displayed(total, **how):
    prompts = build_prompts(TASK, BPE, n=9, total=total, seed=2, **how)
    return [list(prompt.label_classes) for prompt in prompts]


def limited(tokens):
    """A model of which nothing but tokenizer and context is asked."""
    return SimpleNamespace(tokenizer=BPE, cfg=SimpleNamespace(n_ctx=tokens))


# Demonstrations in all


@pytest.mark.parametrize("total", [0, 1, 5, 12])
def test_so_many_in_all_and_none_twice(total):
    prompts = build_prompts(TASK, BPE, n=9, total=total)
    for prompt in prompts:
        shown = demonstrations_of(prompt)
        assert len(shown) == len(set(shown)) == total
        assert {text.split()[0] for text in shown} <= {"train"}
    source = prompts.source
    assert (source["total"], source["demonstrations"]) == (total, "per_prompt")
    assert "shots" not in source


def test_classes_are_independent_and_uniform():
    """Of 70 prompts with 9 demonstrations: every class as often, in pairs too."""
    prompts = build_prompts(TASK, BPE, n=70, total=9, seed=3)
    classes = [prompt.label_classes for prompt in prompts]
    counts = Counter(label for own in classes for label in own)
    assert chisquare([counts[label] for label in range(3)]).pvalue > 0.01
    pairs = Counter(pair for own in classes for pair in zip(own[::2], own[1::2], strict=False))
    assert len(pairs) == 9
    assert chisquare(list(pairs.values())).pvalue > 0.01
    # Balanced draws would show every class three times in each.
    spread = Counter(max(Counter(own).values()) for own in classes)
    assert spread[3] < 70 / 2
    assert max(spread) >= 6


def test_same_seed_same_texts_whatever_labels_say():
    plain, again, other = (build_prompts(TASK, BPE, n=6, total=4, seed=s) for s in (1, 1, 2))
    assert plain.prompts == again.prompts != other.prompts
    for labels in ("permuted", "random", "half_permuted", "shuffled"):
        own = build_prompts(TASK, BPE, n=6, total=4, seed=1, labels=labels)
        assert [texts_of(p) for p in own] == [texts_of(p) for p in plain]


def test_fewer_are_the_first_of_more_under_the_same_shift():
    few, many = (build_prompts(TASK, BPE, n=8, total=total, labels="permuted") for total in (3, 8))
    for one, other in zip(few, many, strict=True):
        assert texts_of(other)[:3] == demonstrations_of(one)
        assert other.label_classes[:3] == one.label_classes
        assert other.false_answer == one.false_answer
    assert len({(p.false_answer - p.answer) % 3 for p in many}) == 2


def test_none_in_all_is_none_per_class():
    assert build_prompts(TASK, BPE, n=7, total=0).prompts == (
        build_prompts(TASK, BPE, n=7, shots=0).prompts
    )


def test_queries_are_those_of_per_class():
    in_all, per_class = build_prompts(TASK, BPE, n=7, total=5), build_prompts(TASK, BPE, n=7)
    assert [texts_of(p)[-1] for p in in_all] == [texts_of(p)[-1] for p in per_class]


def test_a_text_that_stands_twice_in_the_data_is_shown_once():
    train = (
        *[Example("same", 0)] * 30,
        Example("other", 0),
        *(Example(f"more {i}", 1) for i in range(9)),
    )
    task = Task("twice", REVIEW, SENTIMENTS, train, toy_task().test)
    for prompt in build_prompts(task, BPE, n=6, total=2, seed=1):
        assert len(set(demonstrations_of(prompt))) == len(demonstrations_of(prompt))


def test_queries_of_the_training_split_are_not_shown():
    for prompt in build_prompts(TASK, BPE, n=24, total=20, split="train"):
        assert texts_of(prompt)[-1] not in demonstrations_of(prompt)


def test_pairs_and_bare_queries():
    true, false = build_prompt_pairs(TASK, BPE, n=6, total=4)
    check_pairs(true, false)
    assert [texts_of(p) for p in true] == [texts_of(p) for p in false]
    with WORDS.raises(PromptError, "pairs_bare_queries"):
        check_pairs(true, build_prompt_pairs(TASK, BPE, n=6, shots=1)[1])
    bare = without_demonstrations(true)
    assert bare.source["total"] == 0
    assert "shots" not in bare.source


# As many as fit


@pytest.mark.parametrize("labels", ["correct", "permuted"])
def test_as_many_as_fit_and_one_more_does_not(labels):
    prompts = build_prompts(TASK, limited(150), n=8, total="max", labels=labels)
    total = prompts.source["total"]
    assert prompts.source["total_bound"] == "context"
    assert max(map(len, prompts)) <= 150
    assert {len(prompt.label_classes) for prompt in prompts} == {total}
    given = build_prompts(TASK, limited(150), n=8, total=total, labels=labels)
    assert given.prompts == prompts.prompts
    if len({len(word) for word in prompts[0].label_words}) == 1:
        with WORDS.raises(PromptError, "many_fit_more"):
            build_prompts(TASK, limited(150), n=8, total=total + 1, labels=labels)


def test_both_sides_of_a_pair_show_as_many_with_words_of_any_length():
    task = replace(TASK, labels=("animal", "a plant/vegetable of some kind", "sport"))
    true, false = build_prompt_pairs(task, limited(170), n=8, total="max")
    assert true.source["total"] == false.source["total"] > 0
    assert max(map(len, (*true, *false))) <= 170


def test_nothing_fits_but_the_query():
    longest = max(map(len, build_prompts(TASK, BPE, n=5, total=0)))
    assert build_prompts(TASK, limited(longest), n=5, total="max").source["total"] == 0
    with WORDS.raises(PromptError, "nothing_fits_but_query"):
        build_prompts(TASK, limited(longest - 1), n=5, total="max")


def test_texts_may_run_out_before_the_context():
    task = toy_task(per_class=3)
    with WORDS.warns(UserWarning, "texts_may_run_out"):
        prompts = build_prompts(task, limited(10_000), n=3, total="max")
    assert prompts.source["total_bound"] == "texts"
    assert 0 < prompts.source["total"] < 6


# Chosen ones


def test_chosen_demonstrations_and_queries():
    shown = [Example("a cat", 0), Example("an oak", 1), Example("rowing", 2), Example("a dog", 0)]
    asked = [Example("moss", 1), Example("chess", 2)]
    prompts = build_prompts(TASK, BPE, demonstrations=shown, queries=asked)
    assert [texts_of(p) for p in prompts] == [
        [*(own.text for own in shown), query.text] for query in asked
    ]
    assert [p.label_classes for p in prompts] == [(0, 1, 2, 0)] * 2
    assert prompts.answers.tolist() == [1, 2]
    assert (prompts.source["demonstrations"], prompts.source["given"]) == ("given", 4)
    false = build_prompts(TASK, BPE, demonstrations=shown, queries=asked, labels="permuted")
    check_pairs(prompts, false)
    shift = (false[0].label_classes[0] - 0) % 3
    assert shift
    assert false[1].label_classes == tuple((label + shift) % 3 for label in (0, 1, 2, 0))
    assert [p.false_answer for p in false] == [(1 + shift) % 3, (2 + shift) % 3]


def test_chosen_demonstrations_before_drawn_queries_are_none_of_them():
    shown = list(TASK.test[:20])
    prompts = build_prompts(TASK, BPE, n=9, demonstrations=shown)
    assert not {own.text for own in shown} & {texts_of(p)[-1] for p in prompts}


@pytest.mark.parametrize(
    "options", [{"shots": 6}, {"total": 9}, {"shots": 6, "demonstrations": "per_prompt"}]
)
def test_drawn_demonstrations_before_chosen_queries_are_none_of_them(options):
    task = toy_task(KINGDOMS, OBJECT, per_class=7)
    asked = [task.train[0], task.train[8]]
    for prompt in build_prompts(task, BPE, queries=asked, **options):
        assert texts_of(prompt)[-1] not in demonstrations_of(prompt)


def test_what_is_said_of_them():
    said = {
        said_demonstrations(build_prompts(TASK, limited(200), n=3, **options).source)
        for options in ({"shots": 2}, {"total": 2}, {"demonstrations": TASK.train[:3]})
    }
    assert said == {"2 per class", "2 in all", "3 chosen ones"}
    most = build_prompts(TASK, limited(60), n=3, total="max").source
    WORDS.exactly(said_demonstrations(most), "what_said_them", most["total"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": 1, "total": 4}, "shots1 total4"),
        ({"total": 4, "demonstrations": "shared"}, "draws classes texts"),
        ({"total": "most"}, "0 max"),
        ({"total": -1}, "expected number demonstrations"),
        ({"total": True}, "expected number demonstrations"),
        ({"total": 72, "n": 3}, "24 max"),
        ({"total": 2, "demonstrations": [TASK.train[0]]}, "total2"),
        ({"shots": 2, "demonstrations": [TASK.train[0]]}, "shots2"),
        ({"demonstrations": [Example("x", 3)]}, "demonstrations[0] label 3"),
        ({"demonstrations": [Example(" ", 1)]}, "demonstrations[0] empty"),
        ({"demonstrations": ["x"]}, "expected example"),
        ({"demonstrations": "some"}, "per_prompt"),
        ({"queries": []}, "queries empty"),
        ({"queries": [Example("x", 0)], "n": 2}, "n2 1"),
        ({"queries": [TASK.train[0]], "demonstrations": [TASK.train[0]]}, "among demonstrations"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be(options, message):
    with WORDS.raises(PromptError, message):
        build_prompts(TASK, BPE, **options)


def test_nobody_knows_the_context():
    with WORDS.raises(PromptError, "nobody_knows_context"):
        build_prompts(TASK, limited(None), n=2, total="max")


@pytest.mark.parametrize("how", [{"labels": "random"}, {"labels": "random_incorrect"},
                                 {"labels": "random", "false_share": 0.5}])  # fmt: skip
def test_fewer_random_labels_are_the_first_of_more(how):
    few, more = (_displayed(total, **how) for total in (3, 8))
    assert [own[:3] for own in more] == few
    assert len({tuple(own) for own in more}) > 1

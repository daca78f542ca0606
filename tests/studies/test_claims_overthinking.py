"""Verdicts of the overthinking study, against results whose answer is known."""

from itertools import product

import pytest

from icl_mech.results import Result
from icl_mech.studies import Analysis
from icl_mech.studies.overthinking import OVERTHINKING
from tests.planted_results import (
    ablation_of,
    attention_of,
    context_of,
    exit_of,
    found_of,
    heads_of,
    layer_accuracy_of,
)
from tests.said import Words

WORDS = Words(__file__)

CHANCE, LOW, HIGH = [0.25] * 3, [0.5] * 4, [0.9] * 4
HARM = layer_accuracy_of(CHANCE + HIGH, CHANCE + LOW)
NO_HARM = layer_accuracy_of(CHANCE + LOW, CHANCE + LOW)
BETTER = layer_accuracy_of(CHANCE + LOW, CHANCE + HIGH)
FEW = layer_accuracy_of(CHANCE + HIGH, CHANCE + LOW, n=4)
MATCHING, PUSHING = {(5, 1): 0.3, (7, 2): 0.2}, {(5, 1): 1.0, (7, 2): 0.0}
HEADS = heads_of(MATCHING, PUSHING)
DRAWS = [(0.9, 0.4), (0.85, 0.45), (0.9, 0.35)]


def verdicts_of(results):
    return OVERTHINKING.verdicts(Analysis(results, ""))


def headline_of(results, model, task):
    run = Analysis(results, "")
    return OVERTHINKING.heading(run, OVERTHINKING.verdicts(run), model, task)


def only(name: str, result: Result, *others: Result):
    """Verdicts that rest on one result, by the first word of their claims."""
    results = {name: result, **{f"other_{i}": other for i, other in enumerate(others)}}
    found = [own for own in verdicts_of(results) if own.result == name]
    return {own.claim.split()[0].strip(":"): own for own in found}


@pytest.mark.parametrize(
    ("result", "harm", "critical"),
    [
        (HARM, "supported", "supported"),
        (NO_HARM, "not shown", "cannot be judged"),
        (BETTER, "opposite", "cannot be judged"),
        (FEW, "cannot be judged", "cannot be judged"),
    ],
)
def test_harm_and_critical_layer(result, harm, critical):
    found = only("layer_accuracy", result)
    assert (found["Harm"].status, found["Critical"].status) == (harm, critical)
    assert f"n = {len(result.answers)} pairs" in found["Harm"].finding


def test_a_gap_that_is_there_from_the_embedding_on_has_no_critical_layer_to_speak_of():
    result = layer_accuracy_of([0.9] * 7, [0.4] * 7, n=48)
    assert only("a", result)["Critical"].status == "not shown"


@pytest.mark.parametrize(
    ("change", "status"),
    [((0.5, 0.1), "supported"), ((0.04, 0.0), "not shown"), ((-0.5, -0.5), "opposite")],
)
def test_overthinking(change, status):
    found = only("early_exit", exit_of(*change))["Overthinking"]
    assert found.status == status
    assert "n = 24 pairs" in found.finding


def test_a_layer_chosen_on_the_reported_prompts_shows_nothing():
    same = exit_of(0.5, 0.1, provenance={"variants": {"variant": "reference"}})
    assert only("early_exit", same)["Overthinking"].status == "cannot be judged"


def test_heads_are_tested_on_the_task_studied():
    chosen = found_of(HEADS)
    found = only("false_induction", chosen, HEADS)["False"]
    assert found.status == "supported"
    WORDS(found.finding, "heads_tested_task_studied", "24", "5.1")
    # The same heads do nothing on the studied task.
    elsewhere = only("false_induction", chosen, heads_of({}, {}))["False"]
    assert elsewhere.status == "not shown"
    WORDS(elsewhere.finding, "heads_tested_task_studied_2")


def test_heads_of_one_task_are_tested_on_its_other_half():
    chosen = found_of(HEADS, task="planted")
    found = only("false_induction", chosen, HEADS)["False"]
    assert found.status == "supported"
    WORDS(found.finding, "heads_task_tested_other", "12")


@pytest.mark.parametrize(
    ("means", "status"),
    [
        ({"none": (0.9, 0.4), "chosen heads": (0.9, 0.75)}, "supported"),
        ({"none": (0.9, 0.4), "chosen heads": (0.4, 0.75)}, "mixed"),  # hurts with true ones
        ({"none": (0.9, 0.4), "chosen heads": (0.9, 0.4)}, "not shown"),
        ({"none": (0.9, 0.4), "chosen heads": (0.9, 0.1)}, "opposite"),
        ({"none": (0.6, 0.6), "chosen heads": (0.6, 0.9)}, "cannot be judged"),
    ],
)
def test_removing_heads(means, status):
    found = only("ablation", ablation_of(means, DRAWS))["Removing"]
    assert found.status == status
    assert "(5.1 and 7.2)" in found.finding


def test_late_attention():
    result = ablation_of({"none": (0.9, 0.4), "late attention": (0.9, 0.8)})
    found = only("ablation", result)
    assert found["Late"].status == "supported"
    assert "Removing" not in found


def test_results_that_bear_on_nothing_give_no_verdict():
    assert verdicts_of({"a": attention_of(), "b": context_of([0.5, 0.6], [0.5, 0.5])}) == ()
    assert verdicts_of({}) == ()


@pytest.mark.parametrize(
    ("layers", "leaving"),
    list(
        product(
            [HARM, NO_HARM, BETTER, FEW], [exit_of(0.5, 0.1), exit_of(0.04, 0), exit_of(-0.5, 0)]
        )
    ),
)
def test_the_headline_is_at_most_two_sentences_and_agrees_with_the_verdicts(layers, leaving):
    results = {"layer_accuracy": layers, "early_exit": leaving}
    question, answer = headline_of(results, "GPT", "reviews")
    WORDS.exactly(question, "headline_most_two_sentences")
    assert answer.count(". ") + answer.endswith(".") <= 2
    harm = only("layer_accuracy", layers)["Harm"].status
    WORDS.only_if(harm == "supported", answer, "lower_accuracy")
    better = only("early_exit", leaving)["Overthinking"].status
    WORDS.only_if(better == "supported", answer, "better_answers")


def test_headlines_of_parts_of_the_study():
    WORDS.starts(headline_of({}, "GPT", "reviews")[1], "headlines_parts_study")
    _, answer = headline_of({"early_exit": exit_of(-0.5, -0.5)}, "GPT", "reviews")
    WORDS.starts(answer, "headlines_parts_study_2")

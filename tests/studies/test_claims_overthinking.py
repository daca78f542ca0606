"""Verdicts of the overthinking study, against results whose answer is known."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from icl_mech.studies import Analysis
from icl_mech.studies.judge import verdict
from icl_mech.studies.overthinking import OVERTHINKING, OVERTHINKS, PARTING
from icl_mech.studies.overthinking_heads import COPY
from tests.planted_results import (
    ablation_of,
    attention_of,
    changed_by_cuts,
    context_of,
    exit_of,
    found_of,
    heads_of,
    layer_accuracy_of,
)
from tests.said import Words

WORDS = Words(__file__)

N = 48
EXIT = 4
"""Where one would leave: after this layer of six, with all of `CHANCE` before."""

CHANCE, LOW, HIGH = [0.25] * 3, [0.5] * 4, [0.9] * 4
FALSE_AT_EXIT = [0.5, 0.9, 0.5, 0.5]


def layers_of(true, false, n=N, **more):
    return layer_accuracy_of(CHANCE + true, CHANCE + false, n=n, **more)


HARM = layers_of(HIGH, FALSE_AT_EXIT)
NO_HARM = layers_of(LOW, LOW)
BETTER = layers_of(LOW, HIGH)
FEW = layers_of(HIGH, LOW, n=4)
CHANCE_AT_EXIT = layers_of(HIGH, [0.25, 0.25, 0.0, 0.0])
NEVER_AT_EXIT = layers_of(HIGH, [0.5, 0.0, 0.5, 0.5])
MATCHING, PUSHING = {(5, 1): 0.3, (7, 2): 0.2}, {(5, 1): 1.0, (7, 2): 0.0}
HEADS = heads_of(MATCHING, PUSHING)
COPIERS = {"false_induction": found_of(HEADS), "head_scores": HEADS}
DRAWS = [(0.9, 0.4), (0.85, 0.45), (0.9, 0.35)]
CUT = changed_by_cuts(0.5, N)
WITHOUT_HEADS = ablation_of({"none": (0.9, 0.4), "chosen heads": (0.9, 0.75)}, DRAWS)
"""Seven tenths of the harm go with the chosen heads."""


def leaving(false, true, layer=EXIT, **more):
    """On the second half of the pairs."""
    return exit_of(false, true, n=N // 2, layer=layer, **more)


def verdicts_of(results):
    return OVERTHINKING.verdicts(Analysis(results, ""))


def headline_of(results, model, task):
    run = Analysis(results, "")
    return OVERTHINKING.heading(run, OVERTHINKING.verdicts(run), model, task)


def by_claim(**results):
    """Verdicts of a run, by the first word of their claims."""
    return {own.claim.split()[0].strip(":"): own for own in verdicts_of(results)}


def of(claim, **results):
    """The verdict on one claim alone."""
    return verdict(claim, Analysis(results, ""))


def without_answers(layers):
    """The same accuracies, of a lens that is not the model's answer."""
    return replace(layers, provenance={**layers.provenance, "variants": {"variant": "reference"}})


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
    found = by_claim(layer_accuracy=result, edge_cuts=changed_by_cuts(0.5, len(result.answers)))
    assert (found["Harm"].status, found["Critical"].status) == (harm, critical)
    assert {own.result for own in found.values()} == {"layer_accuracy"}
    assert f"n = {len(result.answers)} pairs" in found["Harm"].finding


def test_a_gap_that_is_there_from_the_embedding_on_has_no_critical_layer_to_speak_of():
    result = layer_accuracy_of([0.9] * 7, [0.4] * 7, n=N)
    found = of(PARTING, layer_accuracy=result, edge_cuts=CUT)
    assert found.status == "not shown"


@pytest.mark.parametrize(
    ("changed", "status"), [(0.0, "present, not used"), (0.1, "not shown"), (0.5, "supported")]
)
def test_a_critical_layer_takes_answers_that_are_read_after_the_first_quarter(changed, status):
    """The lens may first show late what was read early, see the planted null `early`."""
    found = of(PARTING, layer_accuracy=HARM, edge_cuts=changed_by_cuts(changed, N))
    assert (found.status, found.lacking) == (status, "")


def test_a_critical_layer_without_what_shows_that_it_is_used():
    for results in ({}, {"edge_cuts": changed_by_cuts(0.5, N, edges="contextualise")}):
        found = of(PARTING, layer_accuracy=HARM, **results)
        assert (found.status, found.lacking) == ("cannot be judged", "")
        WORDS.ends(found.finding, "not_measured")
    # Nothing is there that could be used.
    still = layer_accuracy_of([0.9] * 7, [0.4] * 7, n=N)
    assert of(PARTING, layer_accuracy=still).status == "not shown"


@pytest.mark.parametrize(
    ("change", "layers", "status"),
    [
        ((0.5, 0.1), HARM, "supported"),
        ((0.04, 0.0), HARM, "mixed"),
        ((-0.5, -0.5), HARM, "mixed"),
        ((0.5, 0.1), CHANCE_AT_EXIT, "mixed"),
        ((0.5, 0.1), NEVER_AT_EXIT, "mixed"),
        ((0.04, 0.0), CHANCE_AT_EXIT, "not shown"),
        ((-0.5, -0.5), NEVER_AT_EXIT, "opposite"),
    ],
)
def test_overthinking(change, layers, status):
    """Leaving must help, and accuracy there must lie above chance: of answers all wrong, guesses are better."""
    found = by_claim(layer_accuracy=layers, early_exit=leaving(*change))["Overthinking"]
    assert (found.status, found.lacking) == (status, "")
    assert (found.result, "n = 24 pairs" in found.finding) == ("early_exit", True)
    assert [own.name for own in found.measures] == [own.name for own in OVERTHINKS.effects]


def test_accuracy_at_the_exit_by_hand():
    """Of the second half of the pairs, with false demonstrations, after the exit layer: 18 of 24 are right."""
    scores = torch.zeros_like(HARM.scores)
    scores[0, 1, 24:42, EXIT] = 1
    scores[0, 1, :24, EXIT] = scores[0, 0, :, EXIT] = scores[0, :, :, EXIT + 1] = 0.5
    run = Analysis(
        {"layer_accuracy": replace(HARM, scores=scores), "early_exit": leaving(0.5, 0.1)}, ""
    )
    effect = OVERTHINKS.effects[1]
    assert effect.interval(run).value == pytest.approx(18 / 24 - 1 / 4)
    assert effect.count(run) == 24


def test_the_embedding_is_no_layer_to_leave_after():
    """It is alike for all prompts, whatever its accuracy."""
    flat = layer_accuracy_of([0.9] * 7, [0.9, 0.9, *[0.4] * 5], n=N)
    found = of(OVERTHINKS, layer_accuracy=flat, early_exit=leaving(0.5, 0.1, layer=0))
    assert (found.status, found.lacking, found.p) == ("cannot be judged", "", None)
    after = of(OVERTHINKS, layer_accuracy=flat, early_exit=leaving(0.5, 0.1, layer=1))
    assert after.status == "supported"


def test_a_layer_chosen_on_the_reported_prompts_shows_nothing():
    same = leaving(0.5, 0.1, provenance={"variants": {"variant": "reference"}})
    found = of(OVERTHINKS, layer_accuracy=HARM, early_exit=same)
    assert (found.status, found.lacking) == ("cannot be judged", "")


def test_an_exit_of_other_pairs_than_those_of_accuracy_by_layer():
    other = exit_of(0.5, 0.1, n=N, layer=EXIT)
    found = of(OVERTHINKS, layer_accuracy=HARM, early_exit=other)
    assert (found.status, found.lacking) == ("cannot be judged", "")


@pytest.mark.parametrize(
    ("layers", "lacking"),
    [
        (NO_HARM, "no_harm"),
        (BETTER, "no_harm"),
        (layers_of([0.25] * 4, [0.0] * 4), "task_not_done"),
        (without_answers(HARM), "task_not_measured"),
        (None, "task_not_measured"),
    ],
)
@pytest.mark.parametrize("claim", [PARTING, OVERTHINKS, COPY])
def test_what_is_needed(claim, layers, lacking):
    results = {
        "early_exit": leaving(0.5, 0.1), "edge_cuts": CUT, "false_induction": found_of(HEADS),
        "head_scores": HEADS, "ablation": WITHOUT_HEADS,
    }  # fmt: skip
    assert of(claim, layer_accuracy=HARM, **results).status == "supported"
    if layers is not None:
        results["layer_accuracy"] = layers
    found = of(claim, **results)
    if claim is PARTING and layers is None:
        assert found is None
        return
    assert (found.status, found.p) == ("cannot be judged", None)
    WORDS(found.lacking, lacking)


def test_heads_are_tested_on_the_task_studied():
    chosen, about = found_of(HEADS), {"layer_accuracy": HARM, "ablation": WITHOUT_HEADS}
    found = by_claim(false_induction=chosen, head_scores=HEADS, **about)["False"]
    assert (found.status, found.result) == ("supported", "false_induction")
    WORDS(found.finding, "heads_tested_task_studied", "24", "5.1")
    # The same heads do nothing on the studied task.
    others = heads_of({}, {}, seed=2)
    elsewhere = by_claim(false_induction=chosen, head_scores=others, **about)["False"]
    assert elsewhere.status == "not shown"
    WORDS(elsewhere.finding, "heads_tested_task_studied_2")


def test_heads_of_one_task_are_tested_on_its_other_half():
    chosen = found_of(HEADS, task="planted")
    found = of(
        COPY, false_induction=chosen, head_scores=HEADS, layer_accuracy=HARM, ablation=WITHOUT_HEADS
    )
    assert found.status == "supported"
    WORDS(found.finding, "heads_task_tested_other", "12")


@pytest.mark.parametrize(
    ("means", "status"),
    [
        ({"chosen heads": (0.9, 0.75)}, "supported"),
        ({"chosen heads": (0.9, 0.4)}, "not shown"),  # not clearly less than a tenth
        ({"chosen heads": (0.9, 0.2)}, "present, not used"),
        ({"late attention": (0.9, 0.75)}, "cannot be judged"),
        (None, "cannot be judged"),
    ],
)
def test_heads_that_copy_must_carry_a_share_of_the_harm(means, status):
    results = {"false_induction": found_of(HEADS), "head_scores": HEADS, "layer_accuracy": HARM}
    if means is not None:
        draws = [(0.9, 0.4)] * 3 if "chosen heads" in means else ()
        results["ablation"] = ablation_of({"none": (0.9, 0.4), **means}, draws, n=N)
    found = of(COPY, **results)
    assert (found.status, found.lacking) == (status, "")
    WORDS.only_if(status == "cannot be judged", found.finding, "not_measured")


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
    found = by_claim(ablation=ablation_of(means, DRAWS), **COPIERS)["Removing"]
    assert found.status == status
    assert "(5.1 and 7.2)" in found.finding
    assert bool(found.lacking) is (status == "cannot be judged")


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        (HEADS, ""),
        (heads_of({}, PUSHING, seed=2), "no_matching"),
        (heads_of(MATCHING, {}, seed=2), "no_promoting"),
        (None, "not_scored"),
    ],
)
def test_removed_heads_must_be_false_induction_heads(scores, why):
    """Without them harm may end for another reason, as in the null network `alarm`."""
    heads = {} if scores is None else {"false_induction": found_of(HEADS), "head_scores": scores}
    found = by_claim(ablation=WITHOUT_HEADS, **heads)["Removing"]
    assert found.status == ("cannot be judged" if why else "supported")
    if why:
        WORDS.exactly(found.lacking, why)


def test_late_attention():
    result = ablation_of({"none": (0.9, 0.4), "late attention": (0.9, 0.8)})
    found = by_claim(late_ablation=result, ablation=result)
    assert found["Late"].status == "supported"
    assert "Removing" not in found


def test_results_that_bear_on_nothing_give_no_verdict():
    assert verdicts_of({"a": attention_of(), "b": context_of([0.5, 0.6], [0.5, 0.5])}) == ()
    assert verdicts_of({}) == ()


@pytest.mark.parametrize(
    ("layers", "exit_"),
    list(
        product(
            [HARM, NO_HARM, BETTER, FEW, CHANCE_AT_EXIT, NEVER_AT_EXIT],
            [leaving(0.5, 0.1), leaving(0.04, 0), leaving(-0.5, 0)],
        )
    ),
)
def test_the_headline_is_at_most_two_sentences_and_agrees_with_the_verdicts(layers, exit_):
    results = {"layer_accuracy": layers, "early_exit": exit_}
    question, answer = headline_of(results, "GPT", "reviews")
    WORDS.exactly(question, "headline_most_two_sentences")
    assert answer.count(". ") + answer.endswith(".") <= 2
    found = by_claim(**results)
    WORDS.only_if(found["Harm"].status == "supported", answer, "lower_accuracy")
    left = found["Overthinking"]
    helps, above = (own.status for own in left.measures)
    known = not left.lacking
    assert known is (layers in (HARM, CHANCE_AT_EXIT, NEVER_AT_EXIT))
    WORDS.only_if(known and helps == "supported", answer, "better_answers")
    WORDS.only_if(known and helps == "supported" != above, answer, "guesses")
    WORDS.only_if(known and helps == "opposite", answer, "worse")
    WORDS.only_if(known and helps == "not shown", answer, "no_help")
    WORDS.only_if(not known, answer, "exit_not_judged")


def test_headlines_of_parts_of_the_study():
    WORDS.starts(headline_of({}, "GPT", "reviews")[1], "headlines_parts_study")
    _, answer = headline_of({"early_exit": leaving(-0.5, -0.5)}, "GPT", "reviews")
    WORDS.starts(answer, "headlines_parts_study_2")

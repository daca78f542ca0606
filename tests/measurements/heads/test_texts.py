"""What a page says of heads and ablations, against results whose answer is known."""

from dataclasses import replace

import pytest
import torch

from icl_mech.shapes import Grid, Grids
from tests.planted_results import ablation_of, attention_of, found_of, heads_of
from tests.said import Words

WORDS = Words(__file__)

MATCHING = {(5, 1): 0.3, (7, 2): 0.2}
PUSHING = {(5, 1): 1.0, (7, 2): 0.0}


def shown(result, show):
    (figure,) = [own for own in result.figures() if own.show == show]
    return figure


def check_texts(result):
    for figure in result.figures():
        fig = result.plot(figure.show) if figure.show else result.plot()
        assert len(fig.to_json()) < 1_000_000
        assert figure.question.endswith("?")
        for text in (figure.answer, figure.caption, figure.establishes, figure.limits):
            assert "nan" not in text
            assert "_" not in text
            assert "  " not in text


# --- scores ---


def test_heads_that_match_are_named_with_how_many_were_looked_at():
    figure = shown(heads_of(MATCHING, PUSHING), "maps")
    WORDS.starts(figure.answer, "heads_match_named_how", "Yes", "5.1", "7.2", "144")
    assert figure.establishes


def test_no_head_matches():
    figure = shown(heads_of({}, {}), "maps")
    WORDS.starts(figure.answer, "no_head_matches", "Not shown", "144")
    assert not figure.establishes


def test_heads_are_not_judged_from_three_prompts():
    result = heads_of(MATCHING, PUSHING, n=3)
    for show in ("maps", "both"):
        WORDS.starts(
            shown(result, show).answer, "heads_judged_three_prompts", "Cannot be judged", "3"
        )
    assert not shown(result, "maps").establishes


PROMOTING = [
    (PUSHING, "Yes, 1 of 5"),
    ({}, "Not shown, none"),
    (dict.fromkeys([(5, 1), (7, 2)], -2.0), "Not shown"),
]


@pytest.mark.parametrize(("pushing", "opening"), PROMOTING)
def test_promoting(pushing, opening):
    answer = shown(heads_of(MATCHING, pushing), "both").answer
    WORDS.starts(answer, opening, opening.split(",")[0])


def test_heads_that_all_push_away_are_the_opposite():
    away = {(i, j): -2.0 for i in range(2) for j in range(2)}
    answer = shown(heads_of({(0, 0): 0.3}, away, shape=(2, 2)), "both").answer
    assert answer.startswith("No: ")


def test_values_below_0_are_said_to_be_drawn_as_0():
    result = heads_of({(3, 3): -0.2}, None)
    lowest = float(result.prefix_matching.min())
    WORDS(shown(result, "maps").caption, "values_below_0_said", format(-lowest, ".2f"))


def test_maps_have_layers_across_and_frame_the_same_heads():
    result = heads_of({(17, 5): 0.3, (24, 6): 0.2}, {(24, 6): 1.0}, shape=(30, 9))
    drawn = result.drawing()
    assert isinstance(drawn, Grids)
    first, second = drawn.grids
    assert (first.row_title, first.column_title) == ("head", "layer")
    assert first.values.shape == (9, 30)
    assert first.marked == second.marked
    assert first.names == second.names == tuple(f"{i}.{j}" for i, j in result.top())
    assert first.marked[:2] == ((5, 17), (6, 24))
    torch.testing.assert_close(first.values, result.prefix_matching.T)
    assert (first.signed, second.signed) == (False, True)
    one = result.drawing("label_attending")
    assert isinstance(one, Grid)
    assert one.marked == first.marked


def test_the_scatter_names_chosen_heads_and_extremes():
    result = heads_of(MATCHING, {(5, 1): 1.0, (0, 0): -3.0})
    drawn = result.drawing("both")
    written = {drawn.names[i] for i in drawn.named}
    assert {"0.0", "5.1", "7.2"} <= written
    assert drawn.meanings == ("false", "other")


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (2, 2), (40, 32)])
def test_small_and_large_models(shape):
    check_texts(heads_of({(0, 0): 0.3}, {(0, 0): 1.0}, shape=shape))
    check_texts(heads_of({(0, 0): 0.3}, None, shape=shape, n=1))


# --- false induction heads ---


def test_found_heads_are_checked_on_prompts_that_did_not_choose_them():
    (figure,) = found_of(heads_of(MATCHING, PUSHING)).figures()
    WORDS.starts(figure.answer, "found_heads_checked_prompts", "Yes")
    WORDS(figure.answer, "found_heads_checked_prompts_2", "5.1")
    assert "elsewhere" in figure.answer
    check_texts(found_of(heads_of(MATCHING, PUSHING)))


def test_a_head_that_matches_only_where_it_is_chosen_is_not_found():
    scores = heads_of({}, {}, n=40)
    found = found_of(scores)
    choosing = torch.from_numpy(__import__("numpy").random.default_rng(0).permutation(40))[:20]
    planted = found.scores.clone()
    planted[choosing, :, 3, 3] += 2.0
    (figure,) = replace(found, scores=planted).figures()
    assert figure.answer.startswith("Not shown: ")
    held_out = replace(found, scores=planted).held_out()
    assert next(iter(held_out)) == "3.3"


@pytest.mark.parametrize("n", [1, 3])
def test_too_few_prompts_for_a_check(n):
    (figure,) = found_of(heads_of(MATCHING, PUSHING, n=n)).figures()
    WORDS.starts(figure.answer, "too_few_prompts_check", "Cannot be judged")


def test_results_without_single_prompts():
    found = replace(found_of(heads_of(MATCHING, PUSHING)), scores=None)
    assert found.held_out() is None
    WORDS(found.figures()[0].answer, "results_without_single_prompts")


# --- ablations ---

DRAWS = [(0.9, 0.4), (0.85, 0.45), (0.9, 0.35)]
ABLATED = [
    ({"none": (0.9, 0.4), "chosen heads": (0.9, 0.75)}, "Yes, 5.1 and 7.2"),
    ({"none": (0.9, 0.4), "chosen heads": (0.9, 0.4)}, "Not shown"),
    ({"none": (0.9, 0.4), "chosen heads": (0.5, 0.1)}, "No"),
    ({"none": (0.6, 0.6), "chosen heads": (0.6, 0.9)}, "Cannot be judged, no clear gap"),
]


@pytest.mark.parametrize(("means", "opening"), ABLATED)
def test_closing_the_gap(means, opening):
    result = ablation_of(means, DRAWS)
    figure = shown(result, "change")
    WORDS.starts(figure.answer, opening, opening.split(",")[0])
    assert bool(figure.establishes) == opening.startswith("Yes")
    check_texts(result)


def test_an_effect_that_random_heads_have_too_is_not_shown():
    means = {"none": (0.9, 0.4), "chosen heads": (0.9, 0.75)}
    figure = shown(ablation_of(means, [(0.9, 0.75), (0.9, 0.7), (0.9, 0.8)]), "change")
    assert figure.answer.startswith("Not shown: ")
    WORDS(figure.answer, "effect_random_heads_too", "0.00")


def test_the_spread_of_the_draws_counts():
    """The mean of the draws is far below, but one of them does as much."""
    means = {"none": (1.0, 0.2), "chosen heads": (1.0, 0.8)}
    alike = ablation_of(means, [(1.0, 0.2)] * 4, n=60).beside_random()
    spread = ablation_of(means, [(1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (1.0, 0.8)], n=60)
    assert alike.low > 0
    assert spread.beside_random().value == pytest.approx(alike.value)
    assert spread.beside_random().low <= 0


def test_late_parts_without_heads():
    result = ablation_of({"none": (0.9, 0.4), "late attention": (0.5, 0.45)})
    figure = shown(result, "change")
    WORDS.exactly(figure.question, "late_parts_without_heads")
    assert "late attention" in figure.answer
    assert result.beside_random() is None
    check_texts(result)


def test_three_pairs_are_too_few():
    result = ablation_of({"none": (1.0, 0.0), "chosen heads": (1.0, 1.0)}, DRAWS, n=3)
    WORDS.starts(shown(result, "change").answer, "three_pairs_too_few", "Cannot be judged")


def test_draws_stand_behind_their_mean_and_references_are_drawn():
    result = ablation_of(ABLATED[0][0], DRAWS, n_labels=4, reachable=0.95)
    change, accuracy = result.drawing(), result.drawing("accuracy")
    assert change.groups == ("chosen heads", "random heads")
    assert accuracy.groups == ("unablated", "chosen heads", "random heads")
    assert change.sides == ("hurts", "helps")
    assert [(line, dot, len(drawn)) for line, dot, drawn in change.spread] == [(1, 0, 3), (1, 1, 3)]
    assert [line for line, _, _ in accuracy.spread] == [2, 2]
    assert accuracy.levels == ((0.25, "chance 0.25"), (0.95, "highest reachable 0.95"))
    assert result.heads() == ((5, 1), (7, 2))


# --- attention ---


def test_attention_to_label_words_and_to_matching_ones():
    (figure,) = attention_of(3).figures()
    WORDS(figure.answer, "attention_label_words_matching", "3.0", "70", "71")
    check_texts(attention_of(1))

"""What a page says of accuracies, against results whose answer is known."""

from dataclasses import replace

import pytest
import torch

from icl_mech.measurements.accuracy.early_exit import EarlyExitResult
from icl_mech.measurements.accuracy.scores import METRICS
from icl_mech.shapes import LayerCurves
from tests.planted_results import context_of, exit_of, layer_accuracy_of
from tests.said import Words

WORDS = Words(__file__)

CHANCE, LOW, HIGH = [0.25] * 3, [0.5] * 4, [0.9] * 4
HARM = (CHANCE + HIGH, CHANCE + LOW)


def texts(figure):
    return (figure.question, figure.answer, figure.caption, figure.establishes, figure.limits)


def openings(result):
    return {figure.show: figure.answer for figure in result.figures()}


CASES = [
    (layer_accuracy_of(*HARM), "Yes, last layer"),
    (layer_accuracy_of(CHANCE + LOW, CHANCE + LOW), "Not shown, last layer"),
    (layer_accuracy_of(*HARM[::-1]), "No, last layer"),
    (layer_accuracy_of(*HARM, n=4), "Cannot be judged, 4 pairs"),
    (layer_accuracy_of(*HARM, n=1), "Cannot be judged, 1 pair"),
]


@pytest.mark.parametrize(("result", "opening"), CASES, ids=lambda value: str(value)[:20])
def test_harm(result, opening):
    shown = result.figures()[0]
    status = opening.split(",")[0]
    WORDS.starts(shown.answer, opening, status)
    assert shown.question.endswith("?")
    assert bool(shown.establishes) == (status in ("Yes", "No"))
    for metric in ("true", "false"):
        value = result.interval(side=metric, layer=6).value
        assert f"{value:.2f}" in shown.answer


def test_a_gap_that_is_not_clear_is_called_so_and_has_no_critical_layer():
    shown = layer_accuracy_of(CHANCE + LOW, CHANCE + LOW).figures()[0]
    assert "not clearly different" in shown.answer
    assert "critical layer" not in shown.caption
    WORDS(shown.limits, "gap_clear_said_include", "0")


def test_a_gap_clearly_below_0_is_not_said_to_include_0():
    helped = layer_accuracy_of(*HARM[::-1])
    assert helped.final_gap.high < 0
    assert helped.critical is None
    WORDS(helped.summary(), "no_critical_layer")
    assert "different from 0" not in helped.summary()
    assert all(
        "different from 0" not in text for shown in helped.figures() for text in texts(shown)
    )


def test_label_words_that_lose_half_of_the_probability_again():
    known = layer_accuracy_of(*HARM)
    place = METRICS.index("label_space")
    scores = known.scores.clone()
    scores[place], scores[place, ..., -1] = 0.9, 0.1
    lost = replace(known, scores=scores)
    assert lost.format_from is None
    WORDS(openings(lost)["label_space"], "less_than_half_at_the_last_layer")


def test_the_critical_layer_is_named_where_it_is_drawn():
    result = layer_accuracy_of(*HARM)
    assert result.drawing().marks == ((3, "critical layer"),)
    shown = result.figures()[0]
    WORDS(shown.answer, "critical_layer_named_where", "3")
    WORDS(shown.caption, "critical_layer_named_where_2", "3", "95")


def test_the_threshold_of_the_critical_layer():
    steps = layer_accuracy_of([0.25] * 2 + [0.5, 0.7] + [0.9] * 3, [0.25] * 7, n=48)
    assert [steps.critical_at(share).value for share in (0.25, 0.5, 0.75)] == [2, 3, 4]
    late = layer_accuracy_of(*HARM, n=48, threshold=0.75)
    assert late.critical == late.critical_at(0.75)
    WORDS(late.figures()[0].caption, "threshold_critical_layer")
    WORDS(layer_accuracy_of(*HARM).figures()[0].caption, "threshold_critical_layer_2")


def test_a_single_pair_draws_no_critical_layer():
    assert layer_accuracy_of(*HARM, n=1).drawing().marks == ()


def test_the_highest_reachable_value_is_drawn_and_said():
    answers = torch.tensor([0] * 12 + [1] * 6 + [2] * 4 + [3] * 2)
    result = layer_accuracy_of(*HARM, answers=answers)
    # floor(23 / 4) = 5 lie above a quantile, and 23 is no multiple of 4: one more counts.
    assert result.reachable == pytest.approx((6 + 6 + 4 + 2) / 24)
    assert result.drawing().levels == ((0.25, "chance 0.25"), (0.75, "highest reachable 0.75"))
    WORDS(result.figures()[0].caption, "highest_reachable_value_drawn", "0.75", "1")
    balanced = layer_accuracy_of(*HARM)
    assert balanced.reachable == 1
    WORDS(balanced.figures()[0].caption, "highest_reachable_value_drawn_2", "1")


def test_true_and_false_have_one_look_and_measures_have_axes_of_their_own():
    drawn, gap = (layer_accuracy_of(*HARM).drawing(show) for show in ("calibrated", "gap"))
    assert (drawn.meanings, gap.meanings) == (("true", "false"), ("other",))
    assert (drawn.y_title, gap.y_title) == ("calibrated accuracy", "accuracy gap")
    WORDS.exactly(drawn.x_title, "axis_of_layers")
    torch.testing.assert_close(gap.values[0], drawn.values[0] - drawn.values[1])


def test_without_calibration_the_constant_answer_is_a_reference():
    answers = torch.tensor([0] * 12 + [1] * 6 + [2] * 4 + [3] * 2)
    result = layer_accuracy_of(*HARM, answers=answers)
    levels = dict(result.drawing("plain").levels)
    WORDS.exactly(levels[0.5], "commonest_class", "0.50")
    WORDS(openings(result)["plain"], "without_calibration_constant_answer", "0.50")
    WORDS(openings(layer_accuracy_of(*HARM))["plain"], "without_calibration_constant_answer_2")


def test_following_false_labels():
    found = layer_accuracy_of(*HARM, n=48)
    assert openings(found)["permuted"].startswith("Yes: ")
    scores = found.scores.clone()
    scores[1] = 0.0
    assert openings(layer_accuracy_of(*HARM, n=48, scores=scores))["permuted"].startswith("No: ")
    two = layer_accuracy_of(*HARM, classes=2)
    assert "permuted" not in openings(two)  # of two classes the wrong one is the false one
    nothing = found.scores.clone()
    nothing[1] = torch.nan
    assert "permuted" not in openings(layer_accuracy_of(*HARM, n=48, scores=nothing))


def test_shared_demonstrations_are_told_in_every_caption():
    shared = layer_accuracy_of(*HARM, provenance={"conditional_on_demonstrations": True})
    for figure in shared.figures():
        WORDS(figure.caption, "shared_demonstrations_told_every")


@pytest.mark.parametrize("n", [1, 2, 24])
@pytest.mark.parametrize("classes", [2, 40])
@pytest.mark.parametrize("entries", [3, 41])
def test_odd_results_have_texts_and_small_figures(n, classes, entries):
    true = torch.linspace(0.2, 1, entries).tolist()
    result = layer_accuracy_of(true, true[::-1], n=n, classes=classes)
    for figure in result.figures():
        assert result.plot(figure.show).data
        assert len(result.plot(figure.show).to_json()) < 1_000_000
        for text in texts(figure):
            assert "nan" not in text
            assert "_" not in text
            assert "  " not in text


EXITS = [
    (exit_of(0.5, 0.1), "Yes, layer 11"),
    (exit_of(0.04, 0.0), "Not shown"),
    (exit_of(-0.5, -0.5), "No, it hurts"),
    (exit_of(0.5, 0.1, n=3), "Cannot be judged, 3 pairs"),
    (
        exit_of(0.5, 0.1, provenance={"variants": {"variant": "reference"}}),
        "Cannot be judged, reference",
    ),
]


@pytest.mark.parametrize(("result", "opening"), EXITS, ids=lambda value: str(value)[:20])
def test_leaving_early(result, opening):
    (shown,) = result.figures()
    WORDS.starts(shown.answer, opening, opening.split(",")[0])
    assert bool(shown.establishes) == opening.startswith("Yes")


def test_the_halves_are_kept_and_said(tmp_path):
    result = exit_of(0.5, 0.1)
    assert result.halves(0) == (24, 24)
    WORDS(result.figures()[0].caption, "halves_kept_said", "24")
    result.save(tmp_path / "r")
    assert EarlyExitResult.load(tmp_path / "r").halves(0) == (24, 24)


def test_changes_are_dots_around_zero_with_true_and_false_looks():
    drawn = exit_of(0.5, 0.1).drawing()
    assert drawn.meanings == ("true", "false")
    assert drawn.sides == ("hurts", "helps")


def test_leaving_after_the_embedding_is_called_so():
    (shown,) = exit_of(-0.5, -0.5, layer=0).figures()
    WORDS(shown.answer, "leaving_after_embedding_called")
    WORDS(shown.limits, "leaving_after_embedding_called_2")


GROWTH = [
    (context_of([0.5, 0.5, 0.7, 0.9], [0.5, 0.5, 0.3, 0.1]), "Yes, 3 demonstrations"),
    (context_of([0.5, 0.6, 0.6, 0.6], [0.5, 0.6, 0.6, 0.6]), "Not shown"),
    (context_of([0.5, 0.9, 0.6, 0.5], [0.5, 0.1, 0.4, 0.5]), "No"),
    (context_of([0.5, 0.9], [0.5, 0.1]), "Cannot be judged, 1 demonstration"),
    (context_of([0.5, 0.5, 0.9], [0.5, 0.5, 0.1], n=3), "Cannot be judged, 3 pairs"),
]


@pytest.mark.parametrize(("result", "opening"), GROWTH, ids=lambda value: str(value)[:20])
def test_growing_harm(result, opening):
    (shown,) = result.figures()
    WORDS.starts(shown.answer, opening, opening.split(",")[0])
    assert result.plot().data


def test_the_permuted_score_has_axes_of_its_own_and_no_factor():
    result = context_of([0.5, 0.6, 0.9], [0.5, 0.5, 0.2])
    drawn = result.drawing()
    assert isinstance(drawn, LayerCurves)
    accuracy, score = drawn.panels
    assert score.y_title == "permuted score"
    (row,) = score.curves
    assert row not in accuracy.curves
    assert float(drawn.values[row].max()) <= 1
    torch.testing.assert_close(drawn.values[row], result.accuracy("false", "permuted")[:, -1])


def test_zero_shot_is_a_reference_and_so_is_what_can_be_reached():
    best = torch.tensor([0.7, 0.8, 1.0]).double()
    drawn = context_of([0.5, 0.6, 0.9], [0.5, 0.5, 0.2], reachable=best).drawing()
    assert (0.5, "without demonstrations 0.50") in drawn.panels[0].levels
    place = drawn.names.index("highest reachable")
    assert drawn.meanings[place] == "reference"
    torch.testing.assert_close(drawn.values[place], best)
    flat = context_of([0.5, 0.6, 0.9], [0.5, 0.5, 0.2]).drawing()
    assert (1.0, "highest reachable 1.00") in flat.panels[0].levels

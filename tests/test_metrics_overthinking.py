"""Statistics of true and false demonstrations, against cases computed by hand."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from icl_mech.errors import ResultError
from icl_mech.measurements.heads.head_scores import HeadScoresResult
from icl_mech.metrics import (
    bootstrap_interval,
    calibrated_scores,
    critical_layer,
    early_exit_layer,
    normalised_probs,
    prefix_matching,
    wilson_interval,
)
from icl_mech.metrics.calibration import (
    Ties,
    label_thresholds,
    near_ties,
    plain_scores,
    reachable_accuracy,
    score_interval,
    top_labels_match,
    top_one_scores,
)
from icl_mech.metrics.heads import attention_to_same, same_share, shuffled_prefix_matching
from icl_mech.metrics.layers import gap_reduction, stratified_halves
from tests.said import Words

WORDS = Words(__file__)


def doubles(values):
    return torch.tensor(values, dtype=torch.float64)


def two_labels(first):
    """Probabilities of two labels from those of the first, `[prompt, label]`."""
    first = doubles(first)
    return torch.stack([first, 1 - first], dim=-1)


# --- calibrated accuracy ---


def test_normalised_probs_of_one_prompt():
    assert_close(normalised_probs(doubles([[0.1, 0.3]])), doubles([[0.25, 0.75]]))


def test_normalised_probs_have_a_floor():
    """(1e-14 + 1e-14) / (1e-14 + 2e-14) is two thirds; with nothing at all, one half each."""
    assert_close(normalised_probs(doubles([[1e-14, 0.0]])), doubles([[2 / 3, 1 / 3]]))
    assert_close(normalised_probs(doubles([[0.0, 0.0]])), doubles([[0.5, 0.5]]))
    assert_close(normalised_probs(torch.zeros(1, 4)), torch.full((1, 4), 0.25).double())


def test_thresholds_are_linear_quantiles():
    """Two of three labels' shares lie at index 2/3 * 3 = 2 of four numbers, half at 1.5."""
    probs = doubles([[0.1, 0.8, 0.1], [0.2, 0.6, 0.2], [0.6, 0.1, 0.3], [0.5, 0.5, 0.0]])
    assert_close(label_thresholds(probs), doubles([0.5, 0.6, 0.2]))
    assert_close(label_thresholds(two_labels([0.1, 0.2, 0.6, 0.5])), doubles([0.35, 0.65]))
    five = probs[:, :1].repeat(1, 5)  # 4/5 of the way over three steps: 0.5 + 0.4 * 0.1
    assert_close(label_thresholds(five), torch.full((5,), 0.54).double())


def test_scores_by_hand():
    """Medians 0.35 and 0.65: above for class 0 are 0.6 and 0.5, for class 1 0.9 and 0.8."""
    probs = two_labels([0.1, 0.2, 0.6, 0.5])
    assert calibrated_scores(probs, torch.tensor([0, 0, 0, 0])).tolist() == [0, 0, 1, 1]
    assert calibrated_scores(probs, torch.tensor([1, 1, 1, 1])).tolist() == [1, 1, 0, 0]
    assert calibrated_scores(probs, torch.tensor([0, 1, 0, 1])).tolist() == [0, 1, 1, 0]


def test_a_tie_counts_one_over_the_number_of_labels():
    """With three prompts the median is one of them; equal rows are all ties."""
    assert calibrated_scores(two_labels([0.1, 0.4, 0.7]), torch.zeros(3).long()).tolist() == [
        0, 0.5, 1,
    ]  # fmt: skip
    equal = torch.full((4, 3), 1 / 3).double()
    assert_close(
        calibrated_scores(equal, torch.tensor([0, 1, 2, 0])), torch.full((4,), 1 / 3).double()
    )


@pytest.mark.parametrize("size", [1.0, 0.2, 2e-9, 1e-300])
def test_ties_are_relative_unless_exact(size):
    """Two numbers lie on either side of their median, by half their distance."""
    classes = torch.zeros(2).long()
    for factor, scores, nearly in (
        (1 + 1.9e-4, [0.5, 0.5], 0),
        (1 + 2.1e-4, [0, 1], 2),
        (1 + 5.9e-4, [0, 1], 2),
        (1 + 6.1e-4, [0, 1], 0),
    ):
        probs = two_labels([size / factor, size])
        assert calibrated_scores(probs, classes).tolist() == scores
        ties = scores.count(0.5)
        assert near_ties(probs, classes).tolist() == [ties, nearly, 2]
        assert calibrated_scores(probs, classes, exact_ties=True).tolist() == [0, 1]
        assert near_ties(probs, classes, exact_ties=True).tolist() == [0, ties + nearly, 2]


def test_different_numbers_are_no_exact_tie_though_their_logarithms_are_equal():
    probs = two_labels([1e-300, np.nextafter(1e-300, 1)])
    limit = doubles([1e-300, 0.5])
    assert probs[1, 0] > limit[0]
    assert probs[1, 0].log() == limit[0].log()
    scores = calibrated_scores(probs, torch.zeros(2).long(), limit, exact_ties=True)
    assert scores.tolist() == [0.5, 1]


def test_probabilities_of_zero():
    """Two zeros are a tie, whatever else is above or below nothing."""
    probs = doubles([[0.0, 1.0], [1e-300, 1.0], [0.0, 1.0]])
    classes = torch.zeros(3).long()
    for exact in (False, True):
        assert calibrated_scores(probs, classes, exact_ties=exact).tolist() == [0.5, 1, 0.5]
        assert near_ties(probs, classes, exact_ties=exact).tolist() == [2, 0, 3]
        scores = calibrated_scores(probs, classes, doubles([1e-300, 1.0]), exact_ties=exact)
        assert scores.tolist() == [0, 0.5, 0]


def test_near_ties_are_counted_by_entry():
    """The middle one of three is its own median, so a tie; in the other entry it has company."""
    alone, beside = two_labels([0.1, 0.4, 0.7]), two_labels([0.4 * (1 - 2e-4), 0.4, 0.7])
    probs = torch.stack([alone, beside], 1)
    counts = near_ties(probs, torch.zeros(3, 2).long())
    assert counts.tolist() == [[1, 1], [0, 1], [3, 3]]
    assert Ties.of(counts) == (2, 1, 6)
    assert Ties.of(None) == (0, 0, 0)


def test_thresholds_may_come_from_elsewhere():
    probs = two_labels([0.1, 0.2, 0.6, 0.5])
    scores = calibrated_scores(probs, torch.zeros(4).long(), doubles([0.15, 0.0]))
    assert scores.tolist() == [0, 1, 1, 1]


def test_entries_have_thresholds_of_their_own():
    early, late = two_labels([0.1, 0.2, 0.6, 0.5]), two_labels([0.9, 0.2, 0.1, 0.8])
    classes = torch.tensor([0, 1, 0, 1])
    both = calibrated_scores(torch.stack([early, late], 1), classes[:, None].expand(-1, 2))
    assert torch.equal(both[:, 0], calibrated_scores(early, classes))
    assert torch.equal(both[:, 1], calibrated_scores(late, classes))


@pytest.mark.parametrize("seed", range(5))
def test_a_bias_towards_a_label_changes_nothing(seed):
    """An increasing map of one label's probability keeps every rank, not every argmax.

    Ten prompts: the quantile of two labels lies between two ranks, at the middle; any
    increasing map keeps the same five above it.
    """
    generator = torch.Generator().manual_seed(seed)
    probs = two_labels(torch.rand(10, generator=generator).tolist())
    classes = torch.randint(2, (10,), generator=generator)
    biased = torch.stack([0.01 * probs[:, 0] ** 3, probs[:, 1] ** 0.2], dim=-1)
    assert torch.equal(calibrated_scores(biased, classes), calibrated_scores(probs, classes))
    always = plain_scores(biased, classes)
    assert torch.equal(always, classes.double())  # the plain score only sees label 1


@pytest.mark.parametrize("n_labels", [2, 3, 7])
def test_a_perfect_classifier_is_right_on_balanced_classes(n_labels):
    classes = torch.arange(4 * n_labels) % n_labels
    generator = torch.Generator().manual_seed(n_labels)
    certain = torch.eye(n_labels).double()[classes]
    graded = certain + 0.1 * torch.rand(certain.shape, generator=generator)
    for probs in (certain, graded):
        assert float(calibrated_scores(normalised_probs(probs), classes).mean()) == 1
    assert reachable_accuracy(classes, n_labels) == 1


def test_a_perfect_classifier_on_seventy_to_thirty():
    classes = torch.tensor([0] * 70 + [1] * 30)
    assert reachable_accuracy(classes, 2) == pytest.approx(0.8)


@pytest.mark.parametrize("seed", range(20))
def test_reachable_is_what_a_perfect_classifier_reaches(seed):
    """Whatever the classes: no two probabilities equal, the true class always highest."""
    generator = np.random.default_rng(seed)
    n_labels, n = int(generator.integers(2, 6)), int(generator.integers(2, 40))
    classes = torch.from_numpy(generator.integers(0, n_labels, n))
    probs = torch.from_numpy(generator.random((n, n_labels))) * 0.1
    probs += torch.eye(n_labels).double()[classes]
    reached = float(calibrated_scores(probs, classes, exact_ties=True).mean())
    assert reachable_accuracy(classes, n_labels) == pytest.approx(reached)


def test_labels_blind_to_the_class_are_right_by_chance():
    generator = np.random.default_rng(0)
    probs = torch.from_numpy(generator.random((3000, 3)))
    classes = torch.from_numpy(generator.integers(0, 3, 3000))
    assert float(calibrated_scores(probs, classes).mean()) == pytest.approx(1 / 3, abs=0.03)


# --- the other metrics ---


def test_plain_scores_give_ties_to_the_true_label():
    logits = doubles([[1.0, 2.0], [3.0, 3.0], [5.0, 4.0]])
    assert plain_scores(logits, torch.tensor([0, 0, 0])).tolist() == [0, 1, 1]
    assert plain_scores(logits, torch.tensor([1, 1, 1])).tolist() == [1, 1, 0]


def test_top_one_is_the_true_label_word():
    top = torch.tensor([[7, 3], [3, 7], [9, 7]])
    labels = torch.tensor([7, 3])
    assert top_one_scores(top, labels, torch.tensor([0, 0, 0])).tolist() == [1, 0, 0]
    assert top_one_scores(top, labels, torch.tensor([1, 1, 1])).tolist() == [0, 1, 0]


def test_top_tokens_are_exactly_the_label_words_in_any_order():
    labels = torch.tensor([7, 3])
    top = torch.tensor([[7, 3], [3, 7], [9, 7], [3, 9], [1, 2]])
    assert top_labels_match(top, labels).tolist() == [1, 1, 0, 0, 0]


def test_the_reference_interval_is_not_clipped():
    """0, 0, 0, 1: mean 1/4, sd with N - 1 is 1/2, half width 1.96 / 2 / 2."""
    low, high = score_interval(doubles([0.0, 0, 0, 1]), "reference")
    assert (float(low), float(high)) == pytest.approx((0.25 - 0.49, 0.25 + 0.49))
    ends = score_interval(doubles([0.0, 0, 0, 1]))
    assert all(0 <= float(end) <= 1 for end in ends)
    expected = wilson_interval(torch.tensor([False, False, False, True]))
    assert [float(end) for end in ends] == pytest.approx(expected[1:])
    ends = score_interval(doubles([0.0, 0, 0, 1]), "bootstrap")
    expected = bootstrap_interval(doubles([0.0, 0, 0, 1]))
    assert [float(end) for end in ends] == [float(end) for end in expected]


# --- layers ---


@pytest.mark.parametrize(
    ("gap", "sound", "reference"),
    [
        ([0.0, 0.1, 0.3, 0.4], 2, 2),
        ([0.0, 0.3, 0.1, 0.3, 0.4], 3, 1),
        ([0.5, 0.0, 0.0, 0.4], 3, 0),
        ([0.2, 0.2, 0.4], 0, 0),  # half the final value is enough
        ([0.19, 0.2, 0.4], 1, 1),
        ([0.0, 0.0, 0.4], 2, 2),
    ],
)
def test_critical_layer(gap, sound, reference):
    assert int(critical_layer(doubles(gap))) == sound
    assert int(critical_layer(doubles(gap), "reference")) == reference


def test_the_critical_layer_at_other_shares_of_the_gap():
    gap = doubles([0.0, 0.1, 0.2, 0.3, 0.25, 0.4])
    found = [int(critical_layer(gap, threshold=share)) for share in (0.25, 0.5, 0.75, 1.0)]
    assert found == [1, 2, 5, 5]
    assert int(critical_layer(gap, "reference", 0.75)) == 3
    for share in (0.0, -0.5, 1.1):
        with WORDS.raises(ResultError, "critical_layer_other_shares"):
            critical_layer(gap, threshold=share)


def test_critical_layers_of_many_curves():
    gaps = doubles([[0.0, 0.3, 0.1, 0.3, 0.4], [0.2, 0.2, 0.2, 0.2, 0.2]])
    assert critical_layer(gaps).tolist() == [3, 0]


def test_early_exit_layer():
    """Advantages over the last entry: 0.1 0.3 0.2 and 0.0 0.0 0.4; means 0.05, 0.15, 0.3."""
    accuracy = doubles([[0.4, 0.6, 0.5, 0.3], [0.2, 0.2, 0.6, 0.2]])
    assert early_exit_layer(accuracy[:1]) == 1
    assert early_exit_layer(accuracy) == 2


def test_early_exit_takes_the_first_of_equals_and_never_the_last_entry():
    assert early_exit_layer(doubles([[0.1, 0.5, 0.5, 0.2]])) == 1
    assert early_exit_layer(doubles([[0.1, 0.2, 0.9]])) == 1
    # 0.1 + 0.2 and 0.3 differ in the last bit.
    assert early_exit_layer(doubles([[0.3, 0.1 + 0.2, 0.0]])) == 0


def test_the_early_exit_weighs_tasks_alike():
    steep, flat = [0.0, 0.9, 0.1], [0.5, 0.1, 0.1]
    assert early_exit_layer(doubles([steep, flat])) == 1
    assert early_exit_layer(doubles([steep, flat, flat, flat])) == 0


@pytest.mark.parametrize("seed", range(3))
def test_stratified_halves(seed):
    classes = torch.tensor([0] * 10 + [1] * 6 + [2] * 4)[torch.randperm(20)]
    first, second = stratified_halves(classes, seed)
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(20))
    for half in (first, second):
        assert torch.bincount(classes[half]).tolist() == [5, 3, 2]
        assert half.tolist() == sorted(half.tolist())


def test_halves_of_odd_classes_differ_by_one_at_most():
    classes = torch.tensor([0] * 3 + [1] * 5 + [2] * 1)
    first, second = stratified_halves(classes)
    assert abs(len(first) - len(second)) <= 1
    difference = torch.bincount(classes[first], minlength=3) - torch.bincount(
        classes[second], minlength=3
    )
    assert difference.abs().max() == 1


def test_the_seed_draws_the_halves():
    classes = torch.arange(40) % 2
    halves = [stratified_halves(classes, seed)[0].tolist() for seed in (0, 0, 1)]
    assert halves[0] == halves[1] != halves[2]


def test_one_prompt_has_an_empty_second_half():
    first, second = stratified_halves(torch.tensor([1]))
    assert (first.tolist(), second.tolist()) == ([0], [])


def test_gap_reduction_by_hand():
    """Ratios 1 - 0.3/0.6 = 0.5 and 1 - 0.1/0.1 = 0; means: 1 - 0.2/0.35."""
    true, false, ablated = doubles([0.9, 0.6]), doubles([0.3, 0.5]), doubles([0.6, 0.5])
    assert float(gap_reduction(true, false, ablated, "mean_of_ratios")) == pytest.approx(0.25)
    assert float(gap_reduction(true, false, ablated)) == pytest.approx(1 - 0.2 / 0.35)


@pytest.mark.parametrize("how", ["ratio_of_means", "mean_of_ratios"])
def test_gap_reduction_of_nothing_everything_and_too_much(how):
    true, false = doubles([0.9, 0.6]), doubles([0.3, 0.5])
    assert float(gap_reduction(true, false, false, how)) == 0
    assert float(gap_reduction(true, false, true, how)) == 1
    worse = float(gap_reduction(true, false, false - (true - false), how))
    assert worse == pytest.approx(-1)


def test_gap_reduction_keeps_leading_axes():
    true, false, ablated = (doubles([row, row]) for row in ([0.9, 0.6], [0.3, 0.5], [0.6, 0.5]))
    for how, value in (("ratio_of_means", 1 - 0.2 / 0.35), ("mean_of_ratios", 0.25)):
        assert_close(gap_reduction(true, false, ablated, how), doubles([value, value]))


# --- heads ---

CLASSES = torch.tensor([[0, 1, 2, 0], [1, 1, 2, 0]])
ROWS = torch.tensor([0, 2])


def test_share_of_the_rows_label():
    ones = torch.ones(2, 4).long()
    assert same_share(CLASSES, ROWS, ones).tolist() == [0.5, 0.25]
    sizes = torch.tensor([[3, 1, 1, 1], [1, 1, 2, 0]])  # 4 of 6 tokens; 2 of 4
    assert same_share(CLASSES, ROWS, sizes).tolist() == pytest.approx([4 / 6, 0.5])
    assert same_share(CLASSES, ROWS, 0 * sizes).tolist() == [0, 0]


def test_attention_to_the_rows_label_and_prefix_matching_by_hand():
    """Row label 0: 0.1 + 0.2 of 0.6, PM 0.3 - 0.3 / 2; row label 2: 0.3 of 0.8."""
    attention = doubles([[[0.1, 0.2, 0.1, 0.2]], [[0.1, 0.2, 0.3, 0.2]]])
    same = attention_to_same(attention, CLASSES, ROWS)
    assert_close(same, doubles([[0.3], [0.3]]))
    matching = prefix_matching(same, attention.sum(-1), 3)
    assert_close(matching, doubles([[0.15], [0.05]]))


@pytest.mark.parametrize("n_labels", [2, 3, 6])
def test_the_ends_of_prefix_matching(n_labels):
    one, nothing = torch.ones(1), torch.zeros(1)
    assert float(prefix_matching(one, one, n_labels)) == 1
    assert float(prefix_matching(nothing, one, n_labels)) == pytest.approx(-1 / (n_labels - 1))
    assert float(prefix_matching(one / n_labels, one, n_labels)) == pytest.approx(0, abs=1e-6)
    generator = torch.Generator().manual_seed(0)
    attention = torch.rand(50, 4, 8, generator=generator)
    attention /= attention.sum(-1, keepdim=True)
    classes = torch.randint(n_labels, (50, 8), generator=generator)
    rows = torch.randint(n_labels, (50,), generator=generator)
    found = prefix_matching(
        attention_to_same(attention, classes, rows), torch.ones(50, 4), n_labels
    )
    assert -1 / (n_labels - 1) - 1e-6 <= float(found.min())
    assert float(found.max()) <= 1 + 1e-6


def test_shuffled_labels_give_the_level_of_a_head_blind_to_class():
    """all (f - (1 - f) / (C - 1)), f = 1/2 and 1/4 with three labels: 0.25 and -0.125 of all."""
    attention = doubles([[[0.2] * 4, [0.7, 0.1, 0.0, 0.0]]] * 2)
    found = shuffled_prefix_matching(attention, CLASSES, ROWS, 3, permutations=4000)
    # Uniform attention: exact. Else on average.
    assert_close(found[:, 0], 0.8 * doubles([0.25, -0.125]))
    assert_close(found[:, 1], 0.8 * doubles([0.25, -0.125]), atol=0.02, rtol=0)


def test_the_rows_label_is_kept_when_labels_are_shuffled():
    """No demonstration shows the row's label: no permutation can make one do so."""
    attention = doubles([[[0.2, 0.3, 0.1, 0.1]]])
    shown = torch.tensor([[1, 1, 2, 2]])
    found = shuffled_prefix_matching(attention, shown, torch.tensor([0]), 3)
    assert_close(found, doubles([[-0.35]]))
    everything = shuffled_prefix_matching(attention, 0 * shown, torch.tensor([0]), 3)
    assert_close(everything, doubles([[0.7]]))


def test_labels_are_shuffled_prompt_by_prompt_and_by_seed():
    attention = doubles([[[1.0, 0, 0, 0]]]).repeat(8, 1, 1)
    classes = torch.tensor([[0, 1, 2, 1]]).repeat(8, 1)
    rows = torch.zeros(8).long()
    once = [
        shuffled_prefix_matching(attention, classes, rows, 3, permutations=1, seed=seed)
        for seed in (0, 0, 1)
    ]
    assert torch.equal(once[0], once[1])
    assert not torch.equal(once[0], once[2])
    assert set(once[0].flatten().tolist()) == {1.0, -0.5}


def test_missing_demonstrations_stay_where_they_are():
    """Two demonstrations of four: each shows the row's label half of the time."""
    attention = doubles([[[0.0, 0.6, 0.0, 0.2]]])
    classes = torch.tensor([[-1, 0, -1, 1]])
    found = shuffled_prefix_matching(attention, classes, torch.tensor([0]), 2, permutations=4000)
    assert_close(found, doubles([[0.0]]), atol=0.02, rtol=0)
    alone = torch.tensor([[-1, 0, -1, -1]])
    found = shuffled_prefix_matching(attention, alone, torch.tensor([0]), 2)
    assert_close(found, doubles([[0.6 - 0.2]]))


def head_scores_of(attending, same, share, n_labels):
    attending, same = doubles(attending)[:, None, None], doubles(same)[:, None, None]
    matching = prefix_matching(same, attending, n_labels)
    return HeadScoresResult(
        matching=matching,
        attending=attending,
        same=same,
        shuffled_matching=0 * matching,
        same_share=doubles(share),
        n_labels=n_labels,
    )


def test_a_head_blind_to_the_class_has_the_matching_it_is_said_to_have():
    """Its `same` is the share f of its `all`, prompt by prompt."""
    attending, share = [0.8, 0.5, 0.2], [0.5, 0.25, 0.0]
    same = [a * f for a, f in zip(attending, share, strict=True)]
    blind = head_scores_of(attending, same, share, 3)
    assert_close(blind.blind_matching, blind.prefix_matching)
    level = [a * (f - (1 - f) / 2) for a, f in zip(attending, share, strict=True)]
    assert float(blind.blind_matching) == pytest.approx(sum(level) / 3)
    assert float(blind.class_sensitivity) == pytest.approx(sum(same) / sum(attending))


def test_with_a_share_of_one_over_c_the_blind_level_is_zero():
    assert float(head_scores_of([0.9], [0.9], [1 / 4], 4).blind_matching) == pytest.approx(0)
    assert not math.isnan(float(head_scores_of([0.0], [0.0], [0.5], 2).class_sensitivity))

"""Intervals of means: by hand, where few of the values differ, and how often they hold."""

import numpy as np
import pytest
import torch
from scipy.stats import t
from torch.testing import assert_close

from icl_mech.errors import ResultError
from icl_mech.metrics import mean_ends, prompts_needed, wilson_interval
from icl_mech.metrics.calibration import score_interval
from icl_mech.metrics.means import share_ends, student_ends
from icl_mech.results import Quantity
from tests.benchmarks.mean_coverage import before, row, two_classes


@pytest.mark.parametrize("most", [0.0, 0.3])
def test_rounding_does_not_move_an_end(most):
    values = torch.full((12,), most, dtype=torch.float64)
    values[4] += 0.027
    noise = 1e-10 * torch.rand(12, generator=torch.Generator().manual_seed(1)).double()
    expected = [float(end) for end in student_ends(values)]
    for other in (values + noise, values.float()):
        assert [float(end) for end in student_ends(other)] == pytest.approx(expected, rel=1e-3)


def test_one_value_apart_leaves_room_on_its_side():
    values = torch.zeros(12)
    values[4] = 1.0
    low, high = student_ends(values)
    assert low < 0.0
    assert high > 3 * values.mean()


def test_equal_values_have_no_spread():
    low, high = student_ends(torch.full((12,), 0.1))
    assert float(low) == float(high) == pytest.approx(0.1)


def test_correlations_have_ends():
    values = torch.tensor([0.9, 0.9, 0.9, -0.8])
    low, high = mean_ends(values, "correlation")
    assert float(low) == -1.0
    assert float(mean_ends(values)[0]) < -1.0
    assert float(high) <= 1.0


def test_amounts_are_never_below_zero_but_their_differences_are():
    values = torch.tensor([0.0, 0.1, 0.1, 4.0])
    low, high = mean_ends(values, "amount")
    assert (float(low), float(high)) == (0.0, float(mean_ends(values)[1]))
    own = Quantity((), values, kind="amount")
    assert float(own.ends()[0]) == 0.0
    assert float(own.minus(Quantity((), values.flip(0), kind="amount"))[1]) < 0.0


def test_two_values_by_hand():
    """Resamples of -1 and 1: half have no spread and end at 5 t, so both ends lie there."""
    low, high = student_ends(torch.tensor([-1.0, 1.0]).double())
    farthest = 5 * t.ppf(0.975, 1) * 1.0  # the standard error is sqrt(2) / sqrt(2)
    assert (float(low), float(high)) == pytest.approx((-farthest, farthest))


def test_each_end_is_the_farther_one():
    values = torch.from_numpy(np.random.default_rng(0).lognormal(0, 1, (24, 40)))
    mean, error = values.mean(0), values.std(0) / 24**0.5
    far = float(t.ppf(0.975, 23)) * error
    low, high = student_ends(values, resamples=4000)
    studentised = before(values)
    assert_close(low, torch.minimum(mean - far, studentised[0]), rtol=0, atol=1e-9)
    assert bool((high >= mean + far).all())
    assert bool((high >= studentised[1] - 1e-9).all())
    assert bool((high > mean + far + 1e-9).any())
    assert bool((low < studentised[0] - 1e-9).any())


def test_seeds_repeat_ends():
    values = torch.from_numpy(np.random.default_rng(0).lognormal(0, 1, (12, 3)))
    assert_close(student_ends(values, seed=4), student_ends(values, seed=4), rtol=0, atol=0)
    assert not torch.equal(student_ends(values, seed=4)[1], student_ends(values, seed=5)[1])


HELD = {"normal": 24, "log-normal, sigma 0.5": 12, "left-skewed (minus exponential)": 12,
        "70 % zeros, others half-normal": 12, "10 % outliers, normal(0, 1)": 48}  # fmt: skip
"""From how many prompts on .93 hold; 1000 samples have a standard error of .007."""


@pytest.mark.parametrize("case", HELD)
def test_intervals_of_values_hold(case):
    found = row(case, HELD[case], 1000, seed=3)
    assert found["above"] + found["below"] <= 0.07
    assert found["width"] <= found["width_before"] * (1.1 if case == "normal" else 1.5)


def test_outliers_on_both_sides_were_not_held():
    found = row("10 % outliers, normal(0, 1)", 48, 1000, seed=3)
    assert found["missed_before"] > 0.09 > 0.06 > found["above"] + found["below"]


def test_prompts_needed_by_hand():
    """Nine zeros and a one: skewness .9 * .8 * .1 / (.9 * .1)**1.5 = 8 / 3, squared 64 / 9."""
    one_of_ten = torch.zeros(10)
    one_of_ten[3] = 7.0
    cells = torch.stack([one_of_ten, -one_of_ten, torch.arange(10.0), torch.full((10,), 0.1)], 1)
    assert prompts_needed(cells).tolist() == [29.0, 29.0, 0.0, 0.0]
    assert prompts_needed(cells * 1e-9 + 1.0).tolist()[2:] == [0.0, 0.0]


def test_ends_of_values_that_lie_a_step_apart():
    """Of 12 scores with 9 right and a step of 2 / 12: Wilson of 8 and of 10 of 12."""
    scores = (torch.arange(12.0) < 9)[:, None].double()
    lower, higher = ((torch.arange(12.0) < right)[:, None] for right in (8, 10))
    low, high = share_ends(scores, step=2 / 12)
    assert float(low) == pytest.approx(wilson_interval(lower[:, 0]).low)
    assert float(high) == pytest.approx(wilson_interval(higher[:, 0]).high)
    assert_close(score_interval(scores, n_labels=2), (low, high))
    assert_close(score_interval(scores, n_labels=4), share_ends(scores))
    with pytest.raises(ResultError, match="step=2"):
        share_ends(scores, step=2.0)


def test_accuracies_of_two_classes_hold_between_their_steps():
    before, now, _ = two_classes(3.0, 24, 600, seed=0)
    assert before < 0.92 < 0.96 < now

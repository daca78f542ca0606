"""Intervals over seeds and tasks: t over groups, never narrower than within them."""

import pytest
import torch
from scipy.stats import t

from icl_mech.errors import ResultError
from icl_mech.metrics import mean_interval, nested_interval
from tests.said import Words

WORDS = Words(__file__)

GENERATOR = torch.Generator().manual_seed(0)
SEEDS = [torch.randn(24, generator=GENERATOR).double() + shift for shift in (0.0, 3.0, -2.0, 5.0)]


def test_seeds_that_differ_have_the_interval_of_their_means():
    found = nested_interval(SEEDS)
    means = torch.tensor([float(seed.mean()) for seed in SEEDS])
    half = t.ppf(0.975, 3) * float(means.std()) / 2
    assert float(found.value) == pytest.approx(float(means.mean()), abs=1e-6)
    assert float(found.high - found.value) == pytest.approx(half, rel=1e-5)
    assert float(found.within[1] - found.within[0]) < 0.5 * float(found.high - found.low)
    assert found.few
    assert found.sizes == (4, 24)


def test_seeds_that_agree_too_well_are_not_narrower_than_their_prompts():
    same = [SEEDS[0]] * 5
    found = nested_interval(same)
    alone = mean_interval(SEEDS[0])
    assert float(found.high - found.value) == pytest.approx((alone.high - alone.value) / 5**0.5)
    assert not found.few


def test_one_seed_is_the_interval_over_its_prompts():
    found, alone = nested_interval([SEEDS[1]]), mean_interval(SEEDS[1])
    assert [float(end) for end in (found.value, found.low, found.high)] == pytest.approx(
        list(alone)
    )


def test_tasks_come_first():
    tasks = [SEEDS[:2], SEEDS[2:]]
    found = nested_interval(tasks)
    means = torch.tensor([float(torch.cat(seeds).mean()) for seeds in tasks])
    assert found.groups.tolist() == pytest.approx(means.tolist(), abs=1e-6)
    assert float(found.high - found.value) >= t.ppf(0.975, 1) * float(means.std()) / 2**0.5 - 1e-6
    assert found.sizes == (2, 2, 24)


def test_settings_are_paired_over_seeds_and_prompts():
    shifted = [seed + 0.5 for seed in SEEDS]
    found = nested_interval(shifted, minus=SEEDS)
    assert [float(end) for end in (found.value, found.low, found.high)] == pytest.approx([0.5] * 3)
    right = [(seed > 0).double() for seed in SEEDS]
    change = nested_interval(right, minus=right, kind="outcome")
    assert float(change.low) < 0 < float(change.high)
    assert float(change.low) >= -1


def test_ratios_are_taken_in_every_seed():
    values = [torch.stack([seed.exp(), seed.exp() + 1], dim=1) for seed in SEEDS]
    found = nested_interval(values, statistic=lambda means: means[:, 0] / means[:, 1])
    ratios = [float(own.mean(0)[0] / own.mean(0)[1]) for own in values]
    assert found.groups.tolist() == pytest.approx(ratios)


def test_undefined_stays_undefined_and_says_why():
    values = [torch.stack([seed, torch.zeros(24)], dim=1).double() for seed in SEEDS]
    found = nested_interval(values, statistic=lambda means: means[:, 1] / means[:, 1])
    assert bool(found.value.isnan())
    assert bool(found.low.isnan())
    assert "undefined" in found.reason


@pytest.mark.parametrize(
    ("values", "minus", "message"),
    [
        ([], None, "nothing average over"),
        ([SEEDS[0], SEEDS[:2]], None, "levels different depth"),
        (SEEDS, SEEDS[:2], "groups 4 2"),
        (SEEDS[:1], [SEEDS[0][:5]], "cannot paired"),
        ([torch.zeros(0)], None, "without prompts"),
    ],
)
def test_what_does_not_nest(values, minus, message):
    with WORDS.raises(ResultError, message):
        nested_interval(values, minus=minus)

"""Ratios of paired means: by Fieller's formula, by what their ends mean, and how often they hold."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import t

from icl_mech.errors import ResultError
from icl_mech.metrics import mean_interval, nested_interval
from icl_mech.metrics.intervals import holding
from icl_mech.metrics.means import student_ends
from icl_mech.metrics.ratios import nested_ratio, ratio_ends, ratio_interval
from tests.benchmarks.ratio_coverage import rates
from tests.said import Words

WORDS = Words(__file__)


def sample(n=48, share=0.5, seed=0, cells=()):
    rng = np.random.default_rng(seed)
    gain = 1 + rng.normal(size=(n, *cells))
    return torch.from_numpy(share * gain + 0.3 * rng.normal(size=gain.shape)), torch.from_numpy(
        gain
    )


def test_by_hand_where_the_gain_is_the_same_for_all():
    loss = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).double()
    found, mean = ratio_interval(loss, torch.full((6,), 2.0)), mean_interval(loss)
    assert found == pytest.approx([own / 2 for own in mean])
    assert found.value == 1.75


def test_it_is_never_shorter_than_fiellers_formula():
    loss, gain = sample()
    n, far = len(loss), float(t.ppf(0.975, 47))
    spread = torch.cov(torch.stack([loss, gain])) / n
    a = gain.mean() ** 2 - far**2 * spread[1, 1]
    b = loss.mean() * gain.mean() - far**2 * spread[0, 1]
    c = loss.mean() ** 2 - far**2 * spread[0, 0]
    root = (b**2 - a * c).sqrt()
    low, high = float((b - root) / a), float((b + root) / a)
    found = ratio_interval(loss, gain)
    assert found.low <= low + 1e-6
    assert found.high >= high - 1e-6
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)


@pytest.mark.parametrize("n", [12, 48])
def test_ends_are_where_the_difference_is_no_longer_clear(n):
    loss, gain = sample(n, cells=(5,), seed=1)
    loss = loss.exp()
    low, high = ratio_ends(loss, gain, resamples=2000)
    known = ~low.isnan()
    assert torch.equal(known, student_ends(gain, resamples=2000)[0] > 0)
    for end, place in ((low, 0), (high, 1)):
        for step, beyond in ((1e-4, False), (-1e-4, True)):
            moved = end + (step if place == 0 else -step)
            ends = student_ends(loss - moved * gain, resamples=2000)
            outside = (ends[0] > 0) | (ends[1] < 0)
            assert bool((outside == beyond)[known].all())


def test_scale_and_sign_move_the_ratio_alike():
    loss, gain = sample()
    value, low, high = ratio_interval(loss, gain)
    assert ratio_interval(3 * loss, gain) == pytest.approx((3 * value, 3 * low, 3 * high), abs=1e-6)
    assert ratio_interval(loss, -gain) == pytest.approx((-value, -high, -low), abs=1e-6)
    assert ratio_interval(loss.float(), gain.float()) == pytest.approx((value, low, high), abs=1e-4)


def test_the_same_share_of_every_prompt_has_no_width():
    _, gain = sample()
    for share in (0.0, 0.1, 1.0, 3.0):
        assert ratio_interval(share * gain, gain) == pytest.approx((share,) * 3, abs=1e-6)
    assert ratio_interval(torch.zeros(48), gain) == (0.0, 0.0, 0.0)


def test_of_a_gain_that_is_not_clear_there_is_no_share():
    loss, gain = sample()
    for nothing in (gain - 1, torch.zeros(48), gain - gain.mean()):
        assert all(map(math.isnan, ratio_interval(loss, nothing)))
    assert all(map(math.isnan, ratio_interval(loss[:1], gain[:1])))
    # Just clear, and just not.
    edge = float(mean_interval(gain).low)
    assert math.isfinite(ratio_interval(loss, gain - edge + 0.01).high)
    assert math.isnan(ratio_interval(loss, gain - edge - 0.01).high)


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_pair_is_refused():
    loss, gain = sample()
    with WORDS.raises(ResultError, "same_prompts"):
        nested_ratio([loss[:40]], [gain])
    with WORDS.raises(ResultError, "denominator"):
        ratio_ends(loss[:40], gain)
    with WORDS.raises(ResultError, "each_group"):
        nested_ratio([loss], [gain, gain])
    with WORDS.raises(ResultError, "each_group"):
        nested_ratio([], [])


def test_of_one_group_it_is_that_groups_own():
    loss, gain = sample()
    assert nested_ratio([loss], [gain]) == ratio_interval(loss, gain)


@pytest.mark.parametrize("sampled", [True, False])
def test_groups_count_alike_and_those_that_differ_widen(sampled):
    groups = [sample(n, 0.2 + 0.3 * seed, seed) for seed, n in enumerate((24, 48, 36))]
    losses, gains = zip(*groups, strict=True)
    found = nested_ratio(losses, gains, sampled=sampled)
    means = [sum(float(own.mean()) for own in each) for each in (losses, gains)]
    assert found.value == pytest.approx(means[0] / means[1])
    assert found.low < found.value < found.high
    if sampled:
        strata = nested_ratio(losses, gains, sampled=False)
        assert found.high - found.low > 1.5 * (strata.high - strata.low)
        # At its ends the nested interval of the difference touches 0.
        moved = [loss - found.high * gain for loss, gain in groups]
        assert float(nested_interval(moved).high) == pytest.approx(0, abs=0.02)


def test_a_gain_that_is_clear_in_one_group_only_gives_none():
    loss, gain = sample()
    assert math.isnan(nested_ratio([loss] * 3, [gain, gain - 2, gain - 1]).low)


@pytest.mark.parametrize("name", ["normal, loss follows gain", "right-skewed"])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_it_holds(name, share):
    """A quick run of `tests.benchmarks.ratio_coverage`: .95 has a standard error of .01."""
    found = rates(name, 48, share, 6, 500, 1)
    assert sum(found["ours"]) <= 0.08
    assert max(found["ours"]) <= 0.06


def test_percentiles_beside_their_value_are_moved_to_it():
    assert holding(0.9, 0.4, 0.8) == (0.9, 0.4, 0.9)
    assert holding(0.3, 0.4, 0.8) == (0.3, 0.3, 0.8)
    assert holding(0.5, 0.4, 0.8) == (0.5, 0.4, 0.8)
    assert math.isnan(holding(0.5, math.nan, 0.8).low)

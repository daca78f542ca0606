"""A quick run of `tests.benchmarks.coverage`: every kind of interval holds at 48 prompts."""

import numpy as np
import pytest
import torch

from icl_mech.metrics import ends_together
from icl_mech.metrics.means import student_ends
from tests.benchmarks.coverage import (
    auc,
    calibrated,
    changes,
    confirmed,
    critical,
    draws_mean,
    leaving,
    nested,
    nested_outcomes,
    proportion,
    random_null,
    skewed,
    together,
)  # fmt: skip
from tests.benchmarks.pool_coverage import rates

REPEATS = 200
"""A rate of .95 has a standard error of .015."""

KINDS = {
    "proportion": proportion(0.8),
    "change": changes(0.3, 0.1),
    "rare change": changes(0.02, 0.0),
    "draws": draws_mean(0.97),
    "skewed": skewed(0.5),
    "calibrated near 1": calibrated(4, 3.5),
    "gap": calibrated(4, 1.5, 0.5),
    "AUC": auc(0.97),
    "nested": nested(5, 0.3),
    "nested outcomes": nested_outcomes(5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold(kind):
    assert KINDS[kind](48, REPEATS, np.random.default_rng(1)) >= 0.89


def test_means_over_seeds_that_share_queries_hold():
    rng = np.random.default_rng(1)
    (before, narrow), (after, wide) = rates("the query alone", 100, 5, REPEATS, rng)
    assert before < 0.8
    assert after >= 0.89
    assert wide > 1.5 * narrow


@pytest.mark.parametrize("verdict", [critical, leaving, random_null])
def test_nothing_is_rarely_taken_for_something(verdict):
    assert verdict(48, REPEATS, np.random.default_rng(1)) <= 0.075


@pytest.mark.parametrize("verdict", [confirmed, together])
def test_heads_are_rarely_confirmed_by_chance(verdict):
    assert verdict(48, 40, np.random.default_rng(1)) <= 0.125


def test_means_of_a_skewed_sample_reach_farther_towards_its_tail():
    values = torch.from_numpy(np.random.default_rng(0).lognormal(0, 1, (24, 50)))
    low, high = student_ends(values, resamples=1000)
    mean = values.mean(0)
    assert float(((high - mean) / (mean - low)).median()) > 1.5
    scaled = student_ends(values * 7 + 3, resamples=1000)
    torch.testing.assert_close(scaled[1], high * 7 + 3)


def test_ends_that_hold_together_are_wider():
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 20)))
    low, high = ends_together(values)
    alone = student_ends(values)
    assert bool((high - low > (alone[1] - alone[0])).all())
    one = ends_together(values[:, :1])
    assert float(one[1] - one[0]) == pytest.approx(float(alone[1][0] - alone[0][0]), rel=0.1)

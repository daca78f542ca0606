"""Tokens that stand out: by hand, under the null, and with outliers put in."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch.testing import assert_close

from icl_mech.errors import ResultError
from icl_mech.metrics import standing_out
from icl_mech.metrics.outliers import _limit, _simulated, nearby_medians, uniform_mass


def noise(count, seed, spread=1.0):
    """Log-normal masses."""
    return (spread * torch.randn(count, generator=torch.Generator().manual_seed(seed))).exp()


def test_uniform_mass_by_hand():
    """Four columns before row 4; row i reads each token with 1 / (i + 1)."""
    wanted = [(1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 4, (1 / 3 + 1 / 4 + 1 / 5) / 3, (1 / 4 + 1 / 5) / 2]
    assert_close(uniform_mass(4), torch.tensor([*wanted, 1 / 5]).double())
    last = torch.tensor([1 / 5 / 4, 1 / 5 / 3, 1 / 5 / 2, 1 / 5]).double()
    assert_close(uniform_mass(4, 4), last)
    assert uniform_mass(0).shape == (0,)


def test_uniform_mass_is_that_of_uniform_attention():
    attention = torch.ones(9, 9).double().tril()
    attention /= attention.sum(1, keepdim=True)
    wanted = torch.stack([attention[j + 1 :, j].mean() for j in range(8)])
    assert_close(uniform_mass(8), wanted)


def test_scores_by_hand():
    """Distances from the medians nearby, over the 0.84 quantile of the distances."""
    mass = noise(30, 0)
    found = standing_out(mass, torch.ones(30), 4)
    assert not found.stands.any()
    logs = mass.double().log()
    apart = logs - nearby_medians(logs, 4)
    assert_close(found.scores, apart / apart.quantile(0.8413447460685429))
    assert found.limit == pytest.approx(_limit(30, 4))


def test_what_place_explains_is_no_outlier():
    expected = uniform_mass(40, 40)
    mass = noise(40, 1, spread=0.05) * expected
    assert not standing_out(mass, expected).stands.any()
    assert standing_out(mass, torch.ones(40)).stands.any()


def test_outliers_are_found_whatever_the_scale():
    mass = noise(60, 2)
    mass[[10, 30, 50]] *= 1e4
    for factor in (1.0, 1e-12):
        found = standing_out(factor * mass, torch.ones(60))
        assert found.stands.nonzero()[:, 0].tolist() == [10, 30, 50]
        assert (found.scores[[10, 30, 50]] > found.limit).all()
    mass[1:4] = 0.0
    again = standing_out(mass, torch.ones(60))
    assert again.scores[1:4].isnan().all()
    assert again.stands.nonzero()[:, 0].tolist() == [10, 30, 50]


def test_outliers_do_not_hide_each_other():
    """The largest ones widen the spread; without them the next ones stand out too."""
    mass = torch.linspace(-1, 1, 40)[torch.randperm(40, generator=torch.Generator().manual_seed(0))]
    mass[[3, 10, 17, 24, 31, 38]] = torch.tensor([30.0, 30, 30, 30, 2.8, 2.8])
    found = standing_out(mass.exp(), torch.ones(40), 40)
    assert found.stands.nonzero()[:, 0].tolist() == [3, 10, 17, 24, 31, 38]
    first = (mass - mass.median()) / (mass - mass.median()).quantile(0.8413)
    assert float(first[31]) + 0.2 < _limit(40, 40) < float(first[3])


@pytest.mark.parametrize("count", [11, 35, 150])
def test_in_five_per_cent_of_texts_without_anchors_some_token_stands_out(count):
    texts = 1000
    found = [
        bool(standing_out(noise(count, i), torch.ones(count)).stands.any()) for i in range(texts)
    ]
    low, high = binom.ppf([0.0005, 0.9995], texts, 0.05)
    assert low - 5 <= sum(found) <= high + 5  # limits are simulated themselves


def test_limits_are_those_of_known_spread_for_many_tokens():
    from scipy.special import ndtri

    assert _simulated(512, 16) == pytest.approx(_limit(600, 16), abs=0.12)
    assert _limit(10_000, 10_000) == pytest.approx(float(ndtri(0.95 ** (1 / 10_000))), abs=1e-3)
    assert _limit(700, 16) < _limit(7000, 16)


def test_too_few_tokens_and_no_spread():
    nine = standing_out(noise(9, 0), torch.ones(9))
    assert nine.scores.isnan().all()
    assert math.isnan(nine.limit)
    equal = standing_out(torch.ones(20), torch.ones(20))
    assert not equal.stands.any()
    unknown = noise(20, 0)
    unknown[::2] = torch.nan
    assert standing_out(unknown, torch.ones(20)).scores[::2].isnan().all()
    assert np.isfinite(standing_out(unknown, torch.ones(20)).limit)


def test_no_window_is_refused():
    with pytest.raises(ResultError, match="window=0"):
        standing_out(noise(20, 0), torch.ones(20), window=0)

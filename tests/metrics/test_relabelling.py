"""Renamed classes: p-values by hand, by SciPy, and under the null."""

from itertools import permutations
from math import factorial

import numpy as np
import pytest
import torch
from scipy.stats import binom, permutation_test, spearmanr
from torch.testing import assert_close

from icl_mech.errors import ResultError
from icl_mech.metrics.permutations import relabelling


def table(count, seed, *, values=None):
    """A symmetric table of random numbers, or of few different ones."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.rand(count, count, generator=generator).double()
    raw = (raw * values).floor() if values else raw
    return raw.triu(1) + raw.triu(1).T


def line(*places):
    """Distances of places."""
    own = torch.tensor(places).double()
    return (own[:, None] - own).abs()


def test_three_classes_by_hand():
    """Pairs 01, 02, 12 hold 1, 3, 2: only the given order agrees fully, only its mirror not at all."""
    own = line(0.0, 1.0, 3.0)
    same = relabelling(own[None], own)
    assert [float(p) for p in same] == pytest.approx([1 / 6, 1, 1 / 6])
    against = relabelling((4 - own)[None], own)
    assert [float(p) for p in against] == pytest.approx([1, 1 / 6, 1 / 6])


def test_one_pair_that_differs_is_found_again_by_orders_that_keep_it():
    """Four classes, one near pair: four of 24 orders keep it, so no p-value is below 1/6."""
    near = torch.ones(4, 4).double()
    near[1, 2] = near[2, 1] = 0.1
    found = relabelling(torch.stack([near, table(4, 0)]), near)
    assert float(found.above[0]) == float(found.smallest[0]) == pytest.approx(1 / 6)
    assert float(found.smallest[1]) == pytest.approx(1 / 6)


@pytest.mark.parametrize("values", [None, 3])
def test_p_values_are_those_of_scipy(values):
    count = 5
    one, other = table(count, 0, values=values), table(count, 1, values=values)
    first, second = np.triu_indices(count, 1)
    fixed, renamed = one.numpy()[first, second], other.numpy()

    def statistic(order):
        order = order.astype(int)
        return round(spearmanr(fixed, renamed[order[first], order[second]]).statistic, 9)

    found = relabelling(one[None], other)
    for p, side in ((found.above, "greater"), (found.below, "less")):
        expected = permutation_test(
            (np.arange(count),), statistic, permutation_type="pairings", alternative=side,
            n_resamples=factorial(count), vectorized=False,
        )  # fmt: skip
        assert float(p) == pytest.approx(expected.pvalue, abs=1e-12)
        assert len(expected.null_distribution) == factorial(count)


@pytest.mark.parametrize("values", [None, 2])
def test_p_values_are_exact_under_the_null(values):
    """All orders are alike then: a p-value of at most p, where there is one, has probability p."""
    one, other = table(4, 2, values=values), table(4, 3, values=values)
    orders = [list(order) for order in permutations(range(4))]
    found = [relabelling(one[None], other[order][:, order]) for order in orders]
    for own in (torch.cat([p.above for p in found]), torch.cat([p.below for p in found])):
        assert len(own.unique()) > 2
        for level in own.unique().tolist():
            assert float((own <= level).double().mean()) == pytest.approx(level)


def test_drawn_orders_hold_the_level():
    """Nine classes, 79 orders drawn: p <= 1/40 in at most 2.5 % of unrelated tables."""
    ones = torch.stack([table(9, seed) for seed in range(400)])
    found = [
        float(relabelling(one[None], table(9, 1000 + i), orders=79, seed=i).above)
        for i, one in enumerate(ones)
    ]
    assert min(found) >= 1 / 80
    positive = sum(p <= 1 / 40 for p in found)
    assert binom.ppf(0.001, 400, 1 / 40) <= positive <= binom.ppf(0.999, 400, 1 / 40)


def test_drawn_orders_come_near_all_of_them():
    one, other = table(6, 0), table(6, 5)
    every = relabelling(one[None], other)
    drawn = relabelling(one[None], other, orders=600, seed=3)
    assert 0.02 < float(every.above) < 0.98
    assert_close(drawn.above, every.above, atol=0.06, rtol=0)
    same = relabelling(one[None], one, orders=600, seed=3)  # the given order counts once more
    assert float(same.above) == float(same.smallest) == pytest.approx(2 / 601, abs=1.01 / 601)
    again = relabelling(one[None], other, orders=600, seed=3)
    assert float(again.above) == float(drawn.above)
    assert float(relabelling(one[None], other, orders=600, seed=4).above) != float(drawn.above)


def test_what_is_undefined_stays_so():
    one = torch.stack([table(4, 0), torch.full((4, 4), torch.nan).double()])
    found = relabelling(one, table(4, 1))
    for own in found:
        assert own.isnan().tolist() == [False, True]
    assert all(bool(own.isnan().all()) for own in relabelling(one, one[1]))
    assert all(bool(own.isnan().all()) for own in relabelling(one[:, :1, :1], one[0, :1, :1]))


def test_a_table_of_equal_values_shows_nothing():
    found = relabelling(table(4, 0)[None], torch.ones(4, 4))
    assert [float(own) for own in found] == [1, 1, 1]


def test_no_orders_are_refused():
    with pytest.raises(ResultError, match="orders=0"):
        relabelling(table(4, 0)[None], table(4, 1), orders=0)

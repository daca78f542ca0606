"""Ends of intervals: of statistics that are not always defined, and those known beforehand."""

import numpy as np
import torch

from icl_mech.metrics.intervals import quantile_ends
from icl_mech.results import Quantity


def test_resamples_without_a_number_are_left_out():
    drawn = torch.randn(400, 2, 3, generator=torch.Generator().manual_seed(0)).double()
    drawn[:50, 0, 1] = torch.nan
    drawn[:, 1, 2] = torch.nan
    low, high = quantile_ends(drawn)
    assert low.shape == high.shape == (2, 3)
    assert low.isnan().nonzero().tolist() == [[1, 2]]
    expected = np.quantile(drawn[50:, 0, 1].numpy(), [0.025, 0.975])
    assert [float(low[0, 1]), float(high[0, 1])] == expected.tolist()
    single = quantile_ends(drawn[:, 0, 0])
    assert [float(end) for end in single] == [float(low[0, 0]), float(high[0, 0])]


def test_nowhere_a_number():
    low, high = quantile_ends(torch.full((9, 2), torch.nan))
    assert bool(low.isnan().all())
    assert bool(high.isnan().all())


def test_known_ends_are_kept():
    ends = (torch.tensor([0.1]).double(), torch.tensor([0.9]).double())
    quantity = Quantity(("cell",), torch.tensor([[0.0], [1.0]]), known=ends)
    assert quantity.ends() is ends
    assert quantity.value().tolist() == [0.5]

"""The studentised bootstrap where few of the values differ."""

import pytest
import torch

from icl_mech.metrics import mean_ends
from icl_mech.metrics.means import student_ends


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

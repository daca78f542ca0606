"""Score intervals: against the tests they invert, never of zero width."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from icl_mech.metrics import mean_ends, mean_interval, wilson_interval
from icl_mech.metrics.means import paired_ends, share_ends

Z = 1.959964


def outcomes(gained, lost, n):
    return torch.tensor([1.0] * gained + [-1.0] * lost + [0.0] * (n - gained - lost)).double()


@pytest.mark.parametrize(("gained", "lost", "n"), [(1, 0, 48), (3, 1, 24), (9, 4, 24), (0, 6, 96)])
def test_ends_of_a_paired_difference_are_where_its_score_test_rejects(gained, lost, n):
    """The constrained estimate found by maximising the multinomial likelihood by number."""
    for end, sign in zip(paired_ends(outcomes(gained, lost, n)), (1, -1), strict=True):
        delta = float(end)

        def unlikely(down, delta=delta):
            # Shares that are gained and lost under this difference, and the rest.
            shares = np.clip([down + delta, down, 1 - 2 * down - delta], 1e-300, None)
            return -float(np.log(shares) @ [gained, lost, n - gained - lost])

        bounds = (max(0.0, -delta), (1 - delta) / 2)
        down = minimize_scalar(
            unlikely, bounds=bounds, method="bounded", options={"xatol": 1e-12}
        ).x
        variance = n * (2 * down + delta - delta**2)
        assert (gained - lost - n * delta) / variance**0.5 == pytest.approx(sign * Z, abs=2e-3)


def test_no_change_is_no_certainty():
    low, high = paired_ends(torch.zeros(48, 2).double())
    assert high.tolist() == pytest.approx([Z**2 / (48 + Z**2)] * 2, abs=1e-6)
    assert low.tolist() == pytest.approx((-high).tolist())


def test_values_at_the_ends_have_wilsons_interval():
    right = torch.arange(30) % 7 < 5
    expected = wilson_interval(right)
    assert tuple(mean_interval(right)) == pytest.approx(tuple(expected))
    assert tuple(mean_interval(right.double(), "outcome")) == pytest.approx(tuple(expected))


def test_values_between_the_ends_are_worth_more_prompts():
    mixed = torch.rand(40, 3, generator=torch.Generator().manual_seed(0)).double()
    low, high = share_ends(mixed)
    whole = share_ends((mixed > 0.5).double())
    assert bool(((high - low) < (whole[1] - whole[0])).all())
    assert bool(((low < mixed.mean(0)) & (mixed.mean(0) < high)).all())


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0])
def test_equal_outcomes_leave_a_width(value):
    low, high = share_ends(torch.full((24, 1), value).double())
    assert float(low) <= value <= float(high)
    assert float(high - low) > 0.02


def test_a_contrast_of_changes_reaches_twice_as_far():
    changes = torch.tensor([2.0, 0, -1, 1, 0, 0, 1, 0]).double()
    low, high = mean_ends(changes, "contrast")
    half = paired_ends(changes / 2)
    assert (float(low), float(high)) == pytest.approx((2 * float(half[0]), 2 * float(half[1])))


def test_cells_do_not_mix():
    cells = torch.stack([outcomes(3, 1, 24), outcomes(0, 0, 24), outcomes(9, 2, 24)], dim=1)
    low, high = paired_ends(cells)
    for place in range(3):
        alone = paired_ends(cells[:, place])
        assert (float(low[place]), float(high[place])) == pytest.approx(tuple(map(float, alone)))

"""Statistics against hand-written cases and plain numpy loops."""

from math import isnan

import numpy as np
import pytest
import torch
from scipy.stats import norm, t

from icl_mech.metrics import (
    Interval,
    bootstrap_interval,
    flow_counts,
    flow_sums,
    mean_interval,
    normalised_flow,
    wilson_interval,
)
from icl_mech.metrics.intervals import RESAMPLES, quantile_ends, resample_weights
from icl_mech.metrics.means import share_ends

# Destination first; entries on and above the diagonal must not count.
MAP = torch.tensor(
    [
        [90.0, 91.0, 92.0, 93.0],
        [1.0, 94.0, 95.0, 96.0],
        [2.0, 4.0, 97.0, 98.0],
        [8.0, 16.0, 32.0, 99.0],
    ]
)


def flags(*positions):
    return torch.tensor([[i in positions for i in range(4)]])


def test_sums_of_one_label_word():
    """Label at 1, target 3: into it 1, from it 16, everything else 2 + 4 + 8 + 32."""
    found = flow_sums(MAP[None], flags(1), flags(1), flags(3))
    torch.testing.assert_close(found, torch.tensor([[1.0, 16.0, 46.0]]))


def test_sums_of_two_label_words():
    """Labels at 1 and 2: 4 counts as going into label word 2, not out of label word 1."""
    found = flow_sums(MAP[None], flags(1, 2), flags(1, 2), flags(3))
    torch.testing.assert_close(found, torch.tensor([[7.0, 48.0, 8.0]]))


def test_sums_of_a_padded_batch():
    """The same map moved by one row and column of padding."""
    padded = torch.zeros(4, 4)
    padded[1:, 1:] = MAP[:3, :3]
    found = flow_sums(
        torch.stack([MAP, padded]),
        torch.cat([flags(1, 2), flags(2)]),
        torch.cat([flags(1, 2), flags(2)]),
        torch.cat([flags(3), flags(3)]),
    )
    torch.testing.assert_close(found, torch.tensor([[7.0, 48.0, 8.0], [1.0, 4.0, 2.0]]))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_sums_of_rows_add_up(rows):
    first = flow_sums(
        MAP[None, :rows, :rows], flags(1, 2)[:, :rows], flags(1, 2)[:, :rows], flags(3)[:, :rows]
    )
    others = flow_sums(MAP[None, rows:], flags(1, 2)[:, rows:], flags(1, 2), flags(3)[:, rows:])
    torch.testing.assert_close(first + others, torch.tensor([[7.0, 48.0, 8.0]]))


def test_counts():
    """Labels at 1 and 2 before target 3: 1 + 2 edges in, 2 out, and 6 - 3 - 2 others."""
    found = flow_counts(torch.tensor([[1, 2], [1, -1]]), torch.tensor([3, 2]))
    torch.testing.assert_close(found, torch.tensor([[3, 2, 1], [1, 1, 1]]).double())


def test_counts_leave_out_what_the_target_does_not_see():
    found = flow_counts(torch.tensor([[1, 5]]), torch.tensor([3]))
    torch.testing.assert_close(found, torch.tensor([[1, 1, 4]]).double())


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_the_sums_of_a_map_of_ones(seed):
    generator = np.random.default_rng(seed)
    target = int(generator.integers(4, 30))
    positions = np.sort(generator.choice(np.arange(1, target), 3, replace=False))
    labels = torch.zeros(1, target + 1, dtype=torch.bool)
    labels[0, positions] = True
    ones, targets = torch.ones(1, target + 1, target + 1), torch.tensor([target])
    sums = flow_sums(ones, labels, labels, torch.arange(target + 1)[None] == target)
    counts = flow_counts(torch.from_numpy(positions)[None], targets)
    torch.testing.assert_close(sums.double(), counts)
    assert float(counts.sum()) == target * (target + 1) / 2


def test_normalised_flow():
    scores = torch.tensor([[1.0, 0.0, 3.0], [2.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    expected = torch.tensor([[0.25, 0.0, 1.0], [0.5, 0.0, 0.0], [0.25, 0.0, 0.0]])
    torch.testing.assert_close(normalised_flow(scores), expected)


def test_normalised_flow_does_not_depend_on_scale():
    """Also where sums are tiny; layers of resamples are treated one by one."""
    scores = torch.rand(7, 3, 5, generator=torch.Generator().manual_seed(0)).double()
    scales = torch.logspace(-200, 0, 5, dtype=torch.float64)
    torch.testing.assert_close(normalised_flow(scores * scales), normalised_flow(scores))


def test_weights_are_shares_of_draws():
    weights = resample_weights(8, resamples=500, seed=1)
    counts = weights * 8
    torch.testing.assert_close(weights.sum(1), torch.ones(500).double())
    torch.testing.assert_close(counts, counts.round())
    assert float(counts.max()) > 2


def test_the_interval_of_a_mean_follows_normal_theory():
    values = np.random.default_rng(0).exponential(2.0, size=400)
    found = mean_interval(torch.from_numpy(values))
    half = 1.96 * values.std() / np.sqrt(400)
    assert found.value == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * half, rel=0.06)
    # Skewed values: the end on the side of the tail lies farther off.
    assert 1.05 < (found.high - found.value) / (found.value - found.low) < 1.4


def test_intervals_cover_the_truth_as_often_as_they_say():
    """95 % of 300 samples, within three standard errors."""
    values = np.random.default_rng(1).normal(size=(100, 300))
    low, high = bootstrap_interval(torch.from_numpy(values), resamples=1000)
    covered = float(((low <= 0) & (high >= 0)).double().mean())
    assert 0.91 <= covered <= 0.99


def test_the_seed_decides():
    values = torch.rand(40, generator=torch.Generator().manual_seed(0))
    first, again, other = (mean_interval(values, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert first.value == other.value


WIDE_15 = float(norm.cdf(-t.ppf(0.975, 14) * (15 / 14) ** 0.5))
"""The tail that makes up for few prompts."""


def test_ratios_are_recomputed_in_each_resample():
    """Against a loop over the same resamples."""
    pairs = torch.rand(15, 2, generator=torch.Generator().manual_seed(0)).double()
    counts = (resample_weights(15, resamples=2000, seed=3) * 15).round().long().numpy()
    ratios = []
    for row in counts:
        drawn = np.repeat(pairs.numpy(), row, axis=0)
        ratios.append(drawn[:, 0].sum() / drawn[:, 1].sum())
    found = bootstrap_interval(
        pairs, lambda means: means[:, 0] / means[:, 1], resamples=2000, seed=3
    )
    expected = np.quantile(ratios, [WIDE_15, 1 - WIDE_15])
    assert [float(end) for end in found] == pytest.approx(expected.tolist(), abs=1e-12)


def test_differences_are_paired():
    """Two noisy columns that always differ by exactly one."""
    noise = torch.randn(20, generator=torch.Generator().manual_seed(0)).double()
    columns = torch.stack([noise + 1, noise], dim=1)
    low, high = bootstrap_interval(columns, lambda means: means[:, 0] - means[:, 1])
    assert float(low) == pytest.approx(1.0, abs=1e-12)
    assert float(high) == pytest.approx(1.0, abs=1e-12)


def test_resamples_without_a_value_are_left_out():
    values = torch.tensor([0.0, 0.0, 1.0])
    low, high = bootstrap_interval(values, lambda means: means / means)
    assert (float(low), float(high)) == (1.0, 1.0)


def test_ends_of_resamples_that_are_infinite():
    drawn = torch.linspace(0, 1, 1001, dtype=torch.float64)[:, None].repeat(1, 3)
    drawn[-10:, 1] = torch.inf  # beyond the upper end
    drawn[:100, 2] = torch.inf
    low, high = quantile_ends(drawn)
    assert low.tolist()[:2] == pytest.approx([0.025, 0.025])
    assert high.tolist()[:2] == pytest.approx([0.975, 0.975])
    assert not bool(high[2].isfinite())


def test_one_prompt_has_no_interval():
    found = mean_interval(torch.tensor([0.3]))
    assert found.value == pytest.approx(0.3)
    assert isnan(found.low)
    assert isnan(found.high)
    assert RESAMPLES == 10_000


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (8, 10, 0.4901625, 0.9433178),
        (0, 5, 0.0, 0.4344825),  # z^2 / (n + z^2)
        (5, 5, 0.5655175, 1.0),
        (1, 2, 0.0945312, 0.9054688),  # 1/2 -+ z / 2 / sqrt(n + z^2)
    ],
)
def test_wilson_interval(k, n, low, high):
    outcomes = torch.arange(n) < k
    assert tuple(wilson_interval(outcomes)) == pytest.approx((k / n, low, high), abs=1e-6)


def test_an_interval_reads_as_text():
    assert str(Interval(0.71234, 0.6, 0.7912)) == "0.712 [0.6, 0.791]"


def test_ends_of_shares_are_those_of_scipy():
    """The ends for many at once, against the one computed by scipy."""
    shares = (0, 1, 7, 20)
    outcomes = torch.stack([torch.arange(20) < k for k in shares], dim=1)
    low, high = share_ends(outcomes.double())
    for column in range(len(shares)):
        expected = wilson_interval(outcomes[:, column])
        assert float(low[column]) == pytest.approx(expected.low, abs=1e-12)
        assert float(high[column]) == pytest.approx(expected.high, abs=1e-12)

"""Agreement between runs: by hand, against enumeration and simulation, and the coverage of its intervals."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch.testing import assert_close

from icl_mech.errors import ResultError
from icl_mech.metrics.stability import (
    head_correlation,
    head_overlap,
    layer_distance,
    overlap_p,
    top_heads,
)
from tests.said import Words

WORDS = Words(__file__)


def sets(*heads, shape=(2, 3)):
    """One group of runs that chose these heads."""
    chosen = torch.zeros(1, len(heads), *shape, dtype=torch.bool)
    for run, each in enumerate(heads):
        for head in each:
            chosen[0, run][head] = True
    return chosen, torch.ones(1, len(heads), dtype=torch.bool)


def test_overlap_by_hand():
    """Two of three heads in common: 2/4; 1/3 and 1/3 with the third run."""
    chosen, there = sets([(0, 0), (0, 1), (1, 0)], [(0, 0), (0, 1), (1, 1)], [(0, 0)])
    found = head_overlap(chosen, there)
    assert found.interval.value == pytest.approx((1 / 2 + 1 / 3 + 1 / 3) / 3)
    assert found.interval.low < found.interval.value < found.interval.high


@pytest.mark.parametrize("within", ["layer", "model"])
def test_chance_is_the_mean_over_all_relabellings(within):
    first, second = sets([(0, 0), (0, 1), (1, 0)], [(0, 0), (1, 1), (1, 0)])[0][0]
    sizes = [int(row.sum()) for row in second] if within == "layer" else [int(second.sum())]
    cells = [[(r, h) for h in range(3)] for r in range(2)] if within == "layer" else [
        [(r, h) for r in range(2) for h in range(3)]
    ]  # fmt: skip
    drawn = [[*part] for part in combinations(cells[0], sizes[0])]
    for layer, size in zip(cells[1:], sizes[1:], strict=True):
        drawn = [[*some, *part] for some in drawn for part in combinations(layer, size)]
    mine = {divmod(int(i), 3) for i in first.flatten().nonzero()}
    shared = [len(mine & set(other)) for other in drawn]
    expected = np.mean([s / (int(first.sum() + second.sum()) - s) for s in shared])
    observed = int((first & second).sum())
    found = head_overlap(
        torch.stack([first, second])[None], torch.ones(1, 2, dtype=torch.bool), within=within
    )
    assert found.chance == pytest.approx(expected)
    assert found.p == pytest.approx(np.mean([s >= observed for s in shared]))
    assert overlap_p(first, second, within=within) == found.p
    assert found.interval.low != found.interval.low  # two runs have no interval


def test_the_permutation_p_of_three_runs():
    """Three runs that each choose the same one of three heads of a layer: (1/3)² by chance."""
    chosen, there = sets(*[[(0, 0)]] * 3, shape=(1, 3))
    found = head_overlap(chosen, there)
    assert found.p == pytest.approx(1 / 9, abs=0.012)
    assert found.chance == pytest.approx(1 / 3)
    in_model = head_overlap(sets(*[[(0, 0)]] * 3, shape=(4, 3))[0], there, within="model")
    assert in_model.p == pytest.approx(1 / 144, abs=0.003)


def test_layers_alone_do_not_agree_beyond_chance():
    """Runs that choose random heads of one layer agree beyond heads of the model, not beyond those of layers."""
    draws = np.random.default_rng(0)
    low = {"layer": 0, "model": 0}
    for _ in range(40):
        heads = [[(3, int(h)) for h in draws.permutation(6)[:3]] for _ in range(4)]
        chosen, there = sets(*heads, shape=(6, 6))
        for within in low:
            low[within] += head_overlap(chosen, there, within=within).p <= 0.025
    assert low["layer"] <= 4 < 35 < low["model"]


def test_groups_share_what_differs():
    """Copies of a group change nothing: they are no further evidence."""
    chosen, there = sets([(0, 0)], [(0, 0)], [(0, 1)], shape=(1, 4))
    once = head_overlap(chosen, there)
    twice = head_overlap(chosen.repeat(3, 1, 1, 1), there.repeat(3, 1))
    assert once[0].value == pytest.approx(twice[0].value)
    assert (once.p, once.by_run) == (twice.p, twice.by_run)
    assert once.interval.low == pytest.approx(twice.interval.low)


def test_missing_runs_are_left_out():
    chosen, there = sets([(0, 0)], [(0, 0)], [(0, 1)], shape=(1, 4))
    there[0, 2] = False
    found = head_overlap(chosen, there)
    assert found.interval.value == 1.0
    assert found.by_run[2] == 1.0
    with WORDS.raises(ResultError, "no_pair"):
        head_overlap(chosen[:, :1], there[:, :1])


def test_each_run_has_its_own_p():
    """Four runs agree, a fifth does not."""
    same = [(0, 0), (1, 1), (2, 2)]
    chosen, there = sets(same, same, same, same, [(0, 3), (1, 3), (2, 3)], shape=(3, 5))
    *agree, apart = head_overlap(chosen, there).by_run
    assert max(agree) < 0.01 < 0.5 < apart


@pytest.mark.parametrize("within", ["layer", "model"])
def test_correlation(within):
    """Equals SciPy, with ties; its chance level is the mean over relabellings."""
    scores = torch.randn(
        1, 4, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    scores[..., 1, :] += 1.0
    scores[0, 0, 0] = 0.0
    there = torch.ones(1, 4, dtype=torch.bool)
    found = head_correlation(scores, there, within=within)
    flat = scores[0].flatten(1)
    pairs = [spearmanr(flat[i], flat[j]).statistic for i in range(4) for j in range(i)]
    assert found.interval.value == pytest.approx(np.mean(pairs), abs=1e-9)
    draws, null = np.random.default_rng(1), []
    for _ in range(4000):
        rows = flat.reshape(4, 3, 5) if within == "layer" else flat.reshape(4, 1, 15)
        one = draws.permuted(rows[1].numpy(), axis=-1).flatten()
        null.append(spearmanr(rows[0].numpy().flatten(), one).statistic)
    alone = head_correlation(scores[:, :2], there[:, :2], within=within)
    assert alone.chance == pytest.approx(np.mean(null), abs=0.02)
    assert alone.p == pytest.approx(np.mean(np.array(null) >= pairs[0] - 1e-9), abs=0.03)


def test_distance_of_layers():
    layers = torch.tensor([[4.0, 6.0, 5.0, torch.nan]])
    found = layer_distance(layers, 10)
    assert found.interval.value == pytest.approx(4 / 3)
    assert found.chance == pytest.approx(99 / 30)
    assert found.chance == pytest.approx(
        np.mean([abs(i - j) for i in range(10) for j in range(10)])
    )
    assert found.by_run[3] == 1.0
    draws = np.random.default_rng(0).integers(10, size=(20000, 3))
    null = sum(np.abs(draws[:, i] - draws[:, j]) for i in range(3) for j in range(i)) / 3
    assert found.p == pytest.approx(np.mean(null <= 4 / 3 + 1e-9), abs=0.012)


def test_equal_scores_are_no_agreement():
    """Heads without scores are chosen at random, not by their number."""
    zero = torch.zeros(6, 8)
    chosen = torch.stack([top_heads(zero, 5, seed=seed) for seed in range(8)])
    assert (chosen.sum((1, 2)) == 5).all()
    found = head_overlap(chosen[None], torch.ones(1, 8, dtype=torch.bool))
    assert found.p > 0.01
    flat = head_correlation(zero.expand(1, 3, 6, 8), torch.ones(1, 3, dtype=torch.bool))
    assert (flat.interval.value, flat.p) == (0.0, 1.0)
    best = torch.zeros(2, 2).index_put((torch.tensor([1]), torch.tensor([0])), torch.tensor(3.0))
    assert top_heads(best, 1).nonzero().tolist() == [[1, 0]]


@pytest.mark.parametrize("runs", [3, 5, 10])
def test_intervals_cover(runs):
    """New runs of a ranking with noise: 95 % intervals cover the mean overlap, also if all runs agree."""
    draws = np.random.default_rng(runs)
    for noise in (0.15, 0.4, 1.5):
        true = np.zeros(40)
        true[:5] = np.linspace(1.5, 1, 5)

        def chosen(count, noise=noise, true=true):
            scores = true + noise * draws.standard_normal((count, 40))
            rank = scores.argsort(-1).argsort(-1)
            return torch.from_numpy(rank >= 35).reshape(1, count, 5, 8)

        many = chosen(600)[0].flatten(1).double()
        shared = many @ many.T
        overlap = (shared / (10 - shared)).fill_diagonal_(torch.nan).nanmean()
        there, inside = torch.ones(1, runs, dtype=torch.bool), 0
        for _ in range(100):
            interval = _interval_of(chosen(runs), there)
            inside += interval.low - 1e-9 <= overlap <= interval.high + 1e-9
        assert inside >= 90, (noise, inside)


def _interval_of(chosen, there):
    """The interval alone, without relabellings."""
    from icl_mech.metrics import stability

    pairs = stability._masked(stability._jaccard(chosen.double().flatten(2)), there)
    return stability._interval(pairs, 0.0, 1.0)


def test_runs_that_all_agree_have_an_interval():
    chosen, there = sets(*[[(0, 0), (1, 1)]] * 5, shape=(4, 4))
    found = head_overlap(chosen, there)
    assert found.interval.value == found.interval.high == 1.0
    assert 0.1 < found.interval.low < 0.5
    assert_close(torch.tensor(found.p), torch.tensor(1e-4))

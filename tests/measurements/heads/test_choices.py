"""Which heads are clear of their control, held out, and beside random ones: by plain loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from icl_mech.metrics import above_together, mean_interval
from icl_mech.metrics.means import paired_ends
from tests.planted_results import ablation_of, found_of, heads_of, outcomes

# --- HeadScoresResult.clear ---


def test_clear_heads_are_those_above_their_control_best_first():
    """The third matches more than the first, but so does its control."""
    scores = heads_of({(5, 1): 0.3, (7, 2): 0.2, (3, 3): 0.4})
    shuffled = scores.shuffled_matching.clone()
    shuffled[:, 3, 3] += 0.4
    found = replace(scores, shuffled_matching=shuffled)
    assert scores.clear() == ((3, 3), (5, 1), (7, 2))
    assert found.clear() == ((5, 1), (7, 2))
    above = above_together(found.matching - found.shuffled_matching)
    assert set(found.clear()) == {tuple(place) for place in above.nonzero().tolist()}


def test_heads_are_ordered_by_matching_not_by_the_distance_to_the_control():
    scores = heads_of({(0, 0): 0.2, (0, 1): 0.3}, shape=(1, 2))
    shuffled = scores.shuffled_matching.clone()
    shuffled[:, 0, 1] += 0.2
    assert replace(scores, shuffled_matching=shuffled).clear() == ((0, 1), (0, 0))


def test_heads_below_their_control_are_not_clear():
    assert heads_of({(1, 1): -0.5}, shape=(2, 2)).clear() == ()
    assert heads_of({(0, 0): 0.3}, n=1).clear() == ()


def test_chance_names_a_head_in_few_cases():
    """Of 60 models without any such head fewer than 9 name one (5 % are 3)."""
    generator = torch.Generator().manual_seed(3)
    scores = heads_of({}, shape=(4, 5), n=30)
    named = 0
    for _ in range(60):
        noise = torch.randn(2, 30, 4, 5, generator=generator)
        named += bool(replace(scores, matching=noise[0], shuffled_matching=noise[1]).clear())
    assert named < 9


# --- FalseInductionResult.held_out ---

PLANTED = {(5, 1): 0.3, (7, 2): 0.2}


def halves(count):
    order = np.random.default_rng(0).permutation(count)
    middle = (count + 1) // 2
    return order[:middle], order[middle:]


@pytest.mark.parametrize("n", [24, 25])
def test_one_half_chooses_the_other_is_scored(n):
    scores = heads_of(PLANTED, {(5, 1): 1.0}, n=n)
    found = found_of(scores).held_out()
    choosing, testing = halves(n)
    assert (len(choosing), len(testing)) == (n - n // 2, n // 2)
    means = scores.matching.double()[choosing].mean(0).numpy()
    best = np.dstack(np.unravel_index(np.argsort(-means.ravel())[:5], means.shape))[0].tolist()
    assert list(found) == [f"{layer}.{head}" for layer, head in best]
    assert list(found)[:2] == ["5.1", "7.2"]
    for (layer, head), (above, pushed) in zip(best, found.values(), strict=True):
        differences = (scores.matching - scores.shuffled_matching)[testing, layer, head]
        for interval, values in (
            (above, differences),
            (pushed, scores.promoting[testing, layer, head]),
        ):
            own = mean_interval(values)
            assert interval.value == pytest.approx(own.value, abs=1e-6)
            # Corrected for five heads, so wider than that of one.
            assert 1 < (interval.high - interval.low) / (own.high - own.low) < 2.5


def test_tested_prompts_choose_nothing_and_choosing_ones_are_not_scored():
    found = found_of(heads_of(PLANTED, {}), top=2)
    choosing, testing = halves(24)
    plain = found.held_out()
    changed = found.scores.clone()
    changed[testing, :, 0, 0] += 5.0
    assert replace(found, scores=changed).held_out() == plain
    changed = found.scores.clone()
    changed[choosing, :, 5, 1] += 5.0
    assert replace(found, scores=changed).held_out() == plain


def test_as_many_heads_as_were_chosen_and_none_from_one_prompt():
    assert len(found_of(heads_of(PLANTED, {}), top=3).held_out()) == 3
    assert found_of(heads_of(PLANTED, {}, n=1)).held_out() is None


# --- Ablation.beside_random ---

MEANS = {"none": (1.0, 0.3), "chosen heads": (0.9, 0.8)}
DRAWS = [(0.8, 0.4), (1.0, 0.2), (0.9, 0.3)]


@pytest.mark.parametrize(("side", "place", "value"), [("false", 1, 0.5), ("true", 0, 0.0)])
def test_without_the_chosen_heads_minus_without_random_ones(side, place, value):
    """Accuracies 0.8 and 0.3 (false), 0.9 and 0.9 (true): draws of random heads differ by 0.1."""
    result = ablation_of(MEANS, DRAWS, n=20)
    found = result.beside_random(side)
    assert found.value == pytest.approx(value)
    chosen, drawn = result.scores[1, place].numpy(), result.scores[2:, place].numpy()
    assert found.value == pytest.approx(chosen.mean() - drawn.mean())
    # One more draw beside three: 0.1 sqrt(1 + 1/3) t(2).
    half = 0.1 * (4 / 3) ** 0.5 * 4.302653
    ends = (max(value - half, -1.0), min(value + half, 1.0))
    assert (found.low, found.high) == pytest.approx(ends, abs=1e-6)


def test_few_prompts_are_wider_than_the_spread_of_draws():
    """Draws that hardly differ: the interval is that over prompts."""
    result = ablation_of(MEANS, [(0.9, 0.3)] * 20, n=20)
    found, n = result.beside_random(), 20
    apart = (result.scores[1, 1] - result.scores[2, 1]).double()
    low, high = paired_ends(apart)
    assert (found.low, found.high) == pytest.approx((float(low), float(high)))
    assert found.value == pytest.approx(float(apart.sum()) / n)


def test_prompts_are_paired():
    """The same answers without either: 0, and all that 20 prompts leave open."""
    result = ablation_of(MEANS, [(0.9, 0.8)] * 3, n=20)
    same = result.beside_random()
    assert same.value == 0
    assert same.low == pytest.approx(-same.high)
    assert 0 < same.high < 0.2
    other = torch.stack([result.scores[0], result.scores[1], *[result.scores[1]] * 3])
    for draw in range(3):
        other[2 + draw, 1] = outcomes(0.8, 20, 50 + draw)
    unpaired = replace(result, scores=other).beside_random()
    assert unpaired.value == pytest.approx(0)
    assert unpaired.high - unpaired.low > 0.3


def test_nothing_to_compare_with():
    assert ablation_of(MEANS).beside_random() is None
    assert ablation_of({"none": (1.0, 0.3)}, DRAWS).beside_random() is None

"""Words as units: p-values by hand, and under the null where every word has a level of its own."""

from math import comb

import pytest
import torch
from scipy.stats import binom

from icl_mech.errors import ResultError
from icl_mech.metrics import kinds_test
from icl_mech.metrics.means import student_ends

NAN = float("nan")


def test_a_word_is_one_value_by_hand():
    """Means: a 5, b 4 (named), c 1, d 6, e 2; of the ten pairs d-a and d-b lie higher than a-b."""
    words = ["a", "a", "b", "c", "d", "e", "a", "e"]
    values = torch.tensor([4.0, 6.0, 4.0, 1.0, 6.0, 2.0, -90.0, NAN])
    marked = torch.tensor([True, True, True, False, False, False, False, False])
    found = kinds_test(values, words, marked)
    assert found == pytest.approx((3 / 10, 1 / 10, 2, 3, 8 / 10))


def test_the_same_places_many_times_are_no_more_evidence():
    words = ["a", "b", "c", "d"]
    values, marked = torch.tensor([9.0, 0, 1, 2]), torch.tensor([True, False, False, False])
    once = kinds_test(values, words, marked)
    often = kinds_test(values.repeat(50), words * 50, marked.repeat(50))
    assert once == often == pytest.approx((1 / 4, 1 / 4, 1, 3, 1))


def words_of(seed, named):
    """Twenty prompts of forty words, each with a level of its own; some are named."""
    generator = torch.Generator().manual_seed(seed)
    level = torch.randn(40, generator=generator)
    values = level + 0.3 * torch.randn(20, 40, generator=generator)
    return values, torch.arange(40) < named


@pytest.mark.slow
@pytest.mark.parametrize("times", [60, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_the_level_holds_for_other_words_and_not_by_prompts(times):
    positive, by_prompts = 0, 0
    for seed in range(times):
        values, marked = words_of(seed, 3)
        found = kinds_test(values.flatten(), [str(i) for i in range(40)] * 20, marked.repeat(20))
        positive += found.p_value <= 0.025
        gap = values[:, marked].mean(1) - values[:, ~marked].mean(1)
        by_prompts += bool(student_ends(gap, resamples=200)[0] > 0)
    assert found.smallest == pytest.approx(1 / comb(40, 3))
    assert positive <= binom.ppf(0.999, times, 0.025)
    assert by_prompts > times / 3


def test_words_that_lie_higher_are_found():
    values, marked = words_of(0, 5)
    values[:, marked] += 3
    found = kinds_test(values.flatten(), [str(i) for i in range(40)] * 20, marked.repeat(20))
    assert found.p_value <= 0.001
    assert found.smallest == 1 / 10_000
    again = kinds_test(values.flatten(), [str(i) for i in range(40)] * 20, marked.repeat(20))
    assert again == found


def test_rare_words_do_not_stand_out_for_being_rare():
    """Three named words seen once, sixty others twenty times: no levels, so nothing is to be found."""
    positive = 0
    words = ["a", "b", "c", *(str(i) for i in range(60) for _ in range(20))]
    marked = torch.arange(len(words)) < 3
    for seed in range(200):
        values = torch.randn(len(words), generator=torch.Generator().manual_seed(seed))
        positive += kinds_test(values, words, marked).p_value <= 0.025
    assert positive <= binom.ppf(0.999, 200, 0.025)


def test_both_sides_count_the_given_choice():
    words, values = [str(i) for i in range(40)], torch.arange(40.0)
    for place in (0, 1):
        found = kinds_test(values, words, torch.arange(40) == place)
        assert found.below == pytest.approx((place + 1) / 40)
        assert found.p_value == pytest.approx((40 - place) / 40)


def test_nothing_to_compare():
    alone = kinds_test(torch.ones(3), ["a", "b", "a"], torch.ones(3).bool())
    assert alone.p_value != alone.p_value
    assert (alone.named, alone.others) == (2, 0)


def test_a_seed_below_zero_is_refused():
    with pytest.raises(ResultError, match="seed=-1"):
        kinds_test(torch.ones(1), ["a"], torch.ones(1).bool(), seed=-1)

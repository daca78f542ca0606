"""One statement about many means."""

import pytest
import torch

from icl_mech.metrics import above_together


def noise(n, cells, seed):
    return torch.randn(n, cells, generator=torch.Generator().manual_seed(seed)).double()


def test_a_clear_mean_is_found_and_only_that():
    values = noise(40, 100, 0)
    values[:, 7] += 2.0
    values[:, 9] -= 2.0
    assert above_together(values).nonzero().flatten().tolist() == [7]


def test_nothing_is_found_where_nothing_is():
    """Of 60 sets of 50 means around 0 about one in twenty has one; each alone, nearly all would."""
    found = sum(
        bool(above_together(noise(30, 50, seed), resamples=400).any()) for seed in range(60)
    )
    assert found <= 9
    alone = noise(30, 50, 0)
    pointwise = alone.mean(0) > 1.645 * alone.std(0) / 30**0.5
    assert pointwise.any()


def test_axes_are_kept():
    values = noise(20, 12, 1).reshape(20, 3, 4)
    values[:, 2, 1] += 3.0
    assert above_together(values).nonzero().tolist() == [[2, 1]]


@pytest.mark.parametrize("values", [torch.ones(1, 3), torch.zeros(5, 3)])
def test_one_prompt_and_equal_prompts(values):
    assert not above_together(values).any()


@pytest.mark.parametrize("prompts", [2, 3])
def test_two_or_three_prompts_show_nothing(prompts):
    """Their standard error is too uncertain for a test: too many resamples have no spread."""
    for seed in range(20):
        assert not above_together(noise(prompts, 4, seed)).any()
    assert not above_together(torch.ones(prompts, 3)).any()
    assert above_together(torch.ones(4, 3)).all()


def test_four_prompts_of_noise_rarely_show_anything():
    false = [bool(above_together(noise(4, 4, seed)).any()) for seed in range(200)]
    assert sum(false) <= 20


def test_cells_that_never_change_count_by_their_sign():
    values = noise(20, 3, 0)
    values[:, 0], values[:, 1] = 1.0, -1.0
    assert above_together(values).tolist()[:2] == [True, False]

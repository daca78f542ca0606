"""AUC over several classes against scikit-learn, and its resamples against a plain loop."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from icl_mech.metrics import cumulative_share, macro_auc
from icl_mech.metrics.auc import class_resamples, class_scores, empty_layers, resampled_auc

EXACT = {"rtol": 0, "atol": 1e-12}


def sample(n, n_layers, n_classes, *, ties, seed=0):
    """Random attention, in steps of 1/8 where ties are wanted, and a truth of all classes."""
    generator = torch.Generator().manual_seed(seed)
    attention = torch.rand(n, n_layers, n_classes, generator=generator)
    if ties:
        attention = (8 * attention).ceil() / 8
    truth = torch.randint(0, n_classes, (n,), generator=generator)
    truth[:n_classes] = torch.arange(n_classes)
    return attention, truth


def by_sklearn(scores, truth):
    if scores.shape[1] == 2:
        return roc_auc_score(truth, scores[:, 1])
    return roc_auc_score(truth, scores, multi_class="ovo", average="macro")


@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("ties", [False, True])
def test_equals_scikit_learn(n_classes, ties):
    attention, truth = sample(60, 5, n_classes, ties=ties)
    scores = class_scores(attention, tuple(range(n_classes)))
    torch.testing.assert_close(scores.sum(-1), torch.ones(60, 5).double())
    expected = [by_sklearn(scores[:, layer].numpy(), truth.numpy()) for layer in range(5)]
    torch.testing.assert_close(
        macro_auc(scores, truth), torch.tensor(expected, dtype=torch.float64), **EXACT
    )


def test_the_reference_reading_of_two_classes_is_the_raw_score_of_the_later_one():
    attention, truth = sample(40, 3, 4, ties=False)
    truth = torch.where(truth % 2 == 0, 1, 3)
    found = macro_auc(class_scores(attention, (1, 3), raw_pair=True), truth)
    raw = attention[:, :, 3].numpy()
    expected = [roc_auc_score((truth == 3).numpy(), raw[:, layer]) for layer in range(3)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), **EXACT)
    normalised = macro_auc(class_scores(attention, (1, 3)), truth)
    assert float((found - normalised).abs().min()) > 1e-3


def test_three_classes_by_hand():
    """Prompts of classes 0, 0, 1, 2 with scores in rows.

    Pair (0, 1): 0 wins by its own score once of two, by the other's once and a tie: (1/2 + 3/4) / 2.
    Pair (0, 2): by its own score twice, by the other's twice: 1.
    Pair (1, 2): by its own score no, by the other's no: 0.
    """
    scores = torch.tensor([[5.0, 3.0, 0.0], [3.0, 4.0, 0.0], [4.0, 4.0, 3.0], [1.0, 6.0, 2.0]])
    found = macro_auc(scores[:, None].double(), torch.tensor([0, 0, 1, 2]))
    assert float(found) == pytest.approx((0.625 + 1.0 + 0.0) / 3, abs=1e-12)


def test_scores_lose_the_columns_of_left_out_classes_before_rows_are_normalised():
    attention = torch.tensor([[[1.0, 7.0, 3.0]], [[0.0, 5.0, 0.0]]])
    expected = torch.tensor([[[0.25, 0.75]], [[0.5, 0.5]]]).double()
    torch.testing.assert_close(class_scores(attention, (0, 2)), expected, **EXACT)


def test_a_layer_without_attention_is_at_chance():
    attention, truth = sample(30, 3, 3, ties=False)
    attention[:, 1] = 0.0
    scores = class_scores(attention, (0, 1, 2))
    assert empty_layers(attention).tolist() == [False, True, False]
    assert float(macro_auc(scores, truth)[1]) == 0.5
    assert (
        float(macro_auc(class_scores(attention[..., :2], (0, 1), raw_pair=True), truth % 2)[1])
        == 0.5
    )


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("ties", [False, True])
def test_a_resample_is_the_auc_of_the_drawn_prompts(n_classes, ties):
    attention, truth = sample(30, 3, n_classes, ties=ties)
    scores = class_scores(attention, tuple(range(n_classes)))
    weights, _ = class_resamples(truth, resamples=25, seed=4)
    found = resampled_auc(scores, truth, weights)
    for row, counts in enumerate(weights.long()):
        drawn = torch.arange(30).repeat_interleave(counts)
        for layer in range(3):
            expected = by_sklearn(scores[drawn, layer].numpy(), truth[drawn].numpy())
            assert float(found[row, layer]) == pytest.approx(expected, abs=1e-12)


def test_resamples_hold_every_class():
    """A class of one prompt in ten is lost with probability 0.9^10; those are drawn again."""
    truth = torch.tensor([0] * 9 + [1])
    weights, redrawn = class_resamples(truth)
    assert weights.shape == (10_000, 10)
    torch.testing.assert_close(weights.sum(1), torch.full((10_000,), 10.0))
    assert float(weights[:, 9].min()) == 1.0
    lost = 0.9**10
    assert redrawn == pytest.approx(10_000 * lost / (1 - lost), rel=0.05)
    # Given at least one, the rare prompt is drawn 1 / (1 - 0.9^10) times in the mean.
    assert float(weights[:, 9].mean()) == pytest.approx(1 / (1 - lost), rel=0.02)


def test_resamples_follow_their_seed():
    truth = torch.arange(20) % 3
    first, again, other = (class_resamples(truth, resamples=9, seed=s)[0] for s in (1, 1, 2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.equal(first, other)


def test_classes_too_rare_to_resample():
    weights, redrawn = class_resamples(torch.arange(40), resamples=20)
    assert weights is None
    assert redrawn > 20


def test_resampled_ends_cover_the_value_as_often_as_they_say():
    """Normal scores one standard deviation apart: the true AUC is Phi(1 / sqrt 2)."""
    expected = 0.5 * (1 + math.erf(0.5))
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(100):
        truth = torch.arange(60) % 2
        raw = torch.from_numpy(generator.normal(size=60)) + truth
        scores = torch.stack([-raw, raw], dim=-1)[:, None]
        weights, _ = class_resamples(truth, resamples=400)
        low, high = np.quantile(resampled_auc(scores, truth, weights)[:, 0].numpy(), [0.025, 0.975])
        inside += low <= expected <= high
    assert 88 <= inside <= 99


def test_cumulative_share_by_hand():
    """Distances from chance 0.1, 0.3, -0.2, 0.2 sum to 0.4."""
    auc = torch.tensor([0.6, 0.8, 0.3, 0.7], dtype=torch.float64)
    expected = torch.tensor([0.25, 1.0, 0.5, 1.0], dtype=torch.float64)
    torch.testing.assert_close(cumulative_share(auc), expected, **EXACT)
    assert (
        float(cumulative_share(torch.rand(7, generator=torch.Generator().manual_seed(0)))[-1])
        == 1.0
    )

"""What the papers publish follows from the numbers of their own files, by our statistics."""

import pytest
import torch

from icl_mech.metrics.layers import gap_reduction
from icl_mech.studies import published


def accuracies():
    """Shares by task: true, false, ablated false."""
    rows = zip(*published.HEAD_ABLATION.values(), strict=True)
    return [torch.tensor(row, dtype=torch.float64) / 100 for row in rows]


@pytest.mark.parametrize(("how", "printed"), [("mean_of_ratios", 38.98), ("ratio_of_means", 33.28)])
def test_the_share_of_the_gap_that_five_heads_close(how, printed):
    assert 100 * float(gap_reduction(*accuracies(), how)) == pytest.approx(printed, abs=0.005)
    assert published.GAP_REDUCTION[how] == printed


def test_mean_accuracies_are_those_of_the_tasks():
    true, false, _ = accuracies()
    assert len(true) == 14
    assert 100 * float(true.mean()) == pytest.approx(published.MEAN_ACCURACY["true"], abs=0.01)
    assert 100 * float(false.mean()) == pytest.approx(published.MEAN_ACCURACY["false"], abs=0.01)
    gap = 100 * float((true - false).mean())
    assert gap == pytest.approx(published.GAP["permuted"], abs=0.01)


def test_heads_do_more_than_random_ones_and_less_than_all_late_layers():
    _, false, ablated = (100 * float(row.mean()) for row in accuracies())
    assert published.RANDOM_HEADS_GAP_REDUCTION < 5 < published.GAP_REDUCTION["ratio_of_means"]
    assert false < ablated < published.LATE_COMPONENTS["late layers"]


def test_leaving_early_is_zeroing_the_late_layers():
    left = published.MEAN_ACCURACY["false"] + published.EARLY_EXIT_CHANGE["false"]
    assert published.LATE_COMPONENTS["late layers"] == pytest.approx(left, abs=0.02)


def test_five_heads_best_first():
    scores = list(published.PREFIX_MATCHING.values())
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    assert all(layer < 28 and head < 16 for layer, head in published.PREFIX_MATCHING)


def test_means_of_the_first_table():
    assert published.reweighting_means() == pytest.approx(
        {"1 per class": 51.90, "5 per class": 46.87, "anchor re-weighting": 68.64}, abs=0.005
    )
    assert published.reweighting_means()["1 per class"] == pytest.approx(
        published.FULL_ACCURACY["gpt2-xl"]
    )


@pytest.mark.parametrize("model", ["gpt2-xl", "gpt-j"])
def test_hidden_anchors_are_the_best_stand_in_and_full_prompts_better(model):
    rows = published.COMPRESSION[model]
    best = rows["hidden_anchor"]
    assert len(rows) == 4
    for row in rows.values():
        assert all(one <= other for one, other in zip(row, best, strict=True))
        assert row.accuracy < published.FULL_ACCURACY[model]
    assert len(published.SPEED_UP[model]) == len(published.LABEL_WORDS_TASKS)
    assert min(published.SPEED_UP[model]) > 1

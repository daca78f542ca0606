"""Random tokens in the label words' place: where they are drawn, and what flows there."""

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import ResultError
from icl_mech.measurements.saliency import null as null_module
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.measurements.saliency.null import NEAR, matched_positions, null_scores, share_of_null
from icl_mech.metrics import normalised_flow
from icl_mech.metrics.intervals import quantile_ends, resample_weights
from icl_mech.prompts import PromptBatch
from tests.engine.cases import LABEL_TOKENS, prompt, ragged
from tests.measurements.saliency.cases import scores_of_map, with_roles, written
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

SAME = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


# --- where ---


def test_drawn_tokens_are_others_each_once_before_the_target():
    prompts = with_roles()
    drawn = matched_positions(prompts, 50, 0)
    assert drawn.shape == (3, 50, 3)
    for own, one in zip(drawn, prompts, strict=True):
        count = len(one.label_positions)
        assert bool((own[:, count:] == -1).all())
        inside = {i for span in one.label_spans for i in range(span.start, span.stop)}
        allowed = set(range(1, one.target)) - inside
        for row in own[:, :count].tolist():
            assert len(set(row)) == count
            assert set(row) <= allowed
        # Every token that may be drawn is drawn at times.
        assert set(own[:, :count].flatten().tolist()) == allowed


def test_drawn_tokens_are_near_their_label_word():
    """Around 30 and 90: all within reach, on both sides."""
    far = prompt(120, (30, 90), (0, 1), answer=0)
    (drawn,) = matched_positions(PromptBatch((far,)), 400, 0)
    distance = drawn - torch.tensor(far.label_positions)
    assert (int(distance.min()), int(distance.max())) == (-NEAR, NEAR)
    assert bool((distance != 0).all())


def test_where_nothing_is_near_the_nearest_is_drawn():
    """A label word of 40 tokens begins at 1: the first token behind it stands at 41."""
    parts = (("bos", 1), ("label_word", 40), ("format", 4), ("target", 1))
    (drawn,) = matched_positions(PromptBatch((written(*parts, classes=(0,)),)), 20, 0)
    assert set(drawn.flatten().tolist()) == {41}


def test_draws_depend_on_the_prompt_alone():
    prompts = with_roles()
    together = matched_positions(prompts, 8, 3)
    for i in range(3):
        (alone,) = matched_positions(prompts[[i]], 8, 3)
        assert_close(alone, together[i, :, : alone.shape[1]])
    assert_close(matched_positions(prompts[[2, 1, 0]], 8, 3), together.flip(0))
    assert not torch.equal(matched_positions(prompts, 8, 4), together)
    # Prompts of the same parts but other tokens have draws of their own.
    parts = (("bos", 1), ("demo_text", 30), ("label_word", 1), ("query_text", 9), ("target", 1))
    alike = PromptBatch(tuple(written(*parts, classes=(0,), seed=seed) for seed in (1, 2)))
    first, second = matched_positions(alike, 8, 3)
    assert not torch.equal(first, second)
    # More draws begin with the same ones.
    assert_close(matched_positions(prompts, 12, 3)[:, :8], together)


def test_too_few_other_tokens(model):
    """One label word at 2 of 4 tokens: 1 may be drawn; with one at 1, too, none is left."""
    enough, few = prompt(4, (2,), (0,), answer=0), prompt(4, (1, 2), (0, 1), answer=0)
    assert matched_positions(PromptBatch((enough,)), 2, 0).tolist() == [[[1], [1]]]
    assert matched_positions(PromptBatch((enough, few)), 2, 0) is None
    found = icl.flow_scores(model, PromptBatch((few,)))
    assert found.null is None
    assert found.above_null("pq", "last") is None
    with WORDS.raises(ResultError, "too_few_other_tokens"):
        found.drawing("null")


# --- what flows there ---


@pytest.mark.parametrize("reduction", ["sum_then_abs", "abs_then_sum"])
def test_scores_of_drawn_tokens_are_those_of_the_maps(model, reduction):
    prompts = with_roles()
    found = icl.flow_scores(model, prompts, reduction=reduction, draws=4, seed=5)
    maps = icl.saliency_maps(model, prompts, reduction=reduction)
    drawn = matched_positions(prompts, 4, 5)
    assert found.null.shape == (3, 4, 3, 3)
    for own, places, values, one in zip(found.null, drawn, maps.values, prompts, strict=True):
        for draw, row in zip(own, places.tolist(), strict=True):
            assert_close(draw.double(), scores_of_map(values, row, one.target), **SAME)


@pytest.mark.parametrize("prompts", [with_roles(), ragged()], ids=["roles", "positions"])
def test_label_words_themselves_give_their_own_scores(model, prompts, monkeypatch):
    def themselves(data, draws, seed):
        return data.label_positions[:, None].repeat(1, draws, 1)

    monkeypatch.setattr(null_module, "matched_positions", themselves)
    found = icl.flow_scores(model, prompts, draws=2)
    assert_close(found.null.double(), found.per_prompt[:, None].repeat(1, 2, 1, 1), **SAME)
    assert_close(found.quantities()["null_share"].value(), found.values, **SAME)
    null, above = found.above_null("pq", "last")
    assert null.value == pytest.approx(found.share("pq", "last").value, abs=1e-6)
    assert tuple(above) == pytest.approx((0, 0, 0), abs=1e-6)


def test_label_words_behind_the_target_have_no_token_drawn():
    tokens = prompt(9, (), (), seed=4).tokens
    early = type(ragged()[0]).from_positions(
        tokens, label_positions=(2, 7), label_classes=(0, 1), target=5, label_tokens=LABEL_TOKENS
    )
    (drawn,) = matched_positions(PromptBatch((early,)), 30, 0)
    assert set(drawn[:, 0].tolist()) == {1, 3, 4}
    assert set(drawn[:, 1].tolist()) == {-1}


def test_scores_by_hand():
    """Four tokens, target 3, six edges that sum to 21; token 2 drawn, then 1, then both."""
    into, out_of = torch.tensor([[[0.0, 1, 5, 15]]]), torch.tensor([[[4.0, 5, 6, 0]]])
    kinds = torch.tensor([[[10.0, 4, 7]]])
    positions = torch.tensor([[[2, -1], [1, -1], [1, 2]]])
    found = null_scores(positions, kinds, into, out_of, torch.tensor([3]), [None])
    expected = [[5 / 2, 6 / 1, 10 / 3], [1 / 1, 5 / 1, 15 / 4], [6 / 3, 11 / 2, 4 / 1]]
    assert_close(found[0, :, :, 0], torch.tensor(expected).double())


# --- shares and their intervals ---


def known(null=((1.0, 1.0, 2.0), (3.0, 1.0, 0.0))):
    """Two prompts and three layers of the same numbers; the same draws for both prompts."""
    own = torch.tensor([[2.0, 6.0, 2.0], [4.0, 4.0, 2.0]]).double()
    per_prompt = own[:, :, None].expand(2, 3, 3).contiguous()
    drawn = torch.tensor(null)[None, :, :, None].expand(2, len(null), 3, 3).contiguous()
    values = normalised_flow(per_prompt.mean(0))
    return FlowScores(per_prompt=per_prompt, values=values, low=values, high=values, null=drawn)


def test_the_share_is_that_of_the_mean_over_draws_and_prompts():
    """Draws (1, 1, 2) and (3, 1, 0) have the mean (2, 1, 1)."""
    found = known().quantities()["null_share"].value()
    assert_close(found, torch.tensor([0.5, 0.25, 0.25]).double()[:, None].expand(3, 3))


def test_resamples_draw_prompts_and_draws():
    generator = torch.Generator().manual_seed(0)
    null = torch.rand(4, 3, 3, 2, generator=generator)
    weights = resample_weights(4, resamples=50)
    drawn = resample_weights(3, resamples=50, seed=1)
    means = torch.einsum("rb,rd,bdsl->rsl", weights, drawn, null.double())
    assert_close(share_of_null(null)(weights), normalised_flow(means))


def test_above_null_by_hand():
    """Label words: shares 0.3, 0.5, 0.2 of the means; random tokens: 0.5, 0.25, 0.25."""
    found = known()
    for third in ("first", "last"):
        null, above = found.above_null("pq", third)
        assert (null.value, above.value) == pytest.approx((0.25, 0.25))
        # One draw gives 0.25 of 4, so does the other: only prompts move the share.
        assert (null.low, null.high) == pytest.approx((0.25, 0.25))
        assert (above.low, above.high) == pytest.approx((0.15, 0.35))
    null, above = found.above_null("wp", "first")
    assert (null.value, above.value) == pytest.approx((0.5, -0.2))
    assert (null.low, null.high) == pytest.approx((0.25, 0.75))


def test_the_difference_takes_in_both_kinds_of_chance():
    found = known()
    statistic = share_of_null(found.null)
    weights = resample_weights(2)
    own = normalised_flow((weights @ found.per_prompt.flatten(1)).reshape(-1, 3, 3))
    low, high = quantile_ends((own - statistic(weights))[:, 0, 0])
    _, above = found.above_null("wp", "first")
    assert (above.low, above.high) == pytest.approx((float(low), float(high)))
    assert above.high - above.low > 0.5


def test_unknown_scores_and_thirds():
    with WORDS.raises(ResultError, "unknown_scores_thirds", "'qp'"):
        known().above_null("qp", "first")
    with pytest.raises(ResultError, match="third='middle'"):
        known().above_null("pq", "middle")


def test_the_drawing_sets_both_beside_each_other():
    found = known(null=((1.0, 1.0, 6.0),))
    drawn = found.drawing("null")
    null = found.quantities()["null_share"].value()
    expected = torch.stack([found.values[0], null[0], found.values[1], null[1]])
    assert_close(drawn.values, expected)
    assert drawn.names == ("label words", "random tokens") * 2
    assert [panel.curves for panel in drawn.panels] == [(0, 1), (2, 3)]
    WORDS.exactly(drawn.panels[1].title, "drawing_sets_both_beside")

"""Flow scores: identities with the maps, and what the result says about itself."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ResultError
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.metrics import bootstrap_interval, flow_counts, normalised_flow
from icl_mech.models import adapt
from icl_mech.prompts import Prompt, PromptBatch
from tests.engine.cases import LABEL_TOKENS, prompt, ragged
from tests.said import Words
from tests.tiny import FAMILIES, tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


def test_nothing_flows_to_label_words_in_the_last_layer(model):
    scores = icl.flow_scores(model, ragged()).per_prompt
    assert float(scores[:, 0, -1].abs().max()) == 0.0
    assert float(scores[:, 0, :-1].min()) > 0.0


@pytest.mark.parametrize("reduction", ["sum_then_abs", "abs_then_sum"])
def test_scores_times_edges_are_all_saliency_below_the_diagonal(model, reduction):
    prompts = ragged()
    flow = icl.flow_scores(model, prompts, reduction=reduction)
    maps = icl.saliency_maps(model, prompts, reduction=reduction)
    counts = [
        flow_counts(prompts.label_positions, prompts.targets, window)
        for window in adapt(model).windows
    ]
    total = (flow.per_prompt * torch.stack(counts, dim=2)).nansum(1)
    expected = torch.stack([values.tril(-1).sum((1, 2)) for values in maps.values])
    torch.testing.assert_close(total, expected.double(), rtol=1e-4, atol=1e-6)


def test_every_demonstration_counts_on_its_own(model):
    """Prompt 2 shows class 1 at 3 and 6, class 0 at 9; prompt 4 shows class 1 three times."""
    prompts = ragged()
    flow = icl.flow_scores(model, prompts)
    maps = icl.saliency_maps(model, prompts)
    for i, positions, n_pairs in ((2, (3, 6, 9), 13 * 14 // 2), (4, (2, 4, 6), 8 * 9 // 2)):
        values, target = maps.values[i].double(), len(prompts[i]) - 1
        into = torch.stack([values[:, p, :p].sum(-1) for p in positions]).sum(0)
        out_of = torch.stack([values[:, target, p] for p in positions]).sum(0)
        rest = values.tril(-1).sum((1, 2)) - into - out_of
        denominators = (sum(positions), 3, n_pairs - sum(positions) - 3)
        expected = torch.stack(
            [sums / n for sums, n in zip((into, out_of, rest), denominators, strict=True)]
        )
        full = [layer for layer, window in enumerate(adapt(model).windows) if window is None]
        found = flow.per_prompt[i][:, full]
        torch.testing.assert_close(found, expected[:, full], rtol=1e-4, atol=1e-7)


def test_absolute_values_before_the_sum_over_heads_are_never_smaller(model):
    after = icl.flow_scores(model, ragged()).per_prompt
    before = icl.flow_scores(model, ragged(), reduction="abs_then_sum").per_prompt
    assert float((before - after).min()) > -1e-7
    assert float((before / after)[after > 0].mean()) > 1.05


def test_label_words_behind_the_target_do_not_count(gpt2):
    """Read at position 5, the tokens after it change nothing."""
    whole = prompt(9, (2, 4, 7), (0, 1, 2), answer=2, seed=11)
    read = {"label_tokens": LABEL_TOKENS, "answer": 2, "target": 5}
    longer = Prompt.from_positions(
        whole.tokens, label_positions=(2, 4, 7), label_classes=(0, 1, 2), **read
    )
    cut = Prompt.from_positions(
        whole.tokens[:6], label_positions=(2, 4), label_classes=(0, 1), **read
    )
    found, expected = (icl.flow_scores(gpt2, PromptBatch((p,))).per_prompt for p in (longer, cut))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)


def test_curve_and_intervals_follow_from_the_scores(gpt2):
    flow = icl.flow_scores(gpt2, ragged())
    mean = flow.per_prompt.mean(0)
    torch.testing.assert_close(flow.values, mean / mean.sum(0))
    torch.testing.assert_close(flow.values.sum(0), torch.ones(3, dtype=torch.float64))
    low, high = bootstrap_interval(flow.per_prompt, normalised_flow)
    torch.testing.assert_close(flow.low, low, rtol=0, atol=0)
    torch.testing.assert_close(flow.high, high, rtol=0, atol=0)
    assert bool(((flow.low <= flow.values) & (flow.values <= flow.high)).all())


@pytest.fixture(scope="module")
def known():
    """Two prompts, six layers; label words lead in the last third."""
    early = torch.tensor([[6.0, 1.0, 1.0], [2.0, 1.0, 1.0]])
    late = torch.tensor([[0.0, 8.0, 2.0], [0.0, 4.0, 6.0]])
    per_prompt = torch.stack([early, early, early, late, late, late], dim=2).double()
    values = normalised_flow(per_prompt.mean(0))
    low, high = bootstrap_interval(per_prompt, normalised_flow)
    return FlowScores(per_prompt=per_prompt, values=values, low=low, high=high)


def test_shares_of_thirds(known):
    """Means are (4, 1, 1) early and (0, 6, 4) late; two prompts resample to either or both."""
    share = known.share("wp", "first")
    assert tuple(share) == pytest.approx((4 / 6, 2 / 4, 6 / 8))
    assert tuple(known.share("pq", "last")) == pytest.approx((0.6, 0.4, 0.8))
    assert tuple(known.share("ww", "last")) == pytest.approx((0.4, 0.2, 0.6))


def test_differences_are_paired(known):
    assert tuple(known.difference("first")) == pytest.approx((3 / 6, 1 / 4, 5 / 8))
    assert tuple(known.difference("last")) == pytest.approx((-0.6, -0.8, -0.4))


def test_unknown_thirds_and_scores(known):
    with WORDS.raises(ResultError, "unknown_thirds_scores", "'middle'"):
        known.difference("middle")
    with WORDS.raises(ResultError, "unknown_thirds_scores_2", "'qp'", "'wp'", "'pq'"):
        known.share("qp", "first")


def test_table(known):
    table = known.to_pandas()
    assert list(table.columns) == [
        "score", "layer", "share", "share_low", "share_high",
        "saliency", "saliency_low", "saliency_high",
    ]  # fmt: skip
    row = table[(table.score == "pq") & (table.layer == 4)].iloc[0]
    assert row["share"] == pytest.approx(0.6)
    assert row["saliency"] == pytest.approx(6.0)
    assert len(table) == 18


def test_summary(known):
    WORDS.exactly(known.summary(), "summary", "0.667", "[0.5, 0.75]", "[0.4, 0.8]")


def test_the_figure_says_when_demonstrations_are_shared(gpt2):
    shared = PromptBatch(tuple(ragged()), {"demonstrations": "shared"})
    WORDS(icl.flow_scores(gpt2, shared).drawing().note, "figure_says_when_demonstrations")
    assert "shared" not in icl.flow_scores(gpt2, ragged()).drawing().note

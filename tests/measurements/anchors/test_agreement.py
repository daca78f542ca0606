"""Attention against the effect of hiding spans."""

import pytest
import torch
from scipy.stats import spearmanr
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements.anchors.anchor_agreement import AnchorAgreementResult, agreement
from icl_mech.measurements.anchors.span_flow import SpanFlowResult
from icl_mech.measurements.anchors.suppression import SuppressionResult
from icl_mech.results.judging import judged
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

TEXTS = [
    "The film was good. It was a story! Was it bad? The plot was good. We left. It is a movie.",
    "Stocks fell on Monday. The home team won. A movie is good. Who is it? The end was bad.",
    "Rivers cross the country. A novel is a book. Who wrote it? The team won. It was sport.",
]


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


def planted(effects: torch.Tensor, attention: torch.Tensor) -> AnchorAgreementResult:
    """Two texts whose spans have these matrices, in one head of one layer."""
    count = len(effects)
    rest = {
        "spans": (tuple((i, i + 1) for i in range(count)),) * 2,
        "names": (("span",) * count,) * 2,
        "tokens": (("token",) * count,) * 2,
    }
    matrices = SpanFlowResult(
        matrices=(attention.float()[None, None],) * 2,
        vertical=(torch.zeros(1, 1, count, dtype=torch.float64),) * 2,
        kurtosis=torch.ones(2, 1, 1, dtype=torch.float64),
        proximity=1,
        **rest,
    )
    moved = SuppressionResult(
        divergence=(effects.double(),) * 2,
        change=(effects.double(),) * 2,
        by_token=(effects.double(),) * 2,
        **rest,
    )
    return agreement(matrices, moved, matrices, top=1)


def test_planted_agreement():
    own = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)).double().tril(-1)
    columns = torch.tensor([3.0, 1, 5, 2, 4, 0]).double()
    own = (own * 0.1 + columns).tril(-1)
    assert_close(planted(own, own).correlation, torch.ones(2, 2, 3).double())
    opposite = (10 - own).tril(-1)
    found = planted(own, opposite).correlation
    assert_close(found[:, 0], -torch.ones(2, 3).double())
    assert float(found[:, 1].max()) < -0.8


def test_correlations_are_of_the_results(model):
    prompts = icl.texts(TEXTS, model)
    found = icl.anchor_agreement(model, prompts, proximity=1, top=2)
    attention = icl.span_flow(model, prompts, proximity=1)
    saliency = icl.span_flow(model, prompts, proximity=1, of="saliency")
    effects = icl.suppression(model, prompts)
    for i in range(3):
        moved = effects.scores(i)
        heads = attention.receiver_heads(2, without=i)
        for score, values in (
            ("all_heads", attention.scores(i)),
            ("receiver_heads", attention.scores(i, heads)),
            ("saliency", saliency.scores(i)),
        ):
            wanted = spearmanr(moved[:-1], values[:-1]).statistic
            place = ("all_heads", "receiver_heads", "saliency").index(score)
            assert float(found.correlation[i, 0, place]) == pytest.approx(wanted, abs=1e-6)


def test_the_result_is_complete(model, tmp_path):
    result = icl.anchor_agreement(model, icl.texts(TEXTS, model), proximity=1)
    loaded = AnchorAgreementResult.load(result.save(tmp_path / "agreement"))
    assert_close(loaded.correlation, result.correlation)
    assert result.plot().data
    assert "rank correlation" in result.summary()
    WORDS.starts(result.figures()[0].answer, "result_complete", "Cannot be judged")


def test_agreement_of_a_network_that_learned_nothing_is_no_verdict(model):
    texts = icl.texts([f"{own} {text}" for own in "abc" for text in TEXTS], model)
    result = icl.anchor_agreement(model, texts, proximity=1)
    plain = result.interval("correlation", control="plain", score="all_heads")
    assert judged(plain, prompts=len(texts)) == "supported"
    WORDS.starts(result.figures()[0].answer, "agreement_network_learned_nothing")


def test_receiver_heads_need_another_text(model):
    result = icl.anchor_agreement(model, icl.texts(TEXTS[:1], model), proximity=1)
    assert result.correlation[:, :, 1].isnan().all()
    assert result.correlation[:, :, 0].isfinite().all()


def test_what_is_refused(model):
    prompts = icl.texts(TEXTS, model)
    with WORDS.raises(PromptError, "what_refused", "8", "0", "6"):
        icl.anchor_agreement(model, prompts)
    with pytest.raises(RunError, match="12 heads"):
        icl.anchor_agreement(model, prompts, proximity=1, top=13)

"""Isolation and extraction on a tiny GPT-2, against numbers of the paper's own code."""

import pytest
import torch

from icl_mech.interventions import Isolate
from icl_mech.measurements.extraction.extraction import extraction
from icl_mech.measurements.isolation.isolation import isolation
from icl_mech.measurements.predictions import predict
from tests.golden_data import arrays, golden_model, label_words_prompts
from tests.margins import apart, close_pairs, vocabulary

pytestmark = pytest.mark.tl3
each_set = pytest.mark.parametrize("name", ["sst2_s1", "sst2_s2", "agnews_s1", "agnews_s2"])


@pytest.fixture(scope="module")
def model():
    return golden_model("label_words", "tiny_gpt2")


@each_set
@pytest.mark.parametrize("top_k", [5, 10])
def test_loyalties(model, name, top_k):
    golden = arrays("label_words", "shallow.npz")
    prompts = label_words_prompts(f"icl/{name}")
    found = isolation(model, prompts, depths=[1, 2], tokens="label", top_k=top_k)
    plain, labels = vocabulary(model, prompts), prompts.label_tokens
    for side, depth in (("first", 1), ("first", 2), ("last", 1), ("last", 2)):
        key = f"{name}_{side}{depth}"
        label = golden[f"{key}_label_loyalty"]
        word = golden[f"{key}_word_loyalty_top{top_k}"]
        where = {"side": side, "depth": depth, "tokens": "label"}
        value = found.interval("label_loyalty", **where).value
        assert value == pytest.approx(float(label), abs=1e-12, rel=0)
        cut = vocabulary(model, prompts, [Isolate(layers_of(side, depth))])
        assert bool((apart(cut[:, labels]) & apart(plain[:, labels])).all())
        clear = (apart(cut, top_k) & apart(plain, top_k)).double().mean()
        assert float(clear) > 0.9
        slack = 1e-12 + 1 - float(clear)  # a prompt's overlap may change where it is not clear
        value = found.interval("word_loyalty", **where).value
        assert value == pytest.approx(float(word), abs=slack, rel=0)


def layers_of(side, depth):
    return range(depth) if side == "first" else range(4 - depth, 4)


@each_set
def test_attention_auc_and_share(model, name):
    golden = {
        key: torch.from_numpy(arrays("label_words", "deep.npz")[f"{name}_{key}"])
        for key in ("A", "auc_fixed", "R_fixed")
    }
    prompts = label_words_prompts(f"icl/{name}")
    found = extraction(model, prompts, two_classes="reference")
    torch.testing.assert_close(found.attention, golden["A"], rtol=0, atol=2e-5)
    assert bool(apart(predict(model, prompts).label_logits).all())
    slack = auc_slack(golden["A"].double(), found.truth_classes)
    assert bool(((found.auc - golden["auc_fixed"]).abs() <= slack + 1e-12).all())
    together = golden["auc_fixed"] - 0.5
    off = (found.cumulative - golden["R_fixed"]).abs() * float(together.sum().abs())
    assert bool((off <= 2 * slack.sum() + 1e-12).all())


def auc_slack(attention, truth):
    """What each layer's AUC may move by: attention differs by 1e-6 at most, mostly less."""
    scores = attention if attention.shape[-1] == 2 else attention / attention.sum(-1, keepdim=True)
    present = truth.unique().tolist()
    shares = []
    for layer in scores.unbind(1):
        moved = [
            close_pairs(layer[inside, label], truth[inside] == label, margin=1e-5)
            for i, a in enumerate(present)
            for b in present[:i]
            for inside in [(truth == a) | (truth == b)]
            for label in (a, b)
        ]
        shares.append(max(moved))
    assert max(shares) < 0.05
    return torch.tensor(shares, dtype=torch.float64)


@pytest.mark.parametrize("name", ["sst2_s1", "sst2_s2"])
def test_normalised_scores_of_two_classes_are_another_variant(model, name):
    golden = torch.from_numpy(arrays("label_words", "deep.npz")[f"{name}_auc_fixed"])
    found = extraction(model, label_words_prompts(f"icl/{name}"))
    assert float((found.auc - golden).abs().max()) > 0.01

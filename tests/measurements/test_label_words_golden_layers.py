"""Isolation and extraction on a tiny GPT-2, against numbers of the paper's own code."""

import pytest
import torch

from icl_mech.measurements.extraction.label_words import extraction
from icl_mech.measurements.isolation.windows import isolation
from tests.golden_data import arrays, golden_model, label_words_prompts

pytestmark = pytest.mark.tl3
each_set = pytest.mark.parametrize("name", ["sst2_s1", "sst2_s2", "agnews_s1", "agnews_s2"])

EXACT = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(scope="module")
def model():
    return golden_model("label_words", "tiny_gpt2")


@each_set
@pytest.mark.parametrize("top_k", [5, 10])
def test_loyalties(model, name, top_k):
    golden = arrays("label_words", "shallow.npz")
    prompts = label_words_prompts(f"icl/{name}")
    found = isolation(model, prompts, depths=[1, 2], tokens="label", top_k=top_k)
    for side, depth in (("first", 1), ("first", 2), ("last", 1), ("last", 2)):
        for loyalty, kind in (("label_loyalty", ""), ("word_loyalty", f"_top{top_k}")):
            value = found.interval(loyalty, side=side, depth=depth, tokens="label").value
            expected = float(golden[f"{name}_{side}{depth}_{loyalty}{kind}"])
            assert value == pytest.approx(expected, abs=1e-12, rel=0)


@each_set
def test_attention_auc_and_share(model, name):
    golden = {
        key: torch.from_numpy(arrays("label_words", "deep.npz")[f"{name}_{key}"])
        for key in ("A", "auc_fixed", "R_fixed")
    }
    found = extraction(model, label_words_prompts(f"icl/{name}"), two_classes="reference")
    torch.testing.assert_close(found.attention, golden["A"], rtol=0, atol=2e-5)
    torch.testing.assert_close(found.auc, golden["auc_fixed"], **EXACT)
    torch.testing.assert_close(found.cumulative, golden["R_fixed"], **EXACT)


@pytest.mark.parametrize("name", ["sst2_s1", "sst2_s2"])
def test_normalised_scores_of_two_classes_are_another_variant(model, name):
    golden = torch.from_numpy(arrays("label_words", "deep.npz")[f"{name}_auc_fixed"])
    found = extraction(model, label_words_prompts(f"icl/{name}"))
    assert float((found.auc - golden).abs().max()) > 0.01

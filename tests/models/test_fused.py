"""Fused weights changed in place reach the parts that a bridge computes with."""

import copy

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ModelError
from tests.families.configs import BY_NAME
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

FAMILIES = {
    "GPT-NeoX": "query_key_value",
    "BLOOM": "query_key_value",
    "Falcon": "query_key_value",
    "CodeGen": "qkv_proj",
    "Phi 3": "gate_up_proj",
    "GPT-2": "c_attn",
}


def loaded(name):
    family = BY_NAME[name]
    inner, plain = family.make(), family.make()
    weights = {n: own for n, own in inner.named_parameters() if FAMILIES[name] in n}
    model = icl.load_model(inner, tokenizer=copy.deepcopy(tiny_tokenizer(family.tokenizer)))
    return weights, plain, model


@pytest.mark.parametrize("name", FAMILIES)
def test_a_change_in_place_is_computed_with(name):
    weights, plain, model = loaded(name)
    prompts = icl.build_prompts("reviews", model, n=2)
    before = icl.predict(model, prompts).label_logits
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for own, weight in weights.items():
            weight.mul_(1 + 0.5 * torch.randn(weight.shape, generator=generator))
            plain.get_parameter(own).copy_(weight)
        wanted = torch.stack([
            plain(torch.tensor([p.tokens])).logits[0, p.target][list(p.label_tokens)] for p in prompts
        ])  # fmt: skip
    found = icl.predict(model, prompts).label_logits
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, before, atol=1e-2)


def test_parts_changed_by_hand_stay_and_both_are_refused():
    weights, _, model = loaded("GPT-NeoX")
    prompts = icl.build_prompts("reviews", model, n=2)
    before = icl.predict(model, prompts).label_logits
    with torch.no_grad():
        model.blocks[0].attn.q.original_component.weight.mul_(3)
    changed = icl.predict(model, prompts).label_logits
    assert not torch.allclose(changed, before, atol=1e-3)
    torch.testing.assert_close(icl.predict(model, prompts).label_logits, changed)
    with torch.no_grad():
        next(iter(weights.values())).mul_(2)
    with WORDS.raises(ModelError, "parts_changed_hand_stay"):
        icl.predict(model, prompts)

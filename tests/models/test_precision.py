"""float64 is float64 from the embedding to the logits, in every family and on every path."""

import copy
import warnings

import pytest
import torch
from transformer_lens.model_bridge import TransformerBridge

import icl_mech as icl
from icl_mech.interventions import Isolate
from icl_mech.models import adapt
from icl_mech.segments import Segment
from tests.engine.cases import ragged
from tests.tiny import FAMILIES, tiny_hf, tiny_model, tiny_tokenizer, tokenizer_kind


def wide_model(family):
    return TransformerBridge.boot_transformers(
        f"tiny-{family}",
        hf_model=tiny_hf(family).double(),
        tokenizer=copy.deepcopy(tiny_tokenizer(tokenizer_kind(family))),
        dtype=torch.float64,
        device="cpu",
    )


def logits(model, prompts):
    segment = Segment.whole(model, prompts)
    with torch.no_grad():
        residual = model.forward(segment.tokens, segment.mask, segment.positions).residual
        return model.logits(segment.at_target(residual))


@pytest.mark.tl3
@pytest.mark.parametrize("family", [*FAMILIES, "gptneo", "xglm"])
def test_float64(family):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some models of TransformerLens 3.9 speak of dtypes
        bridge = wide_model(family)
    model, prompts = adapt(bridge), ragged()
    padded = logits(model, prompts)
    assert padded.dtype == torch.float64
    single = torch.cat([logits(model, prompts[[row]]) for row in range(len(prompts))])
    torch.testing.assert_close(padded, single, rtol=0, atol=1e-10)
    narrow = tiny_model(family)
    close = {"rtol": 0, "atol": 1e-5, "check_dtype": False}
    flow, recomputed = (icl.flow_scores(bridge, prompts, memory=m).per_prompt for m in (None, 1))
    torch.testing.assert_close(flow, icl.flow_scores(narrow, prompts).per_prompt, **close)
    torch.testing.assert_close(recomputed, flow, rtol=0, atol=1e-10)
    isolated = {"interventions": [Isolate((0, 1)), Isolate((2,), mode="zero")]}
    for study, options in ((icl.logit_lens, {}), (icl.predict, isolated)):
        found, expected = (study(m, prompts, **options).label_logits for m in (bridge, narrow))
        torch.testing.assert_close(found, expected, **close)


def test_the_models_own_numbers_stay_its_own():
    bridge = wide_model("llama")
    tokens = torch.tensor([ragged()[0].tokens])
    before = bridge(tokens)
    adapt(bridge)
    icl.flow_scores(bridge, ragged())
    assert torch.equal(bridge(tokens), before)
    assert torch.zeros(1).double().float().dtype == torch.float32

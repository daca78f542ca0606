"""Saliency of three tokens, against autograd over the model's own logits.

With the text at 0, a label word at 1 and the target at 2 there are three edges, so
S_wp = I[1, 0], S_pq = I[2, 1] and S_ww = I[2, 0].
"""

from functools import lru_cache

import pytest
import torch

import icl_mech as icl
from tests.engine.cases import plain_saliency, ragged, reduced, three_tokens
from tests.margins import apart
from tests.tiny import FAMILIES, tiny_model

LOSSES = ("label", "prediction", "vocab")
REDUCTIONS = ("sum_then_abs", "abs_then_sum")

each_loss = pytest.mark.parametrize("loss", LOSSES)
each_reduction = pytest.mark.parametrize("reduction", REDUCTIONS)

SAME = {"rtol": 1e-4, "atol": 2e-6}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@lru_cache
def model_of(family):
    return tiny_model(family)


@each_loss
@each_reduction
def test_three_tokens(family, loss, reduction):
    model, prompts = model_of(family), three_tokens()
    saliency = reduced(plain_saliency(model, prompts[0], loss), reduction)
    assert (saliency[:-1, 2].amax(-1) > 1e-5).all()

    maps = icl.saliency_maps(model, prompts, loss=loss, reduction=reduction)
    torch.testing.assert_close(maps.values[0], saliency, **SAME)

    flow = icl.flow_scores(model, prompts, loss=loss, reduction=reduction)
    edges = torch.stack([saliency[:, 1, 0], saliency[:, 2, 1], saliency[:, 2, 0]])
    torch.testing.assert_close(flow.per_prompt[0], edges.double(), **SAME)


@pytest.mark.parametrize(("loss", "reduction"), [*zip(LOSSES, REDUCTIONS * 2, strict=False)])
def test_long_prompts_in_one_batch(family, loss, reduction):
    model, prompts = model_of(family), ragged()
    maps = icl.saliency_maps(model, prompts, loss=loss, reduction=reduction)
    for prompt, values in zip(prompts, maps.values, strict=True):
        expected = reduced(plain_saliency(model, prompt, loss), reduction)
        torch.testing.assert_close(values, expected, **SAME)


def test_the_losses_and_reductions_differ(family):
    model = model_of(family)
    predicted = int(icl.predict(model, three_tokens()).predicted)
    prompts = three_tokens(answer=(predicted + 1) % 3)
    found = [
        icl.saliency_maps(model, prompts, loss=loss, reduction=reduction).values[0]
        for loss in LOSSES
        for reduction in REDUCTIONS
    ]
    size = max(float(values.max()) for values in found)
    for i, one in enumerate(found):
        for other in found[:i]:
            assert float((one - other).abs().max()) > 1e-3 * size


def test_the_loss_of_a_prediction_is_that_of_the_predicted_class():
    model = model_of("gpt2")
    read = icl.predict(model, three_tokens())
    assert bool(apart(read.label_logits).all())
    predicted = int(read.predicted)
    as_answer = icl.flow_scores(model, three_tokens(answer=predicted), loss="label")
    unlabelled = icl.flow_scores(model, three_tokens(answer=None))
    torch.testing.assert_close(unlabelled.per_prompt, as_answer.per_prompt, rtol=0, atol=0)
    assert unlabelled.provenance["variants"]["loss"] == "prediction"

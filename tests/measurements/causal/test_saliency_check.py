"""Saliency beside cutting the same edges."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.metrics import flow_counts
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import N_LAYERS, tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def prompts(model):
    return icl.build_prompts(TASK, model, shots=2, n=6)


@pytest.fixture(scope="module")
def found(model, prompts):
    return icl.saliency_check(model, prompts)


def test_saliency_is_that_of_flow_scores(model, prompts, found):
    flow = icl.flow_scores(model, prompts, loss="label")
    counts = flow_counts(prompts.label_positions, prompts.targets)[:, :2, None]
    assert_close(found.saliency.double(), flow.per_prompt[:, :2] * counts, atol=1e-5, rtol=1e-4)


def test_changes_by_hand(model, prompts, found):
    """The pattern of TransformerLens, set to 0 at the edges of each group."""
    prompt = prompts[2]
    tokens = torch.tensor([prompt.tokens])
    labels = torch.tensor(prompt.label_tokens)
    places = list(prompt.label_positions)

    def loss(layer=None, group=None):
        def cut(pattern, hook):
            new = pattern.clone()
            if group == "wp":
                for place in places:
                    new[:, :, place, :place] = 0.0
            else:
                new[:, :, prompt.target, places] = 0.0
            return new

        hooks = [] if layer is None else [(f"blocks.{layer}.attn.hook_pattern", cut)]
        logits = model.run_with_hooks(tokens, fwd_hooks=hooks)[0, prompt.target, labels]
        return cross_entropy(logits[None].double(), torch.tensor([prompt.answer]))

    plain = loss()
    for layer in range(N_LAYERS):
        for number, group in enumerate(("wp", "pq")):
            expected = loss(layer, group) - plain
            assert_close(found.change[2, number, layer], expected.detach(), atol=1e-4, rtol=1e-3)


def test_shown_and_saved(found, tmp_path):
    assert found.agreement.shape == (6, 2)
    assert found.agreement.abs().max() <= 1 + 1e-9
    found.save(tmp_path / "own")
    assert type(found).load(tmp_path / "own").summary() == found.summary()
    assert found.plot().data
    assert "rank correlation" in found.figures()[0].answer


def test_prompts_without_demonstrations_are_refused(model):
    with WORDS.raises(icl.IclMechError, "prompts_without_demonstrations_refused"):
        icl.saliency_check(model, icl.build_prompts(TASK, model, shots=0, n=4))

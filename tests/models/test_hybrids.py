"""Models with layers that are not attention: what needs no pattern works, the rest says which blocks lack one."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.interventions import AddVector, Cut, ZeroHeads, ZeroLayers
from icl_mech.models import adapt
from icl_mech.models.interface import OTHER_MIXING
from tests.engine.test_paths import TASK
from tests.families.configs import BY_NAME
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)
NO_ATTENTION = ("Mamba", "Zamba 2")
ONE_BLOCK = ("Jamba", "LFM 2", "Bamba", "OLMo hybrid", "Qwen 3 Next")
BOTH = "Falcon-H1"
CLOSE = {"atol": 2e-5, "rtol": 0}


def loaded(name):
    return icl.load_model(BY_NAME[name].make(), tokenizer=tiny_tokenizer("bpe"))


USUAL = ("Mamba", "Jamba", BOTH)


def marks(name):
    return [] if name in USUAL else [pytest.mark.slow]


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=marks(name)) for name in (*NO_ATTENTION, *ONE_BLOCK, BOTH)],
)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(name):
    return loaded(name)


@pytest.fixture(scope="module")
def prompts(model):
    return icl.build_prompts(TASK, model, shots=1, n=3)


def hugging_face(name, prompts):
    """Label logits of the plain model."""
    plain = BY_NAME[name].make()
    rows = []
    for prompt in prompts:
        with torch.no_grad():
            logits = plain(torch.tensor([prompt.tokens]), use_cache=False).logits
        rows.append(logits[0, prompt.target, list(prompt.label_tokens)])
    return torch.stack(rows)


def test_what_needs_no_pattern_works(name, model, prompts):
    expected = hugging_face(name, prompts)
    torch.testing.assert_close(icl.predict(model, prompts).label_logits, expected, **CLOSE)
    lens = icl.logit_lens(model, prompts).label_logits
    torch.testing.assert_close(lens[:, -1], expected, **CLOSE)
    ablated = icl.predict(model, prompts, interventions=[ZeroLayers(1)]).label_logits
    torch.testing.assert_close(ablated, lens[:, 1], **CLOSE)
    vector = torch.ones(adapt(model).info.d_model)
    moved = icl.predict(model, prompts, interventions=[AddVector(vector, layer=0)]).label_logits
    assert not torch.allclose(moved, expected, atol=1e-3)


def test_pairs_and_transplants_need_no_pattern(name, model):
    true, false = icl.build_prompt_pairs(TASK, model, shots=2, n=3)
    layers = adapt(model).info.n_layers
    found = icl.layer_accuracy(model, true, false)
    assert found.true_probs.shape == (3, layers + 1, 2)
    moved = icl.transplant(model, true, false, at="anchors", layers=[0], draws=1)
    if name == "Zamba 2":
        return  # its attention reads the embeddings again, beside the residual stream
    # The label words' own embeddings are all that differs between the two runs.
    torch.testing.assert_close(moved.log_probs[:, 0, 0, 0], moved.plain[:, 1], **CLOSE)
    torch.testing.assert_close(moved.log_probs[:, 1, 0, 0], moved.plain[:, 0], **CLOSE)


def test_what_needs_every_pattern_names_the_blocks_without(name, model, prompts):
    if name == BOTH:
        assert icl.flow_scores(model, prompts).per_prompt.isfinite().all()
        return
    with WORDS.raises(ModelError, "no_attention" if name in NO_ATTENTION else "one_block"):
        icl.flow_scores(model, prompts)


def test_the_block_with_a_pattern_is_cut_and_ablated(name, model, prompts):
    if name in NO_ATTENTION:
        pytest.skip("it has no attention")
    plain = icl.predict(model, prompts).label_logits
    for change in (Cut("label_word", "target", layers=[1]), ZeroHeads([(1, 0)])):
        assert not torch.equal(
            icl.predict(model, prompts, interventions=[change]).label_logits, plain
        )


def test_a_hybrid_is_noted_and_shares_no_beginnings(name, model, prompts):
    adapted = adapt(model)
    (note,) = adapted.info.notes
    assert note.startswith(OTHER_MIXING)
    assert not adapted.takes_cache
    assert adapted.without_pattern == {BOTH: (), **dict.fromkeys(NO_ATTENTION, (0, 1))}.get(
        name, (0,)
    )
    assert icl.predict(model, prompts).provenance["model"]["notes"] == (note,)


def test_it_writes_what_hugging_face_writes(name, model, prompts):
    found = icl.generate(model, prompts[:1], max_new_tokens=4, attention=False)
    plain = BY_NAME[name].make()
    ids = torch.tensor([prompts[0].tokens])
    for _ in range(4):
        with torch.no_grad():
            new = plain(ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], 1)
    assert list(found.tokens[0]) == ids[0, -4:].tolist()


@pytest.mark.slow
def test_the_overthinking_study_leaves_out_heads_alone():
    model = loaded("Jamba")
    pair = icl.build_prompt_pairs(TASK, model, shots=2, n=4)
    found = icl.analyze(model, pair, study="overthinking", nulls=0)
    assert {"layer_accuracy", "early_exit", "top_words"} <= found.results.keys()
    assert "head_scores" not in found.results
    left_out = [note for note in found.notes if "[0]" in note]
    assert len(left_out) >= 3

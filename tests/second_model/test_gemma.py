"""Gemma 3 270M, the second real model: 262,000 tokens of SentencePiece, sliding windows, grouped queries."""

import gguf
import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

import icl_mech as icl
from icl_mech.measurements import Predict
from icl_mech.model_sources import DEFAULT_MODEL, SECOND_MODEL, resolve
from icl_mech.models import adapt, conversion
from icl_mech.models.gguf_reader import ListReader

pytestmark = [pytest.mark.second_model, pytest.mark.slow]

TEXT = (
    "The old lighthouse stood at the edge of the cliff, where the wind never rested. Every evening the "
    "keeper climbed the narrow stairs, lit the lamp, and watched the ships pass far below."
)
TASKS = ("reviews", "headlines", "questions")


@pytest.fixture(scope="module")
def model():
    return icl.load_model(SECOND_MODEL)


@pytest.fixture(scope="module")
def hf():
    """The same as plain Hugging Face reads it."""
    folder = conversion.converted(*resolve(SECOND_MODEL).pieces)
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def test_what_is_recorded(model):
    info = adapt(model).info
    assert (info.name, info.architecture) == (SECOND_MODEL, "Gemma3ForCausalLM")
    assert (info.n_layers, info.n_heads, info.n_kv_heads, info.d_vocab) == (18, 4, 1, 262144)
    assert info.weights_format == "Q8_0"  # of the embedding, which is most of it
    config = model.original_model.config
    assert config.sliding_window == 512
    assert [*range(18)][5::6] == [
        layer for layer, kind in enumerate(config.layer_types) if kind == "full_attention"
    ]


def test_weights_are_those_of_the_file(model, tmp_path):
    held = dict(model.original_model.named_parameters())
    held = {name.replace("_original_component.", ""): value for name, value in held.items()}
    with conversion._whole(resolve(SECOND_MODEL).pieces, tmp_path) as file:
        tensors = {own.name: own for own in ListReader(file).tensors}
        for name, place in (
            ("blk.3.attn_q", "layers.3.self_attn.q_proj"),
            ("blk.9.ffn_down", "layers.9.mlp.down_proj"),
        ):
            packed = tensors[f"{name}.weight"]
            plain = torch.from_numpy(gguf.dequantize(packed.data, packed.tensor_type))
            assert torch.equal(held[f"model.{place}.weight"], plain)


def test_logits_are_hugging_faces(model, hf):
    prompts = icl.build_prompts("questions", model, shots=1, n=2)
    found = icl.predict(model, prompts).label_logits
    for row, prompt in enumerate(prompts):
        with torch.no_grad():
            logits = hf(torch.tensor([prompt.tokens])).logits[0, prompt.target]
        assert_close(found[row], logits[list(prompt.label_tokens)], atol=2e-3, rtol=0)


def test_it_finds_english_likely(model):
    ids = torch.tensor([model.tokenizer(TEXT)["input_ids"]])
    with torch.no_grad():
        log_probs = model(ids)[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])
    assert 5 < float((-log_probs.mean()).exp()) < 40


@pytest.mark.parametrize("task", TASKS)
def test_a_prompt_has_the_tokens_of_its_text(model, task):
    tokenizer = model.tokenizer
    for prompt in icl.build_prompts(task, model, shots=1, n=20):
        text = tokenizer.decode(prompt.tokens, skip_special_tokens=True)
        assert list(prompt.tokens) == tokenizer(text)["input_ids"]


def test_it_judges_reviews_and_one_sweep_holds_both_models(tmp_path):
    found = icl.sweep(
        [DEFAULT_MODEL, SECOND_MODEL],
        ["reviews"],
        [Predict()],
        seeds=[0],
        n=24,
        shots=1,
        out=tmp_path,
    )
    assert not found.failures()
    right = {}
    for item, analysis in found:
        (result,) = analysis.results.values()
        right[item.model] = float((result.predicted == result.answers).float().mean())
    assert 0.59 <= right[SECOND_MODEL] <= 0.83, right
    assert right[DEFAULT_MODEL] < right[SECOND_MODEL]


def test_one_study(model):
    pair = icl.build_prompt_pairs("questions", model, shots=1, n=4)
    found = icl.analyze(model, pair, study="overthinking", nulls=0)
    assert {"layer_accuracy", "early_exit", "head_scores", "ablation"} <= found.results.keys()
    lens = found.results["layer_accuracy"].true_probs
    assert lens.shape == (4, 19, 6)
    assert_close(lens.sum(-1), torch.ones(4, 19).double())

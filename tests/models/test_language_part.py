"""Models of texts and images: their language parts, from folders and as they are held."""

import copy

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.models import adapt
from icl_mech.models.loading import load_tokenizer
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import randomize, tiny_tokenizer

WORDS = Words(__file__)
IDS = torch.tensor([[5, 9, 40, 7, 11, 3, 60]])
TEXT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "intermediate_size": 48, "max_position_embeddings": 256, "pad_token_id": 0,
}  # fmt: skip
VISION = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
          "intermediate_size": 32, "patch_size": 14}  # fmt: skip
QWEN = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "patch_size": 14}
TURNS = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
WHOLE = {
    "qwen2_5_vl": ({"rope_parameters": TURNS}, {**QWEN, "out_hidden_size": 32}, "Qwen2ForCausalLM"),
    "qwen3_vl": (
        {"rope_parameters": {**TURNS, "mrope_interleaved": True}},
        {**QWEN, "out_hidden_size": 32, "deepstack_visual_indexes": [0]},
        "Qwen3ForCausalLM",
    ),
    "mistral3": ({"model_type": "mistral"}, {**VISION, "head_dim": 16}, "MistralForCausalLM"),
    "gemma3": (
        {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
        VISION,
        "Gemma3ForCausalLM",
    ),
    "llava": ({"model_type": "llama"}, VISION, "LlamaForCausalLM"),
}


def make(kind, **options):
    text, vision, _ = WHOLE[kind]
    text = {**TEXT, "vocab_size": len(tiny_tokenizer("bpe")), **text}
    config = AutoConfig.for_model(kind, text_config=text, vision_config=vision, **options)
    whole = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    randomize(whole, seed=0)
    return whole


@pytest.fixture(scope="module", params=WHOLE)
def pair(request, tmp_path_factory):
    whole, folder = make(request.param), tmp_path_factory.mktemp("whole") / request.param
    whole.save_pretrained(folder)
    tiny_tokenizer("bpe").save_pretrained(folder)
    return request.param, whole, folder


def logits(whole):
    with torch.no_grad():
        return whole(input_ids=IDS).logits


def test_a_folder_gives_its_language_part(pair):
    kind, whole, folder = pair
    model = icl.load_model(str(folder))
    with torch.no_grad():
        torch.testing.assert_close(model(IDS), logits(whole), atol=2e-5, rtol=0)
    info = adapt(model).info
    assert (info.architecture, info.name) == (WHOLE[kind][2], kind)
    assert info.weights_format == "F32"
    WORDS.exactly(info.notes[0], "folder_gives_language_part", type(whole).__name__)
    prompts = icl.build_prompts(TASK, model, shots=1, n=3)
    found = icl.flow_scores(model, prompts)
    assert found.provenance["model"]["notes"] == info.notes
    assert load_tokenizer(str(folder)).model_max_length == TEXT["max_position_embeddings"]


def test_a_model_that_is_held_shares_its_weights(pair):
    _, whole, _ = pair
    whole = copy.deepcopy(whole)
    before = logits(whole)
    part = icl.load_model(whole, tokenizer=tiny_tokenizer("bpe"))
    assert torch.equal(logits(whole), before)
    held = {parameter.data_ptr() for parameter in whole.parameters()}
    assert {p.data_ptr() for p in part.original_model.parameters()} <= held


def test_embeddings_that_are_tied_stay_tied():
    part = icl.load_model(
        make("qwen3_vl", tie_word_embeddings=True), tokenizer=tiny_tokenizer("bpe")
    )
    inner = part.original_model
    assert inner.lm_head.weight is inner.get_input_embeddings().weight


def test_a_part_that_computes_something_else_is_refused():
    whole = make("qwen2_5_vl")
    whole.lm_head.register_forward_hook(lambda _, __, output: output * (1 + whole.passes()))
    turns = iter(range(9))
    whole.passes = lambda: next(turns)
    with WORDS.raises(
        ModelError, "part_computes_something_else", "Qwen2_5_VLForConditionalGeneration"
    ):
        icl.load_model(whole, tokenizer=tiny_tokenizer("bpe"))

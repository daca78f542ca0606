"""Hugging Face models that the caller holds."""

import copy

import pytest
import torch
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, GPT2Model, PreTrainedTokenizerFast

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.models import adapt
from tests.engine.test_paths import TASK
from tests.families.configs import BY_NAME
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model, tiny_tokenizer, tokenizer_kind

WORDS = Words(__file__)

IDS = torch.tensor([[5, 9, 40, 7, 11]])


def tokenizer():
    return tiny_tokenizer("bpe")


def refusal(model, **options):
    with pytest.raises(ModelError) as found:
        icl.load_model(model, **options)
    return str(found.value)


@pytest.mark.tl3
@pytest.mark.parametrize("family", ["gpt2", "gemma3"])
def test_it_gives_the_numbers_of_a_bridge(family):
    kind = tiny_tokenizer(tokenizer_kind(family))
    model, bridge = icl.load_model(tiny_hf(family), tokenizer=kind), tiny_model(family)
    prompts = icl.build_prompts(TASK, model, shots=1, n=3)
    found, expected = (icl.flow_scores(one, prompts).per_prompt for one in (model, bridge))
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.tl3
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_attention_becomes_eager_and_dropout_stops(attention):
    plain = tiny_hf("gpt2")
    expected = plain(IDS).logits
    plain.set_attn_implementation(attention)
    model = icl.load_model(plain.train(), tokenizer=tokenizer())
    assert model.original_model is plain, "wrapped, not copied"
    assert plain.config._attn_implementation == "eager"
    assert not any(part.training for part in plain.modules())
    torch.testing.assert_close(model(IDS), expected, atol=1e-5, rtol=1e-5)


def test_the_tokenizer_is_copied_and_begins_texts_as_before():
    own = copy.deepcopy(tokenizer())
    own.bos_token = own.eos_token
    before = copy.deepcopy(own.init_kwargs), own.special_tokens_map
    model = icl.load_model(tiny_hf("gpt2"), tokenizer=own)
    assert model.tokenizer is not own
    assert model.tokenizer("good movie")["input_ids"] == own("good movie")["input_ids"]
    assert (own.init_kwargs, own.special_tokens_map) == before


def test_dtype_and_device_are_the_models_unless_given():
    half = icl.load_model(tiny_hf("llama").to(torch.bfloat16), tokenizer=tokenizer())
    assert (adapt(half).info.dtype, adapt(half).info.device) == ("bfloat16", "cpu")
    cast = icl.load_model(tiny_hf("llama"), tokenizer=tokenizer(), dtype="bfloat16", device="cpu")
    assert {parameter.dtype for parameter in cast.parameters()} == {torch.bfloat16}
    frequencies = [b for name, b in cast.named_buffers() if name.endswith("inv_freq")]
    assert {buffer.dtype for buffer in frequencies} == {torch.float32}


def test_its_name_is_recorded(tmp_path):
    tiny_hf("gpt2").save_pretrained(tmp_path / "mine")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "mine")
    assert adapt(icl.load_model(plain, tokenizer=tokenizer())).info.name == "mine"
    plain = tiny_hf("gpt2")
    assert adapt(icl.load_model(plain, tokenizer=tokenizer())).info.name == "GPT2LMHeadModel"


def test_a_model_made_from_a_config_is_known_by_its_class():
    plain = BY_NAME["Qwen 3 MoE"].make()
    plain.config.architectures = None
    model = icl.load_model(plain, tokenizer=tokenizer())
    assert adapt(model).info.architecture == "Qwen3MoeForCausalLM"
    assert plain.config.architectures is None


@pytest.mark.parametrize("name", ["Falcon, new decoder", "Gemma 3, text and images"])
def test_nothing_of_the_libraries_stays_changed(name):
    import transformers
    from transformer_lens.model_bridge.supported_architectures import FalconArchitectureAdapter

    before = dict(vars(FalconArchitectureAdapter)), transformers.AutoProcessor.from_pretrained
    plain = BY_NAME[name].make()
    icl.load_model(plain, tokenizer=tokenizer())
    assert before == (
        dict(vars(FalconArchitectureAdapter)),
        transformers.AutoProcessor.from_pretrained,
    )
    assert getattr(plain.config, "multi_query", True)


def test_a_falcon_that_transformer_lens_splits_wrongly_is_refused():
    plain = BY_NAME["Falcon, new decoder"].make()
    plain.config.multi_query = False  # else it cannot be wrapped at all
    bridge = TransformerBridge.boot_transformers(
        "falcon", hf_model=plain, tokenizer=copy.deepcopy(tokenizer()), device="cpu"
    )
    ids = torch.tensor([[5, 9, 40, 7]])
    own = BY_NAME["Falcon, new decoder"].make()(ids).logits
    assert not torch.allclose(bridge(ids), own, atol=0.1), "mended by now"
    with WORDS.raises(ModelError, "falcon_transformer_lens_splits"):
        adapt(bridge)


def test_nothing_is_installed_for_images(monkeypatch):
    def install(*_, **__):
        raise AssertionError("TransformerLens looks for torchvision")

    monkeypatch.setattr("subprocess.check_call", install)
    icl.load_model(BY_NAME["Gemma 3, text and images"].make(), tokenizer=tokenizer())


def test_a_model_is_wrapped_once():
    plain = tiny_hf("gpt2")
    icl.load_model(plain, tokenizer=tokenizer())
    WORDS(refusal(plain, tokenizer=tokenizer()), "model_wrapped_once")


def test_adapters_are_to_be_merged_first():
    plain = tiny_hf("gpt2")
    plain.peft_config = {"default": "lora"}
    assert "merge_and_unload" in refusal(plain, tokenizer=tokenizer())


def test_a_model_without_head_is_refused():
    plain = GPT2Model(tiny_hf("gpt2").config)
    assert "GPT2Model" in refusal(plain, tokenizer=tokenizer())


def test_it_passes_the_checks_of_other_models():
    plain = tiny_hf("gpt2")
    plain.transformer.h[1].mlp.c_fc.weight.data[0, 0] = torch.nan
    assert "NaN or infinite" in refusal(plain, tokenizer=tokenizer())


def test_a_wrong_wrapping_is_noticed(monkeypatch):
    """As of a family whose fused projection TransformerLens splits the wrong way."""
    from transformer_lens.model_bridge.supported_architectures.gpt2 import GPT2ArchitectureAdapter

    prepare = GPT2ArchitectureAdapter.prepare_model

    def spoil(self, hf_model):
        prepare(self, hf_model)
        hf_model.transformer.h[0].attn.c_attn.weight.data.roll(1, 1)
        hf_model.transformer.h[0].attn.c_attn.weight.data.mul_(1.1)

    monkeypatch.setattr(GPT2ArchitectureAdapter, "prepare_model", spoil)
    found = refusal(tiny_hf("gpt2"), tokenizer=tokenizer())
    WORDS(found, "wrong_wrapping_noticed")


def test_a_tokenizer_made_in_memory_needs_no_name():
    plain = tokenizer()
    own = PreTrainedTokenizerFast(
        tokenizer_object=plain.backend_tokenizer,
        bos_token=plain.eos_token,
        eos_token=plain.eos_token,
        pad_token=plain.pad_token,
    )
    assert "name_or_path" not in own.init_kwargs
    model = icl.load_model(tiny_hf("gpt2"), tokenizer=own)
    found, expected = (
        icl.build_prompts(TASK, one, shots=1, n=3).prompts[0].tokens
        for one in (model, icl.load_model(tiny_hf("gpt2"), tokenizer=plain))
    )
    assert found == expected
    assert "name_or_path" not in own.init_kwargs

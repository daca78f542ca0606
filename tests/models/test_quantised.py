"""Weights quantised as they are loaded, by bitsandbytes where it is installed."""

import importlib.util

import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.models import adapt
from icl_mech.models.checks import plain_name
from icl_mech.models.huggingface import plain_weight
from icl_mech.models.loading import boot
from icl_mech.models.watching import is_packed
from tests.benchmarks import formats
from tests.benchmarks.unchanged import TWO
from tests.engine.cases import ragged
from tests.said import Words
from tests.tiny import randomize, tiny_hf, tiny_tokenizer

WORDS = Words(__file__)

needed = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed"
)
BITS = ("8bit", "4bit")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Llama as wide as blocks of 4-bit weights are long."""
    made = tmp_path_factory.mktemp("wide")
    tokenizer = tiny_tokenizer("sentencepiece")
    sizes = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(
        **sizes,
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        max_position_embeddings=512,
        bos_token_id=tokenizer.bos_token_id,
    )
    model = AutoModelForCausalLM.from_config(config)
    randomize(model, 0)
    with torch.no_grad():
        for weight in (own for own in model.parameters() if own.ndim > 1):
            weight *= 0.4  # attention that is not saturated
    model.save_pretrained(made)
    tokenizer.save_pretrained(made)
    return str(made)


@pytest.mark.parametrize(
    ("given", "says"), [("8bit", "needs bitsandbytes installed"), ("8", "8bit 4bit")]
)
def test_what_cannot_be_quantised_is_refused_before_loading(monkeypatch, folder, given, says):
    monkeypatch.setattr("icl_mech.models.wrapping.find_spec", lambda _: None)
    monkeypatch.setattr("icl_mech.models.loading._load", lambda *_: pytest.fail("it was loaded"))
    with WORDS.raises(ModelError, says):
        boot(folder, quantization=given)


@pytest.mark.parametrize("bits", BITS)
def test_what_transformers_is_told(monkeypatch, bits):
    from icl_mech.models.wrapping import quantised

    monkeypatch.setattr("icl_mech.models.wrapping.find_spec", lambda _: "found")
    how = quantised(bits, torch.bfloat16, "cpu")
    assert how["device_map"] == {"": "cpu"}
    told = how["quantization_config"]
    assert (told.load_in_8bit, told.load_in_4bit) == (bits == "8bit", bits == "4bit")
    if bits == "4bit":
        assert (told.bnb_4bit_quant_type, told.bnb_4bit_compute_dtype) == ("nf4", torch.bfloat16)


@pytest.fixture(scope="module", params=BITS)
def pair(request, folder):
    """The model in float32, and quantised."""
    return icl.load_model(folder), icl.load_model(folder, quantization=request.param), request.param


@needed
def test_what_was_used_is_recorded(pair):
    _, model, bits = pair
    origin = icl.predict(model, ragged()).provenance["model"]
    kind = {"8bit": "int8", "4bit": "nf4"}[bits]
    assert origin["weights_format"] == f"bitsandbytes {kind} of F32"
    assert kind in adapt(model).info.summary()


@needed
def test_the_digest_holds_the_scales_and_stays_the_same(pair):
    whole, model, _ = pair
    before = adapt(model).fingerprint(exact=True)
    icl.flow_scores(model, ragged())
    icl.predict(model, ragged())
    assert adapt(model).fingerprint(exact=True) == before != adapt(whole).fingerprint()
    layer = model.original_model.model.layers[1].mlp.up_proj._original_component
    scale = layer.weight.quant_state.absmax if "4bit" in str(type(layer)) else layer.state.SCB
    scale[0] *= 2
    assert adapt(model).fingerprint(exact=True) != before
    scale[0] /= 2


@needed
def test_a_prompt_has_its_numbers_whatever_stands_beside_it(pair):
    _, model, _ = pair
    tokens = torch.randint(5, 300, (6, 12), generator=torch.Generator().manual_seed(1))
    layer = model.original_model.model.embed_tokens._original_component.weight
    with torch.no_grad():
        layer[tokens[1]] *= 50  # columns that are outliers in some rows
        whole = model.original_model(tokens).logits[0]
        alone = model.original_model(tokens[:1]).logits[0]
        layer[tokens[1]] /= 50
    torch.testing.assert_close(alone, whole, rtol=0, atol=1e-5 * float(whole.abs().max()))


@needed
def test_heads_are_read_with_what_the_integers_stand_for(pair):
    whole, model, _ = pair
    for layer in range(3):
        found, expected = (adapt(own).head_weights(layer)[0] for own in (model, whole))
        assert found.dtype == torch.float32
        assert 0 < float((found - expected).norm() / expected.norm()) < 0.15


@pytest.fixture(scope="module")
def plain(pair, folder):
    """A model in float32 whose weights are what the integers stand for."""
    hf_model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    inner = pair[1].original_model.named_modules()
    packed = {plain_name(f"{name}."): own for name, own in inner if is_packed(own)}
    with torch.no_grad():
        for name, part in hf_model.named_modules():
            if (own := packed.pop(f"{name}.", None)) is not None:
                part.weight.copy_(plain_weight(own, part.weight))
    assert not packed
    return icl.load_model(hf_model, tokenizer=tiny_tokenizer("sentencepiece"))


AS_PLAIN = {"8bit": 0.4, "4bit": 1e-3}
"""Largest deviation; 8-bit layers round what they are given, too."""

CHOOSING = ("FalseInduction", "Generate", "SaliencyCheck")
"""Ranks, words and heads that are chosen may be others where a digit is."""


@needed
@pytest.mark.parametrize(
    "name",
    [
        own
        if own in ("Predict", "Flow", "LogitLens", "HeadScores", "Reweighting")
        else pytest.param(own, marks=pytest.mark.slow)
        for own in formats.names(fitted=False)
    ],
)
def test_numbers_are_those_of_what_the_integers_stand_for(pair, plain, name):
    _, model, bits = pair
    prompts = formats.Prompts.of(model, TWO)
    expected, found = (formats.tried(name, own, prompts) for own in (plain, model))
    assert not found.refused + expected.refused
    if bits == "4bit" or name not in CHOOSING:
        assert not formats.deviation(found.result, expected.result) > AS_PLAIN[bits]


@needed
def test_gradients_are_those_of_the_quantised_model(pair, plain):
    """Behind a pass without gradients, where bitsandbytes may pack weights for inference."""
    _, model, bits = pair
    icl.predict(model, ragged())
    for options in ({}, {"memory": 1}):
        found, expected = (icl.flow_scores(own, ragged(), **options) for own in (model, plain))
        assert formats.deviation(found, expected) < AS_PLAIN[bits]


@needed
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weights_packed_for_inference_are_refused(folder):
    quantised = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    model = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=quantised, device_map="cpu", attn_implementation="eager"
    ).eval()
    tokenizer = tiny_tokenizer("sentencepiece")
    with torch.no_grad():
        model(torch.tensor([[5, 6, 7]]))
    packed = getattr(
        model.model.layers[0].mlp.up_proj.weight.quant_state, "packing_format_for_cpu", 0
    )
    if not packed:
        pytest.skip("this processor is not one for which weights are packed")
    with WORDS.raises(ModelError, "weights_packed_inference_refused", "0"):
        icl.load_model(model, tokenizer=tokenizer)


@needed
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("family", ["gpt2", "neox"])
def test_fused_projections_are_refused(tmp_path, family, bits):
    tiny_hf(family).save_pretrained(tmp_path)
    tiny_tokenizer("bpe").save_pretrained(tmp_path)
    with WORDS.raises(ModelError, "fused_projections_refused"):
        icl.load_model(str(tmp_path), quantization=bits)


@needed
def test_other_options_of_quantised_models(pair, folder):
    whole, model, _ = pair
    drawn = icl.untrained(model)
    assert {own.dtype for own in drawn.parameters()} == {torch.float32}
    assert adapt(drawn).info.weights_format == ""
    with WORDS.raises(ModelError, "other_options_quantised_models"):
        icl.untrained(model, kind="shuffled")
    quantised = BitsAndBytesConfig(load_in_8bit=True)
    hf_model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=quantised)
    with WORDS.raises(ModelError, "other_options_quantised_models_2"):
        icl.load_model(hf_model, tokenizer=tiny_tokenizer("sentencepiece"), dtype="bfloat16")
    plain = whole.original_model.model.layers[0].mlp.up_proj._original_component
    assert plain_weight(plain, plain.weight) is plain.weight

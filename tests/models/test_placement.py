"""Where weights go: one device, several, or off all of them until they are needed."""

import pytest
import torch
from accelerate import cpu_offload
from transformers import AutoConfig, LlamaForCausalLM

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.models import adapt, wrapping
from tests.benchmarks import formats
from tests.benchmarks.formats import off_loaded
from tests.benchmarks.unchanged import TWO
from tests.engine.cases import ragged
from tests.said import Words
from tests.tiny import tiny_hf, tiny_tokenizer, tokenizer_kind

WORDS = Words(__file__)

PARTS = ("transformer.wte", "transformer.wpe", "transformer.h", "transformer.ln_f", "lm_head")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("spread")
    tiny_hf("gpt2").save_pretrained(made)
    tiny_tokenizer("bpe").save_pretrained(made)
    return str(made)


@pytest.fixture(scope="module")
def whole(folder):
    return icl.load_model(folder)


@pytest.mark.tl3
@pytest.mark.parametrize(
    "options",
    [
        {"device_map": "cpu"},
        {"device_map": {"": "cpu"}},
        {"device_map": dict.fromkeys(PARTS, "cpu")},
        {"device_map": "auto"},
        {"device_map": "auto", "max_memory": {"cpu": "1GB"}},
    ],
    ids=str,
)
def test_a_spread_model_gives_the_same_numbers(folder, whole, options):
    model = icl.load_model(folder, **options)
    info = adapt(model).info
    assert info.device == str(model.original_model.get_input_embeddings().weight.device) == "cpu"
    ids = torch.tensor([[5, 9, 40, 7]])
    assert torch.equal(model(ids), whole(ids))


NOWHERE = "nowhere"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device_map": {"": "disk"}}, NOWHERE),
        ({"device_map": {"": "meta"}}, "meta"),
        ({"device_map": {"transformer": "cpu", "lm_head": "disk"}}, "lm_head.weight"),  # tied
        ({"device_map": {**dict.fromkeys(PARTS, "cpu"), "transformer.h": "disk"}}, "one matrix"),
        ({"device_map": "auto", "max_memory": {"cpu": "50KB"}}, NOWHERE),
        ({"device_map": {"transformer.wte": "cpu", "lm_heat": "cpu"}}, "lm_heat"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_placed_so_is_refused(folder, options, says):
    with WORDS.raises(ModelError, says):
        icl.load_model(folder, **options)


def test_places_are_looked_at_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    spreading = {"device_map": {"a": 0, "b": "cpu", "c": "disk"}, "max_memory": {0: "20GB"}}
    assert wrapping.spread(None, **spreading) == spreading
    with WORDS.raises(ModelError, "places_looked_before_anything", "'cuda:2'", "1"):
        wrapping.spread(None, {"a": 0, "b": 2}, None)
    with WORDS.raises(ModelError, "places_looked_before_anything_2"):
        wrapping.spread("cuda", {"a": 0}, None)


# --- off-loaded: accelerate fetches weights from memory or disk whenever they are needed ---


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    made = tmp_path_factory.mktemp("llama")
    tiny_hf("llama").save_pretrained(made)
    tiny_tokenizer("sentencepiece").save_pretrained(made)
    return str(made)


def on_disk(folder, place):
    config = AutoConfig.from_pretrained(folder)
    return icl.load_model(folder, device_map=off_loaded(config), offload_folder=str(place))


def in_memory(folder, _):
    """As beside a GPU: weights stay in the main memory, and go where they compute for a moment."""
    model = LlamaForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    for block in (*model.model.layers[:2], model.lm_head):
        cpu_offload(block, execution_device=torch.device("cpu"))
    return icl.load_model(model, tokenizer=tiny_tokenizer("sentencepiece"))


@pytest.fixture(scope="module", params=[on_disk, in_memory])
def pair(request, llama, tmp_path_factory):
    """The model whole, and off-loaded."""
    return icl.load_model(llama), request.param(llama, tmp_path_factory.mktemp("off"))


def test_an_off_loaded_model_leaves_nothing_behind(pair):
    whole, apart = pair
    gone = [name for name, own in apart.named_parameters() if own.is_meta]
    assert any("layers.1" in name for name in gone)
    assert adapt(apart).fingerprint(exact=True) == adapt(whole).fingerprint(exact=True)
    icl.predict(apart, ragged())
    assert [name for name, own in apart.named_parameters() if own.is_meta] == gone


QUICK = ("Flow", "HeadScores", "LogitLens", "Predict", "TaskVector", "Reweighting")


@pytest.mark.parametrize(
    "name",
    [own if own in QUICK else pytest.param(own, marks=pytest.mark.slow) for own in formats.names()],
)
def test_every_measurement_gives_the_same_off_loaded(pair, name):
    prompts = formats.Prompts.of(pair[0], TWO)
    expected, found = (formats.tried(name, own, prompts) for own in pair)
    assert not expected.refused + found.refused
    assert list(dict(formats.numbers(found.result))) == list(dict(formats.numbers(expected.result)))
    for field, own in formats.numbers(found.result):
        other = dict(formats.numbers(expected.result))[field]
        torch.testing.assert_close(own, other, rtol=0, atol=1e-6, equal_nan=True)


def test_recomputed_blocks_fetch_their_weights_again(pair):
    expected, found = (icl.flow_scores(own, ragged(), memory=1).per_prompt for own in pair)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)


def test_off_loaded_weights_are_told_apart(llama, tmp_path):
    """The digest reads what is on disk, not that it is elsewhere."""
    other = tiny_hf("llama")
    with torch.no_grad():
        other.model.layers[1].mlp.up_proj.weight[0, 0] += 1
    other.save_pretrained(tmp_path / "other")
    tiny_tokenizer("sentencepiece").save_pretrained(tmp_path / "other")
    one, two = (
        on_disk(own, tmp_path / str(number))
        for number, own in enumerate((llama, str(tmp_path / "other")))
    )
    assert adapt(one).fingerprint() != adapt(two).fingerprint()


def test_networks_that_learned_nothing_are_made_whole(pair):
    _, apart = pair
    drawn = icl.untrained(apart)
    assert not any(own.is_meta for own in drawn.parameters())
    with WORDS.raises(ModelError, "networks_learned_nothing_made"):
        icl.untrained(apart, kind="shuffled")


def test_weights_that_are_nowhere_are_refused():
    with torch.device("meta"):
        model = LlamaForCausalLM(tiny_hf("llama").config)
    with WORDS.raises(ModelError, "weights_nowhere_refused"):
        icl.load_model(model, tokenizer=tiny_tokenizer("sentencepiece"))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gptj", "opt", "gemma3"])
@pytest.mark.filterwarnings("ignore")
def test_other_families_with_separate_projections(family):
    """Norms after attention, biases of the output, attention that is re-routed."""
    whole = icl.load_model(tiny_hf(family), tokenizer=tiny_tokenizer(tokenizer_kind(family)))
    apart = tiny_hf(family)
    base = apart.model if hasattr(apart, "model") else apart.transformer
    blocks = getattr(base, "h", None) or getattr(base, "layers", None) or base.decoder.layers
    cpu_offload(blocks[1], execution_device=torch.device("cpu"))
    apart = icl.load_model(apart, tokenizer=tiny_tokenizer(tokenizer_kind(family)))
    for function, options in ((icl.flow_scores, {}), (icl.logit_lens, {"per": "head"})):
        found, expected = (function(own, ragged(), **options) for own in (apart, whole))
        assert formats.deviation(found, expected) <= 1e-6

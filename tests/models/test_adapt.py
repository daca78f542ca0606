"""`adapt` and `load_model`: what they take, what they refuse, and that they check once."""

import copy
import gc
import weakref
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

import icl_mech as icl
from icl_mech.errors import IclMechError, ModelError
from icl_mech.models import LanguageModel, adapt
from icl_mech.studies import nulls
from tests.engine.cases import ragged
from tests.said import Words
from tests.tiny import (
    D_HEAD,
    D_MODEL,
    N_CTX,
    N_HEADS,
    N_KV_HEADS,
    tiny_hf,
    tiny_model,
    tiny_tokenizer,
)

WORDS = Words(__file__)

GOLDEN = Path(__file__).parent.parent / "golden" / "label_words" / "tiny_gpt2"


def test_facts_about_the_model():
    bridge = tiny_model("llama")
    info = adapt(bridge).info
    assert info.name == "tiny-llama"
    assert info.architecture == "LlamaForCausalLM"
    assert (info.n_layers, info.n_heads, info.n_kv_heads) == (3, N_HEADS, N_KV_HEADS)
    assert (info.d_model, info.d_head, info.n_ctx) == (D_MODEL, D_HEAD, N_CTX)
    assert info.d_vocab == bridge.original_model.config.vocab_size
    assert (info.dtype, info.device, info.revision) == ("float32", "cpu", None)
    assert info.library.endswith(" TransformerBridge")
    assert not info.processed_weights


@pytest.mark.slow
def test_a_model_is_checked_once(monkeypatch):
    module, calls = import_module("icl_mech.models.adapt"), []
    check_model = module.check_model
    monkeypatch.setattr(nulls, "_KNOWN", {})  # networks that other tests measured
    monkeypatch.setattr(
        module, "check_model", lambda model: (calls.append(model), check_model(model))
    )
    bridge = tiny_model("gpt2")
    first = adapt(bridge)
    icl.analyze(bridge, ragged())
    assert adapt(bridge) is first
    assert adapt(first) is first
    # Untrained networks stand beside it, each checked once, too.
    assert calls[0] is first
    assert ["untrained" in own.info.name for own in calls] == [False, True, True, True]
    other = tiny_model("gpt2", seed=1)
    assert adapt(other) is not first
    assert len(calls) == 5


def test_a_model_that_failed_is_checked_again():
    bridge = tiny_model("gpt2")
    parameter = next(bridge.parameters())
    kept = parameter.detach().clone()
    with torch.no_grad():
        parameter.fill_(float("nan"))
    for _ in range(2):
        with pytest.raises(ModelError, match="NaN"):
            adapt(bridge)
    with torch.no_grad():
        parameter.copy_(kept)
    assert isinstance(adapt(bridge), LanguageModel)


def processed(bridge):
    bridge.enable_compatibility_mode(disable_warnings=True)


def rescaled(bridge):
    weights = bridge.original_model.state_dict()
    bridge.original_model.load_state_dict({name: 1.1 * w for name, w in weights.items()})


def in_float64(bridge):
    bridge.to(torch.float64)


@pytest.mark.filterwarnings("ignore:The weights of .* are processed:UserWarning")
@pytest.mark.parametrize("change", [processed, rescaled, in_float64])
def test_a_model_changed_after_its_first_use(change):
    """Logits, label logits and saliency are those of the model as it now is."""
    bridge, prompts = tiny_model("gpt2"), ragged()
    before = icl.flow_scores(bridge, prompts)
    change(bridge)
    logits = torch.stack([bridge(torch.tensor([p.tokens]))[0, -1] for p in prompts])
    labels = logits[:, prompts.label_tokens].detach()
    found = icl.predict(bridge, prompts)
    torch.testing.assert_close(found.label_logits, labels, rtol=0, atol=5e-5)
    residual = torch.randn(2, D_MODEL, generator=torch.Generator().manual_seed(0)).to(logits.dtype)
    columns = torch.tensor([[7, 8], [9, 7]])
    torch.testing.assert_close(
        adapt(bridge).label_logits(residual, columns),
        adapt(bridge).logits(residual).gather(1, columns),
        rtol=0,
        atol=5e-5,
    )
    info = adapt(bridge).info
    assert info.processed_weights == (change is processed)
    assert info.dtype == ("float64" if change is in_float64 else "float32")
    after = icl.flow_scores(bridge, prompts)
    same = torch.allclose(after.per_prompt, before.per_prompt, rtol=1e-3, atol=1e-6)
    # Constants folded out of the values leave the logits, not the gradients of attention.
    assert same == (change is in_float64)


@pytest.mark.slow
def test_a_forgotten_model_is_freed():
    bridge = tiny_model("gpt2")
    icl.predict(bridge, ragged())
    gone = weakref.ref(bridge)
    del bridge
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("study", [adapt, lambda model: icl.flow_scores(model, ragged())])
@pytest.mark.parametrize("thing", ["gpt2", None, {"model": 1}])
def test_not_a_model(study, thing):
    kind = type(thing).__name__
    with WORDS.raises(ModelError, "no_model", kind, "icl_mech.load_model"):
        study(thing)


def test_a_hugging_face_model_is_to_be_wrapped():
    with WORDS.raises(ModelError, "hugging_face_model_wrapped", "2"):
        adapt(tiny_hf("gpt2"))


class TransformerBridge(torch.nn.Linear):
    """Stands in for a bridge around an encoder, which TransformerLens can also build."""

    def __init__(self, **attributes):
        super().__init__(2, 2)
        vars(self).update(attributes)


@pytest.mark.parametrize(
    ("cfg", "hf_config"),
    [
        ({"attention_dir": "bidirectional"}, {}),
        ({"attention_dir": "causal"}, {"is_encoder_decoder": True}),
    ],
    ids=["bidirectional", "encoder-decoder"],
)
def test_an_encoder(cfg, hf_config):
    stub = TransformerBridge(
        cfg=SimpleNamespace(model_name="some-bert", **cfg),
        original_model=SimpleNamespace(config=SimpleNamespace(**hf_config)),
    ).eval()
    with WORDS.raises(ModelError, "encoder", "'some-bert'", "'gpt2'"):
        adapt(stub)


def test_a_bert(tmp_path):
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    BertForMaskedLM(config).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).write_bytes((GOLDEN / name).read_bytes())
    with WORDS.raises(ModelError, "bert", "'bert'", "'gpt2'"):
        icl.load_model(str(tmp_path))


def test_a_bridge_around_bert():
    """Wrapped by hand; whatever is said, it is refused."""
    from transformer_lens.model_bridge import TransformerBridge as Bridge

    config = BertConfig(
        vocab_size=446,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        attn_implementation="eager",
        architectures=["BertForMaskedLM"],
    )
    bridge = Bridge.boot_transformers(
        "tiny-bert",
        hf_model=BertForMaskedLM(config).eval(),
        tokenizer=copy.deepcopy(tiny_tokenizer("bpe")),
        dtype=torch.float32,
        device="cpu",
    )
    with pytest.raises(IclMechError):
        adapt(bridge.eval())


@pytest.fixture(scope="module")
def loaded():
    return icl.load_model(str(GOLDEN))


def test_a_loaded_folder_is_ready_to_use(loaded):
    assert not loaded.training
    info = adapt(loaded).info
    assert (info.name, info.n_layers, info.n_heads) == ("tiny_gpt2", 4, 4)
    prompts = icl.prompts_from_text(
        ["Review: a fine film\nSentiment: Positive\nReview: dull\nSentiment:"],
        ["Negative", "Positive"],
        loaded,
    )
    logits = loaded(torch.tensor([prompts[0].tokens]))[0, -1]
    found = icl.predict(loaded, prompts).label_logits[0]
    torch.testing.assert_close(found, logits[prompts.label_tokens], rtol=0, atol=5e-5)


def test_narrower_weights(loaded):
    model = icl.load_model(str(GOLDEN), dtype="bfloat16")
    assert adapt(model).info.dtype == "bfloat16"
    texts = ["Review: a fine film\nSentiment: Positive\nReview: dull\nSentiment:"]
    words = ["Negative", "Positive"]
    narrow, wide = (
        icl.flow_scores(m, icl.prompts_from_text(texts, words, m)) for m in (model, loaded)
    )
    torch.testing.assert_close(narrow.values, wide.values, rtol=0, atol=0.1)
    assert narrow.provenance["model"]["dtype"] == "bfloat16"


def test_an_unknown_name():
    with WORDS.raises(ModelError, "unknown_name", "'gtp2'", "'gpt2'"):
        icl.load_model("gtp2")

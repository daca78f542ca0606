"""What recognises a model: weights, settings, hooks, and values that were made of them."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import RunError
from icl_mech.measurements import Flow
from icl_mech.models import adapt, watching
from icl_mech.models.watching import Watch
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model, tiny_tokenizer

WORDS = Words(__file__)


@pytest.fixture
def loaded():
    """A Hugging Face model and the bridge around it."""
    inner = tiny_hf("llama")
    return inner, icl.load_model(inner, tokenizer=tiny_tokenizer("sentencepiece"))


@pytest.fixture
def prompts(loaded):
    return icl.build_prompts("reviews", loaded[1], shots=1, n=6)


def changes():
    def data(model):
        model.model.norm.weight.data.mul_(1.5)

    def counted(model):
        with torch.no_grad():
            model.model.layers[1].mlp.up_proj.weight[3, 5] += 1

    def replaced(model):
        layer = model.model.layers[0].self_attn.o_proj
        layer.weight = torch.nn.Parameter(layer.weight.detach() * 2)

    def exchanged(model):
        old = model.model.layers[0].mlp.down_proj
        fresh = torch.nn.Linear(old.in_features, old.out_features, bias=False)
        model.model.layers[0].mlp.down_proj = fresh

    def loaded(model):
        state = {name: value + 1e-3 for name, value in model.state_dict().items()}
        model.load_state_dict(state)

    def through_numpy(model):
        model.model.embed_tokens.weight.detach().numpy()[:] += 0.1

    return [data, counted, replaced, exchanged, loaded, through_numpy]


@pytest.mark.parametrize("change", changes(), ids=lambda own: own.__name__)
def test_every_change_of_weights_is_seen(change):
    inner = tiny_hf("llama")
    watch = Watch(inner)
    before = watch.weights()
    assert watch.weights() == before == Watch(inner).weights() == watch.weights(exact=True)
    change(inner)
    assert watch.weights() != before
    assert watch.weights() == Watch(inner).weights()


def test_a_hidden_change_of_one_entry_is_seen_by_reading_all():
    layer = torch.nn.Linear(300, 300)
    watch = Watch(layer)
    before = watch.weights()
    layer.weight.data[7, 11] += 1
    assert watch.weights(exact=True) != before
    assert Watch(layer).weights() == watch.weights()  # no reading of before is left


def test_a_tensor_is_read_once_whatever_holds_it(monkeypatch):
    layer = torch.nn.Linear(300, 300)
    before = Watch(layer).weights()
    holder = torch.nn.Sequential(layer)
    monkeypatch.setattr(watching, "_Known", None)  # reading makes one
    Watch(holder).weights()
    assert Watch(layer).weights() == before
    layer.weight.data.zero_()
    with pytest.raises(TypeError):
        Watch(holder).weights()


def test_other_models_and_formats_are_others():
    one, other = tiny_hf("llama", 0), tiny_hf("llama", 1)
    assert Watch(one).weights() != Watch(other).weights()
    assert Watch(one).weights() != Watch(tiny_hf("llama", 0).double()).weights()
    assert Watch(one).weights() == Watch(tiny_hf("llama", 0)).weights()
    assert Watch(torch.nn.Linear(3, 3, device="meta")).weights()


def test_settings_are_those_that_compute(loaded):
    inner, model = loaded
    adapted = adapt(model)
    before = adapted.settings
    assert adapted.settings == before
    attention = inner.model.layers[0].self_attn
    scaling = attention.scaling
    attention.scaling = scaling * 3
    assert adapted.settings != before
    attention.scaling = scaling
    assert adapted.settings == before
    inner.config.rms_norm_eps = 1.0
    assert adapted.settings != before


def test_running_changes_neither_settings_nor_weights(loaded, prompts):
    adapted = adapt(loaded[1])
    before = adapted.settings, adapted.fingerprint(exact=True)
    icl.flow_scores(loaded[1], prompts)
    icl.predict(loaded[1], prompts, interventions=[icl.Isolate([0])])
    assert (adapted.settings, adapted.fingerprint(exact=True)) == before
    other = icl.load_model(tiny_hf("llama"), tokenizer=tiny_tokenizer("sentencepiece"))
    assert (adapt(other).settings, adapt(other).fingerprint()) == before


def test_what_is_made_of_weights_is_made_anew(loaded):
    inner, model = loaded
    pair = icl.build_prompt_pairs("reviews", model, shots=2, n=4)
    icl.head_scores(model, pair[1])
    factors = 1 + 0.01 * torch.linspace(-2, 3, 32)
    inner.model.norm.weight.data.mul_(factors)
    found = icl.head_scores(model, pair[1]).promoting
    copy = tiny_hf("llama")
    copy.model.norm.weight.data.mul_(factors)
    right = icl.load_model(copy, tokenizer=tiny_tokenizer("sentencepiece"))
    torch.testing.assert_close(found, icl.head_scores(right, pair[1]).promoting)


def cut(module, inputs, output):
    """A hook that looks at a position."""
    hidden = (output[0] if isinstance(output, tuple) else output).clone()
    hidden[:, 3:4] = 0
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden


@pytest.mark.parametrize("batch_size", [None, 1])
def test_hooks_on_modules_see_whole_prompts(loaded, prompts, batch_size):
    inner, model = loaded
    assert not adapt(model).has_own_hooks
    handle = inner.model.layers[0].register_forward_hook(cut)
    try:
        assert adapt(model).has_own_hooks
        with torch.no_grad():
            wanted = torch.stack([
                inner(torch.tensor([list(own.tokens)])).logits[0, own.target][list(own.label_tokens)]
                for own in prompts
            ])  # fmt: skip
        found = icl.predict(model, prompts, batch_size=batch_size)
        torch.testing.assert_close(found.label_logits, wanted, rtol=1e-5, atol=1e-5)
        (name,) = found.provenance["model"]["own_hooks"]
        assert name.endswith(": cut")
        assert "layers.0" in name or "blocks.0" in name
    finally:
        handle.remove()
    assert not adapt(model).has_own_hooks


def test_hooks_on_modules_refuse_what_splits_prompts(loaded, prompts, tmp_path):
    inner, model = loaded
    handle = inner.model.layers[0].register_forward_hook(cut)
    try:
        with WORDS.raises(RunError, "hooks_modules_refuse_what"):
            icl.compress_demonstrations(model, prompts)
        with WORDS.raises(RunError, "hooks_modules_refuse_what_2"):
            icl.measure(model, prompts, Flow(), out=tmp_path / "unused")
    finally:
        handle.remove()


def test_kept_results_are_of_the_same_settings(loaded, prompts, tmp_path):
    inner, model = loaded
    icl.measure(model, prompts, Flow(), out=tmp_path)
    inner.model.layers[0].self_attn.scaling *= 3
    with WORDS.raises(RunError, "kept_results_same_settings"):
        icl.measure(model, prompts, Flow(), out=tmp_path)


def test_hooks_of_libraries_are_no_hooks_of_others():
    model = tiny_model("opt")
    assert Watch(model).foreign_hooks() == ()


def test_a_forward_put_in_the_place_of_a_modules_own_is_a_hook(loaded):
    hf, model = loaded
    adapted = adapt(model)
    assert not adapted.watch.foreign_hooks()
    part = hf.get_submodule("model.layers.1.mlp")._original_component
    own = part.forward
    part.forward = lambda *given, **named: 2 * own(*given, **named)
    try:
        (found,) = adapted.watch.foreign_hooks()
        assert "forward = " in found
        assert adapted.has_own_hooks
    finally:
        del part.forward
    assert not adapted.watch.foreign_hooks()

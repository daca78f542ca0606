"""Hooks of the caller's where a bridge computes by itself: refused by name; elsewhere they run."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.models import adapt
from tests.said import Words
from tests.tiny import tiny_hf, tiny_tokenizer, tokenizer_kind

WORDS = Words(__file__)


def halved(module, args, output):
    """A hook that changes every row."""
    return (output[0] / 2, *output[1:]) if isinstance(output, tuple) else output / 2


def loaded(family):
    inner = tiny_hf(family)
    parts = dict(inner.named_modules())  # as they are before a bridge goes around them
    return parts, icl.load_model(inner, tokenizer=tiny_tokenizer(tokenizer_kind(family)))


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "model.layers.1.self_attn"),
        ("gpt2", "transformer.h.0.ln_1"),
        ("gpt2", "transformer.ln_f"),
        ("neox", "gpt_neox.layers.2.attention"),
    ],
)
def test_a_hook_the_bridge_would_leave_out_is_refused(family, name):
    parts, model = loaded(family)
    prompts = icl.build_prompts("reviews", model, n=2)
    plain = icl.predict(model, prompts).label_logits
    handle = parts[name].register_forward_hook(halved)
    before = dict(vars(parts[name])["_forward_hooks"])
    with WORDS.raises(ModelError, "hook_bridge_would_leave"):
        icl.predict(model, prompts)
    assert vars(parts[name])["_forward_hooks"] == before
    handle.remove()
    torch.testing.assert_close(icl.predict(model, prompts).label_logits, plain)


def test_a_hook_already_there_is_refused_at_load():
    inner = tiny_hf("llama")
    inner.model.layers[0].self_attn.register_forward_hook(halved)
    with WORDS.raises(ModelError, "hook_already_there_refused"):
        icl.load_model(inner, tokenizer=tiny_tokenizer("sentencepiece"))


@pytest.mark.parametrize("name", ["model.norm", "lm_head"])
def test_a_hook_that_would_see_chosen_rows_is_refused(name):
    parts, model = loaded("llama")
    parts[name].register_forward_hook(halved)
    with WORDS.raises(ModelError, "hook_would_see_chosen"):
        icl.predict(model, icl.build_prompts("reviews", model, n=2))


def test_the_same_place_after_loading_is_heard():
    inner = tiny_hf("llama")
    model = icl.load_model(inner, tokenizer=tiny_tokenizer("sentencepiece"))
    prompts = icl.build_prompts("reviews", model, n=2)
    plain = icl.predict(model, prompts).label_logits
    calls = []

    def counted(module, args, output):
        calls.append(1)
        return halved(module, args, output)

    inner.model.layers[1].self_attn.register_forward_hook(counted)
    adapt(model)
    assert not calls  # looking which modules are called runs no hook
    assert not torch.allclose(icl.predict(model, prompts).label_logits, plain)
    assert calls

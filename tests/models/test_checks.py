"""Each load-time check refuses the fault it is for, and says what it found."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.models import adapt
from icl_mech.models.checks import check_model
from icl_mech.models.transformer_lens import wrap
from tests.engine.cases import ragged
from tests.said import Words
from tests.tiny import FAMILIES, tiny_model

WORDS = Words(__file__)

VALUES = {"nan": float("nan"), "infinite": float("inf")}


@pytest.fixture(scope="module")
def bridge():
    return tiny_model("gpt2")


@pytest.fixture
def model(bridge):
    """A new adapter each time, whose methods a test may replace."""
    return wrap(bridge)


def replace_hooks(model, monkeypatch, change):
    """Runs the model with `change(hook function)` in place of every hook function."""
    forward = model.forward

    def changed(*inputs, hooks=(), **options):
        hooks = [(site, change(function)) for site, function in hooks]
        return forward(*inputs, hooks=hooks, **options)

    monkeypatch.setattr(model, "forward", changed)


def test_the_untouched_model_passes(model):
    check_model(model)
    assert model.info.notes == ()


@pytest.mark.parametrize("family", [*FAMILIES, "gptneo", "xglm"])
def test_all_families_pass(family):
    assert adapt(tiny_model(family)).info.n_layers == 3


def test_training_mode():
    bridge = tiny_model("gpt2").train()
    with WORDS.raises(ModelError, "training_mode"):
        adapt(bridge)
    adapt(bridge.eval())
    bridge.train()
    with WORDS.raises(ModelError, "training_mode_2"):
        icl.predict(bridge, ragged())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("", "whole model"),
        ("transformer.drop", "transformer.drop is"),
        ("transformer.h.1.attn.attn_dropout", "attn_dropout is"),
    ],
)
def test_training_mode_of_a_part(part, named):
    bridge = tiny_model("gpt2")
    model = adapt(bridge)
    bridge.original_model.get_submodule(part).train()
    assert not bridge.training
    for seen in (bridge, model):
        with WORDS.raises(ModelError, named, "model.eval()"):
            icl.predict(seen, ragged())
    icl.predict(bridge.eval(), ragged())


@pytest.mark.parametrize("value", VALUES)
def test_weights_that_are_not_finite_are_named(value):
    bridge = tiny_model("gpt2")
    name, parameter = list(bridge.named_parameters())[20]
    with torch.no_grad():
        parameter.view(-1)[3] = VALUES[value]
    with WORDS.raises(ModelError, "first_of_the_weights", repr(name)):
        adapt(bridge)


def deaf(function):
    """The hook function without its effect."""

    def hook(activation):
        function(activation)

    return hook


def test_edits_of_attention_that_do_nothing(model, monkeypatch):
    replace_hooks(model, monkeypatch, deaf)
    with WORDS.raises(ModelError, "edits_that_do_nothing", "0", "GPT2LMHeadModel"):
        check_model(model)


@pytest.mark.parametrize("block", [0, 2])
def test_edits_that_do_nothing_in_the_first_or_last_block(model, monkeypatch, block):
    forward = model.forward

    def deaf_there(*inputs, hooks=(), **options):
        hooks = [(site, deaf(f) if site.layer == block else f) for site, f in hooks]
        return forward(*inputs, hooks=hooks, **options)

    monkeypatch.setattr(model, "forward", deaf_there)
    with WORDS.raises(ModelError, "edits_that_do_nothing", block):
        check_model(model)


def test_attention_rows_above_one(model, monkeypatch):
    replace_hooks(model, monkeypatch, lambda function: lambda pattern: function(1.05 * pattern))
    with WORDS.raises(ModelError, "attention_rows_above", "1.050"):
        check_model(model)


def test_attention_rows_below_one_are_noted(model, monkeypatch):
    """Attention sinks take part of every row; that is no fault."""
    replace_hooks(model, monkeypatch, lambda function: lambda pattern: function(0.9 * pattern))
    check_model(model)
    WORDS.exactly(model.info.notes, "rows_below_one", "1")


def test_a_pattern_that_is_reported_twice(model, monkeypatch):
    def twice(function):
        def hook(activation):
            function(activation)
            return function(activation)

        return hook

    replace_hooks(model, monkeypatch, twice)
    with WORDS.raises(ModelError, "pattern_reported_twice", "0", "2"):
        check_model(model)


def test_a_pattern_that_is_not_reported(model, monkeypatch):
    forward = model.forward

    def silent(*inputs, hooks=(), **options):
        hooks = [hook for hook in hooks if hook[0].layer != 1]
        return forward(*inputs, hooks=hooks, **options)

    monkeypatch.setattr(model, "forward", silent)
    with WORDS.raises(ModelError, "pattern_reported", "1", "0"):
        check_model(model)


def test_a_readout_that_is_not_understood(model, monkeypatch):
    logits = model.logits
    monkeypatch.setattr(model, "logits", lambda residual: 1.01 * logits(residual))
    with WORDS.raises(ModelError, "readout_understood"):
        check_model(model)


def test_label_columns_that_differ(model, monkeypatch):
    label_logits = model.label_logits
    monkeypatch.setattr(
        model, "label_logits", lambda residual, labels: label_logits(residual, labels.flip(-1))
    )
    with WORDS.raises(ModelError, "label_columns_differ"):
        check_model(model)


def test_padding_that_is_attended_to(model, monkeypatch):
    forward = model.forward

    def unmasked(tokens, mask, positions, **options):
        return forward(tokens, torch.ones_like(mask), positions, **options)

    monkeypatch.setattr(model, "forward", unmasked)
    with WORDS.raises(ModelError, "padding_attended"):
        check_model(model)


def test_positions_that_count_padding(model, monkeypatch):
    forward = model.forward

    def counted(tokens, mask, positions, **options):
        whole = torch.arange(tokens.shape[1]).expand_as(tokens)
        return forward(tokens, mask, whole, **options)

    monkeypatch.setattr(model, "forward", counted)
    with WORDS.raises(ModelError, "positions_count_padding"):
        check_model(model)


def test_a_model_that_looks_ahead():
    """Every position gets the mean over all tokens; the model's own logits do so too."""
    bridge = tiny_model("gpt2")
    embedding = bridge.original_model.get_input_embeddings()
    embedding.register_forward_hook(lambda module, inputs, out: out + out.mean(1, keepdim=True))
    with WORDS.raises(ModelError, "model_looks_ahead"):
        adapt(bridge)

"""nnsight models, here and by way of what is sent to a server: the numbers of the bridge."""

import copy
import sys
from functools import lru_cache, partial

import pytest
import torch
from torch.testing import assert_close
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, MistralConfig, Qwen2Config

import icl_mech as icl
from icl_mech.errors import ModelError, RunError
from icl_mech.interventions import Intervention
from icl_mech.models import Resume, Site, adapt, remote_model
from icl_mech.models.interface import SiteName
from tests.engine.cases import ragged
from tests.said import Words
from tests.tiny import N_HEADS, N_LAYERS, tiny_hf, tiny_model, tiny_tokenizer, tokenizer_kind

nnsight = pytest.importorskip("nnsight", reason="pip install 'icl-mech[nnsight]'")

from nnsight.modeling import huggingface  # noqa: E402

from icl_mech.models import server_pass  # noqa: E402 - needs nnsight

WORDS = Words(__file__)

NEW = hasattr(nnsight, "TransformersModel")
"""nnsight 0.8 calls some things otherwise than 0.6."""
if NEW:
    from nnsight.intervention.backends.local import LocalSimulationBackend

    LanguageModel = partial(nnsight.TransformersModel, task="text-generation")
    ID_CACHE, HIDE, SHOW = huggingface._ID_CACHE, "_hide_local_modules", "_restore"
else:
    from nnsight.intervention.backends.local_simulation import LocalSimulationBackend

    LanguageModel = nnsight.LanguageModel
    ID_CACHE, HIDE, SHOW = huggingface.ID_CACHE, "_block_user_modules", "_restore_modules"

TOLERANCE = 1e-5
SITES = SiteName.__args__

each_family = pytest.mark.parametrize("family", ["llama", "gpt2"])


def wrapped(family, attention="eager"):
    hf = tiny_hf(family)
    hf.config._attn_implementation = attention
    return LanguageModel(hf, tokenizer=tiny_tokenizer(tokenizer_kind(family)))


@lru_cache
def bridge(family):
    return tiny_model(family)


def training():
    model = wrapped("llama")
    model._module.train()
    return model


@lru_cache
def local(family):
    return wrapped(family)


@lru_cache
def server(family):
    return remote_model(wrapped(family, "sdpa"), "local")


@lru_cache
def reviews(family, n=5):
    return icl.build_prompts("reviews", local(family), shots=1, n=n)


def gap(one, other):
    """Largest difference, relative to max(1, |value|)."""
    assert one.shape == other.shape
    same = (one == other) | (one.isnan() & other.isnan())  # infinities too
    one, other = one.double(), other.double()
    return float(((one - other).abs() / other.abs().clamp(min=1)).masked_fill(same, 0).max())


def numbers(result):
    """All tensors of a result."""
    found = {name: value for name, value in vars(result).items() if isinstance(value, torch.Tensor)}
    assert found
    return found


def assert_equal(one, other):
    theirs = numbers(other)
    for name, value in numbers(one).items():
        assert gap(value, theirs[name]) <= TOLERANCE, name


HEADS = [(0, 2), (2, 1)]
TARGETS = {
    "predict": icl.predict,
    "flow": icl.flow_scores,
    "flow, prediction": partial(icl.flow_scores, loss="prediction", reduction="abs_then_sum"),
    "flow, vocabulary": partial(icl.flow_scores, loss="vocab"),
    "flow, absolute": partial(icl.flow_scores, reduction="abs_then_sum"),
    "lens": icl.logit_lens,
    "lens, reference": partial(icl.logit_lens, variant="reference"),
    "heads": icl.head_scores,
    "isolation": partial(icl.isolation, depths=(1,)),
    "extraction": icl.extraction,
    **{
        f"predict, {change!r}": partial(icl.predict, interventions=[change])
        for change in (
            icl.Isolate([0, 1], mode="mask"),
            icl.Isolate([1], mode="zero"),
            icl.ZeroHeads(HEADS),
            icl.ZeroHeads(HEADS, kind="uniform_attention"),
            icl.ZeroHeads(HEADS, kind="mean"),
            icl.ZeroLayers(1, part="attention"),
            icl.ZeroLayers(1, part="mlp"),
        )
    },
    "flow, isolated": partial(icl.flow_scores, interventions=[icl.Isolate([0], mode="zero")]),
}
MORE = {
    "lens by head": partial(icl.logit_lens, per="head"),
    "lens by MLP": partial(icl.logit_lens, per="mlp"),
    "lens at demonstrations": partial(icl.logit_lens, at="demonstrations"),
    "predict, blocks": partial(icl.predict, interventions=[icl.ZeroLayers(1)]),
    "predict, reweighted": partial(
        icl.predict, interventions=[icl.Reweight(torch.full((N_LAYERS, N_HEADS, 2), 0.4))]
    ),
}


@each_family
@pytest.mark.parametrize("measure", [*TARGETS, *MORE])
def test_measurements_equal_the_bridge(family, measure):
    function = {**TARGETS, **MORE}[measure]
    prompts = reviews(family)
    assert_equal(function(local(family), prompts), function(bridge(family), prompts))


@pytest.mark.parametrize(
    ("family", "measure"),
    [
        *(("llama", measure) for measure in TARGETS),
        *(("gpt2", measure) for measure in ("flow", "lens", "heads", "flow, isolated")),
    ],
)
def test_measurements_on_a_server_equal_the_bridge(family, measure):
    prompts = reviews(family, 3)
    assert_equal(
        TARGETS[measure](server(family), prompts), TARGETS[measure](bridge(family), prompts)
    )


def test_what_is_sent_needs_nothing_of_this_package(monkeypatch):
    own = server_pass.rows_on_server

    def alone(*args, **kwargs):
        with monkeypatch.context() as patch:

            def block(backend):
                for name in list(sys.modules):
                    if name.split(".")[0] in ("icl_mech", "jaxtyping", "beartype", "tests"):
                        patch.setitem(sys.modules, name, None)  # cannot be imported any more

            patch.setattr(LocalSimulationBackend, HIDE, block)
            patch.setattr(LocalSimulationBackend, SHOW, lambda *_: None)
            found = own(*args, **kwargs)
            assert sys.modules["icl_mech"] is None
        return found

    monkeypatch.setattr(server_pass, "rows_on_server", alone)
    for function in (TARGETS["flow, isolated"], icl.head_scores):
        prompts = reviews("llama", 3)
        assert_equal(function(server("llama"), prompts), function(bridge("llama"), prompts))


@each_family
@pytest.mark.parametrize("where", [local, server])
def test_prompts_of_unequal_length_equal_the_bridge(family, where):
    for function in (icl.predict, icl.flow_scores):
        assert_equal(function(where(family), ragged()), function(bridge(family), ragged()))


@each_family
@pytest.mark.parametrize("where", [local, server])
def test_padded_prompts_equal_single_ones(family, where):
    for function in (icl.predict, icl.flow_scores):
        padded = function(where(family), ragged())
        single = function(where(family), ragged(), batch_size=1)
        assert_equal(padded, single)


@each_family
def test_whole_maps_equal_the_bridge(family):
    mine, theirs = (icl.saliency_maps(m(family), ragged()) for m in (local, bridge))
    for one, other in zip(mine.values, theirs.values, strict=True):
        assert gap(one, other) <= TOLERANCE


@each_family
def test_shared_beginnings_equal_whole_prompts(family, monkeypatch):
    adapted, cached = adapt(local(family)), []
    forward = type(adapted).forward

    def counted(self, *args, cache=None, **kwargs):
        cached.append(cache is not None)
        return forward(self, *args, cache=cache, **kwargs)

    monkeypatch.setattr(type(adapted), "forward", counted)
    for function in (icl.predict, icl.flow_scores):
        cached.clear()
        shared = function(adapted, reviews(family))
        assert True in cached
        assert_equal(shared, function(adapted, reviews(family), path="whole"))


@each_family
def test_re_weighting_learns_the_same(family):
    options = {"epochs": 2, "batch_size": 3}
    mine, theirs = (icl.fit_reweighting(m(family), reviews(family), **options)
                    for m in (local, bridge))  # fmt: skip
    assert gap(mine.losses, theirs.losses) <= TOLERANCE


@torch.no_grad()
@each_family
@pytest.mark.parametrize("name", SITES)
def test_sites_are_those_of_the_bridge(family, name):
    tokens = torch.randint(5, 300, (2, 7), generator=torch.Generator().manual_seed(3))
    mask, positions = tokens > 0, torch.arange(7).expand(2, 7)
    runs = []
    for model in (adapt(local(family)), adapt(bridge(family))):
        seen = []

        def hook(activation, seen=seen):
            seen.append(activation.detach().clone())
            return activation * 0.5

        hooks = [(Site(name, layer), hook) for layer in (0, 2)]
        residual = model.forward(tokens, mask, positions, hooks=hooks).residual
        plain = model.forward(tokens, mask, positions).residual
        assert gap(residual, plain) > 1e-3
        runs.append((*seen, residual))
    assert len(runs[0]) == 3
    for one, other in zip(*runs, strict=True):
        # Scores of padding and future are the least number there is, or -inf.
        seen = (one > -1e30) | (other > -1e30)
        one, other = one.where(seen, 0), other.where(seen, 0)
        assert gap(one, other) <= TOLERANCE * max(1, float(other.abs().max()))


@torch.no_grad()
@each_family
def test_a_pass_goes_on_from_a_block_behind_a_cache(family):
    model = adapt(local(family))
    tokens = torch.randint(5, 300, (2, 9), generator=torch.Generator().manual_seed(3))
    mask, positions = tokens > 0, torch.arange(9).expand(2, 9)
    entering = []
    hooks = [(Site("resid_pre", 2), entering.append)]
    whole = model.forward(tokens, mask, positions, hooks=hooks).residual
    before = model.forward(tokens[:, :6], mask[:, :6], positions[:, :6], keep_cache=True).cache
    start = Resume(2, entering[0][:, 6:])
    after = model.forward(
        tokens[:, 6:], mask, positions[:, 6:], cache=before, start=start, keep_cache=True
    )
    assert gap(after.residual, whole[:, 6:]) <= TOLERANCE
    assert (before.length, after.cache.length) == (6, 9)


@each_family
def test_attention_of_another_kind_gives_the_same(family):
    model = wrapped(family, "sdpa")
    for function in (icl.predict, icl.flow_scores):
        assert_equal(function(model, ragged()), function(bridge(family), ragged()))


@pytest.mark.slow
@pytest.mark.parametrize("config", [MistralConfig, Qwen2Config])
def test_families_with_the_parts_of_llama(config):
    """Mistral with a window that the prompts exceed."""
    tokenizer = tiny_tokenizer("sentencepiece")
    sizes = {
        "vocab_size": len(tokenizer),
        "num_hidden_layers": N_LAYERS,
        "num_attention_heads": N_HEADS,
        "num_key_value_heads": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "sliding_window": 6,
        "initializer_range": 0.3,
    }
    hf = AutoModelForCausalLM.from_config(config(**sizes), attn_implementation="eager").eval()
    hf.config.architectures = [type(hf).__name__]
    theirs = TransformerBridge.boot_transformers(
        "tiny", hf_model=copy.deepcopy(hf), tokenizer=copy.deepcopy(tokenizer), device="cpu"
    )
    hf.config._attn_implementation = "sdpa"
    mine = LanguageModel(hf, tokenizer=tokenizer)
    for function in (icl.predict, icl.flow_scores):
        expected = function(theirs, ragged())
        for model in (mine, remote_model(mine, "local")):
            assert_equal(function(model, ragged()), expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_any_mode_of_the_caller_is_kept(mode):
    expected = icl.predict(local("llama"), ragged()).label_logits
    with mode():
        found = icl.predict(local("llama"), ragged(), interventions=[icl.Isolate([0])])
        plain = icl.predict(local("llama"), ragged())
        seen, tokens = [], torch.tensor([[5, 6, 7]])
        hooks = [
            (
                Site(name, 1),
                lambda _: seen.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled())),
            )
            for name in ("resid_pre", "pattern", "resid_post")
        ]
        adapt(local("llama")).forward(tokens, tokens > 0, torch.arange(3)[None], hooks=hooks)
        assert seen == 3 * [(torch.is_grad_enabled(), torch.is_inference_mode_enabled())]
        assert torch.is_grad_enabled() == (mode is torch.enable_grad)
    assert torch.equal(plain.label_logits, expected)
    assert not found.label_logits.requires_grad


def test_nothing_of_a_run_is_left():
    model = local("llama")
    parameters = [parameter.requires_grad for parameter in model._module.parameters()]
    before = icl.predict(model, ragged()).label_logits
    icl.flow_scores(model, ragged(), interventions=[icl.ZeroHeads(HEADS)])
    assert torch.equal(icl.predict(model, ragged()).label_logits, before)
    assert [parameter.requires_grad for parameter in model._module.parameters()] == parameters
    assert not adapt(model).has_own_hooks
    with model.trace(torch.tensor([[5, 6, 7]])):
        logits = model.lm_head.output.save()
    assert torch.equal(logits, model._module(torch.tensor([[5, 6, 7]])).logits)


@pytest.mark.parametrize("site", ["pattern", "resid_post"])
def test_an_error_in_a_hook_comes_as_it_is_and_leaves_nothing(site):
    model, tokens = adapt(local("gpt2")), torch.tensor([[5, 6, 7]])
    positions = torch.arange(3)[None]
    before = model.forward(tokens, tokens > 0, positions).residual
    raised = RunError("as it is")

    def hook(activation):
        raise raised

    with pytest.raises(RunError, match=r"^as it is$") as caught:
        model.forward(tokens, tokens > 0, positions, hooks=[(Site(site, 1), hook)])
    assert caught.value is raised
    assert torch.equal(model.forward(tokens, tokens > 0, positions).residual, before)


def test_edits_and_hooks_of_the_caller_are_seen_and_kept():
    model = wrapped("llama")
    plain = icl.predict(model, reviews("llama")).label_logits
    with model.edit(inplace=True):
        model.model.layers[1].mlp.output = model.model.layers[1].mlp.output * 0
    assert adapt(model).has_own_hooks
    edited = icl.predict(model, reviews("llama")).label_logits
    both = icl.predict(model, reviews("llama"), interventions=[icl.Isolate([0])]).label_logits
    model.clear_edits()
    assert gap(edited, plain) > 1e-3
    assert gap(both, edited) > 1e-3
    assert torch.equal(icl.predict(model, reviews("llama")).label_logits, plain)
    handle = model._module.model.layers[0].register_forward_hook(lambda *_: None)
    assert adapt(model).has_own_hooks
    handle.remove()
    assert not adapt(model).has_own_hooks


def test_a_model_without_tokenizer_is_enough_for_prompts_that_are_there():
    model = nnsight.NNsight(tiny_hf("llama"))
    assert_equal(icl.predict(model, ragged()), icl.predict(bridge("llama"), ragged()))


def test_a_model_is_checked_once_and_again_when_moved():
    model = wrapped("gpt2")
    adapted = adapt(model)
    assert adapt(model) is adapted
    model._module.double()
    assert adapt(model).info.dtype == "float64"


def test_facts_about_the_model():
    info, theirs = adapt(local("llama")).info, adapt(bridge("llama")).info
    assert info.library == f"nnsight {nnsight.__version__} {type(local('llama')).__name__}"
    for name in (
        "architecture",
        "n_layers",
        "n_heads",
        "n_kv_heads",
        "d_model",
        "d_head",
        "d_vocab",
    ):
        assert getattr(info, name) == getattr(theirs, name)
    WORDS.exactly(server("llama").info.notes, "on_a_server", "local")


def meta():
    with torch.device("meta"):
        return type(tiny_hf("llama"))(tiny_hf("llama").config).eval()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda: wrapped("neox"), "NeoXForCausalLM LlamaForCausalLM"),
        (lambda: wrapped("llama", "flash_attention_2"), "flash_attention_2 eager"),
        (lambda: nnsight.NNsight(torch.nn.Linear(2, 2).eval()), "linear cannot analysed"),
        (lambda: nnsight.NNsight(tiny_hf("llama").train()), "training mode"),
        (lambda: nnsight.NNsight(meta()), "remote_model"),
    ],
)
def test_models_are_refused(model, says):
    with WORDS.raises(ModelError, says):
        adapt(model())


def test_recomputation_is_refused_for_whole_prompts():
    with WORDS.raises(ModelError, "recomputation_refused_whole_prompts"):
        icl.flow_scores(local("llama"), reviews("llama"), memory=1000, path="whole")


def test_a_common_beginning_runs_again_block_by_block():
    found = icl.flow_scores(local("llama"), reviews("llama"), memory=1000)
    expected = icl.flow_scores(local("llama"), reviews("llama"))
    assert_close(found.per_prompt, expected.per_prompt, rtol=1e-4, atol=2e-6)


class Halved(Intervention):
    """Depends on what stands there."""

    def hooks(self, segment):
        return [(Site("pattern", 0), lambda activation: activation * 0.5)]


class Bounded(Intervention):
    """Acts on large values only."""

    def hooks(self, segment):
        return [(Site("z", 0), lambda activation: activation.clamp(-20, 20))]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda m, p: icl.saliency_maps(m, p), RunError, "needs more than"),
        (lambda m, p: icl.logit_lens(m, p, at="demonstrations"), RunError, "more than target"),
        (lambda m, p: icl.logit_lens(m, p, per="head"), ModelError, "weights single heads"),
        (lambda m, p: icl.fit_reweighting(m, p), ModelError, "whole passes"),
        (lambda m, p: icl.predict(m, p, interventions=[Halved()]), RunError, "pattern 0"),
        (lambda m, p: icl.predict(m, p, interventions=[Bounded()]), RunError, "more than set"),
        (
            lambda m, p: icl.predict(m, p, interventions=[icl.ZeroLayers(1)]),
            RunError,
            "more than set entries",
        ),
        (
            lambda m, p: icl.predict(m, p, interventions=[icl.ZeroLayers(1, "mlp", "reference")]),
            ModelError,
            "mlp_post",
        ),
    ],
)
def test_a_server_refuses_what_it_cannot_give(call, error, says):
    with WORDS.raises(error, says):
        call(server("llama"), reviews("llama"))


@pytest.mark.parametrize(
    ("model", "where", "says"),
    [
        (lambda: bridge("gpt2"), True, "LanguageModel"),
        (lambda: nnsight.NNsight(tiny_hf("gpt2")), True, "got nnsight"),
        (lambda: local("gpt2"), "somewhere", "somewhere"),
        (lambda: wrapped("neox"), True, "NeoXForCausalLM"),
        (lambda: training(), "local", "training mode"),
    ],
)
def test_what_no_server_runs_is_refused(model, where, says):
    with WORDS.raises(ModelError, says):
        remote_model(model(), where)


def test_a_server_that_does_not_answer(monkeypatch):
    model = wrapped("llama")
    monkeypatch.setitem(ID_CACHE, model.repo_id, "tiny/llama")
    with WORDS.raises(ModelError, "server_answer", "127.0", "0.1", "9"):
        remote_model(model, "http://127.0.0.1:9")


def test_a_server_that_computes_otherwise_is_found_out(monkeypatch):
    own = server_pass.logits_of_server
    monkeypatch.setattr(
        server_pass, "logits_of_server", lambda *args, **options: own(*args, **options) + 0.1
    )
    with WORDS.raises(ModelError, "server_computes_otherwise_found", "0.1"):
        remote_model(local("llama"), "local")

"""Logit lens against the model's own readout, by every path and family."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import Example, Task, Template, build_prompts, predict
from icl_mech.engine import prepare, run, run_variants
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Isolate, ZeroHeads, ZeroLayers
from icl_mech.measurements.lens.components import ComponentLens, FrozenComponentReading, check_sum
from icl_mech.measurements.lens.logit_lens import LogitLens, LogitLensResult, logit_lens
from icl_mech.measurements.lens.residuals import LastEntryReading, LayerLensReading
from icl_mech.metrics import mean_ends, wilson_interval
from icl_mech.models import Site, adapt
from icl_mech.models.norms import FrozenNorm
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results import basis
from icl_mech.studies.measuring import measure
from tests.margins import assert_top
from tests.said import Words
from tests.saved import without_date
from tests.tiny import FAMILIES, tiny_model

WORDS = Words(__file__)

TEXTS = ("good film", "a Business story", "World Sports", "bad", "a nice Answer to it", "boring")
TASK = Task(
    "tiny",
    Template("Review: {text}\nSentiment: {label}"),
    ("Negative", "Positive"),
    tuple(Example(text, i % 2) for i, text in enumerate(TEXTS[:4])),
    tuple(Example(text, i % 2) for i, text in enumerate(TEXTS)),
)
CLOSE = {"atol": 2e-5, "rtol": 1e-5}


@pytest.fixture(scope="module", params=[*FAMILIES, "gptneo", "xglm"])
def setting(request):
    model = tiny_model(request.param)
    return model, build_prompts(TASK, model, shots=2, n=6)


@pytest.fixture(scope="module")
def gpt2():
    model = tiny_model("gpt2")
    return model, build_prompts(TASK, model, shots=2, n=6)


def residuals(model, prompt: Prompt) -> torch.Tensor:
    """Every entry of one prompt, `[entry, pos, d_model]`, by TransformerLens' own cache."""
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.tensor([prompt.tokens]))
    entries = [cache["blocks.0.hook_resid_pre"]]
    entries += [cache[f"blocks.{layer}.hook_resid_post"] for layer in range(model.cfg.n_layers)]
    return torch.cat(entries)


def read_out(model, rows: torch.Tensor) -> torch.Tensor:
    """Vocabulary logits of `[row, d_model]`."""
    with torch.no_grad():
        return model.unembed(model.ln_final(rows[None]))[0]


# --- layers ---


def test_every_entry_is_the_models_own_readout_of_its_residual(setting):
    model, prompts = setting
    lens = logit_lens(model, prompts)
    assert isinstance(lens, LogitLensResult)
    for i, prompt in enumerate(prompts):
        logits = read_out(model, residuals(model, prompt)[:, prompt.target])
        assert_close(lens.label_logits[i], logits[:, list(prompt.label_tokens)], **CLOSE)
        assert_close(lens.log_sum[i], logits.logsumexp(-1), **CLOSE)
        assert_top(lens.top_tokens[i], logits)
        probs = logits.softmax(-1)[:, list(prompt.label_tokens)]
        assert_close(lens.probs[i].float(), probs, **CLOSE)


def test_the_last_entry_is_the_models_prediction(setting):
    model, prompts = setting
    assert_close(
        logit_lens(model, prompts).label_logits[:, -1],
        predict(model, prompts).label_logits,
        **CLOSE,
    )


@pytest.mark.parametrize("start", [0, 1, 2])
def test_leaving_at_an_entry_is_zeroing_the_blocks_from_there_on(setting, start):
    model, prompts = setting
    zeroed = predict(model, prompts, interventions=[ZeroLayers(start)])
    assert_close(logit_lens(model, prompts).label_logits[:, start], zeroed.label_logits, **CLOSE)


def test_without_the_vocabulary_the_label_logits_are_the_same(setting):
    model, prompts = setting
    small = logit_lens(model, prompts, vocabulary=False)
    assert_close(small.label_logits, logit_lens(model, prompts).label_logits, **CLOSE)
    assert small.log_sum is None
    assert small.top_tokens is None
    with pytest.raises(ResultError, match="vocabulary=True"):
        _ = small.probs


def test_reading_at_demonstrations_is_reading_prompts_cut_there(setting):
    model, prompts = setting
    lens = logit_lens(model, prompts, at="demonstrations")
    assert lens.label_logits.shape == (6, 4, model.cfg.n_layers + 1, 2)
    for i, prompt in enumerate(prompts):
        for demo, position in enumerate(prompt.label_positions):
            rows = residuals(model, prompt)[:, position - 1]
            logits = read_out(model, rows)
            assert_close(lens.label_logits[i, demo], logits[:, list(prompt.label_tokens)], **CLOSE)
            assert_close(lens.log_sum[i, demo], logits.logsumexp(-1), **CLOSE)


def test_the_reference_applies_the_last_norm_twice_and_drops_the_bias():
    model = tiny_model("gptj")
    prompts = build_prompts(TASK, model, shots=1, n=4)
    bias = model.b_U.detach()
    assert float(bias.abs().max()) > 0.05
    lens = logit_lens(model, prompts, variant="reference")
    for i, prompt in enumerate(prompts):
        rows = residuals(model, prompt)[:, prompt.target]
        with torch.no_grad():
            normed = model.ln_final(rows[None])
            normed[0, -1] = model.ln_final(normed[:, -1:])[0, 0]
            logits = model.unembed(normed)[0] - bias
        assert_close(lens.label_logits[i], logits[:, list(prompt.label_tokens)], **CLOSE)
        assert_close(lens.log_sum[i], logits.logsumexp(-1), **CLOSE)
    assert lens.provenance["measurement"] == "logit_lens"
    assert lens.provenance["variants"] == {
        "per": "layer", "at": "target", "variant": "reference", "norm": "frozen",
        "vocabulary": True, "lens": None,
    }  # fmt: skip


# --- heads and MLPs ---


def test_components_add_up_to_the_label_logits(setting):
    model, prompts = setting
    own = predict(model, prompts).label_logits
    for per in ("head", "mlp"):
        lens = logit_lens(model, prompts, per=per)
        assert isinstance(lens, ComponentLens)
        parts = lens.label_logits.flatten(1, -2).sum(1)
        total = parts + lens.embedding + lens.others + lens.constant
        assert_close(total, own, rtol=1e-4, atol=1e-4 * float(own.abs().max()))


def test_a_heads_logits_are_those_of_what_it_writes():
    """By hand in a model without a norm after attention: z W_O, centred, scaled, gained."""
    model = tiny_model("gpt2")
    prompts = build_prompts(TASK, model, shots=1, n=2)
    heads = logit_lens(model, prompts, per="head").label_logits
    mlps = logit_lens(model, prompts, per="mlp").label_logits
    norm = model.original_model.transformer.ln_f
    for i, prompt in enumerate(prompts):
        with torch.no_grad():
            _, cache = model.run_with_cache(torch.tensor([prompt.tokens]))
        last = cache["blocks.2.hook_resid_post"][0, prompt.target]
        sigma = (last.var(unbiased=False) + norm.eps).sqrt()
        columns = model.W_U[:, list(prompt.label_tokens)].detach()

        def contribution(vector, sigma=sigma, columns=columns):
            return (vector - vector.mean()) / sigma * norm.weight.detach() @ columns

        for layer in range(3):
            z = cache[f"blocks.{layer}.attn.hook_z"][0, prompt.target]
            for head in range(4):
                written = z[head] @ model.blocks[layer].attn.W_O[head].detach()
                assert_close(heads[i, layer, head], contribution(written), **CLOSE)
            mlp = cache[f"blocks.{layer}.hook_mlp_out"][0, prompt.target]
            assert_close(mlps[i, layer], contribution(mlp), **CLOSE)


def test_the_literal_lens_norms_each_component_alone(setting):
    model, prompts = setting
    heads = logit_lens(model, prompts, per="head", norm="own").label_logits
    mlps = logit_lens(model, prompts, per="mlp", norm="own").label_logits
    prompt = prompts[0]
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.tensor([prompt.tokens]))
    for layer in range(3):
        mlp = cache[f"blocks.{layer}.hook_mlp_out"][0, prompt.target]
        assert_close(
            mlps[0, layer], read_out(model, mlp[None])[0, list(prompt.label_tokens)], **CLOSE
        )
        z = cache[f"blocks.{layer}.attn.hook_z"][0, prompt.target]
        written = torch.einsum("hd,hdm->hm", z, model.blocks[layer].attn.W_O.detach())
        after = getattr(model.blocks[layer], "ln1_post", None)
        if after is not None:
            written = written * adapt(model).attention_norm(layer)[0].gain
        assert_close(
            heads[0, layer], read_out(model, written)[:, list(prompt.label_tokens)], **CLOSE
        )


def test_a_heads_frozen_logits_tell_what_zeroing_it_takes_away():
    """In the last layer nothing follows but the norm: exact once its scale is held."""
    model = tiny_model("gptj")  # parallel: the MLP does not see the head
    prompts = build_prompts(TASK, model, shots=1, n=3)
    lens = logit_lens(model, prompts, per="head").label_logits[:, 2, 1]
    sites = [Site("resid_post", 2)]
    plain, zeroed = (
        run(model, prompts, [TargetRows(sites)], changes)[0]
        for changes in ([], [ZeroHeads([(2, 1)])])
    )
    norm = adapt(model).final_norm_parts
    with torch.no_grad():
        scale = norm.scale(plain, model.ln_final(plain[None])[0])
        columns = model.W_U[:, list(prompts[0].label_tokens)].detach()
        moved = norm.direction(plain - zeroed) * scale @ columns
    assert_close(lens, moved, **CLOSE)


class TargetRows(LayerLensReading):
    """The residuals themselves."""

    def __init__(self, sites):
        super().__init__()
        self._sites = sites

    def sites(self, info):
        return self._sites

    def reduce(self, site, activation, segment):
        return segment.at_target(activation)

    def collect(self, kept):
        return kept.stacked()[:, 0]


def test_contrast_takes_each_prompts_own_labels(gpt2):
    model, prompts = gpt2
    lens = logit_lens(model, prompts, per="head")
    towards = prompts.answers
    found = lens.contrast(towards, 1 - towards)
    for i, answer in enumerate(towards.tolist()):
        difference = lens.label_logits[i, ..., answer] - lens.label_logits[i, ..., 1 - answer]
        assert_close(found[i], difference, rtol=0, atol=0)


# --- every path gives the same ---


@pytest.mark.parametrize("changes", [[], [Isolate([1])], [ZeroHeads([(1, 0)])]], ids=str)
def test_fast_paths(setting, changes):
    model, prompts = setting
    readings = [LayerLensReading(), FrozenComponentReading()]
    whole = run(model, prompts, readings, changes, path="whole")
    ways = [run(model, prompts, readings, changes)]
    ways += run_variants(model, prompts, readings, [changes, []])[:1]
    if not any(isinstance(change, Isolate) for change in changes):
        ways.append(run(model, prepare(model, prompts), readings, changes))
    for lens, components in ways:
        assert_close(lens.label_logits, whole[0].label_logits, **CLOSE)
        assert_close(lens.log_sum, whole[0].log_sum, **CLOSE)
        for name in ("embedding", "heads", "attention_bias", "mlp", "constant"):
            assert_close(getattr(components, name), getattr(whole[1], name), **CLOSE)


@pytest.mark.parametrize("at", ["target", "demonstrations"])
def test_batched_equals_single(setting, at):
    model, prompts = setting
    batched = logit_lens(model, prompts, at=at)
    singles = [logit_lens(model, prompts[[i]], at=at) for i in range(len(prompts))]
    assert_close(batched.label_logits, torch.cat([s.label_logits for s in singles]), **CLOSE)


# --- norms ---


@pytest.mark.parametrize("width", [6, 7])
def test_a_norm_is_its_direction_times_its_scale(width):
    torch.manual_seed(0)
    layer = torch.nn.LayerNorm(width)
    rms = torch.nn.RMSNorm(width, eps=1e-5)
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias, rms.weight):
            parameter.copy_(torch.randn(width))
    vectors = 3 * torch.randn(4, width) + 1
    for norm, centred in ((layer, True), (rms, False)):
        parts = FrozenNorm.of(norm, torch.zeros(width))
        assert parts.centred is centred
        after = norm(vectors).detach()
        scaled = parts.direction(vectors) * parts.scale(vectors, after) + parts.offset
        assert_close(scaled, after, atol=1e-5, rtol=1e-5)


# --- results and errors ---


def test_results_survive_their_files(gpt2, tmp_path):
    model, prompts = gpt2
    for name, options in {
        "layer": {},
        "demos": {"at": "demonstrations"},
        "head": {"per": "head"},
        "own": {"per": "mlp", "norm": "own"},
    }.items():
        result = logit_lens(model, prompts, **options)
        result.save(tmp_path / name)
        loaded = type(result).load(tmp_path / name)
        assert torch.equal(loaded.label_logits, result.label_logits)
        assert loaded.labels == result.labels
        assert loaded.provenance["variants"] == result.provenance["variants"]


def test_layers_are_labelled_samples(gpt2):
    model, prompts = gpt2
    lens = logit_lens(model, prompts)
    own = lens.label_probs[torch.arange(6), :, prompts.answers].double()
    assert list(lens.quantities()) == [
        "true_label",
        "accuracy",
        "label_prob",
        "class_prob",
        "prob",
        "label_space",
        "label_logit",
    ]
    assert_close(lens.sel().values, own.mean(0))
    low, high = mean_ends(own, "outcome")
    expected = own[:, 2].mean(), low[2], high[2]
    assert lens.interval(layer=2) == pytest.approx(tuple(map(float, expected)))
    right = lens.label_logits[:, 3].argmax(-1) == prompts.answers
    assert lens.interval("accuracy", layer=3) == pytest.approx(wilson_interval(right))
    assert_close(
        lens.sel("label_logit", label="Positive", layer=[0, 3]).per_prompt,
        lens.label_logits[:, [0, 3], 1],
    )
    assert_close(lens.sel("prob").values, lens.probs.mean(0))
    assert_close(lens.drawing().values[0], own.mean(0))
    assert_close(lens.drawing().low[0], low)
    assert lens.drawing().note == basis(lens)
    ends = ["true_label", "true_label_low", "true_label_high"]
    assert list(lens.sel().to_pandas().columns) == ["layer", *ends]
    assert list(lens.to_pandas().columns[:5]) == ["layer", *ends, "accuracy"]
    table = lens.by_prompt()
    assert list(table.columns) == ["prompt", "layer", "label", "logit"]
    assert table.logit.tolist() == lens.label_logits.flatten().tolist()
    assert table.iloc[13, :3].tolist() == [1, 2, "Positive"]
    WORDS.starts(lens.summary(), "entries", format(float(right_at(lens, 0)), ".3g"))
    small = logit_lens(model, prompts, vocabulary=False)
    assert "prob" not in small.quantities()


def right_at(lens, entry):
    return (lens.label_logits[:, entry].argmax(-1) == lens.answers).double().mean()


def test_lenses_at_demonstrations_are_drawn_by_the_label_displayed(gpt2):
    model, prompts = gpt2
    lens = logit_lens(model, prompts, at="demonstrations")
    found = lens.sel("displayed_label")
    assert found.dims == ("demo", "layer")
    for prompt in range(6):
        for demo, label in enumerate(prompts[prompt].label_classes):
            expected = lens.label_probs[prompt, demo, :, label].double()
            assert_close(found.per_prompt[prompt, demo], expected)
    assert "accuracy" not in lens.quantities()
    assert len(lens.drawing().names) == 4
    assert lens.plot().data
    assert len(lens.by_prompt()) == 6 * 4 * 4 * 2
    WORDS.exactly(lens.summary(), "lenses_demonstrations_drawn_label", "4", "6")


def test_components_are_labelled_samples(gpt2):
    model, prompts = gpt2
    heads = logit_lens(model, prompts, per="head")
    contrast = heads.contrast(prompts.answers, 1 - prompts.answers).double()
    assert_close(heads.sel().per_prompt, contrast)
    drawn = heads.drawing()
    assert_close(drawn.values.T, contrast.mean(0))
    low, high = mean_ends(contrast)
    assert_close(drawn.low.T, low)
    assert heads.interval(layer=1, head=2) == pytest.approx(
        (float(contrast[:, 1, 2].mean()), float(low[1, 2]), float(high[1, 2]))
    )
    assert_close(
        heads.sel("constant", label="Negative").values, heads.constant[:, 0].double().mean()
    )
    mlps = logit_lens(model, prompts, per="mlp")
    assert mlps.drawing().values.shape == (1, 3)
    assert mlps.sel("label_logit").dims == ("layer", "label")
    own = logit_lens(model, prompts, per="mlp", norm="own")
    assert list(own.quantities()) == ["contrast", "label_logit"]
    for result in (heads, mlps, own):
        assert result.plot().data
        assert result.summary()


@pytest.mark.parametrize("options", [{}, {"per": "head"}, {"per": "mlp"}], ids=str)
def test_without_answers_all_labels_are_drawn(gpt2, options):
    model, prompts = gpt2
    bare = PromptBatch(tuple(replace(prompt, answer=None) for prompt in prompts))
    found = logit_lens(model, bare, **options)
    assert found.answers is None
    assert found.plot().data
    if options.get("per") != "head":
        assert found.drawing().names == ("Negative", "Positive")


@pytest.mark.parametrize("options", [{}, {"per": "head"}, {"at": "demonstrations"}], ids=str)
def test_a_difference_of_two_lenses_is_paired(gpt2, options):
    model, prompts = gpt2
    edit = [ZeroHeads([(0, 1), (1, 3)], at="all")]
    one = logit_lens(model, prompts, **options)
    other = logit_lens(model, prompts, interventions=edit, **options)
    found = one - other
    expected = one.sel().per_prompt.double() - other.sel().per_prompt.double()
    assert float(expected.abs().max()) > 1e-4
    assert_close(found.values, expected.mean(0))
    low, high = mean_ends(expected, "value" if "per" in options else "change")
    assert_close(torch.stack([found.low, found.high]), torch.stack([low, high]))
    assert other.provenance["interventions"] == [edit[0].to_dict()]
    with WORDS.raises(ResultError, "difference_two_lenses_paired"):
        _ = one - logit_lens(model, prompts[:5], **options)


def test_measured_side_by_side_is_measured_alone(gpt2):
    model, prompts = gpt2
    edit = [ZeroHeads([(1, 2)])]
    options = [{}, {"per": "head"}, {"per": "mlp"}, {"per": "mlp", "norm": "own"}]
    found = measure(
        model, prompts, *(LogitLens(**own) for own in options), interventions=edit, progress=False
    )
    for name, own in zip(found, options, strict=True):
        alone = logit_lens(model, prompts, interventions=edit, **own)
        assert type(found[name]) is type(alone)
        assert torch.equal(found[name].label_logits, alone.label_logits)
        assert without_date(found[name]) == without_date(alone)


@pytest.mark.parametrize("options", [{"memory": "1GB"}, {"path": "whole"}, {"batch_size": 2}])
def test_ways_to_run_change_nothing(gpt2, options):
    plain = logit_lens(*gpt2, per="head").label_logits
    assert_close(logit_lens(*gpt2, per="head", **options).label_logits, plain, **CLOSE)


def test_equal_readings_are_read_once(gpt2):
    """Whatever one of them has made of the weights before."""
    model, prompts = gpt2
    used = FrozenComponentReading()
    run(model, prompts, [used])
    assert used == FrozenComponentReading()
    assert LayerLensReading() == LayerLensReading("sound", "target", True)
    assert LayerLensReading("reference") != LayerLensReading()
    assert LastEntryReading() != LayerLensReading()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per": "neuron"}, "perneuron"),
        ({"at": "start"}, "atstart target"),
        ({"variant": "best"}, "variantbest"),
        ({"norm": "froze"}, "normfroze frozen"),
        ({"vocabulary": "no"}, "vocabularyno"),
        ({"per": "head", "at": "demonstrations"}, "read target"),
    ],
)
def test_unknown_options(gpt2, options, message, unchecked):
    with WORDS.raises(RunError, message):
        logit_lens(*gpt2, **options)


def test_unequal_demonstrations(gpt2):
    model, _ = gpt2
    ragged = PromptBatch(
        tuple(
            Prompt.from_positions(
                [5, 6, 7, 8, 9, 10][: 4 + n],
                label_positions=list(range(1, 1 + n)),
                label_classes=[0] * n,
                label_tokens=[20, 21],
            )
            for n in (1, 2)
        )
    )
    with WORDS.raises(PromptError, "unequal_demonstrations"):
        logit_lens(model, ragged, at="demonstrations")


def test_components_that_do_not_add_up_are_refused(gpt2):
    model, prompts = gpt2
    (components,) = run(model, prompts, [FrozenComponentReading()])
    check_sum(components, adapt(model))
    components.mlp[:, 1] *= 1.5
    with WORDS.raises(RunError, "components_add_up_refused"):
        check_sum(components, adapt(model))


def test_processed_weights_are_refused():
    model = tiny_model("gpt2")
    prompts = build_prompts(TASK, model, shots=1, n=2)
    model.enable_compatibility_mode()
    with pytest.raises(RunError, match="processed"):
        logit_lens(model, prompts, per="head")

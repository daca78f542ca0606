"""Tuned lenses: the reference's numbers, the logit lens as a special case, a rotated model."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech import (
    build_prompt_pairs,
    build_prompts,
    context_accuracy,
    early_exit,
    layer_accuracy,
    load_model,
    logit_lens,
    measure,
)
from icl_mech.engine import common_prefix, run
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.accuracy.early_exit import EarlyExit
from icl_mech.measurements.lens.compare_lenses import compare_lenses
from icl_mech.measurements.lens.fitted import as_prompts
from icl_mech.measurements.lens.residuals import LayerLensReading, draw_positions, split_prompts
from icl_mech.measurements.lens.top_words import TopWords
from icl_mech.measurements.lens.tuned import LensTraining, TunedLens, begun, fit_tuned_lens
from icl_mech.models import adapt
from icl_mech.prompts import Prompt, PromptBatch
from tests.golden_data import arrays, golden_model
from tests.measurements.lens.test_logit_lens import TASK
from tests.rotated import rotated_model, word_lists, word_prompts
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model

WORDS = Words(__file__)

FAMILIES = {"gpt2": "tiny_gpt2", "gptj": "tiny_gptj"}


def golden_rows(numbers, name, key):
    """Prompts read at each of the stored positions, and where their rows stand."""
    ids = numbers[f"{name}_input_ids"]
    places = numbers[f"{name}_positions"]
    prompts = [
        Prompt.from_positions(
            row[: place + 1].tolist(), label_positions=[], label_classes=[],
            label_tokens=list(range(768)),
        )
        for row in ids
        for place in places
    ]  # fmt: skip
    wanted = torch.from_numpy(numbers[f"{name}_{key}"])  # prompt, layer, position, vocabulary
    return PromptBatch(tuple(prompts)), wanted.transpose(1, 2).flatten(0, 1)


def read(model, prompts, lens):
    """Logits of the whole vocabulary, which are the label words here: `[row, entry, vocab]`."""
    (found,) = run(model, prompts, [LayerLensReading(vocabulary=False, lens=lens)])
    return found.label_logits[:, 0]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_references_logits(name):
    numbers, model = (
        arrays("lenses", "tuned_lens.npz"),
        golden_model("overthinking", FAMILIES[name]),
    )
    lens = TunedLens.given(
        model,
        torch.from_numpy(numbers[f"{name}_translator_weight"]),
        torch.from_numpy(numbers[f"{name}_translator_bias"]),
    )
    prompts, wanted = golden_rows(numbers, name, "tuned_logits")
    found = read(model, prompts, lens)
    assert_close(found[:, :-1], wanted, atol=2e-5, rtol=0)
    _, log_probs = golden_rows(numbers, name, "tuned_log_probs")
    assert_close(found[:, :-1].log_softmax(-1), log_probs, atol=2e-5, rtol=0)
    own = torch.from_numpy(numbers[f"{name}_model_logits"]).flatten(0, 1)
    assert_close(found[:, -1], own, atol=2e-5, rtol=0)
    _, plain = golden_rows(numbers, name, "logit_lens_logits")
    assert_close(read(model, prompts, None)[:, :-1], plain, atol=2e-5, rtol=0)


# --- the logit lens as a special case ---


@pytest.fixture(scope="module")
def gpt2():
    model = tiny_model("gpt2")
    return model, build_prompt_pairs(TASK, model, shots=2, n=6)


def zero(model) -> TunedLens:
    info = adapt(model).info
    width = info.d_model
    return TunedLens.given(
        model, torch.zeros(info.n_layers, width, width), torch.zeros(info.n_layers, width)
    )


def random(model, scale=0.1) -> TunedLens:
    own, generator = zero(model), torch.Generator().manual_seed(0)
    weight = scale * torch.randn(own.weight.shape, generator=generator)
    return TunedLens.given(model, weight, scale * torch.randn(own.bias.shape, generator=generator))


@pytest.mark.parametrize("at", ["target", "demonstrations"])
def test_no_translation_is_the_logit_lens_to_the_last_bit(gpt2, at):
    model, (prompts, _) = gpt2
    plain, through = (logit_lens(model, prompts, at=at, lens=own) for own in (None, zero(model)))
    for name in ("label_logits", "log_sum", "top_tokens"):
        assert torch.equal(getattr(plain, name), getattr(through, name))


def test_no_translation_in_half_precision(gpt2):
    _, (prompts, _) = gpt2
    model = load_model(
        tiny_hf("gpt2").to(torch.bfloat16), tokenizer=gpt2[0].tokenizer, dtype="bfloat16"
    )
    plain, through = (logit_lens(model, prompts, lens=own) for own in (None, zero(model)))
    assert torch.equal(plain.label_logits, through.label_logits)


def test_the_last_entry_is_the_models_own_under_any_lens(gpt2):
    model, (prompts, _) = gpt2
    plain, through = (logit_lens(model, prompts, lens=own) for own in (None, random(model)))
    assert torch.equal(plain.label_logits[:, -1], through.label_logits[:, -1])
    assert not torch.equal(plain.label_logits[:, 0], through.label_logits[:, 0])


def test_each_entry_has_its_own_translator(gpt2):
    """Changing one of them changes one entry only."""
    model, (prompts, _) = gpt2
    own = random(model)
    weight = own.weight.clone()
    weight[1] += 0.1
    before, after = (
        logit_lens(model, prompts, lens=lens).label_logits
        for lens in (own, TunedLens.given(model, weight, own.bias))
    )
    assert [torch.equal(before[:, i], after[:, i]) for i in range(4)] == [True, False, True, True]


def test_accuracy_by_layer_takes_a_lens_and_is_paired(gpt2):
    model, pair = gpt2
    lens = random(model)
    plain, through = layer_accuracy(model, *pair), layer_accuracy(model, *pair, lens=lens)
    difference = through - plain
    assert difference.values.shape == (2, 4)
    assert bool((difference.values[:, -1] == 0).all())
    assert through.provenance["variants"]["lens"]["lens"] == "tuned"
    assert through.provenance["variants"]["lens"]["readout"] == lens.readout
    assert plain.provenance["variants"]["lens"] is None


def test_accuracy_by_demonstrations_takes_a_lens(gpt2):
    model, _ = gpt2
    pair = build_prompt_pairs(TASK, model, shots=2, n=6, demonstrations="per_prompt")
    plain, none, through = (
        context_accuracy(model, *pair, lens=lens) for lens in (None, zero(model), random(model))
    )
    assert torch.equal(plain.scores, none.scores)
    assert not torch.equal(plain.scores, through.scores)


def test_early_exit_under_a_lens(gpt2):
    model, pair = gpt2
    lens = random(model)
    direct = early_exit(layer_accuracy(model, *pair, lens=lens))
    through = measure(model, pair, EarlyExit(lens=lens), TopWords(lens=lens))
    assert through.early_exit.layer == direct.layer
    assert torch.equal(through.early_exit.change, direct.change)
    assert through.top_words.top_tokens.shape[2] == 4


# --- fitting ---


@pytest.fixture(scope="module")
def rotated():
    return rotated_model(), word_prompts(word_lists(60, 6, seed=1))


@pytest.fixture(scope="module")
def fitted(rotated):
    return fit_tuned_lens(rotated[0], word_lists(60, 8, seed=0), lr=0.02, progress=False)


def test_a_rotated_model_is_read_by_a_tuned_lens_only(rotated, fitted):
    model, prompts = rotated
    found = compare_lenses(model, prompts, fitted)
    accuracy = found.sel("accuracy").values
    assert bool((accuracy[0] >= 0.95).all())
    assert bool((accuracy[1, :-1] <= 0.45).all())  # chance is 1/3
    assert float(accuracy[1, -1]) == 1.0
    assert fitted.better == fitted.n_layers
    assert bool((found.sel("gain").low[:-1] > 0.3).all())
    for lens, place in ((fitted, 0), (None, 1)):
        alone = logit_lens(model, prompts, lens=lens, vocabulary=False)
        assert torch.equal(alone.label_logits, found.label_logits[:, place])


def test_training_from_zero_lowers_the_kl(rotated):
    model, _ = rotated
    rows = word_lists(40, 8, seed=0)
    start = fit_tuned_lens(model, rows, start="zero", epochs=0, progress=False)
    assert bool((start.weight == 0).all())
    assert torch.equal(start.held_out_kl[:, 0], start.held_out_kl[:, 1])
    lens = fit_tuned_lens(model, rows, start="zero", epochs=3, lr=0.02, progress=False)
    assert bool((lens.losses[-1] < 0.5 * lens.losses[0]).all())
    assert bool((lens.sel("saved").values[:-1] > 0).all())


def test_a_fit_can_be_repeated_and_hangs_on_its_seed(rotated):
    model, _ = rotated
    rows = word_lists(12, 8, seed=0)
    one, same, other = (
        fit_tuned_lens(model, rows, epochs=1, seed=seed, progress=False) for seed in (0, 0, 1)
    )
    assert torch.equal(one.weight, same.weight)
    assert not torch.equal(one.weight, other.weight)


def test_the_weights_of_the_model_are_left_as_they_are(rotated):
    model, _ = rotated
    before = {name: own.clone() for name, own in model.named_parameters()}
    needed = {name: own.requires_grad for name, own in model.named_parameters()}
    fit_tuned_lens(model, word_lists(6, 8, seed=0), epochs=1, progress=False)
    for name, own in model.named_parameters():
        assert torch.equal(own, before[name])
        assert own.requires_grad == needed[name]


def test_the_regression_is_the_weighted_ridge():
    """By hand: one dimension, two rows whose last residuals have sizes 1 and 2."""
    rows = torch.tensor([[[1.0], [3.0]], [[1.0], [2.0]]])  # entry, row, d_model
    weight, bias = begun(rows, LensTraining(ridge=1e-9))
    assert_close(weight, torch.tensor([[[-0.5]]]), atol=1e-5, rtol=0)
    assert_close(bias, torch.tensor([[0.5]]), atol=1e-5, rtol=0)
    # shares 4/5 and 1/5: mean 1.4, variance 0.64; covariance with (0, -1): -0.32
    weight, _ = begun(rows, LensTraining(ridge=1.0))
    assert_close(weight, torch.tensor([[[-0.25]]]), atol=1e-5, rtol=0)


def test_the_held_out_kl_by_hand(rotated):
    model, _ = rotated
    rows = word_lists(4, 3, seed=3)
    lens = fit_tuned_lens(model, rows, epochs=0, positions=3, skip_first=0, progress=False)
    places = split_prompts(as_prompts(rows), 0.25, 0).held_out
    (number,) = places
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.tensor([rows[number]]))
        own = model.unembed(model.ln_final(cache["blocks.3.hook_resid_post"]))[0].log_softmax(-1)
        read = model.unembed(model.ln_final(cache["blocks.2.hook_resid_pre"]))[0].log_softmax(-1)
    wanted = (own.exp() * (own - read)).sum(-1).mean()
    assert_close(lens.held_out_kl[0, 1, 2].float(), wanted, atol=1e-5, rtol=1e-5)


def test_equal_prompts_are_never_on_both_sides():
    rows = [[1, 2, 3], [4, 5, 6], [1, 2, 3], [7, 8, 9], [4, 5, 6]]
    for seed in range(5):
        fitted, held_out = split_prompts(as_prompts(rows), 0.3, seed)
        assert sorted((*fitted, *held_out)) == list(range(5))
        assert not {tuple(rows[i]) for i in fitted} & {tuple(rows[i]) for i in held_out}


def test_a_beginning_that_all_prompts_share_is_left_out(gpt2):
    _, (prompts, _) = gpt2
    shared = common_prefix(prompts)
    assert shared > 8
    assert int(draw_positions(prompts, 4, 1, 0).min()) >= shared


# --- files ---


def test_saving_and_loading(fitted, rotated, tmp_path):
    fitted.save(tmp_path / "lens")
    assert {file.name for file in (tmp_path / "lens").iterdir()} == {
        "result.json", "tensors.safetensors",
    }  # fmt: skip
    again = icl.load(tmp_path / "lens", rotated[0])
    assert torch.equal(again.weight, fitted.weight)
    assert torch.equal(again.held_out_kl, fitted.held_out_kl)
    assert again.to_dict() == fitted.to_dict()


def test_a_damaged_file_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "lens")
    file = tmp_path / "lens" / "tensors.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(bytes(content))
    with WORDS.raises(ResultError, "damaged_file_refused"):
        icl.load(tmp_path / "lens")


def test_another_models_lens_is_refused(fitted, rotated, gpt2, tmp_path):
    _, prompts = rotated
    other = rotated_model()
    with torch.no_grad():
        other.unembed.W_U.data[0, 7] += 0.01  # one number of the unembedding
    with WORDS.raises(RunError, "another_models_lens_refused"):
        logit_lens(other, prompts, lens=fitted)
    tiny, (true, false) = gpt2
    with WORDS.raises(RunError, "another_models_lens_refused_2", "4", "14"):
        layer_accuracy(tiny, true, false, lens=fitted)
    fitted.save(tmp_path / "lens")
    with WORDS.raises(RunError, "another_models_lens_refused_2", "4", "14"):
        icl.load(tmp_path / "lens", tiny)


def test_a_lens_is_of_the_blocks_too(gpt2):
    model = tiny_model("gpt2", seed=5)
    prompts = build_prompts("reviews", model, shots=1, n=2)
    adapted = adapt(model)
    width, layers = adapted.info.d_model, adapted.info.n_layers
    zero = torch.zeros(layers, width, width), torch.zeros(layers, width)
    lens = TunedLens.given(model, *zero)
    logit_lens(model, prompts, lens=lens)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".mlp." in name:
                parameter.mul_(1.5)
    with WORDS.raises(RunError, "lens_blocks_too"):
        logit_lens(model, prompts, lens=lens)
    old = replace(lens, probe=None)
    with WORDS.warns(UserWarning, "lens_blocks_too_2"):
        logit_lens(model, prompts, lens=old)


def test_the_reference_variant_and_parts_take_no_lens(gpt2):
    model, (true, false) = gpt2
    with WORDS.raises(RunError, "reference_variant_parts_take"):
        layer_accuracy(model, true, false, variant="reference", lens=zero(model))
    with WORDS.raises(RunError, "reference_variant_parts_take_2", "'layer'", "'head'"):
        logit_lens(model, true, per="head", lens=zero(model))


# --- figures ---


def test_figures_and_words(fitted, rotated):
    assert len(fitted.plot().data) >= 2
    (figure,) = fitted.figures()
    WORDS.starts(figure.answer, "figures_words", "Yes", "4")
    found = compare_lenses(rotated[0], rotated[1], fitted)
    assert len(found.plot().data) >= 3
    (figure,) = found.figures()
    WORDS(figure.answer, "figures_words_2", "4")
    zero_lens = zero(rotated[0])
    assert zero_lens.figures() == []
    with WORDS.raises(ResultError, "figures_words_3"):
        zero_lens.plot()


def test_figures_name_the_lens_they_were_read_with(gpt2):
    model, pair = gpt2
    for lens, name in ((None, "Logit lens"), (random(model), "Tuned lens")):
        found = logit_lens(model, pair[0], lens=lens)
        assert found.page_title == found.figures()[0].short == name
        assert found.plot().layout.title.text.startswith(name)
        accuracy = layer_accuracy(model, *pair, lens=lens)
        assert ("tuned lens" in accuracy.drawing().note) == (lens is not None)


def test_what_a_figure_does_not_show_hangs_on_the_lens(gpt2):
    model, (prompts, _) = gpt2
    for lens, limit in ((None, "logit_lens_limit"), (zero(model), "tuned_lens_limit")):
        for figure in logit_lens(model, prompts, lens=lens).figures():
            WORDS(figure.limits, limit)

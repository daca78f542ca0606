"""Isolation: loyalties against separate runs, identities, interventions and refusals."""

from dataclasses import dataclass, replace

import pytest
import torch

import icl_mech as icl
from icl_mech.engine import Kept, Reading, run
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Isolate, ZeroHeads, ZeroLayers
from icl_mech.measurements import running
from icl_mech.measurements.isolation.agreement import LOYALTIES, chosen_depths
from icl_mech.measurements.isolation.isolation import Isolation, isolation
from icl_mech.measurements.predictions import predict
from icl_mech.metrics import mean_interval
from icl_mech.models import ModelInfo, Site, adapt
from icl_mech.prompts import PromptBatch
from tests.engine.cases import prompt, ragged
from tests.margins import clear_prompts
from tests.measurements.isolation.cases import by_separate_runs, cuts_of, many
from tests.said import Words
from tests.tiny import FAMILIES, N_LAYERS, tiny_model

WORDS = Words(__file__)

ALL = {"depths": [1, 2, 3], "draws": 2}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


@pytest.mark.parametrize("shared", [False, True], ids=["per prompt", "shared"])
def test_every_window_is_a_run_of_its_own(model, shared):
    prompts = clear_prompts(model, many(8, shared=shared), cuts_of(seed=5))
    found = isolation(model, prompts, depths=[1, 2, 3], draws=2, seed=5)
    assert len(found.windows) == 12
    for i, (side, depth, tokens) in enumerate(found.windows):
        seeds = (5, 6) if tokens == "random" else (5,)
        kept, overlap = by_separate_runs(model, prompts, (side, depth, tokens), seeds)
        torch.testing.assert_close(found.label_kept[i], kept.mean(0), rtol=0, atol=1e-12)
        torch.testing.assert_close(found.word_overlap[i], overlap.mean(0), rtol=0, atol=1e-12)
        torch.testing.assert_close(found.draw_loyalty[i], kept.mean(1).expand(2))


@pytest.mark.parametrize("options", [{"mode": "zero"}, {"redraw": "prompt"}, {"redraw": "layer"}])
def test_variants_reach_the_runs(gpt2, options):
    cuts = cuts_of(["first"], [2], ["random"], **options)
    prompts = clear_prompts(gpt2, many(12), cuts)
    found = isolation(gpt2, prompts, depths=[2], tokens="random", draws=2, **options)
    kept, overlap = by_separate_runs(gpt2, prompts, ("first", 2, "random"), (0, 1), **options)
    torch.testing.assert_close(found.label_kept[0], kept.mean(0), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.word_overlap[0], overlap.mean(0), rtol=0, atol=1e-12)
    usual = isolation(gpt2, prompts, depths=[2], tokens="random", draws=2)
    assert not torch.equal(usual.word_overlap, found.word_overlap)
    assert options.items() <= found.provenance["variants"].items()


def test_one_call_runs_everything_and_the_plain_model_once(gpt2, monkeypatch):
    calls = []

    def counted(model, prompts, readings, variants, **options):
        calls.append(variants)
        return run_variants(model, prompts, readings, variants, **options)

    run_variants = running.run_variants
    monkeypatch.setattr(running, "run_variants", counted)
    isolation(gpt2, many(3), **ALL)
    (variants,) = calls
    assert [len(variant) for variant in variants] == [0] + 18 * [1]
    assert {variant[0].seed for variant in variants[1:]} == {0, 1}


def test_isolation_in_the_last_layer_changes_nothing_at_all(model):
    prompts = many(6)
    plain = predict(model, prompts)
    cut = predict(model, prompts, interventions=[Isolate([N_LAYERS - 1])])
    torch.testing.assert_close(cut.label_logits, plain.label_logits, rtol=0, atol=0)
    found = isolation(model, prompts, depths=[1], draws=2)
    for tokens in ("label", "random"):
        for loyalty in LOYALTIES:
            assert found.interval(loyalty, side="last", depth=1, tokens=tokens).value == 1.0


@pytest.mark.parametrize("prompts", [ragged(), many(6)], ids=["ragged", "three labels"])
def test_a_padded_batch_gives_what_its_prompts_give_alone(model, prompts):
    prompts = clear_prompts(model, prompts, cuts_of(depths=[2, 3], tokens=["label"]))
    together = isolation(model, prompts, depths=[2, 3], tokens="label")
    for i, single in enumerate(prompts):
        alone = isolation(model, PromptBatch((single,)), depths=[2, 3], tokens="label")
        torch.testing.assert_close(together.label_kept[:, i], alone.label_kept[:, 0])
        torch.testing.assert_close(together.word_overlap[:, i], alone.word_overlap[:, 0])


@dataclass
class LabelResidual(Reading[torch.Tensor]):
    """The residual after the last block at the first label word."""

    def sites(self, info: ModelInfo) -> list[Site]:
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site, activation, segment):
        positions = segment.prompts.label_positions[:, :1].to(segment.dest.device)
        return activation[segment.rows, (segment.dest == positions).int().argmax(1)]

    def collect(self, kept: Kept) -> torch.Tensor:
        return kept.stacked()[:, 0]


def test_isolated_label_words_know_nothing_of_the_texts(model):
    """Equal label words at equal positions behind other texts: the same residual, in `mask` mode."""
    texts = PromptBatch(tuple(prompt(9, (5,), (1,), seed=seed) for seed in range(4)))
    cut, zeroed, partly = (
        run(model, texts, [LabelResidual()], [Isolate(layers, mode=mode)])[0]
        for layers, mode in ((range(3), "mask"), (range(3), "zero"), (range(2), "mask"))
    )
    torch.testing.assert_close(cut, cut[:1].expand(4, -1), rtol=0, atol=1e-5)
    for other in (zeroed, partly):
        assert float((other - other[:1]).abs().max()) > 1e-3


def test_two_classes_and_prompts_of_bare_positions(gpt2):
    rows = tuple(
        prompt(10, (2, 4, 6), (0, 1, 0), seed=seed, label_tokens=(301, 302)) for seed in range(5)
    )
    found = isolation(gpt2, PromptBatch(rows), **ALL)
    assert found.label_kept.shape == (12, 5)


def test_default_depths_are_at_most_half_of_the_layers(gpt2):
    assert isolation(gpt2, many(2), tokens="label").depths == (1,)
    info = adapt(gpt2).info
    for n_layers, expected in ((30, (1, 3, 5, 7)), (12, (1, 3, 5)), (6, (1, 3)), (1, (1,))):
        assert chosen_depths(None, replace(info, n_layers=n_layers)) == expected


# --- under interventions of the user ---


EDITS = {
    "heads": [ZeroHeads([(0, 1), (1, 0)], at="all")],
    "layers": [ZeroLayers(2, part="mlp")],
    "isolated": [Isolate([1])],
}


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS)
def test_plain_and_isolated_runs_are_both_under_interventions(gpt2, edit):
    edits, cuts = EDITS[edit], {"depths": (1, 2), "edits": EDITS[edit]}
    prompts = clear_prompts(gpt2, many(16), [(), *cuts_of(**cuts)])
    found = isolation(gpt2, prompts, depths=[1, 2], draws=2, interventions=edits)
    assert torch.equal(found.predicted, predict(gpt2, prompts, interventions=edits).predicted)
    for i, window in enumerate(found.windows):
        seeds = (0, 1) if window[2] == "random" else (0,)
        kept, overlap = by_separate_runs(gpt2, prompts, window, seeds, edits)
        torch.testing.assert_close(found.label_kept[i], kept.mean(0), rtol=0, atol=1e-12)
        torch.testing.assert_close(found.word_overlap[i], overlap.mean(0), rtol=0, atol=1e-12)
    plain = isolation(gpt2, prompts, depths=[1, 2], draws=2)
    assert not torch.equal(plain.word_overlap, found.word_overlap)
    assert found.provenance["interventions"] == [edits[0].to_dict()]
    assert plain.provenance["interventions"] == []


@pytest.mark.slow
def test_difference_to_the_changed_model_is_paired_over_prompts(gpt2):
    prompts = many(16)
    plain = isolation(gpt2, prompts, depths=[1, 2], draws=2)
    ablated = isolation(gpt2, prompts, depths=[1, 2], draws=2, interventions=EDITS["heads"])
    found = plain - ablated
    assert (found.name, found.dims) == ("label_loyalty", ("tokens", "side", "depth"))
    for side, depth, tokens in plain.windows:
        place = plain.windows.index((side, depth, tokens))
        gap = plain.label_kept[place] - ablated.label_kept[place]
        expected = mean_interval(gap, "change")
        cell = found.interval(side=side, depth=depth, tokens=tokens)
        assert tuple(cell) == pytest.approx(tuple(expected), abs=1e-12)
    assert float(found.values.abs().max()) > 0.05
    other = isolation(gpt2, many(15), depths=[1, 2], draws=2)
    with WORDS.raises(ResultError, "difference_changed_model_paired"):
        _ = plain - other
    with WORDS.raises(ResultError, "difference_changed_model_paired_2", "2", "1"):
        _ = plain - isolation(gpt2, prompts, depths=[1], draws=2)


def test_the_measurement_is_what_the_function_does(gpt2):
    prompts, options = many(6), {"depths": [2, 1], "tokens": "random", "draws": 2, "seed": 3}
    alone = isolation(gpt2, prompts, batch_size=4, **options)
    (found,) = icl.measure(gpt2, prompts, Isolation(**options), batch_size=4).results.values()
    for name in ("label_kept", "word_overlap", "draw_loyalty", "predicted"):
        assert torch.equal(getattr(found, name), getattr(alone, name))
    assert found.windows == alone.windows
    assert found.provenance == {**alone.provenance, "date": found.provenance["date"]}
    assert found.provenance["measurement"] == "isolation"
    assert found.provenance["variants"] == {
        "mode": "mask", "redraw": "set", "draws": 2, "top_k": 5, "seed": 3,
        "depths": [1, 2], "sides": ["first", "last"], "tokens": ["random"],
    }  # fmt: skip


# --- refusals, before anything runs ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depths": [1, 4]}, "depths1 4 3"),
        ({"depths": [0]}, "depths0"),
        ({"depths": []}, "depths"),
        ({"sides": ["frist"]}, "sidesfrist 0 frist"),
        ({"sides": []}, "sides"),
        ({"tokens": ["labels"]}, "tokenslabels 0 labels"),
        ({"sides": "frist"}, "sidesfrist first"),
        ({"mode": "masked"}, "modemasked mask"),
        ({"redraw": "layers"}, "redrawlayers layer"),
        ({"draws": 0}, "draws0"),
        ({"draws": "five"}, "drawsfive"),
        ({"top_k": 0}, "top_k0"),
        ({"top_k": 10**6}, "top_k1000000"),
    ],
)
def test_refused_choices(gpt2, monkeypatch, unchecked, options, message):
    monkeypatch.setattr(running, "run_variants", None)
    with WORDS.raises(RunError, message):
        isolation(gpt2, ragged(), **options)


def test_refused_prompts(gpt2, monkeypatch):
    monkeypatch.setattr(running, "run_variants", None)
    bare = PromptBatch((ragged()[0], prompt(6, (), ())))
    with WORDS.raises(PromptError, "no_demonstration", "Prompt 1", "shots >= 1"):
        isolation(gpt2, bare)
    crowded = PromptBatch((prompt(4, (1, 2), (0, 1)),))
    with WORDS.raises(PromptError, "refused_prompts", "2", "0"):
        isolation(gpt2, crowded)

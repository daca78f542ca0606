"""The two studies: every part equals the analysis of that name; notes say what is left out."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, RunError
from icl_mech.models import adapt
from icl_mech.prompts import Prompt
from tests.margins import clear_prompts, close_pairs
from tests.planted import INDUCTION_HEADS, planted_model, planted_task
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

TEXTS = ("good film", "a Business story", "World Sports", "bad", "a nice Answer to it", "boring")
TASK = icl.Task(
    "tiny",
    icl.Template("Review: {text}\nSentiment: {label}"),
    ("Negative", "Positive"),
    tuple(icl.Example(text, i % 2) for i, text in enumerate(TEXTS[:4])),
    tuple(icl.Example(f"{text} {n}", i % 2) for n in range(6) for i, text in enumerate(TEXTS)),
)
LABEL_WORDS = (
    "predictions", "flow", "untrained", "saliency_maps", "isolation", "isolation_map", "extraction",
    "gain", "edge_cuts", "compare_compression", "confusion", "reweighting", "published", "untrained_flow", "untrained_isolation",
    "untrained_extraction",
)  # fmt: skip
OVERTHINKING = (
    "layer_accuracy", "gain", "edge_cuts", "context_accuracy", "early_exit", "top_words", "head_scores", "matching_by_layer",
    "head_attention", "false_induction", "ablation", "late_ablation", "published",
    "untrained_layer_accuracy",
)  # fmt: skip


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def prompts(gpt2):
    prompts = icl.build_prompts(TASK, gpt2, shots=2, n=24)
    # Loyalties and AUCs of all parts then do not hang on the last bits.
    cuts = [[icl.Isolate(layers, tokens, seed=seed)] for layers in ([0], [2])
            for tokens, seeds in (("label", 1), ("random", 5)) for seed in range(seeds)]  # fmt: skip
    assert len(clear_prompts(gpt2, prompts, [(), *cuts])) == 24
    return prompts


@pytest.fixture(scope="module")
def anchors(gpt2, prompts):
    return icl.analyze(gpt2, prompts, study="label_words", progress=False)


@pytest.fixture(scope="module")
def planted():
    model, task = planted_model(), planted_task()
    options = {"shots": 2, "n": 30, "demonstrations": "per_prompt"}
    pair = icl.build_prompt_pairs(task, model, **options)
    others = icl.build_prompts(task, model, labels="permuted", **{**options, "seed": 5})
    report = icl.analyze(model, pair, study="overthinking", heads_from=others, progress=False)
    return model, pair, report


# --- label words ---


def test_label_words_holds_every_part(anchors):
    assert tuple(anchors.results) == LABEL_WORDS
    assert len(anchors.notes) == 1
    WORDS(anchors.notes[0], "label_words_holds_every")


@pytest.mark.slow
def test_its_parts_are_the_single_analyses(gpt2, prompts, anchors):
    flow = icl.flow_scores(gpt2, prompts)
    assert_close(anchors.flow.per_prompt, flow.per_prompt, rtol=1e-4, atol=1e-7)
    extraction = icl.extraction(gpt2, prompts)
    assert_close(anchors.extraction.attention, extraction.attention, rtol=0, atol=1e-5)
    truth = extraction.truth_classes == 1
    for scores in (extraction.attention / extraction.attention.sum(-1, keepdim=True)).unbind(1):
        assert close_pairs(scores[:, 1], truth, margin=1e-5) == 0
    assert_close(anchors.extraction.auc, extraction.auc)
    isolation = icl.isolation(gpt2, prompts)
    assert torch.equal(anchors.isolation.label_kept, isolation.label_kept)
    diagnosis = icl.diagnose_confusion(gpt2, prompts)
    assert_close(anchors.confusion.distances, diagnosis.distances)


def test_reweighting_is_tested_on_prompts_it_did_not_learn_from(anchors):
    assert len(anchors.reweighting.answers) == 24 - 2 * 4
    assert anchors.reweighting.seen_in_training == 0


@pytest.mark.slow
def test_what_prompts_cannot_give_is_left_out_with_a_note(gpt2, prompts):
    few = icl.analyze(gpt2, prompts[:8], study="label_words", progress=False)
    assert "reweighting" not in few.results
    WORDS(few.notes, "reweighting_needs", "8")
    bare = icl.PromptBatch(
        tuple(
            Prompt.from_positions(
                prompt.tokens,
                label_positions=prompt.label_positions,
                label_classes=prompt.label_classes,
                label_tokens=prompt.label_tokens,
            )
            for prompt in prompts[:6]
        )
    )
    found = icl.analyze(gpt2, bare, study="label_words", progress=False)
    left_out = {"gain", "edge_cuts", "compare_compression", "confusion", "reweighting"}
    assert left_out.isdisjoint(found.results)
    assert len(found.notes) == 5


# --- overthinking ---


def test_overthinking_holds_every_part(planted):
    _, _, report = planted
    assert tuple(report.results) == OVERTHINKING
    assert report.notes == ()


def test_overthinking_finds_and_removes_the_planted_heads(planted):
    _, _, report = planted
    assert set(report.false_induction.top[:2]) == set(INDUCTION_HEADS)
    reduction = report.ablation.reduction("chosen heads")
    assert reduction.value == pytest.approx(1.0)


def test_parts_of_overthinking_are_the_single_analyses(planted):
    model, pair, report = planted
    alone = icl.layer_accuracy(model, *pair)
    assert torch.equal(report.layer_accuracy.scores[0], alone.scores[0])
    heads = icl.head_scores(model, pair[1])
    assert_close(report.head_scores.matching, heads.matching)
    by_layer = icl.matching_by_layer(model, *pair)
    assert_close(report.matching_by_layer.per_prompt, by_layer.per_prompt)
    assert_close(report.matching_by_layer.gap_share, by_layer.gap_share)
    assert report.matching_by_layer.has_gap


def test_overthinking_shows_where_the_top_heads_look(planted):
    """In the first prompt with false demonstrations."""
    model, (_, false), report = planted
    heads = report.head_scores.top(5)
    assert set(heads[:2]) == set(INDUCTION_HEADS)
    shown, alone = report.head_attention, icl.head_attention(model, false[:1], heads)
    assert shown.heads == heads
    assert_close(shown.values, alone.values)
    assert (shown.tokens, shown.marks) == (alone.tokens, alone.marks)
    matching = [mark == "matching" for mark in shown.marks[0]]
    assert float(shown.values[0][:2, matching].sum(-1).min()) > 0.99


@pytest.mark.slow
def test_without_one_false_class_there_are_no_head_scores(planted):
    model, pair, _ = planted
    options = {"shots": 2, "n": 30, "demonstrations": "per_prompt"}
    pair = icl.build_prompt_pairs(planted_task(), model, false_labels="random", **options)
    others = icl.build_prompts(planted_task(), model, labels="permuted", **{**options, "seed": 5})
    report = icl.analyze(model, pair, study="overthinking", heads_from=others, progress=False)
    assert {"head_scores", "matching_by_layer", "head_attention"}.isdisjoint(report.results)
    assert "ablation" in report.results
    WORDS(report.notes, "head_scores_left_out")


@pytest.mark.slow
def test_processed_weights_leave_out_the_heads_only(planted, monkeypatch):
    """What a head writes is then not the checkpoint's; accuracies are the same."""
    model, pair, own = planted
    adapted = adapt(model)
    processed = dataclasses.replace(adapted.info, processed_weights=True)
    monkeypatch.setattr(adapted, "info", processed)
    report = icl.analyze(adapted, pair, study="overthinking", progress=False)
    assert {"head_scores", "false_induction", "ablation"}.isdisjoint(report.results)
    assert_close(report.layer_accuracy.scores, own.layer_accuracy.scores, equal_nan=True)
    assert any("processed" in note for note in report.notes)


def test_published_numbers_stand_beside_these(anchors, planted):
    _, _, report = planted
    rows = {name: (known, here) for name, known, here in report.published.rows}
    known, here = rows["calibrated accuracy, true demonstrations"]
    assert known == "0.66"
    assert here.startswith("1.00 [0.")
    assert rows["fraction of the gap that five heads close"][0].startswith(
        "0.333 (as published 0.390)"
    )
    table = {name: known for name, known, _ in anchors.published.rows}
    assert table["accuracy, anchor re-weighting"] == "0.69"
    assert table["label loyalty, anchor states"] == "0.79"


# --- both ---


@pytest.mark.parametrize("study", ["anchors", "planted"])
def test_saved_loaded_and_drawn(request, tmp_path, study):
    found = request.getfixturevalue(study)
    report = found if study == "anchors" else found[2]
    report.save(tmp_path / "run")
    loaded = icl.Analysis.load(tmp_path / "run")
    assert loaded.summary() == report.summary()
    assert loaded.notes == report.notes
    page = loaded.to_html(tmp_path / "page.html", offline=False).read_text(encoding="utf-8")
    for section in report.sections():
        assert section.sentence
    numbered = page.count('<span class="no">')
    assert numbered == len(report.sections()) >= len(report.results)


def test_an_unknown_part_is_named(anchors):
    with WORDS.raises(AttributeError, "unknown_part_named", "'isolated'"):
        _ = anchors.isolated


def test_wrong_prompts_for_a_study(gpt2, prompts):
    with pytest.raises(PromptError, match="build_prompt_pairs"):
        icl.analyze(gpt2, prompts, study="overthinking")
    with pytest.raises(PromptError, match="overthinking"):
        icl.analyze(gpt2, (prompts, prompts))


def test_interventions_reach_every_part_of_a_study(planted):
    """Without the planted heads there is no gap, and no head matches prefixes."""
    model, pair, own = planted
    report = icl.analyze(
        model, pair, study="overthinking", interventions=[icl.ZeroHeads(INDUCTION_HEADS)],
        heads_from=pair[1], progress=False,
    )  # fmt: skip
    last = {"side": "false", "layer": own.layer_accuracy.scores.shape[-1] - 1}
    assert own.layer_accuracy.interval("calibrated", **last).value < 0.5
    assert report.layer_accuracy.interval("calibrated", **last).value > 0.9
    for name, result in report.results.items():
        if name != "published":
            kinds = [edit["intervention"] for edit in result.provenance["interventions"]]
            assert kinds == ["ZeroHeads"]
    change = report.layer_accuracy - own.layer_accuracy
    assert change.interval(**last).low > 0


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_study(gpt2, prompts):
    with WORDS.raises(RunError, "unknown_study", "'label_words'"):
        icl.analyze(gpt2, prompts, study="labelwords")


def test_results_are_frozen(anchors):
    with pytest.raises(dataclasses.FrozenInstanceError):
        anchors.title = "other"

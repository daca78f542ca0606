"""Accuracy by layer against predictions, the plain lens and the planted model."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from icl_mech import ZeroHeads, ZeroLayers, predict
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.accuracy.layer_accuracy import (
    LayerAccuracy,
    LayerAccuracyResult,
    layer_accuracy,
)
from icl_mech.measurements.accuracy.scores import METRICS
from icl_mech.measurements.lens.logit_lens import logit_lens
from icl_mech.metrics import critical_layer, mean_ends, mean_interval, wilson_interval
from icl_mech.metrics.intervals import quantile_ends, resample_weights
from icl_mech.prompts import PromptBatch
from icl_mech.results.wording import said
from icl_mech.studies.measuring import measure
from tests.measurements.overthinking_cases import (
    CLOSE,
    FAMILIES,
    N,
    assert_same_scores,
    ends_of,
    planted_case,
    planted_pairs,
    scores_of,
    settled,
    tiny_case,
    tiny_pairs,
)
from tests.planted import INDUCTION_HEADS
from tests.said import Words
from tests.saved import as_earlier, with_tensors, without_date

WORDS = Words(__file__)

SIDES = ("true", "false")
ROUNDED = {"rtol": 1e-12, "atol": 1e-14}


@pytest.fixture(scope="module", params=FAMILIES)
def case(request):
    return tiny_case(request.param)


@pytest.fixture(scope="module")
def found(case):
    return layer_accuracy(*case)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_case("gpt2")


@pytest.fixture(scope="module")
def planted():
    return layer_accuracy(*planted_case())


@pytest.fixture(scope="module")
def clear(case):
    """At the target."""
    return settled(*case)[:, :, :, -1]


def test_the_last_entry_is_the_models_prediction(case, found, clear):
    model, *pair = case
    for row, (side, prompts) in enumerate(zip(SIDES, pair, strict=True)):
        own = predict(model, prompts)
        right = own.predicted == prompts.answers
        top = own.top_tokens[:, 0] == prompts.label_tokens[prompts.answers]
        for metric, expected in (("plain", right), ("top_1", top)):
            scores = scores_of(found, side, metric)[:, -1]
            safe = clear[METRICS.index(metric), row, :, -1]
            assert_same_scores(scores, expected.double(), safe)
        mass = own.log_probs.exp().sum(-1).double()
        assert_close(scores_of(found, side, "label_space")[:, -1], mass, atol=1e-5, rtol=1e-4)


def test_scores_at_every_entry_by_hand(case, found, clear):
    """Loops over entries, labels and prompts, from the lens' own probabilities."""
    model, *pair = case
    ties = torch.zeros(2, 4, dtype=torch.long)
    for side, prompts in zip(SIDES, pair, strict=True):
        probs = logit_lens(model, prompts).probs.numpy()
        norm = (probs + 1e-14) / (probs.sum(-1, keepdims=True) + 3e-14)
        taught = [prompt.false_answer for prompt in pair[1]]
        for metric, classes in (("calibrated", prompts.answers.tolist()), ("permuted", taught)):
            for entry in range(norm.shape[1]):
                limits = [np.percentile(norm[:, entry, c], 200 / 3) for c in range(3)]
                for row, label in enumerate(classes):
                    if not clear[METRICS.index(metric), SIDES.index(side), row, entry]:
                        continue
                    own, limit = norm[row, entry, label], limits[label]
                    tied = abs(np.log(own / limit)) <= 1e-4
                    ties[SIDES.index(side), entry] += int(tied and metric == "calibrated")
                    score = float(scores_of(found, side, metric)[row, entry])
                    assert score == pytest.approx(1 / 3 if tied else float(own > limit)), metric
    # Those that hang on the last bits may be ties or nearly.
    assert bool((ties <= found.tie_counts[0]).all())
    assert bool((found.tie_counts[0] <= ties + (~clear[0]).sum(1)).all())
    assert bool((found.tie_counts[2] == N).all())


def test_the_probabilities_are_kept(case, found):
    model, true, false = case
    for kept, prompts in ((found.true_probs, true), (found.false_probs, false)):
        probs = logit_lens(model, prompts).probs
        assert_close(kept, probs / probs.sum(-1, keepdim=True), atol=1e-6, rtol=1e-5)
    assert torch.equal(found.answers, true.answers)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_an_entry_is_the_last_one_without_the_blocks_from_there_on(case, found, start):
    model, true, false = case
    cut = layer_accuracy(model, true, false, interventions=[ZeroLayers(start)])
    for name in ("true_probs", "false_probs"):
        assert_close(getattr(cut, name)[:, -1], getattr(found, name)[:, start], **CLOSE)


def test_batched_equals_single(case, found):
    model, true, false = case
    singles = [layer_accuracy(model, true[[i]], false[[i]]) for i in range(4)]
    for name in ("true_probs", "false_probs"):
        rows = torch.cat([getattr(single, name) for single in singles])
        assert_close(rows, getattr(found, name)[:4], **CLOSE)
    small = layer_accuracy(model, true, false, batch_size=5)
    assert_close(small.true_probs, found.true_probs, **CLOSE)


def test_the_gap_is_paired_and_that_of_the_accuracies(found):
    difference = scores_of(found, "true") - scores_of(found, "false")
    assert_close(found.gap, difference.mean(0))
    gap = found.sel("gap")
    low, high = mean_ends(difference, "change")
    assert gap.low.tolist() == pytest.approx(low.tolist())
    assert gap.high.tolist() == pytest.approx(high.tolist())
    assert bool((gap.high - gap.low > 0.05).all())


# --- the planted model ---


def test_the_planted_model_is_right_until_the_first_induction_head(planted):
    """MLP 1 knows the answer; block 2 holds the first head that copies false labels."""
    assert planted.accuracy("true")[2:].tolist() == [1, 1, 1]
    assert float(planted.accuracy("false")[2]) == 1
    assert float(planted.accuracy("false")[3:].max()) < 0.05
    assert_close(
        planted.accuracy("false", "permuted")[3:], torch.ones(2).double(), atol=0.05, rtol=0
    )
    assert float(planted.accuracy("false", "permuted")[2]) == 0
    plain = planted.accuracy("false", "plain")[2:].tolist()
    assert plain[0] == 1 > plain[1] > plain[2] == 0


def test_the_critical_layer_of_the_planted_model(planted):
    assert planted.critical == (3, 3, 3)
    assert planted.drawing().marks == ((3, "critical layer"),)
    assert planted.drawing("plain").marks == ()


def test_the_embedding_knows_nothing(planted):
    """The same for all prompts, so all are ties; the summary is about the last entry."""
    assert_close(scores_of(planted, "true")[:, 0], torch.full((30,), 1 / 3).double())
    assert planted.tie_counts[:, :, 0].tolist() == [[30, 30], [0, 0], [30, 30]]
    assert planted.ties == (0, 0, 60)
    assert "ties" not in planted.summary()


def test_without_the_induction_heads_there_is_no_critical_layer():
    model, true, false = planted_case()
    found = layer_accuracy(model, true, false, interventions=[ZeroHeads(INDUCTION_HEADS)])
    assert found.final_gap.value == 0
    assert found.final_gap.low < 0 < found.final_gap.high
    assert found.critical is None
    assert found.drawing().marks == ()
    WORDS(found.summary(), "without_induction_heads_there")


# --- ties ---


def test_ties_at_the_last_entry_are_told(gpt2):
    """One prompt three times, each time of another class."""
    model, *pair = gpt2
    alike = [
        PromptBatch(tuple(replace(prompts[0], answer=label) for label in range(3)), prompts.source)
        for prompts in pair
    ]
    found = layer_accuracy(model, *alike)
    assert found.accuracy("true")[-1] == pytest.approx(1 / 3)
    assert found.tie_counts[:, 0, -1].tolist() == [3, 0, 3]
    WORDS.ends(found.summary(), "ties_last_entry_told", "6", "0")


def test_results_saved_without_counts_can_be_loaded(planted, tmp_path):
    folder = planted.save(tmp_path / "result")
    with_tensors(as_earlier(folder), lambda tensors: tensors.pop("tie_counts"))
    loaded = LayerAccuracyResult.load(folder)
    assert loaded.tie_counts is None
    assert loaded.ties == (0, 0, 0)
    assert loaded.summary() == planted.summary()


def test_results_saved_when_the_kind_of_intervals_had_another_name(gpt2, tmp_path):
    """`interval` is now the method that gives them."""
    found = layer_accuracy(*gpt2, interval="reference")
    folder = found.save(tmp_path / "result")
    document = json.loads((as_earlier(folder) / "result.json").read_text())
    document["values"]["interval"] = document["values"].pop("interval_kind")
    (folder / "result.json").write_text(json.dumps(document))
    loaded = LayerAccuracyResult.load(folder)
    assert loaded.interval_kind == "reference"
    assert loaded.interval(side="false", layer=1) == found.interval(side="false", layer=1)


def test_results_saved_without_names_of_classes_number_them(tmp_path, gpt2):
    folder = as_earlier(layer_accuracy(*gpt2).save(tmp_path / "run"))
    document = json.loads((folder / "result.json").read_text())
    del document["values"]["labels"]
    (folder / "result.json").write_text(json.dumps(document))
    loaded = LayerAccuracyResult.load(folder)
    panels = loaded.drawn(show="classes").panels
    assert [panel.title for panel in panels] == ["class 1", "class 2", "class 3"]


# --- labelled samples ---


def test_one_number_and_selections(planted):
    assert list(planted.quantities()) == [*METRICS, "gap", "label_prob", "class_prob"]
    assert planted.sel().dims == ("side", "layer")
    scores = planted.scores[0, 1, :, 3]
    expected = mean_interval(scores, "outcome")
    assert planted.interval("calibrated", side="false", layer=3) == pytest.approx(expected)
    right = planted.scores[METRICS.index("plain"), 1, :, 3].bool()
    found = planted.interval("plain", side="false", layer=3)
    assert found == pytest.approx(wilson_interval(right))
    chosen = planted.sel("label_space", side="true", layer=[0, 4])
    assert_close(chosen.per_prompt, planted.scores[-1, 0][:, [0, 4]])
    assert planted.interval("gap", layer=4) == planted.final_gap
    estimates = planted.estimates()
    assert estimates["plain"].sel(end="value", side="false").values.tolist() == (
        planted.accuracy("false", "plain").tolist()
    )
    with WORDS.raises(ResultError, "number_selections", "'flase'"):
        planted.sel(side="flase")


def test_a_difference_to_a_run_without_the_heads_is_paired(planted):
    model, true, false = planted_case()
    edit = [ZeroHeads(INDUCTION_HEADS)]
    other = layer_accuracy(model, true, false, interventions=edit)
    found = other - planted
    expected = (other.scores[0] - planted.scores[0]).transpose(0, 1)
    assert_close(found.values, expected.mean(0))
    low, high = mean_ends(expected, "change")
    assert_close(torch.stack([found.low, found.high]), torch.stack([low, high]))
    assert found.interval(side="false", layer=4).low > 0.5
    unchanged = found.interval(side="true", layer=4)
    assert unchanged.value == 0
    assert -0.15 < unchanged.low < 0 < unchanged.high < 0.15
    gaps = planted.sel("gap") - other.sel("gap")
    assert_close(gaps.values, planted.gap - other.gap)
    assert found.plot().data
    with WORDS.raises(ResultError, "difference_run_without_heads"):
        _ = planted - layer_accuracy(model, *planted_pairs(model, seed=5))


def test_reference_intervals_are_those_of_the_drawing_the_table_and_every_number(gpt2):
    found = layer_accuracy(*gpt2, interval="reference")
    for metric in METRICS:
        scores = found.scores[METRICS.index(metric)]
        half = 1.96 * scores.std(1) / N**0.5
        low, high = scores.mean(1) - half, scores.mean(1) + half
        drawn = found.drawing(metric)
        assert_close(torch.stack([drawn.low[:2], drawn.high[:2]]), torch.stack([low, high]))
        assert len(drawn.values) == 2
        cell = found.interval(metric, side="false", layer=2)
        assert cell == pytest.approx(tuple(float(end[1, 2]) for end in (scores.mean(1), low, high)))
        table = found.to_pandas()
        rows = table[table.side == "true"]
        assert rows[f"{metric}_high"].tolist() == pytest.approx(high[0].tolist())


def test_figures_of_a_page(planted):
    shown = planted.figures()
    assert [figure.show for figure in shown] == [
        "calibrated",
        "gap",
        "permuted",
        "plain",
        "label_space",
        "classes",
    ]
    calibrated, gap, permuted, plain, space, _ = shown
    last = {
        metric: [said(planted.interval(metric, side=side, layer=4)) for side in ("true", "false")]
        for metric in METRICS
    }
    WORDS.exactly(
        calibrated.answer,
        "figures_page",
        last["calibrated"][0],
        last["calibrated"][1],
        said(planted.final_gap),
    )
    assert f"is {last['permuted'][1]}" in permuted.answer
    WORDS(gap.answer, "figures_page_5", *(f"{end:g}" for end in planted.critical))
    assert "above chance (0.33)" in permuted.answer
    WORDS(plain.answer, "figures_page_2", last["plain"][0], last["plain"][1])
    assert f"{last['label_space'][0]} with true" in space.answer
    drawn = planted.drawing()
    assert not drawn.panels  # one claim; the gap has a figure of its own
    assert drawn.names == ("true demonstrations", "false demonstrations")
    assert planted.drawing("gap").names == ("gap",)
    assert drawn.marks == ((float(planted.critical.value), "critical layer"),)
    for figure in shown:
        assert figure.question.endswith("?")
        assert "30 pairs" in figure.caption
        assert planted.plot(figure.show).data
    WORDS.exactly(planted.drawing().note, "figures_page_3", "30", "95")
    with WORDS.raises(ResultError, "figures_page_4", "'plane'", "'plain'"):
        planted.plot("plane")


def test_shared_demonstrations_are_told(gpt2):
    model, *_ = gpt2
    found = layer_accuracy(model, *tiny_pairs(model, demonstrations="shared"))
    WORDS.ends(found.drawing().note, "shared_demonstrations_told")


# --- as a measurement ---


def test_measured_beside_others_is_measured_alone(planted):
    model, *pair = planted_case()
    found = measure(model, tuple(pair), LayerAccuracy(), LayerAccuracy("reference"))
    assert torch.equal(found.layer_accuracy.scores, planted.scores)
    assert without_date(found.layer_accuracy) == without_date(planted)
    other = layer_accuracy(model, *pair, variant="reference")
    assert_close(found["layer_accuracy_2"].true_probs, other.true_probs, **CLOSE)


@pytest.mark.parametrize(
    "options", [{"memory": "1GB"}, {"path": "whole"}, {"batch_size": 5}], ids=str
)
def test_ways_to_run_change_nothing(gpt2, options):
    plain, found = layer_accuracy(*gpt2), layer_accuracy(*gpt2, **options)
    assert_close(found.false_probs, plain.false_probs, **CLOSE)


# --- intervals of the critical layer ---


def result_of(true, false, **options):
    scores = torch.tensor([true, false], dtype=torch.float64)
    batch, entry = scores.shape[1:]
    return LayerAccuracyResult(
        scores=scores.expand(6, *scores.shape),
        true_probs=torch.full((batch, entry, 2), 0.5).double(),
        false_probs=torch.full((batch, entry, 2), 0.5).double(),
        answers=torch.arange(batch) % 2,
        **options,
    )


def test_each_class_over_its_own_queries_by_side():
    probs = torch.tensor([[[0.9, 0.1]], [[0.7, 0.3]], [[0.6, 0.4]]]).double()
    result = replace(
        result_of([[0.0]] * 3, [[0.0]] * 3), true_probs=probs, false_probs=probs.flip(-1)
    )
    own = result.sel("class_prob")
    assert_close(own.values[:, 0], torch.tensor([[0.75, 0.3], [0.25, 0.7]]).double())
    every = result.sel("label_prob", label="class 1")
    assert_close(every.values[:, 0], torch.tensor([2.2 / 3, 0.8 / 3]).double())
    named = replace(result, labels=("no", "yes"))
    assert named.sel("class_prob", side="true", label="yes").values == pytest.approx(0.3)
    assert "classes" not in replace(result, own_choices=True).on_page()
    assert "class_prob" not in replace(result, own_choices=True).quantities()


def test_classes_of_true_demonstrations_are_on_the_page(gpt2):
    found = layer_accuracy(*gpt2)
    assert found.labels == gpt2[1].labels
    shape = found.drawn(show="classes")
    shown = {panel.title: shape.values[panel.curves[1]] for panel in shape.panels}
    for i, label in enumerate(found.labels):
        assert_close(shown[label], found.true_probs[..., i].mean(0))
    assert "classes" in found.on_page()


def test_resamples_without_a_final_gap_have_no_critical_layer():
    generator = np.random.default_rng(14)
    true = (generator.random((20, 4)) < [0.5, 0.6, 0.7, 0.8]).astype(float)
    false = (generator.random((20, 4)) < [0.5, 0.4, 0.3, 0.3]).astype(float)
    found = result_of(true.tolist(), false.tolist())
    gaps = resample_weights(20) @ torch.from_numpy(true - false)
    layers = critical_layer(gaps)
    kept = layers[gaps[:, -1] > 0]
    assert 0 < len(layers) - len(kept) < 250
    low, high = map(float, quantile_ends(kept.double(), 20))
    assert found.critical[1:] == pytest.approx((low, high))
    assert low > float(quantile_ends(layers.double(), 20)[0])


def test_the_reference_takes_the_first_crossing():
    true, false = [[1.0, 1, 1, 1]] * 4, [[1.0, 0, 1, 0]] * 4
    assert result_of(true, false).critical == (3, 3, 3)
    assert result_of(true, false, variant="reference").critical == (1, 1, 1)


def test_a_negative_gap_has_no_critical_layer():
    assert result_of([[0.0, 0.0]] * 4, [[1.0, 1.0]] * 4).critical is None


# --- variants, settings, errors, files ---


def test_outcomes_of_zero_or_one_have_wilson_intervals(planted):
    """Calibrated scores (ties count 1/C) have an effective n; the reference keeps its own formula."""
    for metric in ("plain", "top_1", "top_labels"):
        low, high = ends_of(planted, "false", metric)
        for entry in (0, 2, 4):
            expected = wilson_interval(scores_of(planted, "false", metric)[:, entry] == 1)
            assert float(low[entry]) == pytest.approx(expected.low)
            assert float(high[entry]) == pytest.approx(expected.high)
    resampled = mean_ends(scores_of(planted, "false"), "outcome")
    assert_close(torch.stack(ends_of(planted, "false")), torch.stack(resampled), **ROUNDED)


def test_the_reference_reads_another_last_entry_and_other_intervals(gpt2):
    sound = layer_accuracy(*gpt2)
    other = layer_accuracy(*gpt2, variant="reference", interval="reference")
    assert_close(other.true_probs[:, :-1], sound.true_probs[:, :-1], **CLOSE)
    assert float((other.true_probs[:, -1] - sound.true_probs[:, -1]).abs().max()) > 1e-3
    scores = scores_of(other, "true")
    half = 1.96 * scores.std(0) / N**0.5
    low, high = ends_of(other, "true")
    assert_close(low, scores.mean(0) - half)
    assert_close(high, scores.mean(0) + half)
    assert other.provenance["variants"] == {
        "variant": "reference", "interval": "reference", "lens": None, "threshold": 0.5,
    }  # fmt: skip


def test_random_labels_teach_no_class(gpt2):
    model, _, _ = gpt2
    found = layer_accuracy(*tiny_case("gpt2", "random"))
    for ask in (found.accuracy, found.drawing, found.sel):
        arguments = ("false", "permuted") if ask == found.accuracy else ("permuted",)
        with WORDS.raises(ResultError, "random_labels_teach_no"):
            ask(*arguments)
    assert "permuted" not in found.quantities()
    assert "permuted" not in found.to_pandas()
    assert found.accuracy("false").shape == (4,)
    half = layer_accuracy(model, *tiny_pairs(model, false_labels="half_permuted"))
    assert half.accuracy("false", "permuted").shape == (4,)


def test_sets_that_are_not_pairs(gpt2):
    model, true, false = gpt2
    with WORDS.raises(PromptError, "sets_pairs", "12", "11"):
        layer_accuracy(model, true, false[:11])
    with WORDS.raises(PromptError, "sets_pairs_2"):
        layer_accuracy(model, true, false[[*range(1, N), 0]])
    planted_true, _ = planted_case()[1:]
    with WORDS.raises(PromptError, "sets_pairs_3"):
        layer_accuracy(model, true, planted_true[:N])


def test_other_texts_of_the_same_classes_are_no_pairs(gpt2):
    """The answers alone would not tell."""
    model, true, _ = gpt2
    _, other = tiny_pairs(model, seed=7)
    order = torch.argsort(other.answers, stable=True)[
        torch.argsort(torch.argsort(true.answers, stable=True))
    ]
    other = other[order.tolist()]
    assert torch.equal(other.answers, true.answers)
    with pytest.raises(PromptError, match="texts"):
        layer_accuracy(model, true, other)


def test_sets_the_wrong_way_round(gpt2):
    model, true, false = gpt2
    with WORDS.raises(PromptError, "sets_wrong_way_round", "'permuted'"):
        layer_accuracy(model, false, true)


def test_unbalanced_classes_are_told(gpt2):
    """Seven of class a, one each of the others: 9 prompts have 3 places, so 5 of 9."""
    model, true, false = gpt2
    rows = {label: (true.answers == label).nonzero()[:, 0].tolist() for label in range(3)}
    chosen = [*rows[0], *rows[0][:3], rows[1][0], rows[2][0]]
    with WORDS.warns(UserWarning, "unbalanced_classes_told", "0.556"):
        layer_accuracy(model, true[chosen], false[chosen])


@pytest.mark.parametrize("n", [10, 11])
def test_classes_as_even_as_can_be_are_balanced(n):
    """Warnings are errors here."""
    model, _, _ = planted_case()
    layer_accuracy(model, *planted_pairs(model, n=n))


def test_prompts_without_answers(gpt2):
    model, true, false = gpt2
    bare = PromptBatch(tuple(replace(prompt, answer=None) for prompt in true))
    with WORDS.raises(PromptError, "prompts_without_answers"):
        layer_accuracy(model, bare, false)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"variant": "best"}, "variant='best'"), ({"interval": "wide"}, "interval='wide'")],
)
def test_unknown_options(gpt2, options, message, unchecked):
    with pytest.raises(RunError, match=message):
        layer_accuracy(*gpt2, **options)


def test_unknown_names(planted):
    with WORDS.raises(ResultError, "unknown_names", "'true'"):
        planted.accuracy("treu")
    with WORDS.raises(ResultError, "unknown_names_2", "'calibrated'"):
        planted.accuracy("true", "calibratd")


def test_files_figures_and_tables(planted, tmp_path):
    planted.save(tmp_path / "result")
    loaded = LayerAccuracyResult.load(tmp_path / "result")
    for name in ("scores", "true_probs", "false_probs", "answers", "tie_counts"):
        assert torch.equal(getattr(loaded, name), getattr(planted, name))
    assert (loaded.variant, loaded.interval_kind) == ("sound", "score")
    assert loaded.summary() == planted.summary()
    assert loaded.provenance["false_prompts"]["labels"] == "permuted"
    for metric in planted.metrics:
        assert planted.plot(metric).data
        drawn = planted.drawing(metric)
        assert_close(drawn.values[1], planted.accuracy("false", metric))
        assert bool(
            (drawn.low <= drawn.values + 1e-9).all() & (drawn.values <= drawn.high + 1e-9).all()
        )
    WORDS.exactly(planted.drawing("top_labels").title, "files_figures_tables")
    table = planted.to_pandas()
    assert list(table.columns)[:5] == [
        "side",
        "layer",
        "calibrated",
        "calibrated_low",
        "calibrated_high",
    ]
    assert table.shape == (2 * 5, 2 + 3 * 6)
    row = table[table.side == "false"]
    assert row.calibrated.tolist() == planted.accuracy("false").tolist()
    WORDS.starts(planted.summary(), "files_figures_tables_2", "1", "[0.886, 1]")

"""Extraction: attention against the model's own patterns, AUC and R, what is undefined."""

from dataclasses import replace

import pytest
import torch
from sklearn.metrics import roc_auc_score

import icl_mech as icl
from icl_mech.engine import prepare, run
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Reweight, ZeroHeads
from icl_mech.measurements import running
from icl_mech.measurements.extraction.extraction import (
    AttentionReading,
    Extraction,
    extraction,
    extraction_result,
)
from icl_mech.measurements.predictions import predict
from icl_mech.measurements.saliency.flow import Flow
from icl_mech.metrics import mean_ends
from icl_mech.metrics.auc import auc_ends, auc_statistic
from icl_mech.metrics.intervals import quantile_ends, resample_weights
from icl_mech.models import adapt
from icl_mech.plots import figure
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.results.wording import said, told
from tests.engine.cases import LABEL_TOKENS, LABELS, prompt, ragged
from tests.margins import clear_prompts
from tests.measurements.isolation.cases import many
from tests.said import Words
from tests.tiny import FAMILIES, N_HEADS, N_LAYERS, tiny_model

WORDS = Words(__file__)

EXACT = {"rtol": 0, "atol": 1e-12}
CLOSE = {"rtol": 0, "atol": 2e-5}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


def patterns(bridge, tokens):
    adapt(bridge)  # puts the hooks of some families inside the computation
    kept = []
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(bridge.cfg.n_layers)]
    keep = [(name, lambda pattern, hook: kept.append(pattern[0])) for name in names]
    with torch.no_grad(), bridge.hooks(fwd_hooks=keep):
        bridge(torch.tensor([list(tokens)]))
    return kept


@pytest.mark.parametrize("prompts", [ragged(), many(4, shared=True)], ids=["ragged", "shared"])
def test_attention_is_summed_over_heads_and_label_words(model, prompts):
    found = extraction(model, prompts).attention
    for i, single in enumerate(prompts):
        shown = list(zip(single.label_positions, single.label_classes, strict=True))
        for layer, pattern in enumerate(patterns(model, single.tokens)):
            for label in range(3):
                expected = sum(
                    float(pattern[head, single.target, position])
                    for head in range(N_HEADS)
                    for position, displayed in shown
                    if displayed == label
                )
                assert float(found[i, layer, label]) == pytest.approx(expected, abs=2e-5)


def test_paths_agree(model):
    prompts, reading = many(6, shared=True), [AttentionReading(3)]
    whole = run(model, prompts, reading, path="whole")[0]
    assert float(whole.min(0).values.max()) > 1e-3
    torch.testing.assert_close(run(model, prompts, reading)[0], whole, **CLOSE)
    torch.testing.assert_close(run(model, prepare(model, prompts), reading)[0], whole, **CLOSE)


def test_a_padded_batch_gives_what_its_prompts_give_alone(model):
    prompts = clear_prompts(model, ragged())
    together = extraction(model, prompts)
    for i, single in enumerate(prompts):
        alone = extraction(model, PromptBatch((single,)))
        torch.testing.assert_close(together.attention[i], alone.attention[0], **CLOSE)
        assert together.truth_classes[i] == alone.truth_classes[0]


def plain_auc(attention, truth):
    """By scikit-learn, from rows normalised over the classes that occur."""
    present = truth.unique().tolist()
    scores = attention[..., present].double()
    scores = scores / scores.sum(-1, keepdim=True)
    ranks = torch.tensor([present.index(int(c)) for c in truth])
    return torch.tensor(
        [
            roc_auc_score(ranks, scores[:, layer, 1])
            if len(present) == 2
            else roc_auc_score(ranks, scores[:, layer], multi_class="ovo", average="macro")
            for layer in range(scores.shape[1])
        ],
        dtype=torch.float64,
    )


@pytest.mark.parametrize("truth", ["prediction", "gold"])
def test_auc_and_share_of_a_run(gpt2, truth):
    prompts = clear_prompts(gpt2, many(40))
    found = extraction(gpt2, prompts, truth=truth)
    expected = predict(gpt2, prompts).predicted if truth == "prediction" else prompts.answers
    torch.testing.assert_close(found.truth_classes, expected)
    auc = plain_auc(found.attention, expected)
    torch.testing.assert_close(found.auc, auc, **EXACT)
    share = (auc - 0.5).cumsum(0) / (auc - 0.5).sum()
    torch.testing.assert_close(found.cumulative, share, rtol=1e-9, atol=1e-9)
    assert float(found.cumulative[-1]) == 1.0
    assert bool(((found.auc_low <= found.auc) & (found.auc <= found.auc_high)).all())
    assert found.provenance["variants"] == {"truth": truth, "two_classes": "normalised"}
    shown = {"prediction": "own predictions", "gold": "true classes"}[truth]
    assert f"truth: {shown}" in found.drawing().note


def test_reweighted_attention(gpt2):
    """In the first block nothing else has changed: each class's attention times its factor."""
    beta = torch.zeros(N_LAYERS, N_HEADS, 3)
    beta[0] = torch.tensor([1.0, 0.0, -2.0])
    plain = extraction(gpt2, many(5))
    found = extraction(gpt2, many(5), interventions=[Reweight(beta)])
    torch.testing.assert_close(found.attention[:, 0], plain.attention[:, 0] * beta[0, 0].exp())
    assert float((found.attention[:, 1] - plain.attention[:, 1]).abs().max()) > 1e-4
    assert found.provenance["interventions"][0]["intervention"] == "Reweight"


def test_the_measurement_is_what_the_function_does(gpt2):
    prompts = many(12)
    alone = extraction(gpt2, prompts, truth="gold", two_classes="reference", batch_size=5)
    measurement = Extraction(truth="gold", two_classes="reference")
    found = icl.measure(gpt2, prompts, measurement, batch_size=5).extraction
    for name in ("attention", "auc", "auc_low", "auc_high", "cumulative", "truth_classes"):
        assert torch.equal(getattr(found, name), getattr(alone, name))
    assert found.provenance == {**alone.provenance, "date": found.provenance["date"]}
    assert found.provenance["measurement"] == "extraction"


def test_attention_is_read_in_the_pass_of_the_flow(gpt2, monkeypatch):
    passes = []

    def counted(model, prompts, readings, interventions, **options):
        passes.append(len(readings))
        return plain_run(model, prompts, readings, interventions, **options)

    plain_run = running.run
    monkeypatch.setattr(running, "run", counted)
    prompts = clear_prompts(gpt2, many(12))
    report = icl.measure(gpt2, prompts, Flow(), Extraction())
    assert passes == [3]
    alone = extraction(gpt2, prompts)
    torch.testing.assert_close(report.extraction.attention, alone.attention, **CLOSE)
    assert torch.equal(report.extraction.truth_classes, alone.truth_classes)


ABLATED = [ZeroHeads([(0, 1), (1, 0)], at="all")]


def test_attention_and_prediction_are_those_of_the_changed_model(gpt2):
    prompts = clear_prompts(gpt2, many(30), [(), ABLATED])
    found = extraction(gpt2, prompts, interventions=ABLATED)
    read = run(gpt2, prompts, [AttentionReading(3)], ABLATED, path="whole")[0]
    torch.testing.assert_close(found.attention, read, **CLOSE)
    predicted = predict(gpt2, prompts, interventions=ABLATED).predicted
    assert torch.equal(found.truth_classes, predicted)
    torch.testing.assert_close(found.auc, plain_auc(found.attention, predicted), **EXACT)
    assert float((found.auc - extraction(gpt2, prompts).auc).abs().max()) > 0.02


def test_difference_to_the_changed_model_is_paired_over_prompts(gpt2):
    """Both curves are computed from the same resamples; those that lose a class are left out."""
    prompts = many(30)
    plain, ablated = (extraction(gpt2, prompts, interventions=i) for i in ((), ABLATED))
    found = plain - ablated
    assert (found.name, found.dims) == ("auc", ("layer",))
    torch.testing.assert_close(found.values, plain.auc - ablated.auc, **EXACT)
    weights = resample_weights(len(prompts))
    drawn = [
        auc_statistic(side.attention, side.truth_classes, "normalised")(weights)
        for side in (plain, ablated)
    ]
    gap = (drawn[0] - drawn[1])[(drawn[0] - drawn[1]).isfinite().all(1)]
    ends = torch.stack(quantile_ends(gap, len(prompts)))
    torch.testing.assert_close(torch.stack([found.low, found.high]), ends, **EXACT)
    assert bool(((found.low < found.values) & (found.values < found.high)).all())
    same = plain - extraction(gpt2, prompts)
    assert float(torch.stack([same.values, same.low, same.high]).abs().max()) == 0.0
    with WORDS.raises(ResultError, "difference_changed_model_paired"):
        _ = plain - extraction(gpt2, many(29))


# --- from given attention ---


def result(attention, truth, **options):
    return extraction_result(attention, torch.tensor(truth), LABELS, **options)


def rising(n=40, n_layers=6, seed=0):
    """Two classes; attention follows the prediction in the last layers only."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(n) % 2
    attention = torch.rand(n, n_layers, 3, generator=generator)
    for layer in range(3, n_layers):
        attention[torch.arange(n), layer, truth] += 0.5
    return attention, truth.tolist()


def test_classes_never_predicted_are_dropped():
    attention, truth = rising()
    found = result(attention, truth)
    assert found.classes == (0, 1)
    WORDS(found.notes, "classes_never_predicted_dropped")
    WORDS(found.notes, "classes_never_predicted_dropped_2", "20")
    assert not any("too narrow" in note for note in found.notes)
    torch.testing.assert_close(found.auc, plain_auc(attention, torch.tensor(truth)), **EXACT)
    moved = result(attention[..., [0, 2, 1]], [2 * c for c in truth])
    assert moved.classes == (0, 2)
    torch.testing.assert_close(moved.auc, found.auc, **EXACT)


def test_reference_reading_of_two_classes():
    attention, truth = rising()
    found = result(attention, truth, two_classes="reference")
    expected = [roc_auc_score(truth, attention[:, layer, 1]) for layer in range(6)]
    torch.testing.assert_close(found.auc, torch.tensor(expected, dtype=torch.float64), **EXACT)
    assert float((found.auc - result(attention, truth).auc).abs().max()) > 1e-2


def test_auc_of_resamples():
    """As often as a prompt is drawn, so often it stands in the plain computation."""
    attention, truth = rising(n=24)
    classes = torch.tensor(truth)
    classes[::6] = 2  # three classes
    statistic = auc_statistic(attention, classes, "normalised")
    weights = resample_weights(24)[:6]
    for row, found in zip(weights, statistic(weights), strict=True):
        drawn = torch.arange(24).repeat_interleave((row * 24).round().long())
        expected = plain_auc(attention[drawn], classes[drawn])
        torch.testing.assert_close(found, expected, **EXACT)
    lost = weights[:1] * (classes != 2)
    assert bool(statistic(lost).isnan().all())
    # One of very many that holds all classes is no interval.
    assert bool(statistic(torch.cat([lost] * 150 + [weights])[:151]).isnan().all())


def test_quantities_are_the_fields():
    found = result(*rising())
    values = found.estimates()
    for name, ends in {
        "auc": (found.auc, found.auc_low, found.auc_high),
        "cumulative": (found.cumulative, found.cumulative_low, found.cumulative_high),
    }.items():
        torch.testing.assert_close(
            torch.from_numpy(values[name].values), torch.stack(ends), **EXACT
        )
    assert values["attention"].dims == ("end", "layer", "label")
    cell = found.interval("attention", layer=4, label="green")
    low, high = mean_ends(found.attention[:, 4, 1])
    mean = float(found.attention[:, 4, 1].double().mean())
    assert tuple(cell) == pytest.approx((mean, float(low), float(high)))
    assert found.interval("auc", layer=5) == found.interval(layer=5)
    late = found.sel(layer=[4, 5])
    torch.testing.assert_close(late.values, found.auc[4:], **EXACT)
    assert late.per_prompt is None
    # Without lost classes the stored ends are those of the paired resamples.
    statistic = auc_statistic(found.attention, found.truth_classes, "normalised")
    n = len(found.attention)
    low, high = auc_ends(found.auc, statistic(resample_weights(n)), n)
    torch.testing.assert_close(
        torch.stack([low, high]), torch.stack([found.auc_low, found.auc_high]), **EXACT
    )


def test_figures_of_a_page():
    found = result(*rising())
    late, looked = found.figures()
    assert (late.show, looked.show) == found.shows
    WORDS.starts(late.answer, "figures_page", "Yes")
    WORDS(late.answer, "figures_page_2", said(found.last_third))
    WORDS(late.answer, "figures_page_3", said(found.rise, sign=True))
    WORDS(late.caption, "figures_page_4", "4", "0", "5")
    assert "40 prompts" in late.caption
    assert late.establishes
    attention, truth = rising()
    own = attention[torch.arange(40), :, torch.tensor(truth)].double()
    others = (attention.sum(-1).double() - own) / 2
    shape = found.drawing(show="attention")
    torch.testing.assert_close(shape.values, torch.stack([own.mean(0), others.mean(0)]))
    gap = (own - others).mean(0)
    WORDS.starts(looked.answer, "figures_page_5", "3", "6")
    assert f"layer {int(gap.argmax())}, {told(float(gap.max()), sign=True)} [" in looked.answer
    early = result(attention.flip(1), truth).figures()[0]
    assert early.answer.startswith("Not shown: ")
    assert early.establishes == ""


def test_intervals_and_thirds():
    attention, truth = rising()
    found = result(attention, truth)
    assert found.redrawn == 0
    first, last = float(found.auc[:2].mean()), float(found.auc[-2:].mean())
    assert (found.first_third.value, found.last_third.value) == pytest.approx((first, last))
    assert found.rise.value == pytest.approx(last - first)
    assert 0 < found.rise.low < found.rise.value < found.rise.high
    assert found.denominator.value == pytest.approx(float((found.auc - 0.5).sum()))
    assert found.cumulative_defined
    inside = (found.cumulative_low <= found.cumulative) & (
        found.cumulative <= found.cumulative_high
    )
    assert bool(inside.all())
    # A Hanley-McNeil standard error bounds the width of the interval of a chance AUC.
    width = float(found.auc_high[0] - found.auc_low[0])
    assert width == pytest.approx(2 * 1.96 * (41 / (12 * 20 * 20)) ** 0.5, rel=0.15)


def test_summary_table_and_figure():
    found = result(*rising())
    WORDS(found.summary(), "summary_table_figure", "4", "0", "5")
    table = found.to_pandas()
    assert list(table.columns) == [
        "layer", "auc", "auc_low", "auc_high",
        "cumulative", "cumulative_low", "cumulative_high", "cumulative_defined",
    ]  # fmt: skip
    assert table.auc.tolist() == found.auc.tolist()
    shape = found.drawing()
    assert shape.names == ("AUC", "R")
    torch.testing.assert_close(shape.values, torch.stack([found.auc, found.cumulative]))
    torch.testing.assert_close(shape.low, torch.stack([found.auc_low, found.cumulative_low]))
    torch.testing.assert_close(shape.high, torch.stack([found.auc_high, found.cumulative_high]))
    auc, share = shape.panels  # R may leave [0, 1]: axes of its own
    assert (auc.curves, share.curves) == ((0,), (1,))
    assert auc.levels == ((0.5, "chance"),)
    drawn = figure(shape)
    lines = {trace.name: trace for trace in drawn.data if trace.fill is None}
    assert [lines[name].yaxis for name in shape.names] == ["y", "y2"]
    assert lines["AUC"].y == tuple(found.auc.tolist())
    assert drawn.layout.yaxis2.range[0] < float(found.cumulative_low.min()) < 0
    assert share.title in drawn.to_html()


def test_one_class_left_is_undefined_and_said_so(tmp_path):
    found = result(torch.rand(5, 4, 3), [1] * 5)
    assert not found.defined
    assert not found.cumulative_defined
    for values in (found.auc, found.auc_low, found.auc_high, found.cumulative, found.sums):
        assert bool(values.isnan().all())
    WORDS.exactly(found.notes, "class_left_undefined_said", "5", "green")
    WORDS.ends(found.summary(), "class_left_undefined_said", "5")
    WORDS(figure(found.drawing()).to_html(), "class_left_undefined_said_2", "5")
    late, looked = found.figures()
    assert not late.drawn
    WORDS.exactly(late.answer, "class_left_undefined_said_3", "Cannot be judged", "5")
    WORDS.starts(looked.answer, "class_left_undefined_said_4", "Cannot be judged", "5")
    loaded = Result.load(found.save(tmp_path / "one"))
    assert loaded.summary() == found.summary()
    assert not loaded.defined
    known = replace(found, provenance={"prompts": {"digest": "a"}})
    assert bool((known - known).low.isnan().all())
    assert bool(found.sel().values.isnan().all())


def test_layers_without_attention_to_label_words():
    attention, truth = rising()
    attention[:, [0, 2], :2] = 0.0  # the class left out still gets some
    found = result(attention, truth)
    assert found.auc[[0, 2]].tolist() == [0.5, 0.5]
    WORDS(found.notes, "layers_without_attention_label", "0.5", "2")
    assert found.auc_low[0] < 0.5 < found.auc_high[0]
    assert found.auc_high[0] - found.auc_low[0] < 0.1


def test_prompts_without_attention_are_uniform():
    attention, truth = rising()
    attention[:4] = 0.0
    found = result(attention, truth)
    even = attention.clone()
    even[:4, :, :2] = 1.0
    torch.testing.assert_close(found.auc, result(even, truth).auc, **EXACT)
    assert not any("no attention" in note for note in found.notes)


@pytest.mark.parametrize("kind", ["negative", "uncertain"])
def test_share_undefined_but_available(kind):
    attention, truth = rising()
    swapped, noise = attention[..., [1, 0, 2]], attention[:, :3]
    attention = swapped if kind == "negative" else noise
    found = result(attention, truth)
    assert (found.denominator.value < 0) == (found.denominator.high < 0) == (kind == "negative")
    assert not found.cumulative_defined
    assert float(found.cumulative[-1]) == 1.0
    assert bool(found.cumulative_low.isnan().all())
    WORDS(found.notes, "share_undefined", "R undefined")
    assert "R undefined" in found.summary()
    assert "R passes" not in found.summary()
    assert len(found.drawing().names) == 1
    assert not found.to_pandas().cumulative_defined.any()


def test_rare_classes():
    attention, _ = rising(n=10)
    found = result(attention, [0] * 9 + [1])
    assert found.redrawn > 4000
    WORDS(found.notes, "rare_classes", "5")
    WORDS(found.notes, "resamples_that_lost_a_class", found.redrawn)


def test_a_rare_class_is_left_out_of_the_verdict_only():
    attention, truth = rising(n=42)
    # Two prompts more, of a class whose label words nobody looks at.
    more = torch.rand(2, 6, 3, generator=torch.Generator().manual_seed(3))
    both = torch.cat([attention, more])
    found = result(both, [*truth, 2, 2])
    assert (found.classes, found.rare, found.left_out) == ((0, 1, 2), ("blue",), ("blue",))
    alone = result(attention, truth)
    last, rise, prompts = found.judged_on
    assert (last, rise, prompts) == (alone.last_third, alone.rise, 42)
    assert found.required == alone.required
    assert found.status == "supported"
    WORDS(found.figures()[0].answer, "rare_class_left_out")
    # The curves keep all classes.
    assert found.last_third.value != alone.last_third.value


def test_with_one_class_left_nothing_is_judged():
    attention, _ = rising(n=42)
    found = result(attention, [0] * 38 + [1] * 4)
    assert found.left_out == ()
    assert found.judged_on == (found.last_third, found.rise, 42)
    assert found.status in ("cannot be judged", "not shown")


def test_classes_too_rare_for_intervals(gpt2):
    labels = tuple(range(300, 345))
    rows = tuple(prompt(6, (2,), (i,), answer=i, label_tokens=labels, seed=i) for i in range(45))
    found = extraction(gpt2, PromptBatch(rows), truth="gold")
    assert bool(found.auc.isfinite().all())
    assert bool(found.auc_low.isnan().all())
    WORDS(found.notes, "classes_too_rare_intervals")
    assert not found.cumulative_defined


# --- files and refusals ---


def test_round_trip(gpt2, tmp_path):
    found = extraction(gpt2, many(12, shared=True))
    loaded = Result.load(found.save(tmp_path / "result"))
    assert type(loaded) is type(found)
    torch.testing.assert_close(loaded.attention, found.attention, rtol=0, atol=0)
    assert loaded.classes == found.classes
    assert loaded.summary() == found.summary()
    assert loaded.to_pandas().equals(found.to_pandas())
    WORDS(loaded.drawing().note, "round_trip")


def test_refusals(gpt2, monkeypatch, unchecked):
    monkeypatch.setattr(running, "run", None)
    with WORDS.raises(RunError, "refusals", "'golden'", "'gold'"):
        extraction(gpt2, ragged(), truth="golden")
    with pytest.raises(RunError, match=r"two_classes='ref'.*'reference'"):
        extraction(gpt2, ragged(), two_classes="ref")
    with WORDS.raises(PromptError, "refusals_2", "5"):
        extraction(gpt2, ragged(answers=False), truth="gold")
    bare = PromptBatch((ragged()[0], prompt(6, (), (), label_tokens=LABEL_TOKENS)))
    with WORDS.raises(PromptError, "refusals_3", "1"):
        extraction(gpt2, bare)

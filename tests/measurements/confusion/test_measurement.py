"""The diagnosis under the user's interventions, and as labelled samples."""

import math
from dataclasses import fields, replace

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine import run
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import Isolate
from icl_mech.measurements import running
from icl_mech.measurements.confusion.agreement import (
    label_pairs,
    normalised,
    pair_auc,
    rank_correlation,
)
from icl_mech.measurements.confusion.confusion import Confusion, diagnose_confusion
from icl_mech.measurements.confusion.key_distances import (
    KeyReading,
    QueryReading,
    key_distances,
    principal_directions,
)
from icl_mech.measurements.predictions import Predict
from icl_mech.metrics.intervals import resample_weights
from icl_mech.metrics.permutations import relabelling
from icl_mech.results import Result
from icl_mech.results.wording import said, told
from tests.engine.cases import Edge
from tests.interventions.test_prompt_dependent import Swap
from tests.measurements.confusion.test_diagnosis import LAYERS, full, made
from tests.prompts.cases import KINGDOMS, OBJECT, toy_task
from tests.said import Words
from tests.saved import without_date
from tests.tiny import FAMILIES, tiny_model

WORDS = Words(__file__)

EDGE = Edge(0, dest=2, src=1, factor=0.0, term=4.0)
CLOSE = {"atol": 2e-4, "rtol": 1e-4}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def shared(gpt2):
    """Nine prompts behind equal demonstrations; their queries of block 0 are all alike."""
    return icl.build_prompts(toy_task(KINGDOMS, OBJECT), gpt2, n=9, shots=2)


@pytest.fixture(scope="module")
def found(gpt2):
    return diagnose_confusion(gpt2, full(12))


def expected_distances(model, prompts, changes):
    """Distances of every prompt's own context, every position of every prompt computed."""
    queries, keys = run(
        model, prompts, [QueryReading(LAYERS), KeyReading(LAYERS)], changes, path="whole"
    )
    return key_distances(keys, principal_directions(queries, 10))


def counted(monkeypatch):
    """Sizes of the runs that read keys, as they come."""
    counts = []

    def counting(model, batch, readings, *args, **options):
        if any(isinstance(reading, KeyReading) for reading in readings):
            counts.append(len(batch))
        return run(model, batch, readings, *args, **options)

    monkeypatch.setattr(running, "run", counting)
    return counts


# Under interventions


@pytest.mark.parametrize("path", ["auto", "whole"])
def test_keys_queries_and_predictions_under_an_intervention(model, path):
    prompts = full()
    found = diagnose_confusion(model, prompts, interventions=[EDGE], path=path)
    plain = diagnose_confusion(model, prompts)
    assert_close(found.per_prompt, expected_distances(model, prompts, [EDGE]), **CLOSE)
    logits = icl.predict(model, prompts, interventions=[EDGE]).label_logits
    assert_close(found.label_logits, logits, **CLOSE)
    assert float((found.per_prompt - plain.per_prompt).abs().max()) > 1e-2
    assert float((found.label_logits - plain.label_logits).abs().max()) > 1e-3
    assert found.provenance["interventions"] == [EDGE.to_dict()]


def test_equal_demonstrations_that_are_changed_by_prompt_are_all_run(gpt2, shared, monkeypatch):
    """Each prompt has values of its own at a position inside the shared demonstrations."""
    values = 3 * torch.randn(9, gpt2.cfg.d_model, generator=torch.Generator().manual_seed(0))
    patch = Swap(values, layer=1, position=3)
    counts = counted(monkeypatch)
    found = diagnose_confusion(gpt2, shared, interventions=[patch])
    assert counts == [9]
    expected = expected_distances(gpt2, shared, [patch])
    assert_close(found.per_prompt[:, 1:], expected[:, 1:], **CLOSE)
    assert float((found.per_prompt[0, 1:] - found.per_prompt[1, 1:]).abs().max()) > 1e-2
    third = diagnose_confusion(gpt2, shared, context=2, interventions=[patch])
    assert_close(third.per_prompt[0, 1:], found.per_prompt[2, 1:], **CLOSE)


def test_equal_demonstrations_that_are_changed_alike_are_run_once(gpt2, shared, monkeypatch):
    counts = counted(monkeypatch)
    found = diagnose_confusion(gpt2, shared, interventions=[Isolate([1])])
    assert counts == [1]
    expected = expected_distances(gpt2, shared, [Isolate([1])])
    assert_close(found.per_prompt[:, 1:], expected[:, 1:], **CLOSE)


# As a measurement


def test_the_measurement_gives_what_the_function_gives(gpt2, shared):
    options = {"layer": 1, "components": 3, "contexts": full(4), "context": 2}
    prompts = full()
    report = icl.measure(gpt2, prompts, Confusion(**options, query_prompts=full(9)))
    expected = diagnose_confusion(gpt2, prompts, **options, query_prompts=full(9))
    for name in ("distances", "confusion_auc", "auc_low", "correlation", "low", "label_logits"):
        assert_close(
            getattr(report.confusion, name), getattr(expected, name), rtol=0, atol=0, equal_nan=True
        )
    assert without_date(report.confusion) == without_date(expected)
    assert expected.provenance["variants"] == {
        "layer": 1,
        "components": 3,
        "contexts": {"digest": full(4).digest, "count": 4},
        "context": 2,
        "query_prompts": {"digest": full(9).digest, "count": 9},
    }
    assert expected.provenance["query_prompts"]["count"] == 9


def test_predictions_of_another_measurement_are_run_once(gpt2, monkeypatch):
    """Contexts that differ by prompt are the prompts themselves: one pass for everything."""
    sizes = []

    def counting(model, batch, *args, **options):
        sizes.append(len(batch))
        return run(model, batch, *args, **options)

    monkeypatch.setattr(running, "run", counting)
    report = icl.measure(gpt2, full(), Predict(), Confusion())
    assert sizes == [6]
    assert torch.equal(report.confusion.label_logits, report.predictions.label_logits)


def test_refusals_come_before_anything_is_run(gpt2, monkeypatch, unchecked):
    monkeypatch.setattr(running, "run", None)
    for options, words in (
        ({"layer": 9}, "layer=9"),
        ({"context": 7}, "context=7"),
        ({"layer": 0.5}, "layer=0.5"),
    ):
        with WORDS.raises(RunError, words, words):
            icl.measure(gpt2, full(), Predict(), Confusion(**options))


# As labelled samples


def test_measured_confusion_by_pair(found):
    assert found.sel("auc").labels == (
        ("class 0 / class 1", "class 0 / class 2", "class 1 / class 2"),
    )
    ends = (found.confusion_auc[0, 2], found.auc_low[0, 2], found.auc_high[0, 2])
    assert found.interval("auc", pair="class 0 / class 2") == tuple(map(float, ends))
    assert found.interval(pair="class 0 / class 2") == found.interval(
        "auc", pair="class 0 / class 2"
    )
    margins = found.to_xarray()["auc"]
    assert margins.dims == ("prompt", "pair")
    expected = found.label_logits[:, 1] - found.label_logits[:, 2]
    assert margins.sel(pair="class 1 / class 2").values.tolist() == expected.tolist()


def test_correlation_by_layer(found):
    assert found.interval("correlation", layer=1) == found.rank_correlation(1)
    assert found.sel("correlation").dims == ("layer",)


def test_distances_of_the_prompts_own_contexts(found):
    shown = found.sel("distance")
    assert shown.dims == ("layer", "pair")
    first, second = zip(*label_pairs(3), strict=True)
    assert_close(shown.values, found.distances[:, list(first), list(second)])
    weights = resample_weights(12)[:500]
    drawn = found.quantities()["distance"].of(weights)
    for number in (0, 17):
        means = torch.einsum("n,nlab->lab", weights[number], found.per_prompt)
        assert_close(drawn[number], normalised(means)[:, list(first), list(second)])
    assert bool((shown.low <= shown.values + 1e-12).all())
    assert float((shown.high - shown.low).max()) > 1e-3


def test_distances_of_other_contexts_are_no_samples_of_the_prompts(gpt2):
    for options in ({"contexts": full(9)[3:]}, {"context": 2}):
        quantities = diagnose_confusion(gpt2, full(), **options).quantities()
        assert list(quantities) == ["auc", "correlation"]


def test_resamples_of_prompts(found):
    weights = resample_weights(12)[:40]
    quantities = found.quantities()
    aucs, correlations = (quantities[name].of(weights) for name in ("auc", "correlation"))
    known = ~aucs.isnan().any(1)
    assert int(known.sum()) > 20
    for number in known.nonzero()[:5, 0].tolist():
        counts = (12 * weights[[number]]).round().long()[0]
        drawn = torch.arange(12).repeat_interleave(counts)
        own = [
            float(pair_auc(found.label_logits[drawn], found.answers[drawn], pair))
            for pair in label_pairs(3)
        ]
        assert aucs[number].tolist() == pytest.approx(own, abs=1e-6)
        predicted = found.distances[:, [0, 0, 1], [1, 2, 2]]
        expected = rank_correlation(predicted, aucs[[number]])[0]
        assert_close(correlations[number], expected, equal_nan=True)


def test_under_an_intervention_minus_plain(gpt2, found):
    cut = diagnose_confusion(gpt2, full(12), interventions=[EDGE])
    gap = cut - found
    expected = [float(cut.confusion_auc[p] - found.confusion_auc[p]) for p in label_pairs(3)]
    assert gap.values.tolist() == pytest.approx(expected, abs=1e-12)
    assert bool(((gap.low <= gap.values) & (gap.values <= gap.high)).all())
    same = found - found
    assert same.low.tolist() == same.high.tolist() == [0.0, 0.0, 0.0]


def test_nothing_to_estimate_with_one_class():
    alone = made(torch.randn(4, 3), torch.zeros(4, dtype=torch.long), torch.rand(1, 1, 3, 3))
    assert alone.quantities() == {}
    with WORDS.raises(ResultError, "nothing_estimate_class"):
        alone.sel()


def test_two_classes_can_be_subtracted(gpt2):
    prompts = icl.build_prompts(toy_task(), gpt2, n=8)
    plain, cut = (
        diagnose_confusion(gpt2, prompts, interventions=changes) for changes in ([], [EDGE])
    )
    assert (cut - plain).labels == (("Negative / Positive",),)
    value = float(cut.confusion_auc[0, 1] - plain.confusion_auc[0, 1])
    assert (cut - plain).only().value == pytest.approx(value, abs=1e-12)


def test_figures_of_a_page(gpt2, found):
    shown = found.figures()
    assert [figure.show for figure in shown] == ["matrices", "layers"]
    matrices, layers = shown
    WORDS.starts(matrices.answer, "figures_page", "Cannot be judged", "3")
    assert said(found.rank_correlation(), sign=True) in matrices.answer
    assert all(note[1:] in matrices.limits for note in found.notes)
    best = int(found.correlation.argmax())
    assert f"{said(found.rank_correlation(best), sign=True)}, in layer {best}" in layers.answer
    WORDS(layers.caption, "figures_page_2", "3")
    for figure in shown:
        assert figure.question.endswith("?")
        assert "12 prompts" in figure.caption
        assert found.plot(figure.show).layout.title.text
    two = diagnose_confusion(gpt2, icl.build_prompts(toy_task(), gpt2, n=8))
    (alone,) = two.figures()
    assert alone.show == "matrices"
    WORDS.exactly(alone.answer, "figures_page_3", "Cannot be judged", "1", "8")


PLACES = torch.tensor([0.0, 1.0, 3.0, 7.0, 12.0, 14.5])


def on_a_line(places, distances=None, size=200):
    """Classes on a line, confused the more the nearer their means are; their own distances."""
    answers = torch.arange(len(places)).repeat(size)
    noise = torch.randn(len(answers), generator=torch.Generator().manual_seed(0))
    logits = -((places[answers] + 2 * noise)[:, None] - places).square()
    own = (places[:, None] - places).abs().double() if distances is None else distances
    return logits, answers, own[None, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "opening", "than"),
    [(1, "Yes: ", "above 0"), (-1, "No: ", "below 0"), (0, "Not shown: ", "not clearly different")],
)
def test_an_answer_follows_the_interval_and_the_p_value(order, opening, than):
    logits, answers, distances = on_a_line(PLACES)
    if order < 0:
        distances = (20 - distances) * (1 - torch.eye(6))
    if order == 0:
        logits = torch.randn(len(logits), 6, generator=torch.Generator().manual_seed(0))
    found = made(logits, answers, distances)
    figure = found.figures()[0]
    assert figure.answer.startswith(opening)
    assert f"{said(found.rank_correlation(), sign=True)} (1200 prompts), {than}" in figure.answer
    WORDS(figure.answer, "answer_follows_interval_p", told(found.p_value()))
    assert found.p_value() <= 1 / 60 if order > 0 else found.p_value() > 0.025
    assert f"classes {told(found.p_value())}" in found.summary()
    assert figure.drawn


@pytest.mark.slow
def test_an_interval_over_prompts_is_not_enough():
    """Renamed classes: the correlation is not 0 for any number of prompts, and yet chance."""
    renamed = PLACES[[0, 2, 1, 4, 5, 3]]
    found = made(*on_a_line(PLACES, (renamed[:, None] - renamed).abs().double()))
    assert found.low[0] > 0
    assert found.p_value() > 0.025
    assert found.status == "not shown"
    answer = found.figures()[0].answer
    WORDS(answer, "interval_over_prompts_enough", "0")


@pytest.mark.slow
def test_four_classes_are_too_few_to_tell_agreement_from_chance():
    found = made(*on_a_line(PLACES[:4]))
    assert found.low[0] > 0
    assert found.p_value() == pytest.approx(1 / 24)
    assert found.status == "cannot be judged"
    answer = found.figures()[0].answer
    WORDS.starts(answer, "four_classes_too_few_2", "Cannot be judged", "6")
    WORDS(answer, "four_classes_too_few_3", "0.04", "0.025")


@pytest.mark.slow
def test_one_confused_pair_among_six_classes_is_too_little():
    """One pair of 15 comes to lie on the nearest one in one of 15 orders."""
    logits, answers, distances = on_a_line(torch.tensor([0.0, 1, 50, 100, 150, 200]))
    found = made(logits, answers, distances)
    assert found.rank_correlation().value > 0
    assert math.isnan(found.rank_correlation().low)  # the others have an AUC of 1 in all resamples
    assert float(found.relabelled.smallest) == pytest.approx(1 / 15)
    assert found.p_value() == pytest.approx(1 / 15)
    assert found.status == "cannot be judged"


@pytest.mark.slow
def test_the_p_value_is_over_the_classes_that_were_measured():
    logits, answers, distances = on_a_line(PLACES)
    found = made(logits[answers != 4], answers[answers != 4], distances)
    kept = [0, 1, 2, 3, 5]
    expected = relabelling(found.distances[:, kept][:, :, kept], found.confusion_auc[kept][:, kept])
    assert [float(own) for own in found.relabelled] == [float(own) for own in expected]
    assert float(expected.smallest) < 1 / 24


@pytest.mark.slow
def test_results_saved_before_there_was_a_p_value_have_one(tmp_path):
    """It comes from the tables, so nothing more is stored."""
    found = made(*on_a_line(PLACES))
    folder = found.save(tmp_path / "diagnosis")
    names = {item.name for item in fields(found)}
    assert not names & {"relabelled", "p_value", "smallest"}
    loaded = Result.load(folder)
    assert loaded.p_value() == found.p_value()
    assert loaded.status == "supported"


def test_classes_told_apart_perfectly_leave_nothing_to_draw():
    answers = torch.arange(4).repeat(5)
    found = made(9 * torch.eye(4)[answers], answers, torch.rand(1, 1, 4, 4).double())
    (figure,) = found.figures()
    WORDS.starts(figure.answer, "classes_told_apart_perfectly", "Cannot be judged", "6")
    assert not figure.drawn


def test_notes_say_what_intervals_rest_on(found):
    note = found.drawing("layers").note
    WORDS.starts(note, "notes_say_what_intervals", "3", "12", "95")
    WORDS.ends(note, "notes_say_what_intervals_2")


def test_samples_of_a_loaded_result(found, tmp_path):
    loaded = Result.load(found.save(tmp_path / "diagnosis"))
    assert_close(loaded.sel().values, found.sel().values, rtol=0, atol=0)
    before = replace(loaded, provenance={"variants": {"contexts": {"shots": 1}}})
    assert "distance" not in before.quantities()

"""The early exit: chosen on one half of the prompts and reported on the other."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import ZeroHeads
from icl_mech.engine import run
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.accuracy.early_exit import EarlyExit, EarlyExitResult, early_exit
from icl_mech.measurements.accuracy.layer_accuracy import (
    LayerAccuracy,
    LayerAccuracyResult,
    layer_accuracy,
)
from icl_mech.measurements.running import measured
from icl_mech.metrics import calibrated_scores, mean_ends
from icl_mech.metrics.intervals import quantile_ends, resample_weights
from icl_mech.metrics.layers import stratified_halves
from icl_mech.results.wording import said
from icl_mech.studies.measuring import measure
from tests.measurements.overthinking_cases import FAMILIES, planted_case, tiny_case
from tests.planted import INDUCTION_HEADS
from tests.said import Words
from tests.saved import as_earlier, with_tensors

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def planted():
    return layer_accuracy(*planted_case())


def result_of(true, false, answers, name="made up", **options):
    """A result with these probabilities of label 1, `[prompt, entry]`."""
    sides = [
        torch.stack([1 - side, side], dim=-1)
        for side in (torch.as_tensor(values, dtype=torch.float64) for values in (true, false))
    ]
    return LayerAccuracyResult(
        scores=torch.zeros(6, 2, *sides[0].shape[:2]).double(),
        true_probs=sides[0],
        false_probs=sides[1],
        answers=torch.as_tensor(answers),
        provenance={"prompts": {"task": {"name": name}}},
        **options,
    )


def random_result(seed, batch=24, entries=5, **options):
    generator = torch.Generator().manual_seed(seed)
    probs = torch.rand(2, batch, entries, generator=generator).double()
    return result_of(probs[0], probs[1], torch.arange(batch) % 2, **options)


def of_setting(seed, labels, digest="queries"):
    """A result that says which prompts it is of."""
    origin = {
        "prompts": {"task": {"name": "a"}, "digest": digest},
        "false_prompts": {"labels": labels},
    }
    return replace(random_result(seed), provenance=origin)


def test_a_layer_chosen_with_permuted_labels_is_reported_for_others():
    permuted, half = of_setting(1, "permuted"), of_setting(4, "half_permuted")
    assert early_exit(permuted).layer != early_exit(half).layer
    found = early_exit(half, chosen_on=permuted)
    assert found.layer == early_exit(permuted).layer
    _, second = stratified_halves(half.answers)
    assert found.held_out() == second.tolist()
    there, last = (accuracy(half.false_probs, half.answers, second, e) for e in (found.layer, 4))
    assert found.overthinking().value == pytest.approx(there - last)
    assert found.chosen_with == "permuted"
    WORDS(found.figures()[0].caption, "layer_chosen_permuted_labels")
    assert found.provenance["chosen_on"] == [{"labels": "permuted"}]
    assert early_exit(half, chosen_on=half).layer == early_exit(half).layer
    with WORDS.raises(ResultError, "layer_chosen_permuted_labels_2"):
        early_exit(half, chosen_on=of_setting(1, "permuted", "others"))
    foreign = replace(permuted, provenance={**permuted.provenance, "model": {"weights": "others"}})
    for other in (foreign, replace(permuted, variant="reference")):
        with WORDS.raises(ResultError, "layer_chosen_permuted_labels_4"):
            early_exit(half, chosen_on=other)
    with WORDS.raises(ResultError, "layer_chosen_permuted_labels_3", "1", "2"):
        early_exit(half, chosen_on=[permuted, permuted])


def accuracy(probs, answers, part, entry):
    """Thresholds of the part itself."""
    return float(calibrated_scores(probs[part, entry], answers[part]).mean())


@pytest.mark.parametrize("seed", range(6))
def test_chosen_on_one_half_and_reported_on_the_other(seed):
    result = random_result(seed)
    first, second = stratified_halves(result.answers, seed)
    gains = [
        accuracy(result.false_probs, result.answers, first, entry)
        - accuracy(result.false_probs, result.answers, first, 4)
        for entry in range(4)
    ]
    found = early_exit(result, seed=seed)
    assert found.layer == gains.index(max(gains))
    for side, probs in enumerate((result.true_probs, result.false_probs)):
        there, last = (accuracy(probs, result.answers, second, e) for e in (found.layer, 4))
        assert float(found.change[0, side]) == pytest.approx(there - last)
        assert found.low[0, side] <= found.change[0, side] <= found.high[0, side]
    assert found.overthinking() == (
        float(found.change[0, 1]), float(found.low[0, 1]), float(found.high[0, 1]),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_the_reference_chooses_and_reports_on_all(seed):
    result = random_result(seed)
    found = early_exit(result, variant="reference")
    everything = torch.arange(24)
    gains = [
        accuracy(result.false_probs, result.answers, everything, entry)
        - accuracy(result.false_probs, result.answers, everything, 4)
        for entry in range(4)
    ]
    assert found.layer == gains.index(max(gains))
    assert float(found.change[0, 1]) == pytest.approx(max(gains))


def test_held_out_prompts_do_not_choose():
    """Other numbers in the second half change what is reported, not the layer."""
    result = random_result(1)
    _, second = stratified_halves(result.answers, 0)
    false = result.false_probs.clone()
    false[second] = false[second].flip(1)
    other = replace(result, false_probs=false)
    before, after = early_exit(result), early_exit(other)
    assert before.layer == after.layer
    assert float(before.change[0, 1]) != float(after.change[0, 1])


def test_one_layer_for_several_tasks():
    """Each alone would leave elsewhere."""
    answers = torch.arange(16) % 2
    right = answers.double()
    # Entries: blind, right, wrong, wrong; blind, half right, right, wrong.
    wrong, half = 1 - right, torch.where(torch.arange(16) % 4 < 2, right, 1 - right)
    ranks = 0.01 * torch.arange(16).double()[:, None]
    one = torch.stack([0 * right, right, half, wrong], 1) + ranks
    two = torch.stack([0 * right, wrong, right, wrong], 1) + ranks
    tasks = [result_of(p / 2, p / 2, answers, name) for p, name in ((one, "one"), (two, "two"))]
    assert [early_exit(task, variant="reference").layer for task in tasks] == [1, 2]
    both = early_exit(tasks, variant="reference")
    assert both.layer == 2
    assert both.tasks == ("one", "two")
    assert float(both.change[1, 1]) == pytest.approx(1)
    assert float(both.change[0, 1]) < 1
    assert both.overthinking(1).value == pytest.approx(1)


def test_the_reference_lens_has_exact_ties():
    """Numbers 1e-9 apart, each on the wrong side: two ties, or two errors."""
    values = torch.tensor([[0.2, 0.9], [0.2 + 1e-9, 0.1]], dtype=torch.float64)
    for lens, change in (("sound", -0.5), ("reference", -1.0)):
        found = early_exit(result_of(values, values, [1, 0], variant=lens), variant="reference")
        assert found.change[0].tolist() == pytest.approx([change, change])


def test_ties_among_the_held_out_scores_are_told():
    """Where all prompts are alike, and in another task at the last entry only."""
    alike = result_of(torch.full((8, 3), 0.5), torch.full((8, 3), 0.5), [0, 1] * 4)
    found = early_exit(alike)
    assert found.tie_counts[:, 0].tolist() == [[8, 8], [0, 0], [8, 8]]
    WORDS.ends(found.summary(), "ties_among_held_out", "16", "0")
    ranks = 0.01 * torch.arange(8).double()[:, None].repeat(1, 3) + 0.3
    one = ranks.clone()
    one[:, -1] = 0.5
    found = early_exit([result_of(ranks, one, [0, 1] * 4), alike], variant="reference")
    assert found.tie_counts[0].tolist() == [[0, 8], [16, 16]]
    assert found.tie_counts[2].tolist() == [[16, 16], [16, 16]]
    assert found.ties == (40, 0, 64)


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    found = early_exit(layer_accuracy(*tiny_case(family)))
    assert 0 <= found.layer < 3
    assert found.tasks == ("tiny",)


def test_the_planted_model_overthinks_after_block_one(planted):
    found = early_exit(planted)
    assert found.layer == 2
    assert found.overthinking().value > 0.9
    assert found.overthinking().low > 0.5
    assert found.change[0, 0] == 0
    WORDS.starts(found.summary(), "planted_model_overthinks_after", "2")
    (figure,) = found.figures()
    WORDS.starts(figure.answer, "planted_model_overthinks_after_2", "Yes", "2")
    assert f"{said(found.overthinking(), sign=True)} with false" in figure.answer
    WORDS(figure.caption, "planted_model_overthinks_after_3", "15")
    whole = early_exit(planted, variant="reference")
    assert whole.layer == 2
    expected = planted.accuracy("false")[2] - planted.accuracy("false")[-1]
    assert_close(whole.change[0, 1], expected)


def test_errors(planted):
    with WORDS.raises(ResultError, "errors", "[4, 5]"):
        early_exit([planted, layer_accuracy(*tiny_case("gpt2"))])
    with pytest.raises(ResultError, match="results is empty"):
        early_exit([])
    with WORDS.raises(ResultError, "errors_2"):
        early_exit(random_result(0, batch=1))


def test_unknown_options(planted, unchecked):
    with WORDS.raises(RunError, "unknown_options", "'best'"):
        early_exit(planted, variant="best")
    with WORDS.raises(RunError, "unknown_options_2", "0.5"):
        EarlyExit(seed=0.5)


# --- the changes of single prompts ---


def test_every_held_out_prompt_keeps_its_change(planted):
    found = early_exit(planted, seed=1)
    _, second = stratified_halves(planted.answers, 1)
    held_out = torch.zeros(30, dtype=torch.bool)
    held_out[second] = True
    assert found.changes.shape == (1, 2, 30)
    assert torch.equal(found.changes[0, 1].isfinite(), held_out)
    assert_close(found.changes[..., second].mean(-1), found.change)
    low, high = mean_ends(found.changes[0, :, second].T, "change")
    assert torch.equal(torch.stack([low, high]), torch.stack([found.low[0], found.high[0]]))
    assert found.interval("change", task="planted", side="false") == pytest.approx(
        found.overthinking()
    )
    assert found.sel(side="true").values.tolist() == found.change[:, 0].tolist()
    array = found.to_xarray()["change"]
    assert array.dims == ("prompt", "task", "side")
    assert array.sel(task="planted", side="true").isnull().sum() == 15


def test_tasks_with_fewer_prompts(tmp_path):
    tasks = [random_result(0, batch=24, name="long"), random_result(1, batch=10, name="short")]
    found = early_exit(tasks)
    assert found.changes.shape == (2, 2, 24)
    assert found.changes.isfinite().sum(-1).tolist() == [[12, 12], [5, 5]]
    for task, result in enumerate(tasks):
        _, second = stratified_halves(result.answers, 0)
        for side, probs in enumerate((result.true_probs, result.false_probs)):
            scores = calibrated_scores(probs[second], result.answers[second][:, None].expand(-1, 5))
            change = scores[:, found.layer] - scores[:, -1]
            assert_close(found.changes[task, side, second], change)
            low, high = mean_ends(change, "change")
            cell = found.interval(task=result.provenance["prompts"]["task"]["name"],
                                  side=("true", "false")[side])  # fmt: skip
            assert cell == pytest.approx((float(change.mean()), float(low), float(high)))
    WORDS.starts(found.drawing().note, "tasks_fewer_prompts", "17", "95")
    loaded = EarlyExitResult.load(found.save(tmp_path / "result"))
    assert torch.equal(loaded.changes.isnan(), found.changes.isnan())


def test_a_difference_resamples_the_prompts_of_both(planted):
    """Thresholds of one model and another; by hand from the weights of the resamples."""
    origin = {"prompts": {"digest": "a", "count": 24}}
    one, other = (replace(early_exit(random_result(s)), provenance=origin) for s in (3, 4))
    found = one - other
    _, second = stratified_halves(torch.arange(24) % 2, 0)
    weights = resample_weights(24)[:, second]
    drawn = [
        weights @ result.changes[0, :, second].T / weights.sum(1, keepdim=True)
        for result in (one, other)
    ]
    ends = torch.stack(quantile_ends(drawn[0] - drawn[1], 24))
    assert_close(found.values, one.change - other.change)
    assert_close(torch.stack([found.low[0], found.high[0]]), ends)


def test_exits_of_other_tasks_are_not_subtracted():
    def measured(digest):
        found = random_result(0)
        return replace(found, provenance={"prompts": {"digest": digest, "count": 24}})

    one = early_exit([measured("a"), measured("b")])
    assert one.provenance["prompts"]["count"] == 48
    assert float((one - early_exit([measured("a"), measured("b")])).values.abs().max()) == 0
    for others in ([measured("a"), measured("c")], [measured("a")]):
        with WORDS.raises(ResultError, "exits_other_tasks_subtracted_2"):
            _ = one - early_exit(others)
    with WORDS.raises(ResultError, "exits_other_tasks_subtracted"):
        _ = one - early_exit([measured("a"), measured(None)])


def test_results_saved_without_changes_can_be_loaded(planted, tmp_path):
    found = early_exit(planted)
    folder = found.save(tmp_path / "result")
    with_tensors(as_earlier(folder), lambda tensors: tensors.pop("changes"))
    loaded = EarlyExitResult.load(folder)
    assert loaded.changes is None
    assert loaded.summary() == found.summary()
    assert loaded.overthinking() == found.overthinking()
    assert_close(loaded.drawing().values, found.change)
    WORDS.starts(loaded.drawing().note, "results_saved_without_changes", "95")


# --- as a measurement ---


def test_leaving_early_shares_the_runs_of_accuracy_by_layer(monkeypatch):
    made = []

    def counted(model, prompts, readings, *args, **kwargs):
        made.append(len(readings))
        return run(model, prompts, readings, *args, **kwargs)

    monkeypatch.setattr("icl_mech.measurements.running.run", counted)
    model, *pair = planted_case()
    found = measure(model, tuple(pair), LayerAccuracy(), EarlyExit(seed=2), progress=False)
    assert made == [1, 1]
    expected = early_exit(found.layer_accuracy, seed=2)
    assert_same(found.early_exit, expected)
    assert found.early_exit.provenance["variants"] == {"variant": "sound", "seed": 2, "lens": None}
    assert expected.provenance["variants"] == found.early_exit.provenance["variants"]
    assert expected.provenance["measurement"] == "early_exit"
    assert found.early_exit.provenance["prompts"] == expected.provenance["prompts"]


def test_the_reference_takes_the_papers_lens():
    model, *pair = tiny_case("gpt2")
    found = measured(EarlyExit("reference"), model, tuple(pair), progress=False)
    expected = early_exit(layer_accuracy(model, *pair, variant="reference"), variant="reference")
    assert_same(found, expected)
    WORDS.starts(found.drawing().note, "reference_takes_papers_lens", "12", "95")


def test_without_the_induction_heads_nothing_is_gained_by_leaving():
    model, *pair = planted_case()
    edit = [ZeroHeads(INDUCTION_HEADS)]
    found = measured(EarlyExit(), model, tuple(pair), interventions=edit, progress=False)
    assert_same(found, early_exit(layer_accuracy(model, *pair, interventions=edit)))
    plain = measured(EarlyExit(), model, tuple(pair), progress=False)
    assert plain.overthinking().low > 0.5
    change = found.overthinking()
    assert change.value == 0
    assert change.low < 0 < change.high
    assert found.provenance["interventions"] == [edit[0].to_dict()]


def test_refused_before_anything_runs():
    model, true, false = planted_case()
    with WORDS.raises(PromptError, "refused_before_anything_runs"):
        measure(model, (true, false[:3]), EarlyExit())
    with WORDS.raises(ResultError, "refused_before_anything_runs_2"):
        measure(model, (true[:1], false[:1]), EarlyExit())
    with WORDS.raises(PromptError, "refused_before_anything_runs_3"):
        measure(model, false, EarlyExit())


def assert_same(found, expected):
    assert (found.layer, found.tasks) == (expected.layer, expected.tasks)
    for name in ("change", "low", "high", "tie_counts", "changes"):
        assert_close(getattr(found, name), getattr(expected, name), rtol=0, atol=0, equal_nan=True)


def test_files_figures_and_tables(planted, tmp_path):
    found = early_exit([planted, replace(planted)], seed=3)
    found.save(tmp_path / "result")
    loaded = EarlyExitResult.load(tmp_path / "result")
    assert (loaded.layer, loaded.tasks) == (found.layer, found.tasks)
    assert torch.equal(loaded.change, found.change)
    assert loaded.summary() == found.summary()
    assert torch.equal(loaded.tie_counts, found.tie_counts)
    assert loaded.provenance["variants"] == {"variant": "sound", "seed": 3, "lens": None}
    assert loaded.provenance["layer_accuracy"] == {
        "variant": "sound", "interval": "score", "lens": None, "threshold": 0.5,
    }  # fmt: skip
    assert found.plot().data
    assert_close(found.drawing().values, found.change)
    table = found.to_pandas()
    assert table.side.tolist() == ["true", "false"] * 2
    assert table.change.tolist() == pytest.approx(found.change.flatten().tolist())

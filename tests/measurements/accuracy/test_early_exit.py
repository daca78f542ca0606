"""The early exit: chosen on one half of the prompts and reported on the other."""

from dataclasses import replace
from inspect import unwrap

import pytest
import torch
from torch.testing import assert_close

from icl_mech.errors import ResultError
from icl_mech.measurements.accuracy.early_exit import EarlyExit, early_exit
from icl_mech.measurements.accuracy.layers import LayerAccuracy, layer_accuracy
from icl_mech.metrics import calibrated_scores, stratified_halves
from tests.measurements.overthinking_cases import FAMILIES, planted_case, tiny_case


@pytest.fixture(scope="module")
def planted():
    return layer_accuracy(*planted_case())


def result_of(true, false, answers, name="made up", **options):
    """A result with these probabilities of label 1, `[prompt, entry]`."""
    sides = [
        torch.stack([1 - side, side], dim=-1)
        for side in (torch.as_tensor(values, dtype=torch.float64) for values in (true, false))
    ]
    return LayerAccuracy(
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
    assert found.summary().endswith("; of 16 scores 16 are ties and 0 nearly")
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
    assert found.summary().startswith("leaving at entry 2 changes calibrated accuracy: planted:")
    whole = early_exit(planted, variant="reference")
    assert whole.layer == 2
    expected = planted.accuracy("false")[2] - planted.accuracy("false")[-1]
    assert_close(whole.change[0, 1], expected)


def test_errors(planted):
    with pytest.raises(ResultError, match=r"models with \[4, 5\] entries"):
        early_exit([planted, layer_accuracy(*tiny_case("gpt2"))])
    with pytest.raises(ResultError, match="entries"):
        early_exit([])
    with pytest.raises(ResultError, match="at least two prompts"):
        early_exit(random_result(0, batch=1))
    with pytest.raises(ResultError, match="variant='best'"):
        unwrap(early_exit)(planted, variant="best")


def test_files_figures_and_tables(planted, tmp_path):
    found = early_exit([planted, replace(planted)], seed=3)
    found.save(tmp_path / "result")
    loaded = EarlyExit.load(tmp_path / "result")
    assert (loaded.layer, loaded.tasks) == (found.layer, found.tasks)
    assert torch.equal(loaded.change, found.change)
    assert loaded.summary() == found.summary()
    assert torch.equal(loaded.tie_counts, found.tie_counts)
    assert loaded.provenance["early_exit"] == {"variant": "sound", "seed": 3}
    assert found.plot().data
    assert_close(found.drawing().values, found.change)
    table = found.to_pandas()
    assert table.demonstrations.tolist() == ["true", "false"] * 2
    assert table.value.tolist() == found.change.flatten().tolist()

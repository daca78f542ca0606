"""Stability of the runs of a sweep: which runs are compared, on its page, joined, and where nothing can be compared."""

import pytest

import icl_mech as icl
from icl_mech.errors import SweepError
from icl_mech.measurements import HeadScores, LayerAccuracy, Predict
from icl_mech.planted import FALSE_INDUCTION_HEADS
from icl_mech.sweeps import compare, comparison
from icl_mech.sweeps.result import Sweep
from tests.said import Words

WORDS = Words(__file__)

QUIET = {"n": 24, "progress": False}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two numbers of demonstrations, three seeds."""
    model, measured = icl.planted_model(circuit="heads"), [HeadScores(), LayerAccuracy()]
    out = tmp_path_factory.mktemp("runs") / "s"
    return icl.sweep(
        model, icl.planted_task(), measured, seeds=range(3), shots=[1, 2], out=out, **QUIET
    )


@pytest.fixture(scope="module")
def found(runs):
    return runs.stability(k=3)


def test_runs_that_differ_in_one_dimension(runs, found):
    """Three seeds in two groups, and two numbers of demonstrations in three."""
    assert {(line.over, line.names, line.groups, line.runs) for line in found.lines} == {
        ("seed", ("0", "1", "2"), 2, 6),
        ("shots", ("1", "2"), 3, 6),
    }
    names = {f"{layer}.{head}" for layer, head in FALSE_INDUCTION_HEADS}
    line = found.line("overlap", "seed", "head_scores")
    assert (set(line.heads), line.status, line.held) == (names, "supported", 3)
    assert found.line("distance", "seed").of == "layer_accuracy"
    assert found.line("overlap", "shots").status == "cannot be judged"
    one = runs.select(shots=2).stability(k=3)
    assert {line.over for line in one.lines} == {"seed"}
    assert one.line("overlap", "seed").groups == 1


def test_the_overlap_is_the_mean_over_groups(runs, found):
    parts = [runs.select(shots=count).stability(k=3) for count in (1, 2)]
    values = [part.line("overlap", "seed").value for part in parts]
    assert found.line("overlap", "seed").value == pytest.approx(sum(values) / 2)


def test_loaded(runs, found):
    assert Sweep.load(runs.folder).stability(k=3).lines == found.lines


def test_the_page_has_a_section(runs):
    sections = comparison(runs).page().sections
    short = {s.key: s.short for s in sections if s.key.startswith("stability")}
    assert short == {
        "stability": "Stable heads",
        "stability-1": "Stable layer",
        "stability-2": "What holds where",
    }


def test_heads_of_several_models_are_not_compared(runs):
    """Each model has lines of its own; claims are compared across models."""
    other = icl.sweep(
        icl.planted_model(),
        icl.planted_task(),
        [HeadScores(), LayerAccuracy()],
        seeds=range(2),
        **QUIET,
    )
    both = compare(runs.select(shots=1), other, names=["a", "b"]).sweep.stability()
    assert {line.place for line in both.lines if line.measure == "overlap"} == {"a", "b"}
    assert {line.measure for line in both.lines if line.over == "model"} == {"claim"}


def test_verdicts_of_a_study():
    model, task = icl.planted_model(), icl.planted_task()
    swept = icl.sweep(model, task, study="overthinking", seeds=range(2), shots=2, **QUIET)
    claims = [line for line in swept.stability().lines if line.measure == "claim"]
    verdicts = next(run for _, run in swept).verdicts()
    assert {verdict.claim for verdict in verdicts} <= {line.of for line in claims}
    assert "layer_accuracy" not in {line.of for line in claims}  # judged with the study's claims


def test_nothing_to_compare(runs):
    with WORDS.raises(SweepError, "nothing"):
        runs.select(seed=0, shots=1).stability()
    bare = icl.sweep(icl.planted_model(), icl.planted_task(), [Predict()], seeds=range(2), **QUIET)
    with WORDS.raises(SweepError, "nothing"):
        bare.stability()
    with WORDS.raises(SweepError, "within"):
        runs.stability(within="block")
    with WORDS.raises(SweepError, "too_many_heads", "k=14", 28):
        runs.stability(k=14)

"""Runs side by side: claims with nested intervals, sections, the page, and the commands."""

import json

import pytest

import icl_mech as icl
from icl_mech.errors import SweepError
from icl_mech.measurements import AccuracyByLayer, Extraction, Flow, Predict
from icl_mech.results.judging import judged as status_of
from icl_mech.results.judging import p_value
from icl_mech.sweeps import comparison, fixed_exit, sweep
from icl_mech.sweeps.papers import CLAIMS, LW, OT, OTHERS
from tests.cli.conftest import MODEL, command  # noqa: F401 - a fixture
from tests.sweeps.loaders import OTHER, TASK, tiny

QUIET = {"n": 6, "progress": False}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return sweep(
        tiny, [TASK, OTHER], [Flow(), Extraction(), AccuracyByLayer()], seeds=(0, 1),
        out=tmp_path_factory.mktemp("runs") / "s", **QUIET,
    )  # fmt: skip


def test_the_claims_of_both_papers_and_of_others():
    assert [claim.paper for claim in CLAIMS] == [LW] * 4 + [OT] * 3 + [OTHERS] * 7


def test_claims_are_judged_by_means_over_tasks_and_seeds(found):
    judged = {own.claim.text.split(":")[0]: own for own in comparison(found).judged}
    assert set(judged) == {"Deep extraction", "Harm"}
    # No untrained networks were measured, which the claim requires.
    assert judged["Deep extraction"].status == "cannot be judged"
    assert "late flow beyond untrained" in judged["Deep extraction"].finding
    harm = judged["Harm"]
    average = found.average("final gap", ("task", "seed"), fixed="task").cells[0]
    assert harm.effects["final gap"] == pytest.approx(
        (float(average.value), float(average.low), float(average.high))
    )
    assert "2 tasks × 2 seeds × 6 prompts; of just these tasks" in harm.finding
    assert harm.status == status_of(harm.effects["final gap"])
    # Two tasks with two seeds each, which stand for themselves alone.
    assert harm.p == pytest.approx(p_value(harm.effects["final gap"], prompts=4))
    table = comparison(found).to_pandas()
    assert set(table.columns) == {
        "paper", "claim", "model", "status", "quantity", "value", "low", "high",
    }  # fmt: skip


def test_the_page(found, tmp_path):
    page = comparison(found).page()
    keys = [section.key for section in page.sections]
    assert keys == [
        "flow", "flow-tasks", "extraction", "extraction-share", "layer_accuracy",
        "layer_accuracy-tasks", "fixed_exit",
    ]  # fmt: skip
    assert page.title == "What holds for tiny on 2 tasks?"
    text = comparison(found).to_html(tmp_path / "page.html").read_text()
    assert "nested 95 % intervals" in text
    assert "2 seeds × 6 prompts" in text


def test_runs_of_other_kinds_side_by_side(found, tmp_path):
    prompts = icl.build_prompts(TASK, tiny(), n=6)
    icl.measure(tiny(), prompts, Flow(), Predict(), progress=False).save(tmp_path / "one")
    both = icl.compare(found.folder, tmp_path / "one", names=["many", "single"])
    assert {own.model for own in both.judged} == {"many"}  # the single one bears on no claim
    assert len(both.sweep) == len(found) + 1
    shape = both.sweep.average("mean flow", ("task", "seed")).drawing(panels="model")
    assert [panel.title for panel in shape.panels] == ["many", "single"]
    assert "many" in both.summary()
    one = both.sweep.average("mean flow", ("task", "seed")).one(model="single")
    assert one.counts == {"task": 1, "seed": 1}


@pytest.mark.parametrize(
    ("runs", "names", "message"),
    [
        (["x"], None, "two runs at least"),
        (["x", "y"], None, "neither a sweep nor a saved analysis"),
        ([3, 4], None, "give the path"),
    ],
)
def test_what_cannot_be_compared(runs, names, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SweepError, match=message):
        icl.compare(*runs, names=names)


def test_names_are_one_for_each(found):
    with pytest.raises(SweepError, match="2 different names"):
        icl.compare(found, found, names=["a", "a"])
    assert icl.compare(found, found).names == ("tiny (1)", "tiny (2)")


def test_a_layer_for_all_is_tested_on_other_seeds(found):
    layer, change = fixed_exit(found, over=("task", "seed"))
    scores = [
        a.layer_accuracy.pair_scores[:, 1].double().mean(0)
        for _, a in found.select(seed=1) if "layer_accuracy" in a
    ]  # fmt: skip
    own = [float(s[layer] - s[-1]) for s in scores]
    assert float(change.cells[0].value) == pytest.approx(sum(own) / 2)
    assert change.cells[0].counts["seed"] == 1
    with pytest.raises(SweepError, match="run two at least"):
        fixed_exit(found.select(seed=0))


STUDY = f"""
models: {{tiny: {MODEL}}}
tasks: films.csv
measurements: [flow]
seeds: 0-1
n: 2
"""


def films(folder):
    rows = "\n".join(f"a film {i},{'Positive' if i % 2 else 'Negative'}" for i in range(12))
    (folder / "films.csv").write_text(f"text,label\n{rows}\n")
    text = STUDY.replace(
        "films.csv",
        '{films: {path: films.csv, template: "Review: {text}\\nSentiment:{label}", '
        "labels: [Negative, Positive]}}",
    )
    (folder / "study.yaml").write_text(text)


def test_the_commands(command, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    films(tmp_path)
    code, out, err = command("sweep", "study.yaml", "--out", "runs/s")
    assert (code, "2 done" in out) == (0, True), err
    assert (tmp_path / "runs/s/index.html").exists()
    assert json.loads((tmp_path / "runs/s/sweep.json").read_text())["made"]["command"] == (
        "icl-mech sweep study.yaml"
    )
    code, out, err = command("sweep", "study.yaml", "--out", "runs/s")
    assert code == 1
    assert "resume" in err
    code, out, err = command("sweep", "study.yaml", "--out", "runs/s", "--resume", "--json")
    assert code == 0
    assert [own["state"] for own in json.loads(out)["items"]] == ["done", "done"]
    item = next((tmp_path / "runs/s/items").iterdir())
    code, out, err = command("compare", "runs/s", item, "--names", "a,b")
    assert (code, "Page: " in out) == (0, True), err
    assert (tmp_path / "comparison.html").exists()
    (tmp_path / "study.yaml").write_text("models: a\ntasks: b\nseed: 3")
    code, out, err = command("sweep", "study.yaml", "--out", "runs/t")
    assert code == 1
    assert "Did you mean 'seeds'" in err

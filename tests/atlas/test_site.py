"""The site: every number of it is that of a run, and published numbers are marked."""

import json
import re
import shutil
from dataclasses import replace

import pytest

import icl_mech as icl
from icl_mech.atlas import Entry, add, build, load_atlas
from icl_mech.atlas.site import document
from icl_mech.errors import ResultError, SweepError
from icl_mech.measurements import Predict
from icl_mech.studies import published
from icl_mech.sweeps.item import item_folder
from tests.atlas import forged
from tests.cli.conftest import command  # noqa: F401 - a fixture
from tests.said import Words

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def model():
    return icl.planted_model()


@pytest.fixture(scope="module")
def runs(model):
    found = [forged.pair(model, seed) for seed in (0, 1)] + [forged.single(model)]
    other = forged.single(icl.planted_model(anchors=False))
    return [replace(run, made={**run.made, "label": "planted"}) for run in (*found, other)]


@pytest.fixture(scope="module")
def atlas(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("atlas")
    for number, run in enumerate(runs):
        run.save(folder / "runs" / str(number))
    add(sorted((folder / "runs").iterdir()), folder / "atlas", label="planted")
    return folder / "atlas"


@pytest.fixture(scope="module")
def found(runs):
    return document([Entry(run) for run in runs])


def test_rows_are_the_verdicts_of_the_studies_with_their_effects(runs, found):
    own = {row["claim"]: row for row in found["claims"] if row.get("run") == Entry(runs[0]).name}
    assert [*own] == [verdict.claim for verdict in runs[0].verdicts()]
    for verdict in runs[0].verdicts():
        row = own[verdict.claim]
        assert (row["status"], row["finding"]) == (verdict.status, verdict.finding)
    harm = next(row for claim, row in own.items() if claim.startswith("Harm"))
    gap = runs[0].layer_accuracy.final_gap
    assert (harm["effect"], harm["value"], harm["low"]) == ("final gap", gap.value, gap.low)
    assert (harm["null"], harm["rising"], harm["source"]) == (0.0, True, "Overthinking the Truth")


def test_verdicts_are_never_those_of_a_file(runs, found):
    """A run says nothing of its verdicts; what it does say is not asked."""
    told = replace(runs[0], notes=("supported",), title="All claims supported", made={**runs[0].made, "verdicts": ["supported"]})  # fmt: skip
    rows = document([Entry(told)])["claims"]
    verdicts = [(own.claim, own.status) for own in runs[0].verdicts()]
    assert [*dict.fromkeys((row["claim"], row["status"]) for row in rows)] == verdicts
    assert len({status for _, status in verdicts}) > 1  # the file has one for all


def test_means_are_those_of_a_comparison(runs, found):
    (harm,) = (
        own for own in found["claims"] if own["kind"] == "mean" and own["claim"].startswith("Harm")
    )
    gaps = [run.layer_accuracy.final_gap.value for run in runs[:2]]
    assert harm["runs"] == 2
    assert harm["value"] == pytest.approx(sum(gaps) / 2)
    assert harm["low"] <= min(gaps)
    assert not any(own["kind"] == "mean" and own["study"] == "default" for own in found["claims"])


def test_models_of_one_name_keep_their_weights(found):
    weights = {own["name"]: own["weights"] for own in found["runs"]}
    assert len({*weights.values()}) == 2
    assert all(row["weights"] == weights[row["run"]] for row in found["claims"] if "run" in row)


def test_curves_hold_every_layer(runs, found):
    flow = next(own for own in found["curves"] if own["run"] == Entry(runs[2]).name)
    assert (flow["quantity"], flow["axes"]) == ("mean flow", ["score", "layer"])
    assert flow["value"][0] == pytest.approx(runs[2].flow.values[0].tolist(), abs=1e-5)


def test_published_numbers_are_those_of_the_papers_and_no_runs(found):
    rows = found["published"]["rows"]
    own = {(row["model"], row["task"], row["labels"]): row["effects"] for row in rows}
    mean = {labels: own["GPT-J", "mean of 14", labels]["final gap"] for labels in published.GAP}
    assert mean == pytest.approx({k: v / 100 for k, v in published.GAP.items()}, abs=6e-5)
    leaving = own["GPT-J", "mean of 14", "permuted"]["early exit, false"]
    assert leaving == pytest.approx(published.EARLY_EXIT_CHANGE["false"] / 100, abs=6e-5)
    table = published.COMPRESSION["gpt2-xl"]
    above = table["hidden_anchor"].label_loyalty - table["text_anchor"].label_loyalty
    assert own["GPT2-XL", "mean of 4", "correct"]["anchors above text"] == pytest.approx(
        above / 100
    )
    sst2 = published.HEAD_ABLATION["sst2"]
    assert own["GPT-J", "sst2", "permuted"]["without chosen heads, false"] == pytest.approx(
        (sst2.ablated_false - sst2.false) / 100, abs=1e-3
    )
    assert all(row["source"] in found["published"]["sources"] for row in rows)
    assert {row["kind"] for row in found["claims"]} == {"run", "mean"}


@pytest.mark.slow
def test_a_site_is_whole_and_asks_for_nothing(atlas, tmp_path):
    index = build(atlas, tmp_path / "site")
    names = [entry.name for entry in load_atlas(atlas, checked=False)]
    pages = [f"runs/{name}.{kind}" for name in names for kind in ("html", "json")]
    for path in ("index.html", "atlas.json", "plotly.min.js", *pages):
        assert (index.parent / path).is_file()
    text = index.read_text()
    assert not re.search(r"(src|href)=\"(https?:)?//", text)
    assert len(text) < 400_000
    data = json.loads((index.parent / "atlas.json").read_text())
    assert [run["name"] for run in data["runs"]] == names
    page = (index.parent / "runs" / f"{names[0]}.html").read_text()
    assert '<script src="../plotly.min.js"' in page
    assert '<a href="../index.html">' in page
    numbers = json.loads((index.parent / "runs" / f"{names[0]}.json").read_text())
    assert numbers["results"]
    (index.parent / "mine.txt").write_text("mine")
    build(atlas, tmp_path / "site")  # an earlier site is replaced, what is beside it stays
    assert (index.parent / "mine.txt").read_text() == "mine"


def test_other_folders_are_left_alone(atlas, tmp_path):
    (tmp_path / "index.html").write_text("<p>mine</p>")
    with WORDS.raises(ResultError, "other_folders_left_alone"):
        build(atlas, tmp_path)
    assert (tmp_path / "index.html").read_text() == "<p>mine</p>"
    with WORDS.raises(ResultError, "other_folders_left_alone_2"):
        build(tmp_path / "nothing", tmp_path / "site")


def test_commands(command, runs, tmp_path):  # noqa: F811
    runs[2].save(tmp_path / "run")
    code, out, _ = command(
        "atlas", "add", tmp_path / "run", "--atlas", tmp_path / "atlas", "--label", "mine"
    )
    assert (code, out.startswith("Added: ")) == (0, True)
    code, out, _ = command("atlas", "list", tmp_path / "atlas")
    WORDS(out, "commands")
    code, _, errors = command("atlas", "add", tmp_path / "run", "--atlas", tmp_path / "atlas")
    assert code == 1
    WORDS(errors, "commands_2")
    code, out, _ = command("atlas", "build", tmp_path / "atlas", "--out", tmp_path / "site")
    assert (code, (tmp_path / "site" / "index.html").is_file()) == (0, True)


@pytest.mark.parametrize("label", ["model \udcff", "\ud800", "  "])
def test_a_label_that_is_no_text(runs, tmp_path, label):
    runs[2].save(tmp_path / "run")
    with WORDS.raises(ResultError, "no_label"):
        add([tmp_path / "run"], tmp_path / "atlas", label=label)
    assert not (tmp_path / "atlas").exists()


def test_a_name_that_is_no_utf_8_is_shown_with_question_marks(runs, tmp_path):
    run = replace(runs[2], made={**runs[2].made, "label": "model \udcff"})
    entry = Entry(run)
    run.save(tmp_path / "atlas" / entry.name)
    site = build(tmp_path / "atlas", tmp_path / "site")
    assert "model ?" in site.read_text(encoding="utf-8")


def test_all_finished_items_of_a_sweep_are_added(model, tmp_path):
    given = {"planted": model}, icl.planted_task(), [Predict()]
    found = icl.sweep(*given, seeds=(0, 1), n=4, out=tmp_path / "sweep", progress=False)
    places = add([tmp_path / "sweep"], tmp_path / "atlas")
    assert len(places) == len(found.plan) == 2
    file = item_folder(tmp_path / "sweep", found.plan[0].key) / "predictions" / "result.json"
    file.write_text(file.read_text().replace("0", "1", 1))
    with pytest.raises(ResultError, match="damaged"):
        add([tmp_path / "sweep"], tmp_path / "other")
    assert not (tmp_path / "other").exists()
    for own in found.plan:
        shutil.rmtree(item_folder(tmp_path / "sweep", own.key))
    with WORDS.raises(SweepError, "nothing_finished"):
        add([tmp_path / "sweep"], tmp_path / "other")

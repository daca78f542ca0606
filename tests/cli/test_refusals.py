"""What a newcomer mistypes is refused at once, and the folder of anything saved can be shown."""

import json
import subprocess
import sys

import pytest

import icl_mech as icl
from icl_mech.measurements import Flow, Predict
from icl_mech.sweeps.compare import comparison
from tests.said import Words

WORDS = Words(__file__)

MISTYPED = {
    "analyze --study labelwords": 2,
    "analyze --task revews": 1,
    "analyze --task nosuch.csv": 1,
    "analyze --model smollm-135m": 1,
    "analyze --model ./nosuch": 1,
    "analyze --n 0": 2,
    "prompts --task revews": 1,
    "explore --model smollm-135m": 1,
    "show nosuch": 1,
    "page .": 1,
    "export . --out paper": 1,
    "compare nosuch other": 1,
    "atlas add nosuch --atlas atlas": 1,
    "tasks revews": 1,
}
"""Commands with their exit codes."""

CODE = """
import sys
from icl_mech.__main__ import main
for words in sys.argv[1:]:
    sys.argv = ["icl-mech", *words.split()]
    try:
        main()
    except SystemExit as end:
        print(end.code, "torch" in sys.modules)
"""


def test_what_is_mistyped_is_refused_before_libraries_are_imported(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE, *MISTYPED], capture_output=True, text=True, cwd=tmp_path
    )
    lines = done.stdout.splitlines()
    assert lines == [f"{code} False" for code in MISTYPED.values()], done.stderr
    text = "".join(sign for sign in done.stderr if sign not in "│╭╮╰╯─")
    WORDS(text, "study", "'labelwords'", "'label_words'")
    WORDS(text, "task", "'revews'", "'reviews'")
    WORDS(text, "file", "'nosuch.csv'")
    WORDS(text, "model", "'smollm-135m'", "'smollm2-135m'")
    WORDS(text, "folder_missing", "'nosuch'")
    WORDS(text, "folder_of_something_else", "'.'")
    assert not list(tmp_path.iterdir())


def test_a_missing_sweep_file(command, tmp_path):
    code, out, err = command("sweep", tmp_path / "nosuch.yaml", "--out", tmp_path / "runs")
    assert (code, out) == (1, "")
    WORDS(err, "no_sweep_file")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A sweep of two runs, and one result alone."""
    place = tmp_path_factory.mktemp("saved")
    model, task = icl.planted_model(), icl.planted_task()
    how = {"shots": 1, "n": 4, "seeds": (0, 1), "progress": False}
    icl.sweep({"planted": model}, task, [Predict(), Flow()], out=place / "sweep", **how)
    prompts = icl.build_prompts(task, model, shots=1, n=4)
    icl.predict(model, prompts).save(place / "one result")
    return place


def test_a_sweep_is_shown(command, saved):
    sweep = icl.load(saved / "sweep", kind=icl.Sweep)
    code, out, err = command("show", saved / "sweep")
    assert (code, err) == (0, "")
    assert out == comparison(sweep).summary() + "\n"
    document = json.loads(command("show", saved / "sweep", "--json")[1])
    assert [own["state"] for own in document["items"]] == ["done", "done"]
    assert [own["key"] for own in document["items"]] == [item.key for item in sweep.plan]
    assert (document["claims"], document["left_out"]) == ([], [])
    assert document["folder"] == str(saved / "sweep")


def test_the_page_and_the_paper_of_a_sweep(command, saved, tmp_path):
    code, out, err = command("page", saved / "sweep", "--out", tmp_path / "page.html")
    assert (code, out, err) == (0, f"Page: {tmp_path / 'page.html'}\n", "")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    code, out, err = command("export", saved / "sweep", "--out", tmp_path / "p", "--no-figures")
    assert (code, err) == (0, "")
    assert out == f"Paper: {tmp_path / 'p' / 'paper.tex'} (without figures)\n"


def test_without_a_browser_an_option_is_named(command, saved, tmp_path, monkeypatch):
    pytest.importorskip("kaleido")
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "chromium"))
    code, out, err = command("export", saved / "sweep", "--out", tmp_path / "paper")
    assert (code, out) == (1, "")
    WORDS(err, "no_browser", "--no-figures")


def test_a_single_result_is_shown_and_leads_to_its_run(command, saved, tmp_path):
    alone = saved / "one result"
    code, out, err = command("show", alone)
    assert (code, err) == (0, "")
    assert out == icl.load(alone).summary() + "\n"
    document = json.loads(command("show", alone, "--json")[1])
    assert document["kind"] == "Predictions"
    assert "accuracy" in document["quantities"]
    code, out, err = command("page", alone)
    assert (code, out) == (1, "")
    WORDS(err, "alone", f"icl-mech show '{alone}'")
    run = next((saved / "sweep" / "items").iterdir())
    code, out, err = command("export", run / "flow", "--out", tmp_path / "paper")
    assert (code, out) == (1, "")
    WORDS(err, "of_a_run", f"icl-mech export {run}")


@pytest.mark.filterwarnings("default:.*were left out:UserWarning")
def test_an_unfinished_sweep_says_how_to_continue(command, saved, tmp_path):
    folder = tmp_path / "sweep"
    (folder / "items").mkdir(parents=True)
    (folder / "sweep.json").write_bytes((saved / "sweep" / "sweep.json").read_bytes())
    for words in (("atlas", "add", folder, "--atlas", tmp_path / "atlas"), ("page", folder)):
        code, out, err = command(*words)
        assert (code, out) == (1, "")
        WORDS(err, "unfinished")
    done = next((saved / "sweep" / "items").iterdir())
    (folder / "items" / done.name).symlink_to(done)
    code, out, err = command("atlas", "add", folder, "--atlas", tmp_path / "atlas")
    assert (code, out.count("Added: ")) == (0, 1)
    WORDS(err, "left_out", "1 of 2", folder)

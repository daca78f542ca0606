"""`icl-mech reproduce`: recipes listed, shown, copied, run and gone on with."""

import json

import yaml

from icl_mech.recipes import recipe, recipes, shown_in_papers
from tests.cli.conftest import MODEL
from tests.recipes.test_recipes import written
from tests.said import Words

WORDS = Words(__file__)


def test_the_command_lists_shows_copies_and_runs(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = command("reproduce")
    assert code == 0
    assert all(name in out for name in recipes())
    WORDS(out, "command_lists_shows_copies")
    assert json.loads(command("reproduce", "--json")[1]) == shown_in_papers()
    shown = command("reproduce", "lw-table-1", "--show")[1]
    assert yaml.safe_load(shown)["place"] == "table 1 (§3.1)"
    assert command("reproduce", "lw-table-1", "--copy", "mine.yaml")[0] == 0
    assert recipe("mine.yaml").numbers == recipe("lw-table-1").numbers
    code, _, err = command("reproduce", "lw-table-1", "--copy", "mine.yaml")
    assert (code, "mine.yaml' already exists" in err) == (1, True)
    code, _, err = command("reproduce", "lw-table-1")
    assert (code, "Give --model 'all'" in err, "--tasks 'offline'" in err) == (1, True, True)
    path = written(tmp_path)
    how = ("reproduce", path, "--model", MODEL, "--scale", 0.05)
    code, out, _ = command(*how)
    assert (code, "Page: runs/own/index.html" in out, "Another model" in out) == (0, True, True)
    assert "runs/own/table.tex" in out
    assert r"\begin{tabular}" in (tmp_path / "runs/own/table.tex").read_text()
    assert "icl-mech reproduce" in (tmp_path / "runs/own/index.html").read_text()
    code, _, err = command(*how)
    assert code == 1
    WORDS(err, "holds_a_sweep")
    code, out, _ = command(*how, "--resume", "--json")
    assert code == 0
    assert [item["state"] for item in json.loads(out)["items"]] == ["done", "done"]


def test_why_a_model_does_not_load_is_said_at_once(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = command(
        "reproduce", written(tmp_path), "--model", "no-such-model", "--scale", 0.05
    )
    assert code == 1
    WORDS(err, "why_failed", "no-such-model")

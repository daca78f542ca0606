"""`icl-mech explore`: what is opened, and what a folder keeps."""

import json
import stat

import pytest
from typer.testing import CliRunner

import icl_mech as icl
from icl_mech.cli.app import app
from icl_mech.cli.explore import ADDRESS, _opened, _served
from tests.explorer.cases import OPEN, TASK, TEXTS, model_of

pytest.importorskip("uvicorn")
HOW = {"shots": 1, "n": 4, "seed": 0, "threads": 1}


def opened(task, out, **how):
    view = _opened(model_of(), task, out, **{**HOW, **how})
    return view, _served(view, out, None)


def closed(view, server):
    server.socket.close()
    view.close()


def test_a_folder_keeps_history_and_address(tmp_path):
    out = tmp_path / "by-hand"
    view, server = opened(TASK, out)
    view.flip(0).do("keep", name="mine")
    url = server.url
    closed(view, server)
    assert stat.S_IMODE((out / ADDRESS).stat().st_mode) == 0o600
    again, other = opened(TASK, out)
    assert other.url == url
    assert again.session.history == view.session.history
    closed(again, other)


def test_open_answers_are_opened_with_four_demonstrations(tmp_path):
    how = {"shots": None, "n": 2}
    view, server = opened(OPEN, tmp_path, **how)
    assert len(view.experiment.demos) == 4
    view.answer(0, "Output")
    closed(view, server)
    again, other = opened(OPEN, tmp_path, **how)
    assert again.experiment.demos[0].words[2] == "Output"
    closed(again, other)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"port": "a", "token": 3}', '{"port": 0, "token": "short"}']
)
def test_a_damaged_address_is_a_new_one(tmp_path, text):
    (tmp_path / ADDRESS).write_text(text)
    view, server = opened(TASK, tmp_path)
    assert len(server.token) == 32
    assert json.loads((tmp_path / ADDRESS).read_text())["token"] == server.token
    closed(view, server)


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    view, server = opened(TASK, None)
    view.flip(0)
    closed(view, server)
    assert list(tmp_path.iterdir()) == []


def test_words_are_refused_before_a_model_is_loaded():
    run = CliRunner().invoke(app, ["explore", "--task", "no-such-task", "--no-browser"])
    assert run.exit_code != 0
    assert "no-such-task" in str(run.exception)
    run = CliRunner().invoke(app, ["explore", "--n", "0"])
    assert run.exit_code == 2


def test_a_file_of_texts_is_opened_instead_of_a_task(tmp_path, monkeypatch):
    monkeypatch.setattr("icl_mech.cli.explore.loaded_model", lambda name, quiet: model_of())
    file, page = tmp_path / "texts.txt", tmp_path / "page.html"
    file.write_text("\n---\n".join(TEXTS), encoding="utf-8")
    how = ["explore", "--texts", str(file), "--spans", "lines", "--save-page", str(page)]
    run = CliRunner().invoke(app, how)
    assert "has 1 span" in str(run.exception)
    run = CliRunner().invoke(app, [own for own in how if own not in ("--spans", "lines")])
    assert run.exit_code == 0, run.output
    assert "<title>texts, tiny-gpt2</title>" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_page_of_a_shared_state_is_written_without_a_server(tmp_path):
    state, page = tmp_path / "state.json", tmp_path / "page.html"
    model = icl.load_model()
    view = icl.explore(model, "reviews", n=2, threads=1)
    view.flip(0).save_state(state)
    how = ["explore", "--task", "reviews", "--n", "2", "--threads", "1", "--no-browser"]
    run = CliRunner().invoke(app, [*how, "--state", str(state), "--save-page", str(page)])
    assert run.exit_code == 0, run.output
    again = icl.explore(model, "reviews", n=2, threads=1, state=page)
    assert again.experiment == view.experiment
    again.close()
    view.close()

"""What `make check` says of its parts: failed tests run once more alone, a table, the first reason last."""

import json
import sys

import pytest

from tests import check

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
CONFTEST = """
import os
from tests import check

def pytest_terminal_summary(terminalreporter):
    if path := os.environ.pop(check.REPORT, None):
        check.report(terminalreporter.stats, path)
"""
TESTS = """
from pathlib import Path

def test_sound():
    pass

def test_wrong():
    assert 1 + 1 == 3

def test_once():
    seen = Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "the first time"
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with three tests: one passes, one fails, one fails the first time."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_three.py").write_text(TESTS)
    monkeypatch.setenv("PYTHONPATH", str(check.ROOT))
    monkeypatch.setenv("CHECK_LOG", str(tmp_path / "checks.jsonl"))
    monkeypatch.delenv(check.REPORT, raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "MADE", tmp_path / "build")
    monkeypatch.setattr(check, "PARTS", {"first": 1, "second": 2})
    return tmp_path


def result(name="first"):
    return json.loads((check.MADE / f"{name}.json").read_text())


def test_a_failed_test_that_passes_alone_is_unsteady_and_red_the_second_time(project, capsys):
    command = [*PYTEST, "-k", "not wrong"]
    assert check.part("first", command) == 0
    assert result()["unsteady"] == ["test_three.py::test_once"]
    assert result()["tests"] == {"passed": 2, "failed": 0, "skipped": 0}
    assert "!!! UNSTEADY: test_three.py::test_once" in capsys.readouterr().out
    assert check.part("second", [sys.executable, "-c", ""]) == 0
    assert check.end() == 0
    table, _, closing = capsys.readouterr().out.strip().rpartition("\n")
    assert "unsteady     test_three.py::test_once" in table
    assert closing == "2 passed, 0 failed, 0 skipped"

    (project / "seen").unlink()
    assert check.part("first", command) == 1
    assert "UNSTEADY AGAIN" in result()["reason"][0]
    assert "the first time" in "\n".join(result()["reason"])
    assert result()["tests"] == {"passed": 1, "failed": 1, "skipped": 0}


def test_what_fails_alone_too_is_red_with_its_reason(project, capsys):
    assert check.part("first", PYTEST) == 1
    assert result()["unsteady"] == ["test_three.py::test_once"]
    reason = "\n".join(result()["reason"])
    assert "FAILED test_three.py::test_wrong" in reason
    assert "assert (1 + 1) == 3" in reason
    assert result()["tests"] == {"passed": 2, "failed": 1, "skipped": 0}
    assert check.end() == 1
    closing = capsys.readouterr().out.strip().splitlines()[-30:]
    assert any("assert (1 + 1) == 3" in line for line in closing)
    assert any(line.startswith("second ") and "not run" in line for line in closing)
    assert closing[-1] == "2 passed, 2 failed, 0 skipped"


def test_where_make_came_to_no_part_its_own_words_are_shown(project, capsys):
    check.MADE.mkdir()
    (check.MADE / "make.log").write_text("Makefile:1: *** missing separator.  Stop.\n")
    assert check.end() == 1
    closing = capsys.readouterr().out.strip().splitlines()
    assert "Makefile:1: *** missing separator.  Stop." in closing
    assert closing[-1] == "0 passed, 2 failed, 0 skipped"


def test_many_failed_tests_are_not_run_again(project, monkeypatch):
    monkeypatch.setattr(check, "ALONE", 1)
    assert check.part("first", PYTEST) == 1
    assert result()["unsteady"] == []
    assert result()["tests"]["failed"] == 2


def test_a_command_without_tests_gives_the_end_of_its_log(project, capsys):
    code = "print('before'); print('what is wrong'); raise SystemExit(3)"
    assert check.part("first", [sys.executable, "-c", code]) == 3
    assert result()["reason"] == ["before", "what is wrong"]
    assert check.part("second", [*PYTEST, "-k", "nothing"]) == 5
    assert check.end() == 1
    assert "what is wrong" in capsys.readouterr().out


def test_parts_begin_with_the_longest_of_the_last_run(project):
    assert check.order() == ["part-second", "part-first"]
    check.keep([{"part": "first", "seconds": 9.0, "unsteady": []}])
    with (project / "checks.jsonl").open("a") as file:
        file.write("half a line")
    assert check.order() == ["part-first", "part-second"]


def test_a_part_that_is_shown_is_kept_at_once(project, capfd):
    assert check.main("part", "--show", "quick", *PYTEST, "-k", "sound") == 0
    assert "1 passed" in capfd.readouterr().out
    assert [run["seconds"].keys() for run in check.runs()] == [{"quick"}]

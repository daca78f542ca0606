"""What did not come in time is named, and shows what it said."""

import signal
import subprocess
import sys

import pytest

from tests import patience
from tests.patience import logged, served, until

CRASH = [sys.executable, "-c", "print('why it fails', flush=True); raise SystemExit(3)"]
WAITING = [sys.executable, "-c", "print('begun', flush=True); import sys; sys.stdin.read()"]


@pytest.fixture
def hasty(monkeypatch):
    """Deadlines are short."""
    monkeypatch.setattr(patience, "LEAST", 0.1)
    monkeypatch.setenv(patience.KEPT, "1")


def test_deadlines_grow_with_the_machine_and_are_never_short(monkeypatch):
    assert 1 <= patience.slowness() <= patience.MOST
    monkeypatch.setenv(patience.KEPT, "2.5")
    assert patience.seconds(100) == 250
    assert patience.milliseconds(1) == 2500 * patience.LEAST
    monkeypatch.delenv(patience.KEPT)
    monkeypatch.setattr(patience, "slowness", lambda: 4.0)
    assert patience.scale() == 4
    monkeypatch.setattr(patience, "slowness", lambda: 9.0)
    assert patience.scale() == 4  # measured once


def test_a_state_that_does_not_come_is_named_with_the_end_of_the_log(hasty, tmp_path):
    (tmp_path / "log").write_text("".join(f"line {i}.\n" for i in range(100)))
    with pytest.raises(AssertionError) as caught:
        until(lambda: 0, 0.1, "the moon", tmp_path / "log")
    told = str(caught.value)
    assert "the moon" in told
    assert [f"line {i}." in told for i in (39, 40, 99)] == [False, True, True]
    assert until(iter([0, None, 7]).__next__, 0.1, "seven") == 7


def test_a_server_that_ends_is_not_waited_for_and_shows_its_log(tmp_path, capsys):
    with pytest.raises(AssertionError, match=r" 3$"), served(CRASH, lambda: None, tmp_path / "log"):
        pass
    assert "why it fails" in capsys.readouterr().out


def test_a_log_is_shown_when_the_block_or_the_process_fails_and_only_then(tmp_path, capsys):
    def begun():
        return log.read_text() == "begun\n"

    log = tmp_path / "fine"
    with served(WAITING, begun, log, stdin=subprocess.PIPE) as answer:
        assert answer
    with logged(WAITING, log, stdin=subprocess.PIPE) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert capsys.readouterr().out == ""
    with logged(CRASH, tmp_path / "ends") as process:
        process.wait()
    assert "why it fails" in capsys.readouterr().out
    log = tmp_path / "block"
    with pytest.raises(KeyError), served(WAITING, begun, log, stdin=subprocess.PIPE):
        raise KeyError
    assert "begun" in capsys.readouterr().out

"""A sweep never waits for ever, and stops where it can write no more."""

import errno
import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from icl_mech.errors import SweepError
from icl_mech.sweeps import Sweep, patience, running, sweep, work
from icl_mech.sweeps import item as sweep_files
from icl_mech.sweeps.patience import Flying, check_guard, full_disk
from tests.patience import seconds
from tests.said import Words
from tests.sweeps.loaders import PREDICT, TASK, hanging, tiny

WORDS = Words(__file__)

SETTING = {"n": 2, "progress": False}


class Silent(Executor):
    """Takes items and gives nothing back."""

    class _Client:
        status = "running"

    def __init__(self):
        self._client = self._Client()
        self.taken = 0

    def submit(self, function, *given, **named):
        self.taken += 1
        if self.taken == 2:
            self._client.status = "closed"
        return Future()


@pytest.mark.usefixtures("unchecked")
def test_a_closed_client_ends_the_sweep():
    found = sweep(tiny, TASK, PREDICT, seeds=range(3), executor=Silent(), **SETTING)
    assert found.items.state.tolist() == ["failed"] * 3
    for error in found.items.error:
        WORDS(error, "closed_client", "Dask")


def test_an_executor_that_takes_nothing_ends_the_sweep():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    found = sweep({"m": tiny}, TASK, PREDICT, seeds=range(2), executor=executor, **SETTING)
    assert found.items.state.tolist() == ["failed"] * 2
    for error in found.items.error:
        WORDS(error, "takes_nothing")


@pytest.mark.slow
def test_items_that_give_nothing_fail_and_the_others_go_on(tmp_path, monkeypatch):
    length, start = seconds(60), time.monotonic()
    monkeypatch.setenv("HANGING", str(length))
    hanging.until.clear()
    with ThreadPoolExecutor(1) as pool:
        found = sweep(
            {"hanging": hanging}, TASK, PREDICT, seeds=range(2), executor=pool, timeout=1,
            out=tmp_path / "s", **SETTING,
        )  # fmt: skip
        assert time.monotonic() - start < length
        assert found.items.state.tolist() == ["failed"] * 2
        WORDS(next(iter(found.items.error)), "items_give_nothing_fail", "1")
        monkeypatch.setenv("HANGING", "0")
        hanging.until.set()
    again = sweep(
        {"hanging": hanging},
        TASK,
        PREDICT,
        seeds=range(2),
        out=tmp_path / "s",
        resume=True,
        **SETTING,
    )
    assert again.items.state.tolist() == ["done"] * 2


@pytest.mark.slow
def test_processes_that_hang_are_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("HANGING", "100000")
    found = sweep(  # in its time the other one starts a process, imports torch and measures
        {"hanging": hanging, "tiny": tiny}, TASK, PREDICT, seeds=[0], workers=2, timeout=seconds(30),
        out=tmp_path / "s", **SETTING,
    )  # fmt: skip
    assert sorted(found.items.state) == ["done", "failed"]
    assert not multiprocessing.active_children()


def test_running_items_have_their_own_time():
    flying = Flying(0.2)
    slow, queued = Future(), Future()
    slow.set_running_or_notify_cancel()
    flying.add(slow, "slow")
    flying.add(queued, "queued")
    list(flying.look())
    list(flying.look())
    assert flying.overdue() == ["slow"]
    assert list(flying.jobs.values()) == ["queued"]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), True, "long"])
@pytest.mark.usefixtures("unchecked")
def test_other_timeouts_are_refused(timeout):
    with pytest.raises(SweepError, match="timeout"):
        sweep(tiny, TASK, PREDICT, timeout=timeout, workers=1, **SETTING)


def test_an_item_in_this_process_cannot_be_ended():
    with WORDS.raises(SweepError, "item_process_cannot_ended", "1"):
        sweep(tiny, TASK, PREDICT, timeout=5, **SETTING)


def test_another_process_is_not_waited_for_for_ever(tmp_path):
    with (
        sweep_files.alone(tmp_path, "item", 1.0),
        WORDS.raises(SweepError, "another_process_waited_ever"),
        sweep_files.alone(tmp_path, "item", 0.3),
    ):
        pass


def test_a_full_disk_stops_the_sweep(tmp_path, monkeypatch):
    done = []
    real = work.measure

    def measure(*given, **named):
        if len(done) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        done.append(real(*given, **named))
        return done[-1]

    monkeypatch.setattr(work, "measure", measure)
    with WORDS.raises(SweepError, "full_disk_stops_sweep", "2", "4"):
        sweep({"m": tiny}, TASK, PREDICT, seeds=range(4), out=tmp_path / "s", **SETTING)
    assert not list(tmp_path.rglob("error.json"))
    monkeypatch.setattr(work, "measure", real)
    found = sweep(
        {"m": tiny}, TASK, PREDICT, seeds=range(4), out=tmp_path / "s", resume=True, **SETTING
    )
    assert found.items.state.tolist() == ["done"] * 4


def test_an_error_that_cannot_be_noted_says_both(tmp_path, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(running, "note_error", full)
    with WORDS.raises(SweepError, "error_cannot_noted_says"):
        sweep(tiny, TASK, PREDICT, seeds=range(3), executor=Silent(), out=tmp_path / "s", **SETTING)
    assert Sweep.load(tmp_path / "s")


def test_a_full_disk_is_found_behind_other_errors():
    with pytest.raises(SweepError) as caught:
        refused_for(OSError(errno.ENOSPC, "full"))
    assert full_disk(caught.value) is not None
    assert full_disk(SweepError("else")) is None


def refused_for(error):
    try:
        raise error
    except OSError as inner:
        raise SweepError("cannot be written") from inner


@pytest.mark.parametrize("module", [False, True])
def test_a_script_without_a_guard_is_named_at_once(tmp_path, module):
    script = tmp_path / "unguarded.py"
    body = (
        "from icl_mech.measurements import Predict\nfrom icl_mech.sweeps import sweep\n"
        "sweep('smollm2-135m', 'reviews', [Predict()], n=2, workers=1, progress=False)\n"
    )
    script.write_text(body)
    given = ["-m", "unguarded"] if module else [str(script)]
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, *given], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**__import__("os").environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 1
    assert "unguarded.py, line 3" in done.stderr
    assert 'if __name__ == "__main__":' in done.stderr
    assert time.monotonic() - start < seconds(60)


def test_a_guarded_script_and_a_notebook_may_start_processes(monkeypatch):
    check_guard()  # pytest's own beginning is guarded
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with WORDS.raises(SweepError, "guarded_script_notebook_may"):
        check_guard()
    assert patience.GUARD

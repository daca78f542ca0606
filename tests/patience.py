"""Tests wait for a state, never for a time, until a deadline that grows with the machine; whoever did not come shows its log."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

KEPT = "TEST_PATIENCE"  # in the environment: workers and other processes have the same `scale`
QUIET, MOST = 0.025, 10.0  # `slowness`: seconds it takes on a quiet machine; the most it gives
LEAST = 20.0  # seconds of the shortest deadline: the machine may have become busy since
T = TypeVar("T")


def slowness() -> float:
    """How many times longer than on a quiet machine a piece of work takes now, 1 to `MOST`."""
    begun, tenths, taken = time.perf_counter(), 0, 0.0
    while tenths < 10 and taken < QUIET * MOST:
        sum(number % 7 for number in range(75_000))
        tenths, taken = tenths + 1, time.perf_counter() - begun
    return min(max(taken / QUIET * 10 / tenths, 1.0), MOST)


def scale() -> float:
    """The slowness when the tests began, which whoever asks first measures."""
    if KEPT not in os.environ:
        os.environ[KEPT] = f"{slowness():.2f}"
    return float(os.environ[KEPT])


def seconds(n: float) -> float:
    """How long to wait for what takes less than `n` seconds on a quiet machine."""
    return max(n, LEAST) * scale()


def milliseconds(n: float) -> float:
    """As `seconds`, and of seconds, for Playwright."""
    return 1000 * seconds(n)


def tail(log: Path, lines: int = 60) -> str:
    """The end of a log."""
    said = log.read_text("utf-8", "replace").splitlines()[-lines:] if log.exists() else []
    return "\n".join([f"--- {log.name}, the last {len(said)} lines:", *said, "---"])


def until(state: Callable[[], T], n: float, what: str, log: Any = None, pause: float = 0.02) -> T:
    """What a function gives as soon as it is true; else an error with the end of a log, or with what `log()` gives."""
    begun, limit = time.monotonic(), seconds(n)
    while not (found := state()):
        if time.monotonic() - begun > limit:
            told = tail(log) if isinstance(log, Path) else log() if log else ""
            raise AssertionError(f"waited {limit:.0f} s for {what}\n{told}".rstrip())
        time.sleep(pause)
    return found


@contextmanager
def logged(command: list[str], log: Path, **how: Any) -> Iterator["subprocess.Popen[Any]"]:
    """A process for as long as the block; the end of its log is shown when the block or the process fails."""
    with log.open("ab") as out:
        process = subprocess.Popen(command, **{"stdout": out, "stderr": out, **how})
    failed = True
    with process:
        try:
            yield process
            failed = process.poll() not in (None, 0, -9)  # 9: whoever started it killed it
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds(20))
            process.kill()
            if failed:
                sys.stdout.write(f"{tail(log)}\n")


@contextmanager
def served(command: list[str], ready: Callable[[], T], log: Path, **how: Any) -> Iterator[T]:
    """What `ready` gives once it is true, which a server that runs for as long as the block must not end before."""
    with logged(command, log, **how) as process:

        def state() -> T:
            assert process.poll() is None, f"{command[:3]} ended with {process.poll()}"
            return ready()

        yield until(state, 60, f"{command[:3]}")

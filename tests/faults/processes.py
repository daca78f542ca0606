"""Children that stop in the middle of their work."""

import faulthandler
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from icl_mech._files import write_synced
from icl_mech.results import folders
from tests.patience import seconds

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir"}
"""What the interpreter tells of the file system."""

KILLED, REFUSED, WRONG = 9, 3, 4
"""Exit codes."""


def forked(work: Callable[[], object], refusal: type[Exception] = ZeroDivisionError) -> int:
    """A child of this process that does some work; its process number."""
    with warnings.catch_warnings():
        # Newer Python warns of threads, which a child that only writes files does not use.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    code = 0
    faulthandler.dump_traceback_later(seconds(60), exit=True, file=2)  # where it hangs, if it does
    try:
        work()
    except refusal:
        code = REFUSED
    except BaseException:  # noqa: BLE001 - a child must not go on as the tests
        traceback.print_exc()
        code = WRONG
    os._exit(code)


def ended(child: int) -> int:
    """Exit code of a child, negative: the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_after(child: int, after: float) -> int:
    """As `ended`, once the child was killed."""
    time.sleep(after)  # it may be anywhere in its work: what is tested
    os.kill(child, signal.SIGKILL)
    return ended(child)


def failing_at(step: int, below: Path, fail: Callable[[], object]) -> None:
    """Make this process fail at the n-th time it touches a folder; half of a file may be there."""
    left = step

    def tick() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            fail()

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and str(arguments[0]).startswith(str(below)):
            tick()

    def by_halves(file: Path, content: bytes) -> None:
        with file.open("wb") as stream:
            stream.write(content[: len(content) // 2])
        tick()
        write_synced(file, content)

    folders.write_synced = by_halves
    sys.addaudithook(watch)

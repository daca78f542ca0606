"""The parts of `make check`: each with a log, failed tests tried once more alone, one table at the end.

Make runs the parts side by side, as far as they do not need each other (`make -j`); this module starts
one part and says what came of it. It needs Python alone, since one of the parts is the installation.

    python -m tests.check order                  # targets, longest first by the last run
    python -m tests.check part NAME COMMAND …    # run one; the log is build/check/NAME.log
    python -m tests.check end                    # the table, and the first failure's reason last

A failed test that passes when it is run alone is *unsteady*: said loudly, and red if it was unsteady
in a run before (tests/unsteady.md). Runs are kept in `checks.jsonl` of the user's cache.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MADE = ROOT / "build" / "check"
REPORT = "CHECK_REPORT"
"""Environment variable: where pytest writes what came of its tests (`report`)."""

PARTS = {
    "tests": 660,
    "tl3": 300,
    "portable": 120,
    "second": 120,
    "docs": 90,
    "install": 150,
    "types": 60,
    "browser": 30,
    "site": 30,
    "wheel": 20,
    "lint": 10,
}
"""Seconds of the parts, where no run is kept."""

ALONE = 12
"""More failed tests than these are not run again: the code is wrong, not the machine."""
LINES = 24
"""Of the reason of a failure, at the end."""


def kept() -> Path:
    """The log of runs."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("CHECK_LOG") or Path(home) / "icl_mech" / "checks.jsonl")


def runs() -> list[dict[str, Any]]:
    """Runs before this one, oldest first."""
    try:
        lines = kept().read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def order() -> list[str]:
    """Targets of the parts, longest first."""
    seconds = dict(PARTS)
    for run in runs():
        seconds |= {name: s for name, s in run["seconds"].items() if name in PARTS}
    return [f"part-{name}" for name in sorted(seconds, key=seconds.__getitem__, reverse=True)]


def part(name: str, command: list[str], show: bool = False) -> int:
    """Run a part and keep what came of it; its exit status."""
    MADE.mkdir(parents=True, exist_ok=True)
    log, told = MADE / f"{name}.log", MADE / f"{name}.json"
    report = MADE / f"{name}.tests.json"
    for path in (told, report):
        path.unlink(missing_ok=True)
    if not show:
        say(f"begun   {name}")
    start = time.monotonic()
    code = logged(command, log, show, report)
    tests = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    failures, unsteady = tests.get("failures", []), []
    if code == 1 and 0 < len(failures) <= ALONE:
        (python, *_) = re.findall(r"\S*python\S*", " ".join(command))
        unsteady = [own for own in failures if passes_alone(python, own["test"], log, show)]
    before = {own for run in runs() for own in run["unsteady"]}
    again = [own["test"] for own in unsteady if own["test"] in before]
    if unsteady and len(unsteady) == len(failures) and not again:
        code = 0
    reason = [line for own in failures if own not in unsteady for line in why(own)]
    for own in unsteady:
        word = "UNSTEADY AGAIN" if own["test"] in again else "UNSTEADY"
        line = f"{word}: {own['test']} failed, and passed when it was run alone (tests/unsteady.md)"
        say(f"!!! {line}")
        reason += [line, *why(own)] if again else []
    if code and not reason:
        reason = tail(log)
    result = {
        "part": name,
        "code": code,
        "seconds": time.monotonic() - start,
        "tests": {key: tests.get(key, 0) for key in ("passed", "failed", "skipped")},
        "unsteady": [own["test"] for own in unsteady],
        "reason": reason,
    }
    if unsteady:
        steady = len(failures) - len(unsteady)
        result["tests"] |= {"failed": steady + len(again)}
        result["tests"]["passed"] += len(unsteady) - len(again)
    if show:
        keep([result])
    else:
        told.write_text(json.dumps(result), encoding="utf-8")
        say(f"{'FAILED' if code else 'done':7} {name}, {result['seconds'] / 60:.1f} min")
    return code


def logged(command: list[str], log: Path, show: bool, report: Path | None = None) -> int:
    """Exit status of a command whose output goes to a log, and to the screen if it is shown."""
    env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS")}
    env |= {REPORT: str(report)} if report else {}
    mode = "w" if report else "a"
    with (
        log.open(mode, 1, encoding="utf-8") as file,
        subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            if show:
                sys.stdout.write(line)
                sys.stdout.flush()
    return process.returncode


def passes_alone(python: str, test: str, log: Path, show: bool) -> bool:
    """Whether a test passes in a process of its own."""
    return logged([python, "-m", "pytest", "-p", "no:xdist", "-q", test], log, show) == 0


def tail(log: Path) -> list[str]:
    """The last lines of a log."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return text.splitlines()[-LINES:]


def why(failure: dict[str, str]) -> list[str]:
    """A failed test and the end of its reason."""
    return [f"FAILED {failure['test']}", *failure["why"].splitlines()[-LINES:]]


def end() -> int:
    """Print the table; the exit status of all."""
    results, lacking = [], []
    for name in PARTS:
        path = MADE / f"{name}.json"
        if path.exists():
            results.append(json.loads(path.read_text(encoding="utf-8")))
        else:
            lacking.append(name)
    keep(results)
    say("", f"{'part':12} {'result':8} {'minutes':>7}  tests")
    for own in sorted(results, key=lambda own: -own["seconds"]):
        tests = own["tests"]
        count = ", ".join(f"{n} {word}" for word, n in tests.items() if n)
        word = "FAILED" if own["code"] else "ok"
        say(f"{own['part']:12} {word:8} {own['seconds'] / 60:7.1f}  {count}")
    for name in lacking:
        say(f"{name:12} not run: what it needs failed")
    for test in (test for own in results for test in own["unsteady"]):
        say(f"unsteady     {test}")
    failed = [own for own in results if own["code"]]
    if failed:
        first = failed[0]
        say("", f"{first['part']} failed (build/check/{first['part']}.log):")
        say(*first["reason"][: LINES + 1])  # the test, and the end of its reason
    elif lacking:  # make itself did not come to them
        say("", *tail(MADE / "make.log"))
    words = ("passed", "failed", "skipped")
    total = {word: sum(own["tests"][word] for own in results) for word in words}
    # A part without tests that failed counts as one.
    total["failed"] += sum(not own["tests"]["failed"] for own in failed) + len(lacking)
    say("", ", ".join(f"{n} {word}" for word, n in total.items()))
    return 1 if failed or lacking else 0


def keep(results: list[dict[str, Any]]) -> None:
    """Add a run to the log of runs."""
    run = {
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "seconds": {own["part"]: round(own["seconds"], 1) for own in results},
        "unsteady": [test for own in results for test in own["unsteady"]],
    }
    kept().parent.mkdir(parents=True, exist_ok=True)
    with kept().open("a", encoding="utf-8") as file:
        file.write(json.dumps(run) + "\n")


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def report(stats: dict[str, Iterable[Any]], path: str) -> None:
    """What pytest's terminal reporter counted, as JSON for `part`; called by tests/conftest.py."""
    found = {word: list(stats.get(word, ())) for word in ("passed", "failed", "error", "skipped")}
    failures = {
        own.nodeid: {"test": own.nodeid, "why": own.longreprtext}
        for own in (*found["failed"], *found["error"])
    }
    counts = {"passed": len(found["passed"]), "skipped": len(found["skipped"])}
    document = {**counts, "failed": len(failures), "failures": list(failures.values())}
    Path(path).write_text(json.dumps(document), encoding="utf-8")


def main(what: str, *words: str) -> int:
    if what == "order":
        say(" ".join(order()))
        return 0
    if what == "begin":
        MADE.mkdir(parents=True, exist_ok=True)
        for path in MADE.glob("*.json"):
            path.unlink()
        return 0
    if what == "end":
        return end()
    show = words[0] == "--show"
    name, *command = words[show:]
    return part(name, command, show)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

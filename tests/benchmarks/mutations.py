"""Do the tests notice wrong code? Seeded faults, each run in a copy of the project.

    python -m tests.benchmarks.mutations                     # all of `faults.py`
    python -m tests.benchmarks.mutations --only flow Holm    # those whose names hold one of these
    python -m tests.benchmarks.mutations --all               # survivors meet all of `make test`

Every fault is put into a copy and meets the tests of `make test` that concern it, up to the first
that fails. At the end, these tests must pass without a fault. What was found is kept in `build/mutations.json`
and not run again as long as the file with the fault, and the tests named, stay as they are.
One process at a time; about ten minutes of one core.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.benchmarks.faults import FAULTS, Fault
from tests.patience import tail, until

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "mutations.json"
COPIED = (
    "icl_mech",
    "tests",
    "docs",
    "notebooks",
    "README.md",
    "CHANGELOG.md",
    "pyproject.toml",
    "Makefile",
)
USUAL = "not slow and not second and not combination and not exhaustive and not browser"
LIMIT = 1200
"""Seconds, on a quiet machine, after which tests that do not end are ended."""

PREPARED = (
    "torch",
    "transformers",
    "transformer_lens",
    "pandas",
    "plotly.graph_objects",
    "scipy.stats",
)
"""Imported once: every run of the tests goes on from here."""


@dataclass
class Outcome:
    """What came of a fault: the first test that failed, or None, and the CPU seconds."""

    key: str
    killer: str | None
    seconds: float
    every: bool = False


def places(fault: Fault, package: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    """Where the words of a fault stand, white space aside."""
    words = re.compile(r"\s+".join(map(re.escape, fault.old.split())))
    for path in sorted(package.rglob("*.py")):
        for found in words.finditer(path.read_text(encoding="utf-8")):
            yield path, found


def place(fault: Fault, package: Path) -> tuple[Path, str]:
    """The one file with a fault, and its text with it.

    Raises:
        LookupError: the words stand nowhere, or in several places.
    """
    found = list(places(fault, package))
    if len(found) != 1:
        where = ", ".join(path.relative_to(package).as_posix() for path, _ in found)
        raise LookupError(f"{fault.name!r}: its words stand in {len(found)} places. {where}")
    ((path, match),) = found
    text = match.string
    return path, text[: match.start()] + fault.new + text[match.end() :]


def key_of(fault: Fault, text: str) -> str:
    return hashlib.sha256(json.dumps([*fault, text]).encode()).hexdigest()[:16]


class Runs:
    """Runs of the tests in the copy, each in a process that is forked from this one."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy
        self.time = int(time.time())
        for module in PREPARED:
            __import__(module)

    def write(self, path: Path, text: str) -> None:
        """A file of the copy; its date goes up, so that nothing compiled before is taken for it."""
        path.write_text(text, encoding="utf-8")
        self.time += 10
        os.utime(path, (self.time, self.time))

    def first_failed(self, tests: Sequence[str], families: str) -> tuple[str | None, float]:
        """The first test that fails, and CPU seconds."""
        before = os.times()
        report = self.copy / "report.json"
        report.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            self._run(tests, families, report)
        status, found = None, None
        try:
            _, status = until(lambda: ended(child), LIMIT, "the tests to end", pause=0.2)
        except AssertionError as late:
            os.kill(child, 9)
            os.waitpid(child, 0)
            found = f"no test: {late}"
        after = os.times()
        if status is not None:
            there = report.exists()
            found = json.loads(report.read_text()) if there else f"no test: ended with {status}"
        if found and found.startswith("no test"):
            print(tail(self.copy / "log"), flush=True)
        return found, sum(after[2:4]) - sum(before[2:4])

    def _run(self, tests: Sequence[str], families: str, report: Path) -> None:
        """In the child, which never returns."""
        log = os.open(self.copy / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(self.copy)
        os.environ["TEST_FAMILIES"] = families
        os.environ["PYTHONPATH"] = str(self.copy)
        sys.path[:] = [str(self.copy), *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]
        sys.dont_write_bytecode = False
        for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "icl_mech")]:
            del sys.modules[name]
        import pytest

        failed: list[str] = []

        class First:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                if report.failed:
                    failed.append(report.nodeid)

            def pytest_collectreport(self, report: pytest.CollectReport) -> None:
                if report.failed:
                    failed.append(report.nodeid)

        options = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
        ]
        code = pytest.main([*options, "-m", USUAL, *tests], plugins=[First()])
        if not failed and code not in (0, 5):
            failed.append(f"no test: pytest ended with {code}")
        report.write_text(json.dumps(failed[0] if failed else None))
        os._exit(0)


def ended(child: int) -> tuple[int, int] | None:
    """What `waitpid` says of a child that has ended."""
    found = os.waitpid(child, os.WNOHANG)
    return found if found[0] else None


def copied(folder: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            left_out = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
            shutil.copytree(source, folder / name, ignore=left_out)
        else:
            shutil.copy(source, folder / name)
    return folder


def load() -> dict[str, Outcome]:
    if not KEPT.exists():
        return {}
    return {name: Outcome(**own) for name, own in json.loads(KEPT.read_text()).items()}


def keep(outcomes: dict[str, Outcome]) -> None:
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps({name: asdict(own) for name, own in outcomes.items()}, indent=1))


def run_all(faults: Sequence[Fault], every: bool) -> dict[str, Outcome]:
    outcomes = load()
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        runs: Runs | None = None
        for fault in faults:
            path, text = place(fault, copy / "icl_mech")
            key, known = key_of(fault, text), outcomes.get(fault.name)
            again = (
                known is None or known.key != key or (every and not (known.killer or known.every))
            )
            if not again:
                continue
            runs = runs or Runs(copy)
            plain = path.read_text(encoding="utf-8")
            runs.write(path, text)
            killer, seconds = runs.first_failed(fault.tests, fault.families)
            if killer is None and every:
                killer, more = runs.first_failed(("tests",), "gpt2 gemma3")
                seconds += more
            runs.write(path, plain)
            outcomes[fault.name] = Outcome(key, killer, round(seconds, 1), every)
            keep(outcomes)
            print(f"{seconds:6.1f} s  {fault.name}: {killer or 'SURVIVES'}", flush=True)
        if runs:
            check(runs, faults, outcomes)
    return outcomes


def check(runs: Runs, faults: Sequence[Fault], outcomes: dict[str, Outcome]) -> None:
    """Say so where a test that noticed a fault fails without it."""
    for families in sorted({fault.families for fault in faults}):
        mine = [outcomes[fault.name] for fault in faults if fault.families == families]
        killers = {own.killer for own in mine if noticed(own)}
        while killers and (broken := runs.first_failed(sorted(killers), families)[0]):
            print(f"{broken} fails without a fault")
            for own in mine:
                if own.killer == broken or broken.startswith("no test"):
                    own.key, own.killer = "", f"no test: {broken} fails without the fault"
            killers = {own.killer for own in mine if noticed(own)}
    keep(outcomes)


def noticed(outcome: Outcome) -> bool:
    """By a test, that is, and not because nothing could be run."""
    return outcome.killer is not None and not outcome.killer.startswith("no test")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names of faults")
    parser.add_argument("--all", action="store_true", help="survivors meet all usual tests")
    given = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    faults = [fault for fault in FAULTS if any(part in fault.name for part in given.only)]
    outcomes = run_all(faults, given.all)
    print("\n| fault | noticed by | CPU s |\n|---|---|---:|")
    for fault in faults:
        own = outcomes[fault.name]
        print(f"| {fault.name} | {own.killer or '**nobody**'} | {own.seconds:.0f} |")
    count = sum(noticed(outcomes[fault.name]) for fault in faults)
    print(f"\n{count} of {len(faults)} faults are noticed")
    sys.exit(count < len(faults))


if __name__ == "__main__":
    main()

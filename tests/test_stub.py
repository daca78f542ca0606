"""The stub that type checkers and editors read is that of the present code, and they follow it."""

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.stub import PARTS, STUB, parts, stub

ROOT = Path(__file__).parents[1]

FIELDS = """
import icl_mech as icl
from icl_mech.measurements import Flow
def use(model: object, prompts: icl.PromptBatch) -> None:
    found = icl.flow_scores(model, prompts, loss='label', memory='8GB')
    reveal_type(found)
    reveal_type(Flow(loss='label')(model, prompts, memory='8GB'))
    icl.flow_scores(model, prompts, loss='labels')
    icl.flow_scores(model, prompts, memry='8GB')
    Flow()(model, prompts, batch_size='many')
"""

RESULTS = """
import icl_mech as icl
from icl_mech.measurements import Flow
from icl_mech.measurements.isolation.isolation import IsolationResult
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.results import Result, Samples
from typing_extensions import assert_type

report = icl.load("run", kind=icl.Analysis)
assert_type(icl.Analysis.load("run"), icl.Analysis)
assert_type(icl.load("lens", kind=icl.TunedLens), icl.TunedLens)
assert_type(report.flow, FlowScores)
assert_type(report["flow"], FlowScores)
assert_type(report["isolation"], IsolationResult)
assert_type(report[FlowScores], FlowScores)
assert_type(report["of_my_own"], Result)
assert_type(report.flow - report.flow, Samples)
Flow(loss="label")
"""


def test_the_stub_is_that_of_the_code():
    assert STUB.read_text(encoding="utf-8") == stub(), "run: python -m tests.stub"
    assert PARTS.read_text(encoding="utf-8") == parts(), "run: python -m tests.stub"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What mypy says of files of a user's: file -> line -> text. One run, with what `make typecheck` keeps."""
    folder = tmp_path_factory.mktemp("user")
    run = uuid4().hex  # what is kept of a file would tell of the last run's
    texts = {"fields": FIELDS, "results": RESULTS}
    texts["wrong"] = RESULTS.replace('loss="label"', 'loss="labels"')
    files = {name: folder / f"{name}_{run}.py" for name in texts}
    for name, file in files.items():
        file.write_text(texts[name])
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache"), *map(str, files.values())]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for kept in (ROOT / ".mypy_cache").glob(f"*/*_{run}.*"):
        kept.unlink()
    assert found.returncode == 1, found  # the errors that were asked for
    told: dict[str, dict[int, str]] = {name: {} for name in files}
    for line in found.stdout.splitlines():
        of = [name for name, file in files.items() if line.startswith(f"{file}:")]
        assert of, found.stdout  # nothing of the package itself
        place = int(line.removeprefix(str(files[of[0]])).split(":")[1])
        told[of[0]][place] = told[of[0]].get(place, "") + line  # an error may have notes
    return told


@pytest.mark.slow
def test_type_checkers_see_fields_options_and_results(told):
    own = told["fields"]
    assert set(own) == {6, 7, 8, 9, 10}, own
    assert "FlowScores" in own[6]
    assert "FlowScores" in own[7]
    assert "Literal['labels']" in own[8]
    assert "memry" in own[9]
    assert "batch_size" in own[10]


@pytest.mark.slow
def test_a_checker_follows_results(told):
    assert told["results"] == {}
    (line,) = told["wrong"].values()
    assert "incompatible type \"Literal['labels']\"" in line

"""What a user's type checker knows of an analysis."""

import subprocess
import sys

import pytest

CODE = """
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


def checked(code, folder):
    file = folder / "user.py"
    file.write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder), str(file)]
    return subprocess.run(command, text=True, capture_output=True, check=False).stdout


@pytest.mark.slow
def test_a_checker_follows_results(tmp_path):
    assert checked(CODE, tmp_path).startswith("Success")
    wrong = checked(CODE.replace('loss="label"', 'loss="labels"'), tmp_path)
    assert "incompatible type \"Literal['labels']\"" in wrong

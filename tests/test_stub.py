"""The stub that type checkers and editors read is that of the present code, and they follow it."""

import subprocess
import sys
from uuid import uuid4

import pytest

from tests.stub import PARTS, STUB, parts, stub


def test_the_stub_is_that_of_the_code():
    assert STUB.read_text(encoding="utf-8") == stub(), "run: python -m tests.stub"
    assert PARTS.read_text(encoding="utf-8") == parts(), "run: python -m tests.stub"


@pytest.mark.slow
def test_type_checkers_see_fields_options_and_results(tmp_path):
    file = tmp_path / f"use_{uuid4().hex}.py"  # its cache would tell of the last run's
    file.write_text(
        "import icl_mech as icl\n"
        "from icl_mech.measurements import Flow\n"
        "def use(model: object, prompts: icl.PromptBatch) -> None:\n"
        "    found = icl.flow_scores(model, prompts, loss='label', memory='8GB')\n"
        "    reveal_type(found)\n"
        "    reveal_type(Flow(loss='label')(model, prompts, memory='8GB'))\n"
        "    icl.flow_scores(model, prompts, loss='labels')\n"
        "    icl.flow_scores(model, prompts, memry='8GB')\n"
        "    Flow()(model, prompts, batch_size='many')\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told: dict[int, str] = {}  # an error may have notes, at the same line
    for line in run.stdout.splitlines():
        if line.startswith(str(file)):
            place = int(line.split(":")[1])
            told[place] = told.get(place, "") + line
    assert set(told) == {5, 6, 7, 8, 9}, run.stdout
    assert "FlowScores" in told[5]
    assert "FlowScores" in told[6]
    assert "Literal['labels']" in told[7]
    assert "memry" in told[8]
    assert "batch_size" in told[9]

"""The examples of the guide run, on a tiny model and tasks of a few texts."""

import re
from pathlib import Path

import pytest

import icl_mech as icl
from tests.sweeps.loaders import OTHER, TASK, tiny

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "guides" / "sweeps.md").read_text(encoding="utf-8")
    scope = {"tiny": {"tiny": tiny}, "TASKS": {"reviews": TASK, "headlines": OTHER}}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        changed = (
            block.replace('"smollm2-135m"', "tiny").replace('["reviews", "headlines"]', "TASKS")
            .replace('    "headlines",\n', '    TASKS["headlines"],\n').replace("n=12", "n=6")
        )  # fmt: skip
        exec(compile(changed, "sweeps.md", "exec"), scope)  # noqa: S102 - as a reader would
    assert scope["study"].items.state.tolist() == ["done"] * 12
    assert len(scope["again"]) == 16
    assert (tmp_path / "study.html").exists()
    assert isinstance(scope["doses"], icl.Sweep)

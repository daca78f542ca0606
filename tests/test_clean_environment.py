"""The package on a bare machine: an empty home, no caches, nothing set but the system's PATH."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PATH = "/usr/local/bin:/usr/bin:/bin"
MEASURED = """
import icl_mech as icl
model, task = icl.planted_model(), icl.planted_task()
prompts = icl.build_prompts(task, model, shots=1, n=4)
icl.predict(model, prompts).save("kept")
print(icl.load("kept").accuracy)
"""


@pytest.mark.parametrize("home", [True, False], ids=["an empty home", "no home named"])
@pytest.mark.parametrize(
    "words",
    [
        ("-m", "icl_mech", "--version"),
        ("-m", "icl_mech", "tasks"),
        pytest.param(("-c", MEASURED), marks=pytest.mark.slow),
    ],
    ids=["version", "tasks", "measured"],
)
def test_nothing_of_a_shell_is_needed(tmp_path, home, words):
    env = {"PATH": PATH, "PYTHONPATH": str(ROOT)} | ({"HOME": str(tmp_path)} if home else {})
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()

"""What a GPU would be waited for, counted on a device that is not there; and that numbers are the CPU's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CLOSE = 2e-5
"""Largest difference in float32, of the largest value or 1."""

TRANSFERS = 3
"""Copies to the host of a call that runs the model once: marks of the weights, flags with values, maps."""


def counted(*options):
    """What `tests.remote_cases` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.remote_cases", *options],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def counts():
    return counted()


def test_transfers_do_not_grow_with_the_blocks(counts):
    by_depth = counts["depths"]
    for name, found in by_depth.items():
        assert found["to_host"] <= TRANSFERS, (name, found["places"])
        assert found["waits"] == 0, (name, found["places"])
        method = name.rpartition(" ")[0]
        assert found["to_host"] == by_depth[f"{method} 4"]["to_host"]


@pytest.mark.parametrize(("part", "cases"), [("depths", 20), ("families", 50), ("spread", 5)])
def test_numbers_are_those_of_the_cpu(counts, part, cases):
    assert len(counts[part]) == cases
    for name, found in counts[part].items():
        assert found["gap"] <= CLOSE, name


@pytest.mark.parametrize("part", ["families", "spread"])
def test_nothing_waits(counts, part):
    for name, found in counts[part].items():
        assert found["to_host"] <= TRANSFERS, (name, found["places"])
        assert found["waits"] == 0, (name, found["places"])


@pytest.mark.exhaustive
def test_every_method():
    counts = counted("--all")["all"]
    assert sum("refused" in found for found in counts.values()) <= 1
    for name, found in counts.items():
        assert found.get("gap", 0.0) <= CLOSE, name

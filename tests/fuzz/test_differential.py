"""Random cases against the plain path, for FUZZ_SECONDS (default 30), and seeds that failed once."""

import os

import pytest

from tests.fuzz.differential import KEPT, judged, run


@pytest.mark.usefixtures("unchecked")
def test_random_cases_equal_the_plain_path():
    counts, failures = run(float(os.environ.get("FUZZ_SECONDS", "30")))
    assert not failures, f"{counts}\n" + "\n".join(failures)
    assert sum(count for (_, outcome), count in counts.items() if outcome == "right") >= 5


@pytest.mark.parametrize("seed", KEPT)
@pytest.mark.usefixtures("unchecked")
def test_what_failed_once_stays_mended(seed):
    _, outcome = judged(seed)
    assert not outcome.startswith("FAILED"), outcome

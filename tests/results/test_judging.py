"""The rule that turns an interval into a status."""

import math

import pytest

from icl_mech.metrics import Interval
from icl_mech.results.judging import judged


@pytest.mark.parametrize(
    ("effect", "status"),
    [
        (Interval(0.3, 0.1, 0.5), "supported"),
        (Interval(-0.3, -0.5, -0.1), "opposite"),
        (Interval(0.3, 0.0, 0.5), "not shown"),
        (Interval(0.3, 2.8e-17, 0.5), "not shown"),  # 0 but for rounding
        (Interval(-0.3, -0.5, -2.8e-17), "not shown"),
        (Interval(0.3, -0.1, 0.5), "not shown"),
        (Interval(0.3, math.nan, 0.5), "cannot be judged"),
        (None, "cannot be judged"),
    ],
)
def test_status_of_an_interval(effect, status):
    assert judged(effect) == status


def test_a_claim_that_something_is_lower():
    assert judged(Interval(-0.3, -0.5, -0.1), rising=False) == "supported"
    assert judged(Interval(0.7, 0.6, 0.8), null=0.5) == "supported"
    assert judged(Interval(0.7, 0.6, 0.8), prompts=2) == "cannot be judged"

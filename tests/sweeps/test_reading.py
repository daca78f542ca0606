"""Bounds of a quantity, which its unit tells: ends of intervals are cut there, and an atlas checks them."""

import pytest

from icl_mech.sweeps.reading import bounds_of


@pytest.mark.parametrize(
    ("unit", "bounds"),
    [
        ("fraction of prompts", (0.0, 1.0)),
        ("share of prompts", (0.0, 1.0)),  # of runs saved by earlier versions
        ("accuracy over label words", (0.0, 1.0)),
        ("accuracy above that of plain label probabilities", (-1.0, 1.0)),
        ("accuracy minus that of random heads", (-1.0, 1.0)),
        ("change in the fraction of answers", (-1.0, 1.0)),
        ("logits, or fraction right", None),
        ("change of log-probability (nats per token)", None),
        ("ratio to uniform attention", None),
    ],
)
def test_bounds_follow_from_the_unit(unit, bounds):
    assert bounds_of(unit) == bounds

"""Stand-ins that answer better than the full prompt are remarked on."""

from icl_mech.measurements.compression.kept import beyond_full
from icl_mech.metrics import Interval
from tests.said import Words

WORDS = Words(__file__)

FULL = Interval(0.5, 0.25, 0.75)


def test_stand_ins_above_full_prompts_are_remarked_on():
    assert beyond_full(FULL, {}) == beyond_full(FULL, {"random states": FULL}) == ""
    within = beyond_full(FULL, {"text": FULL, "random states": Interval(0.75, 0.47, 0.91)})
    WORDS.starts(within, "stand_ins_above_full")
    apart = beyond_full(FULL, {"random states": Interval(0.95, 0.8, 1.0)})
    WORDS(apart, "stand_ins_above_full_2")

"""Stand-ins that answer better than the full prompt are remarked on."""

from icl_mech.measurements.compression.kept import beyond_full
from icl_mech.metrics import Interval

FULL = Interval(0.5, 0.25, 0.75)


def test_stand_ins_above_full_prompts_are_remarked_on():
    assert beyond_full(FULL, {}) == beyond_full(FULL, {"random states": FULL}) == ""
    within = beyond_full(FULL, {"text": FULL, "random states": Interval(0.75, 0.47, 0.91)})
    assert within.startswith(" Note that random states score above full prompts: within")
    apart = beyond_full(FULL, {"random states": Interval(0.95, 0.8, 1.0)})
    assert "the demonstrations hold the model back here" in apart

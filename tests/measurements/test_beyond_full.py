"""Stand-ins that answer better than the full prompt are remarked on."""

from types import SimpleNamespace

from icl_mech.measurements.compression.compare_compression import Beyond
from icl_mech.metrics import Interval
from icl_mech.results.words import Words as Sentences
from tests.said import Words

WORDS = Words(__file__)

FULL = Interval(0.5, 0.25, 0.75)


def remark(accuracies):
    result = SimpleNamespace(beyond_full=Beyond.of(FULL, accuracies), names={"r": "random states"})
    return Sentences("compare_compression").say("beyond", result=result)


def test_stand_ins_above_full_prompts_are_remarked_on():
    assert remark({}) == remark({"r": FULL}) == ""
    within = remark({"t": FULL, "r": Interval(0.75, 0.47, 0.91)})
    WORDS.starts(within, "stand_ins_above_full")
    apart = remark({"r": Interval(0.95, 0.8, 1.0)})
    WORDS(apart, "stand_ins_above_full_2")

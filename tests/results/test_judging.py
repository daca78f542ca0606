"""The rule that turns an interval into a status."""

import math

import pytest
import torch

from icl_mech.metrics import Interval
from icl_mech.results.judging import (
    Required,
    distance,
    holm,
    jointly,
    judged,
    largest,
    of_statement,
    opening,
    p_value,
    required,
    together,
    would_do,
)
from icl_mech.results.wording import told_bound
from icl_mech.studies.judge import Verdict, among_all
from tests.said import Words

WORDS = Words(__file__)


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


@pytest.mark.parametrize(
    ("comparisons", "status"),
    [
        (("supported", "supported"), "supported"),
        (("opposite", "opposite"), "opposite"),
        (("supported", "not shown"), "not shown"),
        (("opposite", "not shown"), "not shown"),
        (("supported", "opposite"), "not shown"),
        (("supported", "cannot be judged"), "cannot be judged"),
        ((), "cannot be judged"),
    ],
)
def test_one_measure_beside_several_controls(comparisons, status):
    assert jointly(*comparisons) == status


def test_p_values_of_intervals():
    # An end at the null is 0.025, whatever the number of prompts; the normal one by hand:
    # z = 1.959964 * 0.4 / 0.2 = 3.919928.
    for n in (6, 48, None):
        assert p_value(Interval(0.3, 0.0, 0.7), prompts=n) == pytest.approx(0.025)
        assert p_value(Interval(-0.3, -0.9, 0.0), prompts=n) == pytest.approx(0.025)
    assert p_value(Interval(0.4, 0.2, 0.7)) == pytest.approx(4.4285e-5, rel=1e-3)
    assert p_value(Interval(0.9, 0.7, 0.95), null=0.5) == pytest.approx(4.4285e-5, rel=1e-3)
    # t with 5 degrees of freedom, in closed form: 2.570582 * 2 = 5.141164.
    angle = math.atan(5.141164 / math.sqrt(5))
    inside = angle + math.sin(angle) * math.cos(angle) * (1 + 2 / 3 * math.cos(angle) ** 2)
    by_hand = 0.5 - inside / math.pi
    assert p_value(Interval(0.4, 0.2, 0.7), prompts=6) == pytest.approx(by_hand, rel=1e-4)
    assert p_value(Interval(0.0, -0.1, 0.1)) == 0.5
    # n equal values say no more than n signs, and of an unknown number nothing.
    assert p_value(Interval(0.2, 0.2, 0.2), prompts=6) == 2**-6
    assert p_value(Interval(0.2, 0.2, 0.2)) == 1.0
    assert p_value(None) is None
    assert p_value(Interval(0.3, math.nan, 0.5)) is None
    assert largest((0.1, 0.2)) == 0.2
    assert largest((0.1, None)) is None
    assert largest(()) is None


@pytest.mark.parametrize("null", [0.0, 0.5])
def test_p_values_agree_with_the_status(null):
    for low in (-0.01, 0.0, 0.01):
        effect = Interval(null + 0.2, null + low, null + 0.4)
        p = p_value(effect, null=null, prompts=12)
        assert (p < 0.025 - 1e-9) is (judged(effect, null=null, prompts=12) == "supported")


def test_holm_by_hand():
    # .005 <= .025 / 4; .008 <= .025 / 3; .02 > .025 / 2, and none after it.
    assert holm([0.02, 0.005, None, 0.008, 0.02]) == (False, True, False, True, False)
    assert holm([0.025]) == (True,)
    assert holm([0.0251]) == (False,)
    assert holm([None, None]) == (False, False)
    assert holm([]) == ()


def test_claims_stand_together():
    def verdict(p, status="supported"):
        return Verdict("C", status, "It rises.", "part", alone=status, p=p)

    first, second, third, unknown = among_all(
        [
            verdict(0.02),
            verdict(0.001),
            verdict(0.6, "not shown"),
            verdict(None, "cannot be judged"),
        ]
    )
    assert (first.status, first.alone) == ("not shown", "supported")
    WORDS.exactly(first.finding, "claims_stand_together", "0.02", "3")
    assert (second.status, second.finding) == ("supported", "It rises.")
    assert (third.status, unknown.status) == ("not shown", "cannot be judged")
    # A claim whose measures disagree is no statement, and takes no other's place.
    mixed = verdict(1.0, "mixed")
    assert [own.status for own in among_all([mixed, verdict(0.01)])] == ["mixed", "supported"]
    assert [own.status for own in among_all([mixed, verdict(0.02)])] == ["mixed", "not shown"]


def test_nothing_at_all_supports_one_page_in_forty():
    generator = torch.Generator().manual_seed(0)
    pages = torch.rand(4000, 5, generator=generator)
    rate = sum(any(holm(page)) for page in pages.tolist()) / len(pages)
    assert 0.018 < rate < 0.032


def test_a_measure_needs_all_its_effects():
    clear, unclear = Interval(0.3, 0.1, 0.5), Interval(0.1, -0.1, 0.3)
    found = required("loyalty", clear, unclear, prompts=24)
    assert (found.name, found.status) == ("loyalty", "not shown")
    assert found.p == p_value(unclear, prompts=24)
    assert required("loyalty").status == "cannot be judged"
    assert together(found.status) == "not shown"


def test_openings_of_answers():
    assert opening("supported") == "Yes:"
    WORDS.exactly(
        opening("cannot be judged", "4 prompts"), "openings_answers", "Cannot be judged", "4"
    )
    assert opening("not shown", "4 prompts") == "Not shown:"
    WORDS.exactly(opening("not shown", not_shown="In no layer:"), "openings_answers_2")


def test_effects_clear_in_opposite_directions_state_nothing():
    below, above = Interval(-1.0, -1.1, -0.9), Interval(1.0, 0.9, 1.1)
    own = required("both", below, above, rising=False, prompts=24)
    assert own.status == "not shown"
    assert of_statement(own.status, [own.p]) == 1.0
    clear = required("both", below, below, rising=False, prompts=24)
    assert of_statement(clear.status, [clear.p]) == clear.p < 0.025
    assert of_statement("cannot be judged", [clear.p]) is None


# --- how many prompts would do ---


def test_distance_is_in_reaches_to_the_end_that_faces_the_null():
    assert distance(Interval(0.2, 0.1, 0.6)) == pytest.approx(2)
    assert distance(Interval(0.2, 0.1, 0.6), rising=False) == pytest.approx(-2)
    assert distance(Interval(0.2, 0.1, 0.6), null=0.5) == pytest.approx(-0.3 / 0.4)
    assert distance(Interval(0.0, -0.1, 0.1)) == 0.0
    assert distance(Interval(0.1, 0.1, 0.1)) == math.inf
    assert distance(Interval(math.nan, math.nan, math.nan)) is None
    assert distance(None) is None


@pytest.mark.parametrize(
    ("low", "then"),
    [
        (-0.02, "clear by itself"),
        (-0.15, "about 151 prompts"),
        (-5.0, "more than 2400 prompts"),
    ],
)  # fmt: skip
def test_four_times_the_prompts_halve_an_interval(low, then):
    told = would_do([required("gain", Interval(0.1, low, 0.3), prompts=24)])
    WORDS.starts(told, "four_times_prompts_halve", "1", "96", "24")
    WORDS.ends(told, then)


def test_what_would_do_is_clear_at_that_number():
    effect = Interval(0.1, -0.15, 0.35)
    told = would_do([required("gain", effect, prompts=24)])
    needed = int(told.rpartition("about ")[2].split()[0])
    half = 0.25 * math.sqrt(24 / needed)
    assert judged(Interval(0.1, 0.1 - half, 0.1 + half), prompts=needed) == "supported"
    half = 0.25 * math.sqrt(24 / (needed - 1))
    assert judged(Interval(0.1, 0.1 - half, 0.1 + half), prompts=needed) == "not shown"


def test_nothing_is_advised_of_what_more_prompts_do_not_narrow():
    wrong = required("gain", Interval(-0.1, -0.3, 0.1), prompts=24)
    WORDS.ends(would_do([wrong]), "nothing_advised_what_more")
    assert would_do([Required("words", "not shown", 0.3)]) == ""
    assert would_do([Required("lacking", "cannot be judged", None, 24, 0.5)]) == ""
    clear = required("clear", Interval(0.2, 0.1, 0.3), prompts=24)
    assert would_do([clear, wrong]).startswith("Gain: ")
    assert "Clear" not in would_do([clear, wrong])
    # Demoted beside other claims: every measure is clear, and there is nothing to add to half the width.
    WORDS.ends(would_do([clear]), "nothing_advised_what_more_2")


def test_few_prompts_are_told_how_many_it_takes_and_seeds_are_not():
    few = required("gain", Interval(0.1, -0.3, 0.5), prompts=4)
    WORDS.starts(would_do([few]), "few_prompts_told_how", "6")
    assert would_do([few], "seed") == ""
    seeds = few._replace(status="not shown")
    # t₃/√4 = 1.59 and t₇/√8 = .836 are more, t₈/√9 = .769 is less than half as much.
    WORDS.starts(would_do([seeds], "seed"), "few_prompts_told_how_2", "9", "4")
    # Two are enough with one more: t₁/√2 = 8.98, t₂/√3 = 2.48; in two groups t₂/√2 = 3.04, t₄/√3 = 1.60.
    two = Required("gain", "not shown", 0.2, 2, 0.3)
    WORDS(would_do([two], "seed"), "few_prompts_told_how_3", "3", "2")
    WORDS.ends(would_do([two], "seed"), "few_prompts_told_how_4")
    WORDS(would_do([two], "seed", 2), "few_prompts_told_how_5", "4", "2")
    WORDS.ends(would_do([two._replace(far=0.0)], "seed"), "few_prompts_told_how_6")


def test_bounds_are_rounded_up_and_not_to_twice_themselves():
    told = {0.00536: "0.006", 0.0131: "0.014", 0.25: "0.25", 0.251: "0.26", 0.00012: "0.00012"}
    told |= {-0.0131: "\N{MINUS SIGN}0.013", 0.0: "0.00", float("nan"): "undefined"}
    assert {value: told_bound(value) for value in told} == told

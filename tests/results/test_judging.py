"""The rule that turns an interval into a status."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import t

from icl_mech.errors import ResultError
from icl_mech.metrics import Interval, mean_ends, mean_interval
from icl_mech.metrics.means import scored, student_ends
from icl_mech.results.judging import (
    Required,
    as_interval,
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
from tests.benchmarks.family_size import CASES, RESAMPLES, drawn, effects, size, stands
from tests.benchmarks.family_size import claimed as effects_of
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
    assert p_value(Interval(0.4, 0.2, 0.6), prompts=6) == pytest.approx(by_hand, rel=1e-4)
    assert p_value(Interval(0.0, -0.1, 0.1)) == 0.5
    # n equal values say no more than n signs, and of an unknown number nothing.
    assert p_value(Interval(0.2, 0.2, 0.2), prompts=6) == 2**-6
    assert p_value(Interval(0.2, 0.2, 0.2)) == 1.0
    assert p_value(None) is None
    assert p_value(Interval(0.3, math.nan, 0.5)) is None
    assert largest((0.1, 0.2)) == 0.2
    assert largest((0.1, None)) is None
    assert largest(()) is None


def closed_form(x, freedom):
    """P(T > x) for 3 or 5 degrees of freedom."""
    angle = math.atan(x / math.sqrt(freedom))
    series = 1 + (2 / 3 * math.cos(angle) ** 2 if freedom == 5 else 0)
    return 0.5 - (angle + math.sin(angle) * math.cos(angle) * series) / math.pi


def test_small_p_values_of_intervals_that_lean_need_more_distance():
    # 11 / (1 + 15 * sqrt(12) * a) is 5 for a = 1.2 / 51.96; leaning away counts a fifth. Two reaches off.
    a = 1.2 / (15 * math.sqrt(12))
    for facing, other in ((1 + a, 1.0), (1 - 5 * a, 1.0)):
        low = Interval(2 * facing, facing, 2 * facing + other)
        high = Interval(-2 * facing, -2 * facing - other, -facing)
        expected = closed_form(2 * 2.5705818, 5)
        assert p_value(low, prompts=12) == pytest.approx(expected, rel=1e-5)
        assert p_value(high, prompts=12) == pytest.approx(expected, rel=1e-5)
    # However far it leans, never fewer than 3; an end that touches the null is .025 all the same.
    for far in (Interval(2.0, 1.0, 2.1), Interval(2.0, 1.0, 2.0)):
        assert p_value(far, prompts=12) == pytest.approx(closed_form(2 * 3.1824463, 3), rel=1e-5)
    assert p_value(Interval(1.0, 0.0, 1.1), prompts=12) == pytest.approx(0.025)
    # Above .025 nothing changes: Student's t with 11 degrees of freedom.
    leaning = p_value(Interval(1.0, -1.0, 1.1), prompts=12)
    assert leaning == pytest.approx(p_value(Interval(1.0, -1.0, 3.0), prompts=12))
    # Of few units no more than there are.
    assert p_value(Interval(2.0, 1.0, 2.1), prompts=2) == pytest.approx(
        p_value(Interval(2.0, 1.0, 3.0), prompts=2)
    )


@pytest.mark.usefixtures("unchecked")
def test_score_intervals_lean_by_themselves():
    outcomes, changes = torch.zeros(48), torch.zeros(48)
    outcomes[:40], changes[:20], changes[20:22] = 1, 1, -1
    right, gained = mean_interval(outcomes, "outcome"), mean_interval(changes, "change")
    for effect, null in ((right, 0.5), (gained, 0.0)):
        assert scored(effect, 48)
        assert not scored(effect._replace(low=effect.low + 0.003), 48)
        expected = t.sf(t.ppf(0.975, 10) * distance(effect, null=null), 10)
        assert p_value(effect, null=null, prompts=48) == pytest.approx(expected)
        assert p_value(Interval(*map(np.float32, effect)), null=null, prompts=48) == pytest.approx(
            expected, rel=1e-3
        )
    perfect = mean_interval(torch.ones(24), "outcome")
    assert scored(perfect, 24)
    assert not scored(perfect, 48)  # more prompts reach less far
    assert not scored(Interval(0.5, 0.4, 0.65), 24)
    assert not scored(Interval(5.0, 4.0, 6.0), 24)


@pytest.mark.parametrize("prompts", [2, 6, 48])
@pytest.mark.parametrize("low", [0.2, 0.4, 0.49])
def test_p_values_fall_with_distance(prompts, low):
    nulls = np.linspace(-2, 0.5, 200)
    found = [p_value(Interval(0.5, low, 0.6), null=null, prompts=prompts) for null in nulls]
    assert np.all(np.diff(found) > 0)
    assert found[-1] == 0.5


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


NAMES = ("normal", "left-skewed (minus log-normal, sigma 0.5)", "changes, 10 % gained, 10 % lost")


@pytest.mark.parametrize("name", NAMES)
def test_pages_of_ten_claims_of_means_support_one_in_forty(name):
    """A quick run of `tests.benchmarks.family_size`, whose judge is the one of pages."""
    found = effects(name, 48, 400, 0.0, 1)
    assert size(found, 10) <= 1.1 + 2 * (1.1 / 0.025 / 600) ** 0.5
    if name.startswith("left"):
        assert size(found, 10, before=True) > 1.7
    # The same as the judge says, one interval after the other.
    case, values = CASES[name], drawn(CASES[name], 48, 6, 10, 0.0, 1)
    page = effects_of(values, case, 6, null=case.mean)
    own = torch.from_numpy(values)
    exact = case.kind != "value"
    low, high = mean_ends(own, case.kind) if exact else student_ends(own, resamples=RESAMPLES)
    each = zip(own.mean(0).tolist(), low.tolist(), high.tolist(), strict=True)
    p_values = [p_value(one, null=case.mean, prompts=48) for one in each]
    assert page.p().ravel() == pytest.approx(p_values)
    for family, row in enumerate(stands(page.p())):
        assert tuple(row) == holm(p_values[10 * family : 10 * family + 10])


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


# --- what an effect may be ---

SCALARS = [
    float,
    np.float64,
    np.float32,
    np.array,
    torch.tensor,
    lambda own: torch.tensor(own, dtype=torch.float64, requires_grad=True),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("whole", [tuple, list, lambda own: Interval(*own)])
def test_numbers_of_any_library_say_the_same(scalar, whole):
    effect, null = whole([scalar(own) for own in (0.5, 0.4, 0.75)]), scalar(0.25)
    plain = required("gain", Interval(0.5, 0.4, 0.75), null=0.25, prompts=24)
    assert plain.status == "supported"
    for rising in (True, np.True_, torch.tensor(True)):
        found = required("gain", effect, null=null, rising=rising, prompts=np.int64(24))
        assert (found.status, found.n) == ("supported", 24)
        assert (found.p, found.far) == pytest.approx((plain.p, plain.far), rel=1e-5)
        assert {type(found.p), type(found.far), type(found.n)} == {float, int}
    for falling in (False, np.False_, torch.tensor(False)):
        assert judged(effect, null=null, rising=falling, prompts=24) == "opposite"
        assert distance(effect, null=null, rising=falling) == pytest.approx(-plain.far, rel=1e-5)
        assert judged(effect, null=null, rising=falling, opposite=scalar(0.45)) == "not shown"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_arrays_of_three_are_effects(make):
    assert as_interval(make([0.5, 0.4, 0.75])) == pytest.approx((0.5, 0.4, 0.75))
    assert judged(make([0.5, 0.4, 0.75]), prompts=24) == "supported"


@pytest.mark.parametrize(("value", "status"), [(-0.1, "not shown"), (0.7, "supported")])
def test_an_interval_that_misses_its_value_is_judged_by_one_that_holds_it(value, status):
    assert judged(Interval(value, 0.1, 0.6)) == status
    assert as_interval((0.7, 0.1, 0.6)) == (0.7, 0.1, 0.7)


REFUSED = {
    "refused_swapped": (0.5, 0.6, 0.4),
    "refused_complex": (0.5 + 0j, 0.4, 0.6),
    "refused_none": (0.5, None, 0.6),
    "refused_text": ("0.5", 0.4, 0.6),
    "refused_truth": (True, 0.4, 1.2),
    "refused_several": (np.array([0.5, 0.6]), 0.4, 0.6),
    "refused_two": (0.5, 0.4),
    "refused_number": 0.5,
    "refused_name": "gain",
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("judge", [judged, p_value, distance, lambda own: required("gain", own)])
def test_what_is_no_effect_is_refused(name, judge):
    with WORDS.raises(ResultError, name):
        judge(REFUSED[name])


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_null_or_number_of_prompts_is_refused():
    effect = Interval(0.5, 0.4, 0.6)
    with WORDS.raises(ResultError, "refused_null"):
        judged(effect, null="0.2")
    with WORDS.raises(ResultError, "refused_prompts"):
        p_value(effect, prompts=24.5)
    with WORDS.raises(ResultError, "refused_rising"):
        required("gain", effect, rising=1)
    with WORDS.raises(ResultError, "refused_p"):
        holm([0.01, 1j])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_unknown_numbers_cannot_be_judged(place, odd):
    entries = [0.5, 0.4, 0.6]
    entries[place] = odd
    for effect in (tuple(entries), np.array(entries), torch.tensor(entries)):
        assert required("gain", effect, prompts=24)[1:] == ("cannot be judged", None, 24, None)
    assert judged(Interval(0.5, 0.4, 0.6), null=odd, prompts=24) == "cannot be judged"
    assert p_value(Interval(0.5, 0.4, 0.6), null=odd, prompts=24) is None


@pytest.mark.usefixtures("unchecked")
def test_rounding_is_no_disorder():
    third = float(np.float32(1 / 3))
    assert judged(Interval(third, 1 / 3, 1 / 3), prompts=6) == "supported"
    assert judged(Interval(third, 1 / 3, 0.5), prompts=6) == "supported"
    assert p_value(Interval(third, 1 / 3, 1 / 3), prompts=6) == 2**-6
    assert judged((0.0, 1e-12, -1e-12), prompts=6) == "not shown"


def test_zero_width_is_that_many_equal_values():
    equal = Interval(0.2, 0.2, 0.2)
    assert required("gain", equal, prompts=6)[1:] == ("supported", 2**-6, 6, math.inf)
    assert required("gain", equal, prompts=5).status == "cannot be judged"
    assert required("gain", equal, null=0.3, prompts=6).status == "opposite"
    assert required("gain", equal, null=0.2, prompts=6)[1:] == ("not shown", 0.5, 6, 0.0)


@pytest.mark.usefixtures("unchecked")
def test_p_values_that_are_no_numbers_are_no_statements():
    assert holm([math.nan, 0.01, None]) == (False, True, False)
    assert holm([np.float32(0.01), torch.tensor(0.02), math.nan]) == (True, True, False)
    assert largest((0.1, math.nan)) is None
    assert largest((np.float64(0.1), 0.2)) == 0.2


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

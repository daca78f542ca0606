"""Claims of the causal study by hand: sets of heads beside bare queries, their shares, and *Override*."""

from dataclasses import replace

import pytest
import torch

from icl_mech.measurements.alignment.alignment import AlignmentResult
from icl_mech.measurements.causal.compare_heads import CompareHeadsResult
from icl_mech.metrics.ratios import ratio_interval
from icl_mech.studies import Analysis
from icl_mech.studies.causal import (
    FALSE_INDUCTION,
    FOLLOWED,
    FUNCTION_VECTOR,
    INDUCTION,
    LABEL_PROMOTING,
    SET_CLAIMS,
)
from icl_mech.studies.judge import verdict
from tests.planted_results import without_needs
from tests.said import Words

WORDS = Words(__file__)

N = 12
SETS = (FUNCTION_VECTOR, INDUCTION, FALSE_INDUCTION, LABEL_PROMOTING)
CLAIMS = dict(zip(SETS, SET_CLAIMS, strict=True))
TRUE, FALSE = SETS[:2], SETS[2:]
SPREAD = torch.linspace(-0.1, 0.1, N, dtype=torch.float64)

# --- sets of heads ---


def compared(changes=(-4.0, -4.0, 2.0, 2.0), bare_changes=(-1.0, -1.0, 0.0, 0.0), **more):
    """Right above taught logit: 6 with true, -2 with false, 1 without demonstrations; random heads do nothing."""
    change = torch.zeros(N, 2, 2, len(SETS)).double()
    for place, (name, own) in enumerate(zip(SETS, changes, strict=True)):
        change[:, 0, int(name in FALSE), place] = own + SPREAD
        change[:, 0, int(name in TRUE), place] = (
            99.0  # of the other side, which the claim is not about
        )
    plain = torch.full((N, 2, 2), 0.5).double()
    plain[:, 0] = torch.tensor([6.0, -2.0]).double()
    heads = tuple(((1, own),) for own in range(len(SETS)))
    values = {
        "change": change,
        "random": 0.01 * SPREAD[:, None, None, None, None].repeat(1, 2, 2, len(SETS), 3),
        "plain": plain,
        "bare": torch.ones(N).double(),
        "bare_change": torch.tensor(bare_changes).double().repeat(N, 1),
        "sets": SETS, "heads": heads, "alone": heads, "kind": "zero_output", "draws": 3,
        "provenance": {"prompts": {"count": N}},
    }  # fmt: skip
    return CompareHeadsResult(**{**values, **more})


def run_of(**results):
    return Analysis(results, "")


def effect(name, part):
    """The effect of a set's claim whose name holds this."""
    (own,) = [one for one in CLAIMS[name].required_effects if part in one.name]
    return own


def test_beyond_the_same_without_demonstrations_by_hand():
    run = run_of(compare_heads=compared())
    for name in TRUE:
        own = effect(name, "beyond the same without demonstrations")
        value, low, high = own.interval(run)
        assert value == pytest.approx(-4 - -1)
        assert -3.1 < low < -3 < high < -2.9
        assert (own.count(run), own.rising) == (N, False)
    assert not any(
        "without demonstrations" in own.name for name in FALSE for own in CLAIMS[name].effects
    )
    for name, other in zip(TRUE, TRUE[::-1], strict=True):
        mixed = compared(bare_changes=[-3.0 if own == other else -1.0 for own in SETS])
        own = effect(name, "beyond the same without demonstrations")
        assert own.interval(run_of(compare_heads=mixed)).value == pytest.approx(-3)


def test_shares_by_hand():
    """Of what true demonstrations add, 6 - 1, and of the harm of false ones, 6 + 2."""
    run = run_of(compare_heads=compared())
    wanted = dict(zip(SETS, [4 / 5, 4 / 5, 2 / 8, 2 / 8], strict=True))
    for name, share in wanted.items():
        own = CLAIMS[name].share
        assert own.interval(run).value == pytest.approx(share)
    added, change = torch.full((N,), 5.0).double() + SPREAD.flip(0), -4.0 + SPREAD
    other = compared(bare=6 - added)
    found = CLAIMS[INDUCTION].share.interval(run_of(compare_heads=other))
    assert found == ratio_interval(-change, added)
    assert found.low < 4 / 5 < found.high


@pytest.mark.parametrize(
    ("how", "true", "false"),
    [
        ({}, "supported", "supported"),
        # Heads that read the query do as much without demonstrations.
        ({"bare_changes": [-4.0] * 4}, "not shown", "supported"),
        ({"bare_changes": [-5.0] * 4}, "not shown", "supported"),
        # Clear, but less than a tenth of 5 and of 8.
        ({"changes": (-0.3, -0.3, 0.5, 0.5), "bare_changes": [0.0] * 4}, *["present, not used"] * 2),
        ({"changes": (4.0, 4.0, -2.0, -2.0), "bare_changes": [0.0] * 4}, *["opposite"] * 2),
        # Random heads do the same.
        ({"random": compared().change[..., None].repeat(1, 1, 1, 1, 3)}, *["not shown"] * 2),
        # Saved before bare queries were run.
        ({"bare": None, "bare_change": None}, "cannot be judged", "supported"),
    ],
)  # fmt: skip
def test_what_is_said_of_sets_of_heads(how, true, false):
    run = run_of(compare_heads=compared(**how))
    for names, status in ((TRUE, true), (FALSE, false)):
        assert [without_needs(CLAIMS[name], run).status for name in names] == [status] * 2, how


def test_sets_of_heads_need_a_task_that_is_done_and_harm():
    run = run_of(compare_heads=compared())
    found = {name: verdict(claim, run) for name, claim in CLAIMS.items()}
    assert [found[name].status for name in SETS] == ["cannot be judged"] * 2 + ["supported"] * 2
    for name in TRUE:
        WORDS(found[name].lacking, "task_not_measured")
    plain = compared().plain.clone()
    plain[:, 0, 1] = 6 + 50 * SPREAD
    harmless = run_of(compare_heads=compared(plain=plain))
    for name in FALSE:
        own = verdict(CLAIMS[name], harmless)
        assert own.status == "cannot be judged"
        WORDS(own.lacking, "no_harm")


# --- what answers follow ---


def aligned(answered, n_labels, count=96):
    """False demonstrations teach the next class; `answered` says how far after the true one the answer is."""
    answers = torch.arange(count) % n_labels
    far = torch.tensor(answered).repeat_interleave(n_labels)
    far = far.repeat(count // len(far) + 1)[:count]
    return AlignmentResult(
        predicted=torch.stack([answers, (answers + far) % n_labels], 1),
        zero_shot=torch.arange(count) // n_labels % n_labels,
        answers=answers,
        taught=(answers + 1) % n_labels,
        labels=tuple("abcd"[:n_labels]),
        provenance={"prompts": {"count": count}},
    )


def overridden(result):
    return verdict(FOLLOWED, run_of(alignment=result))


def test_answers_that_are_merely_wrong_are_no_override():
    """As those of the planted null `alarm`: one of three wrong labels is the taught one."""
    wrong, taught = aligned([1, 2, 3], 4), aligned([1], 4)
    assert wrong.taught_above_truth.value == pytest.approx(1 / 3)
    assert wrong.taught_above_truth.low > 0
    assert wrong.above_undemonstrated.low > 0
    assert wrong.taught_above_others.value == pytest.approx(0)
    found = overridden(wrong)
    assert (found.status, found.lacking) == ("not shown", "")
    assert overridden(taught).status == "supported"
    # Another wrong label than the taught one.
    assert overridden(aligned([2], 4)).status != "supported"


def test_taught_above_the_other_wrong_labels_by_hand():
    """Of four: the taught one, two others, the true one: 1 - 1/2 - 1/2 + 0."""
    result = aligned([1, 2, 3, 0], 4, count=16)
    assert result.taught_above_others.value == pytest.approx(0)
    result = aligned([1, 1, 2, 0], 4, count=16)
    assert result.taught_above_others.value == pytest.approx((1 + 1 - 1 / 2) / 4)


def test_with_two_classes_override_cannot_be_judged():
    """A wrong answer is the taught one whatever led to it."""
    result = aligned([1], 2)
    assert result.taught_above_others is None
    assert (result.taught_above_truth.value, result.taught_above_truth.low > 0) == (1, True)
    found = overridden(result)
    assert (found.status, found.p) == ("cannot be judged", None)
    WORDS(found.finding, "two_classes")
    three = overridden(replace(result, labels=("a", "b", "c")))
    assert three.status == "supported"

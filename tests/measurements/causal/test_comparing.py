"""Sets of heads: overlap, ablation with exclusion, and random heads outside of all sets."""

import pytest
import torch
from scipy.stats import t
from torch.testing import assert_close

import icl_mech as icl
from icl_mech import compare_heads
from icl_mech.errors import RunError
from icl_mech.measurements import CompareHeads
from icl_mech.measurements.causal.answers import contrast
from icl_mech.models import adapt
from tests.planted import ATTENDING_DECOYS, INDUCTION_HEADS, planted_model, planted_task
from tests.said import Words

WORDS = Words(__file__)

SETS = {
    "induction": (*INDUCTION_HEADS, (3, 0)),
    "attending": (*ATTENDING_DECOYS, (3, 0)),
    "shared": ((3, 0),),
}


@pytest.fixture(scope="module")
def model():
    return planted_model()


@pytest.fixture(scope="module")
def pair(model):
    return icl.build_prompt_pairs(planted_task(), model, shots=3, n=12, demonstrations="per_prompt")


@pytest.fixture(scope="module")
def found(model, pair):
    return compare_heads(model, *pair, SETS, draws=3)


def test_each_set_without_the_heads_of_the_others(model, pair, found):
    assert found.alone == (INDUCTION_HEADS, ATTENDING_DECOYS, ())
    assert found.ablated == ("induction", "attending")
    assert found.overlap.tolist() == [[3, 1, 1], [1, 3, 1], [1, 1, 1]]
    plain, without = (
        icl.predict(model, pair[1], interventions=own).label_logits.double()
        for own in ([], [icl.ZeroHeads(INDUCTION_HEADS)])
    )
    change = contrast(without, pair[1]) - contrast(plain, pair[1])
    assert_close(found.change[:, 0, 1, 0], change, atol=1e-4, rtol=1e-4)
    assert bool(found.change[..., 2].isnan().all())
    assert {name: quantity.unit for name, quantity in found.quantities().items() if "bare" not in name} == {
        "change": "change of the logit difference", "random": "change of the logit difference",
        "correct_change": "change of the fraction right",
        "random_correct_change": "change of the fraction right",
        "plain": "logit difference", "plain_correct": "fraction right",
    }  # fmt: skip
    least, most = found.sel("correct_change").low.min(), found.sel("correct_change").high.max()
    assert -1 <= least <= most <= 1


def test_planted_induction_heads_do_what_the_others_do_not(found):
    own, other = found.beside_random("induction"), found.beside_random("attending")
    assert own.low > 1 > abs(other.value)
    assert found.beside_random(found.sets[2]) is None


def test_the_spread_of_the_draws_is_taken_in(model, pair):
    """Random heads against random heads: what one draw does more than the mean shows nothing."""
    heads = [
        (layer, head)
        for layer in (2, 3)
        for head in range(4)
        if (layer, head) not in INDUCTION_HEADS
    ]
    found = compare_heads(model, *pair, {"one": heads[:1], "other": heads[1:2]}, draws=4)
    drawn = found.random[:, 0, 1, 0].mean(0)
    own = found.beside_random("one")
    half = t.ppf(0.975, 3) * float(drawn.std(correction=1)) * (1 + 1 / 4) ** 0.5
    assert own.high - own.value >= half - 1e-9
    assert own.value - own.low >= half - 1e-9
    assert float(own.value) == pytest.approx(float(found.change[:, 0, 1, 0].mean() - drawn.mean()))


def test_random_heads_are_in_no_set(model):
    members = CompareHeads(SETS, draws=5).members(adapt(model).info)
    inside = {head for heads in SETS.values() for head in heads}
    for member in members[:2]:
        assert len(member.drawn) == 5
        for draw in member.drawn:
            assert not inside & set(draw)
            assert len(set(draw)) == len(member.alone)


def test_shown_and_saved(found, tmp_path):
    found.save(tmp_path / "own")
    again = type(found).load(tmp_path / "own")
    assert again.summary() == found.summary()
    for show in found.shows:
        assert found.plot(show).data
    assert "Yes" in found.figures()[0].answer


def test_refusals(model, pair):
    for sets, says in (
        ({"one": [(0, 0)]}, "two sets"),
        ({"one": [(0, 0)], "none": []}, "no empty set"),
        ({"one": [(0, 0)], "other": [(9, 0)]}, "layer 9"),
    ):
        with WORDS.raises(RunError, says):
            compare_heads(model, *pair, sets)
    crowded = {
        "one": [(0, 0), (0, 1)],
        "other": [(a, b) for a in range(4) for b in range(4) if (a, b) > (0, 2)],
    }
    with WORDS.raises(RunError, "refusals"):
        compare_heads(model, *pair, crowded, draws=2)
    assert torch.is_tensor(pair[0].answers)

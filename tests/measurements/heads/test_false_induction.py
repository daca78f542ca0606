"""False induction heads: the planted ones are found, confirmed and close the gap."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import ZeroHeads
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.heads.false_induction import (
    FalseInduction,
    FalseInductionResult,
    find_false_induction_heads,
    rank_heads,
)
from icl_mech.measurements.heads.head_scores import head_scores
from icl_mech.measurements.running import measured
from icl_mech.metrics import above_together
from icl_mech.metrics.intervals import ONE_SIDED
from icl_mech.models import adapt
from tests.measurements.overthinking_cases import (
    FAMILIES,
    TASK,
    planted_case,
    planted_pairs,
    tiny_case,
)
from tests.planted import (
    ATTENDING_DECOYS,
    INDUCTION_HEADS,
    N_HEADS,
    N_LAYERS,
    PREVIOUS_TOKEN_HEADS,
    PROMOTING_DECOYS,
    planted_task,
)
from tests.said import Words
from tests.saved import without_date

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def model():
    return planted_case()[0]


@pytest.fixture(scope="module")
def found(model):
    return find_false_induction_heads(model, planted_task(), shots=2, n=30)


def assert_same_ranks(found, expected):
    """The same values at every rank, and of every head: heads that match alike may swap."""
    assert_close(found.prefix_matching, expected.prefix_matching, atol=1e-5, rtol=0)
    one, other = (
        dict(zip(result.heads, result.prefix_matching.tolist(), strict=True))
        for result in (found, expected)
    )
    assert one == pytest.approx(other, abs=1e-5)


def test_the_planted_heads_come_first(found):
    assert set(found.heads[:2]) == set(INDUCTION_HEADS)
    assert len(set(found.heads)) == len(found.heads) == N_LAYERS * N_HEADS
    assert found.top == found.heads[:5]
    assert float(found.prefix_matching[1]) > 0.99 > 0.3 > float(found.prefix_matching[2])
    assert found.prefix_matching.tolist() == sorted(found.prefix_matching.tolist(), reverse=True)


def test_only_the_planted_heads_are_confirmed(found):
    assert set(found.confirmed) == set(INDUCTION_HEADS)
    everything = replace(found, chosen=len(found.heads))
    assert set(everything.confirmed) == set(INDUCTION_HEADS)


def test_each_decoy_lacks_what_it_was_made_without(found):
    for head in ATTENDING_DECOYS:
        rank = found.heads.index(head)
        assert not found.class_sensitive[rank]
        assert not float(found.promoting_low[rank]) > 0.01
    for head in PROMOTING_DECOYS:
        rank = found.heads.index(head)
        assert not found.class_sensitive[rank]
        assert float(found.promoting_low[rank]) > 0.3


def test_the_table_holds_the_scores_of_its_heads(model):
    _, false = planted_pairs(model, shots=2, n=12)
    scores = head_scores(model, false)
    ranked = rank_heads(scores, 3, "planted")
    difference = (scores.matching - scores.shuffled_matching).double()
    clear = above_together(difference, level=ONE_SIDED)
    for rank, head in enumerate(ranked.heads):
        assert ranked.prefix_matching[rank] == scores.prefix_matching[head]
        assert ranked.promoting[rank] == scores.label_promoting[head]
        for name, score in (("matching", "prefix_matching"), ("promoting", "label_promoting")):
            low, high = scores.quantities()[score].ends()
            assert getattr(ranked, f"{name}_low")[rank] == low[head]
            assert getattr(ranked, f"{name}_high")[rank] == high[head]
        assert ranked.class_sensitive[rank] == bool(clear[head])
    assert ranked.chosen == 3
    assert ranked.task == "planted"


def test_prompts_may_be_given(model):
    _, false = planted_pairs(model, shots=2)
    given = find_false_induction_heads(model, false, top=2)
    built = find_false_induction_heads(model, planted_task(), top=2, shots=2, n=30)
    assert_same_ranks(given, built)
    assert set(given.confirmed) == set(given.top) == set(INDUCTION_HEADS)


def test_an_adapted_model_will_do(model, found):
    again = find_false_induction_heads(adapt(model), planted_task(), shots=2, n=30)
    assert_same_ranks(again, found)


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    _, _, false = tiny_case(family)
    ranked = find_false_induction_heads(tiny_case(family)[0], false, top=50)
    assert ranked.chosen == len(ranked.heads) == 12
    assert len(ranked.to_pandas()) == 12


def test_tested_on_another_task_they_close_the_gap(model):
    """The planted model knows the words of one task only, so that is given another name."""
    two = find_false_induction_heads(model, replace(planted_task(), name="chosen on"), top=2, n=12)
    result = two.test(model, planted_task(), shots=1, n=30, draws=4)
    assert result.reduction("chosen heads").value == pytest.approx(1)
    assert len(result.draws()) == 4
    assert float(result.draws().abs().max()) < 0.1
    chosen = result.provenance["conditions"][1][0]
    assert {tuple(head) for head in chosen["heads"]} == set(INDUCTION_HEADS)


def test_the_measurement_is_the_function(model):
    pair = planted_pairs(model, shots=2, n=12)
    found = measured(FalseInduction(top=2, seed=1), model, pair)
    door = find_false_induction_heads(model, pair[1], top=2, seed=1)
    assert found.heads == door.heads
    assert torch.equal(found.scores, door.scores)
    assert without_date(found) == without_date(door)
    assert found.provenance["variants"] == {"top": 2, "seed": 1}
    assert found.task == "planted"
    with WORDS.raises(RunError, "measurement_function", "0", "1"):
        measured(FalseInduction(top=0), model, pair)


def test_interventions_are_made(model, found):
    """Without the heads that look at the token before, nothing matches."""
    edited = find_false_induction_heads(
        model,
        planted_task(),
        shots=2,
        n=30,
        interventions=[ZeroHeads(PREVIOUS_TOKEN_HEADS, at="all")],
    )
    assert not edited.confirmed
    lost = found - edited
    for layer, head in INDUCTION_HEADS:
        assert float(lost.low[layer, head]) > 0.5


def test_samples_are_those_of_the_ranks(found):
    for rank, (layer, head) in enumerate(found.heads[:4]):
        cell = {"layer": layer, "head": head}
        ends = (found.prefix_matching, found.matching_low, found.matching_high)
        expected = pytest.approx([float(end[rank]) for end in ends])
        assert list(found.interval(**cell)) == expected
        ends = (found.promoting, found.promoting_low, found.promoting_high)
        expected = pytest.approx([float(end[rank]) for end in ends])
        assert list(found.interval("label_promoting", **cell)) == expected
        above = found.interval("above_shuffled", **cell)
        # Corrected for all heads, so never more than each alone shows.
        assert above.low > 0 or not found.class_sensitive[rank]


def test_results_saved_without_samples_still_load(found, tmp_path):
    replace(found, scores=None).save(tmp_path / "old")
    old = FalseInductionResult.load(tmp_path / "old")
    assert old.summary() == found.summary()
    assert old.quantities() == {}
    with WORDS.raises(ResultError, "results_saved_without_samples"):
        old.interval(layer=0, head=0)


def test_testing_on_the_same_task_is_refused(found, model):
    with WORDS.raises(ResultError, "testing_same_task_refused"):
        found.test(model, planted_task())


def test_true_prompts_are_refused(model):
    true, _ = planted_pairs(model)
    with pytest.raises(PromptError, match="labels='permuted'"):
        find_false_induction_heads(model, true)


def test_demonstrations_are_drawn_for_each_prompt():
    model, _, _ = tiny_case("gpt2")
    found = find_false_induction_heads(model, TASK, shots=1, n=6, seed=4)
    source = found.provenance["prompts"]
    assert (source["demonstrations"], source["labels"]) == ("per_prompt", "permuted")
    assert (source["shots"], source["count"], source["seed"]) == (1, 6, 4)


def test_files_figures_and_tables(found, tmp_path):
    found.save(tmp_path / "result")
    loaded = FalseInductionResult.load(tmp_path / "result")
    assert loaded.heads == found.heads
    assert loaded.confirmed == found.confirmed
    assert torch.equal(loaded.promoting, found.promoting)
    assert loaded.summary() == found.summary()
    WORDS(found.summary(), "files_figures_tables", "2")
    table = found.to_pandas()
    assert list(zip(table["layer"], table["head"], strict=True)) == list(found.heads)
    assert table.chosen.tolist() == [True] * 5 + [False] * 11
    drawn = found.drawing(rows=7)
    assert len(drawn.rows) == 7
    assert [row[0].endswith("(chosen)") for row in drawn.rows] == [True] * 5 + [False] * 2
    assert [row[2] for row in drawn.rows] == ["yes"] * 2 + ["no"] * 5
    assert found.plot().data

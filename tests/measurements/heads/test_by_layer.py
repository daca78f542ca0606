"""Prefix matching by layer beside the gap: by hand, and on the planted model."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import ZeroHeads
from icl_mech.engine import run
from icl_mech.errors import PromptError
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult, layer_accuracy
from icl_mech.measurements.base import Options
from icl_mech.measurements.heads.head_scores import HeadScores, HeadScoresResult, head_scores
from icl_mech.measurements.heads.matching_by_layer import (
    MatchingByLayer,
    MatchingByLayerResult,
    matching_by_layer,
    side_by_side,
)
from icl_mech.measurements.running import Item, completed, measured
from icl_mech.metrics import bootstrap_interval, mean_ends
from icl_mech.models import adapt
from tests.measurements.overthinking_cases import CLOSE, FAMILIES, planted_case, tiny_case
from tests.planted import INDUCTION_HEADS
from tests.said import Words

WORDS = Words(__file__)

MATCHING = [
    [[0.1, 0.2], [0.5, 0.3], [0.0, -0.1]],
    [[0.3, 0.0], [0.7, 0.1], [0.2, -0.5]],
    [[-0.1, 0.1], [0.9, 0.2], [0.1, 0.0]],
    [[0.1, 0.1], [0.3, 0.2], [0.1, 0.1]],
]
TRUE = [[0.5, 0.5, 1.0, 1.0], [0.5, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 1.0], [0.5, 0.5, 1.0, 1.0]]
FALSE = [[0.5, 0.5, 0.5, 0.0], [0.5, 0.5, 0.5, 0.0], [0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.0]]


def scores_of(matching=MATCHING, **provenance):
    matching = torch.tensor(matching)
    return HeadScoresResult(
        matching=matching,
        attending=matching.abs(),
        same=matching.abs(),
        shuffled_matching=torch.zeros_like(matching),
        same_share=torch.full((len(matching),), 0.5).double(),
        n_labels=2,
        provenance=provenance,
    )


def accuracy_of(true=TRUE, false=FALSE, **provenance):
    """A result with these calibrated scores, `[prompt, entry]`."""
    calibrated = torch.tensor([true, false], dtype=torch.float64)
    scores = torch.full((6, *calibrated.shape), 0.25, dtype=torch.float64)
    scores[0] = calibrated
    probs = torch.full((*calibrated.shape[1:], 2), 0.5, dtype=torch.float64)
    answers = torch.arange(len(true)) % 2
    return LayerAccuracyResult(
        scores=scores, true_probs=probs, false_probs=probs, answers=answers, provenance=provenance
    )


@pytest.fixture(scope="module")
def by_hand():
    return side_by_side(scores_of(), accuracy_of())


@pytest.fixture(scope="module")
def planted():
    model, true, false = planted_case()
    return matching_by_layer(model, true, false)


# --- by hand ---


def test_heads_of_a_layer_are_added(by_hand):
    expected = [[0.3, 0.8, -0.1], [0.3, 0.8, -0.3], [0.0, 1.1, 0.1], [0.2, 0.5, 0.2]]
    assert_close(by_hand.per_prompt, torch.tensor(expected))
    assert_close(by_hand.matching, torch.tensor([0.2, 0.8, -0.025]).double())


def test_shares_of_the_final_gap(by_hand):
    """Gaps of the entries: 0, 1/8, 3/8, 7/8."""
    assert by_hand.has_gap
    assert_close(by_hand.gap_share, torch.tensor([1 / 7, 3 / 7, 1]).double())


def test_intervals_are_those_of_the_ratio(by_hand):
    """Numerator and denominator of the same resamples, so the last share is always 1."""
    gaps = torch.tensor(TRUE).double() - torch.tensor(FALSE).double()
    low, high = bootstrap_interval(gaps, lambda means: means[:, 1:] / means[:, -1:])
    assert_close(by_hand.gap_low, low)
    assert_close(by_hand.gap_high, high)
    assert float(by_hand.gap_low[-1]) == float(by_hand.gap_high[-1]) == 1
    assert float(by_hand.gap_low[1]) < 3 / 7 < float(by_hand.gap_high[1])


def test_a_gap_that_opens_and_closes_again():
    """The share may be above 1, and below 0."""
    true = [[0.5, 0.0, 1.0, 1.0], [0.5, 0.0, 1.0, 0.5]] * 12
    false = [[0.5, 0.5, 0.0, 0.5], [0.5, 0.5, 0.0, 0.0]] * 12
    found = side_by_side(scores_of(MATCHING[:2] * 12), accuracy_of(true, false))
    assert found.gap_share.tolist() == [-1.0, 2.0, 1.0]


def test_the_summary_names_the_layer(by_hand):
    WORDS.exactly(by_hand.summary(), "summary_names_layer", "1", "0.8", "43")


def test_a_drawing_holds_both_curves(by_hand):
    drawn = by_hand.drawing()
    assert len(drawn.names) == 2
    WORDS.exactly(drawn.names, "both_curves")
    assert [panel.curves for panel in drawn.panels] == [(0,), (1,)]  # each has its own axis
    WORDS.exactly(drawn.panels[1].y_title, "drawing_holds_both_curves")
    # Layers act between readings: heads of layer 0 stand at 0, the gap after it at 1.
    assert_close(drawn.values[0, :-1], by_hand.matching)
    assert_close(drawn.values[1, 1:], by_hand.gap_share)
    assert_close(drawn.low[1, 1:], by_hand.gap_low)
    assert_close(drawn.high[1, 1:], by_hand.gap_high)
    low, high = mean_ends(by_hand.per_prompt)
    assert_close(drawn.low[0, :-1], low)
    assert_close(drawn.high[0, :-1], high)
    assert bool(drawn.values[0, -1].isnan())
    assert bool(drawn.values[1, 0].isnan())
    WORDS.exactly(drawn.note, "few_prompts", "4", "95", "12")
    axes = {trace.yaxis for trace in by_hand.plot().data}
    assert axes == {"y", "y2"}


def test_a_table_has_a_row_per_layer(by_hand):
    table = by_hand.to_pandas()
    assert table.layer.tolist() == [0, 1, 2]
    assert table.prefix_matching.tolist() == pytest.approx([0.2, 0.8, -0.025])
    assert table.gap_share.tolist() == pytest.approx([1 / 7, 3 / 7, 1])
    assert table.gap_share_low.tolist() == by_hand.gap_low.tolist()
    assert table.gap_share_high.tolist() == by_hand.gap_high.tolist()
    low, high = mean_ends(by_hand.per_prompt)
    assert table.prefix_matching_low.tolist() == low.tolist()
    assert table.prefix_matching_high.tolist() == high.tolist()


def test_saved_and_loaded(by_hand, tmp_path):
    by_hand.save(tmp_path / "result")
    loaded = MatchingByLayerResult.load(tmp_path / "result")
    for name in ("per_prompt", "gap_share", "gap_low", "gap_high"):
        assert torch.equal(getattr(loaded, name), getattr(by_hand, name))
    assert loaded.summary() == by_hand.summary()


# --- no gap ---


@pytest.mark.parametrize("false", [TRUE, TRUE[::-1], FALSE], ids=["equal", "other order", "worse"])
def test_without_a_final_gap_there_are_no_shares(false, tmp_path):
    """`equal`: no resample has a gap; `other order`: some have; `worse`: all, turned round."""
    true = FALSE if false is FALSE else TRUE
    false = TRUE if false is FALSE else false
    found = side_by_side(scores_of(), accuracy_of(true, false))
    assert not found.has_gap
    for values in (found.gap_share, found.gap_low, found.gap_high):
        assert bool(values.isnan().all())
        assert values.shape == (3,)
    assert_close(found.matching, torch.tensor([0.2, 0.8, -0.025]).double())
    WORDS.exactly(found.summary(), "without_final_gap_there", "1", "0.8")
    drawn = found.drawing()
    assert (len(drawn.names), len(drawn.values), len(drawn.panels)) == (1, 1, 1)
    WORDS(drawn.note, "without_final_gap_there_2", "0")
    assert found.plot().data
    assert "gap_share" not in found.to_pandas()
    found.save(tmp_path / "result")
    assert MatchingByLayerResult.load(tmp_path / "result").summary() == found.summary()


def test_a_gap_that_may_be_chance_has_no_shares():
    """One prompt of four differs: many resamples lack it."""
    false = [[0.5, 0.5, 0.5, 0.0], *TRUE[1:]]
    accuracy = accuracy_of(TRUE, false)
    assert accuracy.final_gap.value > 0
    assert accuracy.final_gap.low < 0
    assert not side_by_side(scores_of(), accuracy).has_gap


# --- models ---


def test_the_planted_layers(planted):
    """The first induction head, in block 2 of 0 to 3, is enough for a false answer."""
    first = INDUCTION_HEADS[0][0]
    assert {int(i) for i in planted.matching.argsort()[-2:]} == {h[0] for h in INDUCTION_HEADS}
    assert float(planted.matching[:first].abs().max()) < 0.2
    assert float(planted.matching[first:].min()) > 0.9
    # After block 0 both sides guess; after block 1, MLP 1 knows the answer on both.
    assert planted.gap_share[1:].tolist() == [0, 1, 1]
    assert planted.gap_low[1:].tolist() == planted.gap_high[1:].tolist() == [0, 1, 1]
    assert float(planted.gap_low[0]) < 0 < float(planted.gap_high[0])
    text = planted.summary()
    WORDS.starts(text, "planted_most", int(planted.matching.argmax()))
    WORDS.ends(text, "planted_layers", "100")


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    model, true, false = tiny_case(family)
    heads, accuracy = head_scores(model, false), layer_accuracy(model, true, false)
    found = matching_by_layer(model, true, false)
    assert_close(found.matching, heads.prefix_matching.sum(-1), atol=1e-6, rtol=0)
    if found.has_gap:
        assert_close(found.gap_share, accuracy.gap[1:] / accuracy.gap[-1])


# --- the measurement, and labelled samples ---


@pytest.mark.parametrize("variant", ["sound", "reference"])
@pytest.mark.parametrize("change", [(), (ZeroHeads([(0, 1)]),)], ids=["plain", "edited"])
def test_it_is_of_head_scores_and_accuracy(variant, change):
    model, true, false = tiny_case("gpt2")
    options = {"interventions": change}
    found = matching_by_layer(model, true, false, variant=variant, **options)
    heads = head_scores(model, false, **options)
    accuracy = layer_accuracy(model, true, false, variant=variant, **options)
    alone = side_by_side(heads, accuracy)
    assert_close(found.per_prompt, alone.per_prompt, **CLOSE)
    assert torch.equal(found.pair_scores, alone.pair_scores)
    for name in ("gap_share", "gap_low", "gap_high"):
        assert_close(getattr(found, name), getattr(alone, name), equal_nan=True)
    origin = found.provenance
    assert origin["variants"] == {"over": "labels", "variant": variant}
    assert (origin["prompts"]["digest"], origin["false_prompts"]["digest"]) == (
        true.digest, false.digest,
    )  # fmt: skip


def test_interventions_change_the_matching():
    model, true, false = tiny_case("gpt2")
    change = [ZeroHeads([(0, 1)])]
    plain, edited = (
        measured(MatchingByLayer(), model, (true, false), interventions=own) for own in ((), change)
    )
    difference = plain - edited
    expected = plain.per_prompt.double() - edited.per_prompt.double()
    assert_close(difference.values, expected.mean(0))
    assert_close(torch.stack([difference.low, difference.high]), torch.stack(mean_ends(expected)))
    assert float(difference.values[1:].abs().max()) > 1e-4


def test_it_shares_its_passes_with_head_scores(monkeypatch):
    """One pass over the true prompts and one over the false ones is enough for both."""
    model, true, false = tiny_case("gpt2")
    passes = []

    def counted(*arguments, **options):
        passes.append(arguments[1].digest)
        return run(*arguments, **options)

    monkeypatch.setattr("icl_mech.measurements.running.run", counted)
    adapted = adapt(model)
    items = [
        Item.checked(measurement, adapted, (true, false), Options())
        for measurement in (HeadScores(), MatchingByLayer())
    ]
    (_, heads), (_, layers) = completed(adapted, items, Options())
    assert sorted(passes) == sorted([true.digest, false.digest])
    assert torch.equal(layers.per_prompt, heads.matching.sum(-1))


def test_the_measurement_needs_a_pair():
    model, true, false = tiny_case("gpt2")
    with WORDS.raises(PromptError, "measurement_needs_pair"):
        measured(MatchingByLayer(), model, false)
    with WORDS.raises(PromptError, "measurement_needs_pair_2"):
        measured(MatchingByLayer(), model, (true, false[:5]))


def test_quantities_are_the_fields(by_hand):
    share = by_hand.sel("gap_share")
    assert_close(share.values, by_hand.gap_share)
    assert_close(share.low, by_hand.gap_low)
    assert_close(share.high, by_hand.gap_high)
    assert by_hand.interval(layer=1).value == pytest.approx(0.8)


def test_without_a_gap_or_its_scores_there_is_no_share_of_it(by_hand):
    none = side_by_side(scores_of(), accuracy_of(TRUE, TRUE))
    for found in (none, replace(by_hand, pair_scores=None)):
        assert tuple(found.quantities()) == ("prefix_matching",)
    assert replace(by_hand, pair_scores=None).summary() == by_hand.summary()

"""Ablations against the lens, single interventions and the planted model."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from icl_mech import ZeroHeads, ZeroLayers
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.accuracy.layer_accuracy import layer_accuracy
from icl_mech.measurements.heads.ablation import Ablation, AblationResult, ablation
from icl_mech.measurements.heads.chosen import random_heads
from icl_mech.measurements.running import measured
from icl_mech.metrics import mean_ends, mean_interval
from icl_mech.metrics.layers import gap_reduction, reduction_interval
from tests.measurements.overthinking_cases import (
    FAMILIES,
    assert_same_scores,
    planted_case,
    settled_probs,
    tiny_case,
    tiny_pairs,
)
from tests.planted import ATTENDING_DECOYS, INDUCTION_HEADS, PROMOTING_DECOYS
from tests.said import Words
from tests.saved import without_date

WORDS = Words(__file__)

HEADS = ((1, 2), (2, 0))


@pytest.fixture(scope="module", params=FAMILIES)
def case(request):
    model = tiny_case(request.param)[0]
    return model, *tiny_pairs(model, n=6)


@pytest.fixture(scope="module")
def lens(case):
    return layer_accuracy(*case)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_case("gpt2")


def place_of(result, condition):
    """Of the one condition of this name."""
    (index,) = (i for i, name in enumerate(result.conditions) if name == condition)
    return index


def same(result, condition, expected):
    """Whether all scores `[side, prompt]` agree that are not ties or nearly.

    Those may hang on the last bits, and must be few.
    """
    place = place_of(result, condition) if isinstance(condition, str) else condition
    differ = (result.scores[place] - expected).abs() > 1e-6
    ties, near, scores = result.tie_counts[:, place]
    assert bool((4 * (ties + near) <= scores).all())
    return bool((differ.sum(-1) <= ties + near).all())


def final(model, true, false, *changes):
    """Calibrated scores at the last entry under interventions, `[side, prompt]`."""
    found = layer_accuracy(model, true, false, interventions=changes)
    return found.scores[0, :, :, -1]


@pytest.mark.parametrize("start", [0, 2])
def test_without_late_layers_it_is_the_lens_at_their_first(case, lens, start):
    found = ablation(*case, ["late layers"], start=start)
    assert found.conditions == ("none", "late layers")
    if start:
        assert same(found, "late layers", lens.scores[0, :, :, start])
    else:  # the embedding, where prompts may be alike
        both = torch.stack([lens.true_probs[:, 0], lens.false_probs[:, 0]])
        assert torch.equal(found.tie_counts[:, 1], lens.tie_counts[..., 0])
        safe = settled_probs(both)
        assert_same_scores(found.scores[1], lens.scores[0, :, :, 0], safe)


def test_none_is_the_last_entry_and_an_empty_change_is_none(case, lens):
    found = ablation(*case, {"again": []})
    for condition in ("none", "again"):
        assert same(found, condition, lens.scores[0, :, :, -1])
    assert found.interval("accuracy", condition="none", side="true").value == float(
        found.scores[0, 0].mean()
    )


@pytest.mark.parametrize("case", ["gptj", "llama", "gemma3"], indirect=True)
def test_parts_and_heads_are_what_their_interventions_do(case):
    model, true, false = case
    found = ablation(model, true, false, start=1, heads=HEADS, draws=1)
    assert found.conditions == (
        "none", "late layers", "late attention", "late MLPs", "chosen heads",
        "random heads",
    )  # fmt: skip
    (drawn,) = random_heads(HEADS, (3, 4), 1)
    for index, change in (
        (2, ZeroLayers(1, part="attention")),
        (3, ZeroLayers(1, part="mlp")),
        (4, ZeroHeads(HEADS)),
        (5, ZeroHeads(drawn)),
    ):
        assert same(found, index, final(model, true, false, change)), index


@pytest.mark.parametrize("kind", ["zero_output", "uniform_attention", "mean"])
def test_kinds(gpt2, kind):
    model, true, false = gpt2
    found = ablation(model, true, false, start=1, heads=HEADS, kind=kind, draws=1)
    assert same(found, "chosen heads", final(model, true, false, ZeroHeads(HEADS, kind)))
    late = "reference" if kind == "uniform_attention" else "zero_output"
    for name, part in (("late attention", "attention"), ("late MLPs", "mlp")):
        expected = final(model, true, false, ZeroLayers(1, part, late))
        assert same(found, name, expected)
    assert found.provenance["variants"]["kind"] == kind


def test_changes_of_ones_own_with_heads_and_parts_beside_them(gpt2):
    model, true, false = gpt2
    change = ZeroLayers(2, part="mlp", at="all")
    found = ablation(model, true, false, {"last MLP": [change]}, start=2, heads=HEADS, draws=1)
    assert found.conditions == (
        "none", "last MLP", "late layers", "late attention", "late MLPs", "chosen heads",
        "random heads",
    )  # fmt: skip
    assert same(found, "last MLP", final(model, true, false, change))


def test_heads_among_the_parts(gpt2):
    found = ablation(*gpt2, ["late MLPs", (1, 2)], start=1, heads=[(2, 0)], draws=0)
    assert found.conditions == ("none", "late MLPs", "chosen heads")
    alone = ablation(*gpt2, heads=HEADS, draws=0)
    assert same(found, "chosen heads", alone.scores[place_of(alone, "chosen heads")])


def test_small_batches_change_nothing(gpt2):
    whole, small = (
        ablation(*gpt2, start=1, heads=HEADS, draws=0, batch_size=size) for size in (None, 5)
    )
    for place in range(len(whole.conditions)):
        assert same(whole, place, small.scores[place])


def test_the_reference_reads_the_papers_last_entry():
    case = tiny_case("gptj")
    found = ablation(*case, {"again": []}, variant="reference")
    lens = layer_accuracy(*case, variant="reference")
    assert same(found, "none", lens.scores[0, :, :, -1])
    assert not same(found, "none", layer_accuracy(*case).scores[0, :, :, -1])


# --- the measurement, and labelled samples ---


def test_the_measurement_is_the_function(gpt2):
    model, true, false = gpt2
    options = {"start": 1, "heads": HEADS, "draws": 2, "seed": 3}
    door = ablation(model, true, false, **options)
    found = measured(Ablation(**options), model, (true, false))
    assert torch.equal(found.scores, door.scores)
    assert torch.equal(found.tie_counts, door.tie_counts)
    assert found.conditions == door.conditions
    assert without_date(found) == without_date(door)
    variants = found.provenance["variants"]
    assert variants == {
        "what": None, "start": 1, "heads": [[1, 2], [2, 0]], "kind": "zero_output", "draws": 2,
        "variant": "sound", "seed": 3,
    }  # fmt: skip
    with WORDS.raises(PromptError, "measurement_function"):
        measured(Ablation(**options), model, false)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [ZeroHeads([(0, 1)]), ZeroHeads([(0, 1), (1, 0)], at="all"), ZeroLayers(1, "mlp", at="all")],
    ids=["target", "all", "layers"],
)
@pytest.mark.parametrize("path", ["auto", "whole"])
def test_ablation_under_interventions(gpt2, change, path):
    """Every condition is what it is with that change made first, the unablated one too."""
    model, true, false = gpt2
    options = {"start": 2, "heads": HEADS, "draws": 1, "path": path}
    found = ablation(model, true, false, **options, interventions=[change])
    (drawn,) = random_heads(HEADS, (3, 4), 1)
    for index, own in enumerate(
        (
            [], [ZeroLayers(2)], [ZeroLayers(2, "attention")], [ZeroLayers(2, "mlp")],
            [ZeroHeads(HEADS)], [ZeroHeads(drawn)],
        )
    ):  # fmt: skip
        assert same(found, index, final(model, true, false, change, *own)), index
    assert [change["intervention"] for change in found.provenance["interventions"]] == [
        type(change).__name__
    ]
    plain = ablation(model, true, false, **options)
    assert not torch.equal(found.scores, plain.scores)
    assert plain.provenance["interventions"] == []


@pytest.mark.parametrize("shared", [False, True])
def test_paths_agree(gpt2, shared):
    model, true, false = gpt2
    if shared:
        true, false = tiny_pairs(model, demonstrations="shared")
    whole, auto = (
        ablation(model, true, false, start=1, heads=HEADS, draws=1, path=path)
        for path in ("whole", "auto")
    )
    for place in range(len(whole.conditions)):
        assert same(whole, place, auto.scores[place])


@pytest.mark.slow
def test_labels_of_conditions_and_sides(planted):
    assert planted.interval("gap") == planted.gap
    scores = planted.scores[place_of(planted, "late MLPs"), 1]
    found = planted.interval("accuracy", condition="late MLPs", side="false")
    low, high = mean_ends(scores, "outcome")
    assert found == pytest.approx((float(scores.mean()), float(low), float(high)))
    drawn = planted.scores[[name == "random heads" for name in planted.conditions]].mean(0)
    found = planted.interval("accuracy", condition="random heads", side="true")
    assert found == pytest.approx(tuple(mean_interval(drawn[0], "outcome")))
    both = planted.sel("accuracy", condition="none")
    assert both.dims == ("side",)
    assert both.labels == (("true", "false"),)


def test_changes_are_paired_and_reductions_are_the_metrics():
    found = result_of(UNABLATED, CHOSEN, *DRAWS)
    scores = torch.tensor([UNABLATED, CHOSEN]).double()
    lost = found.interval("change", condition="chosen heads", side="true")
    assert lost == pytest.approx(tuple(mean_interval(scores[1, 0] - scores[0, 0], "change")))
    expected = reduction_interval([scores[0, 0]], [scores[0, 1]], [scores[1, 1]])
    assert found.reduction("chosen heads") == pytest.approx(tuple(expected))
    assert found.interval("gap_reduction", condition="none") == pytest.approx((0, 0, 0))
    drawn = torch.tensor(DRAWS).double()[:, 1].mean(0)
    expected = reduction_interval([scores[0, 0]], [scores[0, 1]], [drawn])
    assert found.reduction("random heads") == pytest.approx(tuple(expected))


def test_without_a_gap_no_share_of_it_is_a_quantity():
    found = result_of((UNABLATED[0], UNABLATED[0]), CHOSEN)
    assert tuple(found.quantities()) == ("accuracy", "change", "gap")


def test_differences_are_paired(gpt2):
    model, true, false = gpt2
    plain, edited = (
        ablation(model, true, false, heads=HEADS, draws=2, interventions=changes)
        for changes in ((), [ZeroHeads([(0, 1)], at="all")])
    )
    found = plain - edited
    change = plain.scores - edited.scores
    expected = torch.stack([change[0], change[1], change[2:].mean(0)])
    assert_close(found.values, expected.mean(-1))
    low, high = mean_ends(expected.permute(2, 0, 1), "change")
    assert_close(found.low, low)
    assert_close(found.high, high)
    assert float(found.values.abs().max()) > 0
    with WORDS.raises(ResultError, "differences_paired"):
        _ = plain - ablation(model, true, false, ["late MLPs"], start=1)


# --- random heads ---


@pytest.mark.parametrize("chosen", [HEADS, ((0, 0), (0, 1), (2, 3)), ((1, 1),)])
def test_random_heads_are_others_of_the_same_layers(chosen):
    draws = random_heads(chosen, (3, 4), 30)
    assert len(draws) == 30
    for draw in draws:
        assert not set(draw) & set(chosen)
        assert len(set(draw)) == len(draw)
        assert Counter(layer for layer, _ in draw) == Counter(layer for layer, _ in chosen)
    seen = {head for draw in draws for head in draw}
    layers = {layer for layer, _ in chosen}
    free = {(la, h) for la in layers for h in range(4)} - set(chosen)
    assert seen == free


def test_where_a_layer_runs_out_the_nearest_gives():
    """Layer 0 has one head left and needs three; layer 1 needs the two it has itself."""
    chosen = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1))
    for draw in random_heads(chosen, (3, 4), 20):
        assert not set(draw) & set(chosen)
        assert Counter(layer for layer, _ in draw) == {0: 1, 1: 2, 2: 2}
    for draw in random_heads(chosen[:3], (3, 4), 20):
        assert Counter(layer for layer, _ in draw) == {0: 1, 1: 2}
    whole = tuple((1, head) for head in range(4))
    for draw in random_heads(whole, (4, 4), 20):
        assert Counter(layer for layer, _ in draw) == {0: 4}


def test_the_seed_draws_the_heads():
    draws = [random_heads(HEADS, (3, 4), 5, seed) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_too_many_heads_for_a_control():
    chosen = [(layer, head) for layer in range(2) for head in range(4)]
    with WORDS.raises(RunError, "too_many_heads_control", "8", "12"):
        random_heads(chosen, (3, 4), 1)
    assert len(random_heads(chosen[:6], (3, 4), 1)[0]) == 6


# --- the planted model ---


@pytest.fixture(scope="module")
def planted():
    return ablation(*planted_case(), start=2, heads=INDUCTION_HEADS)


def test_the_induction_heads_close_the_gap_and_no_random_ones_do(planted):
    assert planted.gap.low > 0.7
    assert planted.reduction("chosen heads").value == pytest.approx(1)
    assert planted.conditions.count("random heads") == 20
    assert len(planted.draws()) == 20
    assert float(planted.draws().abs().max()) < 0.1
    assert abs(planted.reduction("random heads").value) < 0.1
    lost = planted.interval("change", condition="chosen heads", side="true")
    assert lost.value == 0
    assert lost.low == pytest.approx(-lost.high)


def test_late_attention_holds_the_gap_and_late_mlps_do_not(planted):
    for name in ("late layers", "late attention"):
        assert planted.reduction(name).value == pytest.approx(1)
    assert abs(planted.reduction("late MLPs").value) < 0.1


@pytest.mark.parametrize("decoys", [ATTENDING_DECOYS, PROMOTING_DECOYS])
def test_decoys_close_nothing(decoys):
    found = ablation(*planted_case(), heads=decoys, draws=0)
    assert abs(found.reduction("chosen heads").value) < 0.1


def test_half_of_the_heads_are_not_enough():
    found = ablation(*planted_case(), heads=INDUCTION_HEADS[:1], draws=0)
    assert found.reduction("chosen heads").value < 1


# --- numbers of a result ---


def result_of(*conditions, names=None, **options):
    """Each condition: (true scores, false scores)."""
    names = names or ("none", "chosen heads", *["random heads"] * (len(conditions) - 2))
    scores = torch.tensor(conditions, dtype=torch.float64)
    return AblationResult(scores=scores, conditions=tuple(names), **options)


UNABLATED = ([1.0, 1, 1, 1, 1, 1, 1, 1], [0.0, 0, 0, 0, 0, 0, 0, 1])
CHOSEN = ([1.0, 1, 1, 1, 0, 0, 1, 1], [1.0, 1, 1, 0, 0, 0, 0, 1])
DRAWS = (([1.0] * 8, [0.0, 0, 0, 0, 0, 0, 0, 1]), ([1.0] * 8, [1.0, 1, 0, 0, 0, 0, 0, 1]))


def test_reduction_by_hand():
    """Gap 1 - 1/8; ablated false 4/8: 1 - (1/2) / (7/8) = 3/7. Draws: 0 and 2/7."""
    found = result_of(UNABLATED, CHOSEN, *DRAWS)
    assert found.gap.value == 7 / 8
    assert found.reduction("chosen heads").value == pytest.approx(3 / 7)
    assert found.draws().tolist() == pytest.approx([0, 2 / 7])
    assert found.reduction("random heads").value == pytest.approx(1 / 7)
    by_chance = found.interval("accuracy", condition="random heads", side="false")
    assert by_chance.value == pytest.approx(2 / 8)
    assert found.interval("accuracy", condition="chosen heads", side="true").value == 0.75
    assert found.interval("change", condition="chosen heads", side="true").value == -0.25
    interval = found.reduction("chosen heads")
    assert interval.low < 3 / 7 < interval.high


def test_reductions_are_paired():
    """Every prompt that had a gap lost it: whatever is drawn, all of it is closed."""
    found = result_of(UNABLATED, ([1.0] * 8, [1.0] * 8))
    assert found.reduction("chosen heads").value == pytest.approx(1)
    nothing = result_of(UNABLATED, UNABLATED)
    assert nothing.reduction("chosen heads").value == 0


@pytest.mark.parametrize(
    "false", [UNABLATED[0], [0.0, 1, 1, 1, 1, 1, 1, 1]], ids=["no gap", "unsure gap"]
)
def test_without_a_gap_there_is_no_reduction(false):
    found = result_of((UNABLATED[0], false), CHOSEN, *DRAWS)
    assert found.gap.low <= 0
    assert found.reduction("chosen heads") is None
    assert bool(found.draws().isnan().all())
    WORDS(found.summary(), "without_gap_there_no", "0")
    with WORDS.raises(ResultError, "without_gap_there_no_2", "'gap_reduction'"):
        found.to_pandas("gap_reduction")


def test_ties_are_told():
    counts = torch.zeros(3, 4, 2, dtype=torch.long)
    counts[0, 0, 1], counts[1, 3, 0], counts[2] = 2, 3, 8
    case = (UNABLATED, CHOSEN, *DRAWS)
    plain, tied = (result_of(*case, **own).summary() for own in ({}, {"tie_counts": counts}))
    assert tied.startswith(plain)
    WORDS.exactly(tied.removeprefix(plain), "ties", "64", "2", "3")
    no_gap = result_of(UNABLATED[:1] * 2, *case[1:], tie_counts=counts)
    WORDS.ends(no_gap.summary(), "ties_without_a_gap", "64", "2", "3")
    counts[:2] = 0
    assert result_of(*case, tie_counts=counts).summary() == plain


@pytest.mark.parametrize("how", ["ratio_of_means", "mean_of_ratios"])
def test_reduction_over_tasks(how):
    """The tasks' own numbers of prompts differ; tasks weigh alike."""
    generator = np.random.default_rng(0)
    tasks = [
        [torch.from_numpy((generator.random(n) < p).astype(float)) for p in (0.9, 0.3, 0.6)]
        for n in (40, 90, 60)
    ]
    true, false, ablated = zip(*tasks, strict=True)
    found = reduction_interval(true, false, ablated, how)
    means = torch.tensor([[float(s.mean()) for s in task] for task in tasks]).double().T
    assert found.value == pytest.approx(float(gap_reduction(*means, how)))
    assert found.low < found.value < found.high
    one = reduction_interval(true[:1], false[:1], ablated[:1], how)
    assert one.high - one.low > found.high - found.low


def test_random_draws_are_one_row_of_the_table():
    found = result_of(UNABLATED, CHOSEN, *DRAWS)
    table = found.to_pandas().set_index(["condition", "side"])
    names = ("none", "chosen heads", "random heads")
    assert table.index.tolist() == [(name, side) for name in names for side in ("true", "false")]
    assert table.draws.tolist() == [1, 1, 1, 1, 2, 2]
    assert table.change["chosen heads", "true"] == -0.25
    assert table.change_low["chosen heads", "true"] < -0.25
    closed = found.to_pandas("gap_reduction").set_index("condition")
    assert closed.gap_reduction["chosen heads"] == pytest.approx(3 / 7)
    assert closed.gap_reduction["none"] == 0
    accuracies = found.drawing("accuracy")
    assert accuracies.groups == ("unablated", "chosen heads", "random heads")
    assert found.drawing().groups == ("chosen heads", "random heads")
    assert accuracies.values[1].tolist() == [0.75, 0.5]
    WORDS(found.drawing().note, "random_draws_row_table", "2")
    assert "random heads (2 draws) 0.143" in found.summary()


@pytest.mark.slow
def test_files_and_figures(planted, tmp_path):
    planted.save(tmp_path / "result")
    loaded = AblationResult.load(tmp_path / "result")
    assert torch.equal(loaded.scores, planted.scores)
    assert loaded.conditions == planted.conditions
    assert loaded.summary() == planted.summary()
    assert planted.plot().data
    assert_close(planted.drawing("accuracy").values[0, 0], torch.tensor(1.0).double())
    assert loaded.provenance["interventions"] == []
    changes = loaded.provenance["conditions"]
    assert len(changes) == len(planted.conditions)
    assert changes[0] == []
    assert sum(own[0]["intervention"] == "ZeroHeads" for own in changes[1:]) == 21


# --- errors ---


def test_nothing_to_ablate(gpt2):
    for options in ({}, {"what": {}}, {"what": []}):
        with WORDS.raises(RunError, "nothing_ablate"):
            ablation(*gpt2, **options)


def test_late_parts_need_a_start(gpt2):
    with pytest.raises(RunError, match="'late MLPs' needs start="):
        ablation(*gpt2, ["late MLPs"])
    with WORDS.raises(RunError, "late_parts_need_start", "3"):
        ablation(*gpt2, start=3)


@pytest.mark.usefixtures("unchecked")
def test_unknown_parts_and_options(gpt2):
    with WORDS.raises(RunError, "unknown_parts_options", "'late layers'"):
        ablation(*gpt2, ["late layer"], start=1)
    for options, message in (({"kind": "zero"}, "kind='zero'"), ({"variant": "x"}, "variant='x'")):
        with pytest.raises(RunError, match=message):
            ablation(*gpt2, start=1, **options)


@pytest.mark.parametrize("head", [(3, 0), (0, 4), (-1, 0), (0, -1)])
def test_heads_the_model_does_not_have(gpt2, head):
    with WORDS.raises(RunError, "heads_model", "3", "4"):
        ablation(*gpt2, heads=[head])


def test_too_many_heads(gpt2):
    with WORDS.raises(RunError, "too_many_heads"):
        ablation(*gpt2, heads=[(layer, head) for layer in range(2) for head in range(4)])


@pytest.mark.parametrize("name", ["none", "random heads", "late layers"])
def test_names_that_are_taken(gpt2, name):
    with WORDS.raises(RunError, "name_is_taken", repr(name)):
        ablation(*gpt2, {name: [ZeroLayers(1)]})


def test_sets_that_are_not_pairs(gpt2):
    model, true, false = gpt2
    with WORDS.raises(PromptError, "sets_pairs"):
        ablation(model, true, false[:5], start=1)


def test_unknown_conditions_and_sides(planted):
    with WORDS.raises(ResultError, "unknown_conditions_sides", "'chosen heads'"):
        planted.reduction("chosen head")
    with WORDS.raises(ResultError, "unknown_conditions_sides_2", "'chosen head'"):
        planted.interval("accuracy", condition="chosen head", side="true")
    with WORDS.raises(ResultError, "unknown_conditions_sides_3", "'flase'"):
        planted.interval("accuracy", condition="none", side="flase")
    with WORDS.raises(ResultError, "unknown_conditions_sides_4", "'random heads'"):
        result_of(UNABLATED, CHOSEN).draws()

"""Accuracy by number of demonstrations: one pass against prompts cut at every label."""

import pytest
import torch
from torch.testing import assert_close

from icl_mech import ZeroHeads
from icl_mech.engine import run
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.accuracy.context_accuracy import (
    ContextAccuracy,
    ContextAccuracyResult,
    context_accuracy,
)
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracy, layer_accuracy
from icl_mech.measurements.accuracy.scores import METRICS
from icl_mech.metrics import mean_ends, wilson_interval
from icl_mech.metrics.calibration import reachable_accuracy
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results.wording import told
from icl_mech.studies.measuring import measure
from tests.measurements.overthinking_cases import (
    FAMILIES,
    N,
    assert_same_scores,
    ends_of,
    planted_case,
    planted_pairs,
    settled,
    tiny_case,
    tiny_pairs,
)
from tests.planted import INDUCTION_HEADS
from tests.said import Words
from tests.saved import without_date

WORDS = Words(__file__)

SIDES = ("true", "false")


@pytest.fixture(scope="module", params=FAMILIES)
def case(request):
    return tiny_case(request.param)


@pytest.fixture(scope="module")
def found(case):
    return context_accuracy(*case)


@pytest.fixture(scope="module")
def clear(case):
    return settled(*case)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_case("gpt2")


def cut(prompts, k, answers, taught=None):
    """The prompts up to the token before the label of demonstration `k`."""
    return PromptBatch(
        tuple(
            Prompt.from_positions(
                prompt.tokens[: prompt.label_positions[k]],
                label_positions=prompt.label_positions[:k],
                label_classes=prompt.label_classes[:k],
                label_tokens=prompt.label_tokens,
                answer=answers[row],
                false_answer=None if taught is None else taught[row],
                target=prompt.label_positions[k] - 1,
            )
            for row, prompt in enumerate(prompts)
        )
    )


def cut_pair(true, false, k):
    answers, taught = true.label_classes[:, k].tolist(), false.label_classes[:, k].tolist()
    return cut(true, k, answers), cut(false, k, answers, taught)


@pytest.mark.filterwarnings("ignore:The true classes of the queries:UserWarning")
@pytest.mark.parametrize("k", [0, 1, 5])
def test_every_number_is_a_prompt_cut_there(case, found, clear, k):
    """`k = 0`: the zero-shot lens of the first demonstration's text."""
    model, true, false = case
    alone = layer_accuracy(model, *cut_pair(true, false, k))
    assert_same_scores(found.scores[:, :, :, k], alone.scores, clear[:, :, :, k])
    assert torch.equal(found.tie_counts[2, :, k], alone.tie_counts[2])


def test_the_last_number_is_the_query(case, found, clear):
    own = layer_accuracy(*case)
    assert found.scores.shape == (6, 2, N, 7, own.scores.shape[-1])
    assert_same_scores(found.scores[:, :, :, -1], own.scores, clear[:, :, :, -1])


def test_without_demonstrations_both_sides_are_the_same(found, clear):
    assert_same_scores(found.scores[:, 0, :, 0], found.scores[:, 1, :, 0], clear[:, 0, :, 0])
    assert float((found.scores[:, 0, :, 1:] - found.scores[:, 1, :, 1:]).abs().max()) > 0.5


def test_batched_equals_small_batches(case, found, clear):
    small = context_accuracy(*case, batch_size=5)
    assert_same_scores(small.scores, found.scores, clear)


def test_prompts_read_at_their_last_demonstration_have_no_other_query(gpt2):
    """As in the paper: six demonstrations give zero to five shots."""
    model, true, false = gpt2
    sets = []
    for prompts, taught in ((true, None), (false, false.label_classes[:, 5].tolist())):
        sets.append(
            PromptBatch(
                tuple(
                    Prompt.from_positions(
                        prompt.tokens,
                        label_positions=prompt.label_positions,
                        label_classes=prompt.label_classes,
                        label_tokens=prompt.label_tokens,
                        label_lengths=[s.stop - s.start for s in prompt.label_spans],
                        answer=true[row].label_classes[5],
                        false_answer=None if taught is None else taught[row],
                        target=prompt.label_positions[5] - 1,
                    )
                    for row, prompt in enumerate(prompts)
                )
            )
        )
    with WORDS.warns(UserWarning, "prompts_read_their_last"):
        read = context_accuracy(model, *sets)
    assert read.scores.shape[3] == 6
    expected, clear = context_accuracy(*gpt2).scores, settled(*gpt2)
    assert_same_scores(read.scores, expected[:, :, :, :6], clear[:, :, :, :6])


@pytest.mark.slow
def test_half_permuted_labels_teach_the_shifted_class_even_where_they_are_right(gpt2):
    model, true, _ = gpt2
    _, false = tiny_pairs(model, false_labels="half_permuted")
    read = context_accuracy(model, true, false)
    # The permuted set displays the shifted class everywhere; k = 0 has seen no label yet.
    permuted = context_accuracy(*gpt2)
    index, clear = METRICS.index("permuted"), settled(*gpt2)
    assert not torch.equal(false.label_classes, gpt2[2].label_classes)
    for place in ((index, 1, slice(None), 0), (index, 0)):
        assert_same_scores(read.scores[place], permuted.scores[place], clear[place])


def test_a_perfect_classifier_reaches_what_is_said():
    """In the planted model entry 2 knows every answer, whatever was shown."""
    model, _, _ = planted_case()
    true, false = planted_pairs(model, seed=6)
    read = context_accuracy(model, true, false)
    assert not read.tie_counts[:2, :, :, 2].any()
    expected = [float(reachable_accuracy(c, 3)) for c in true.label_classes.T]
    assert read.reachable.tolist() == pytest.approx([*expected, 1.0])
    assert min(expected) < 0.95
    for side in SIDES:
        assert_close(read.accuracy(side)[:, 2], read.reachable)
    drawn = read.drawing()
    assert drawn.names[2] == "highest reachable"
    assert_close(drawn.values[2], read.reachable)
    assert drawn.panels[0].curves == (0, 1, 2)
    (figure,) = read.figures()
    WORDS.starts(figure.answer, "perfect_classifier_reaches_what", "Yes", "3", "1.00")
    gap = float(read.accuracy("true")[-1, -1] - read.accuracy("false")[-1, -1])
    WORDS(figure.answer, "perfect_classifier_reaches_what_2", told(gap))


def test_the_planted_model_follows_false_labels_once_it_has_seen_the_class():
    """One demonstration per class: only the query has seen its class before."""
    read = context_accuracy(*planted_case())
    plain = read.accuracy("false", "plain")[:, -1]
    assert plain[[0, -1]].tolist() == [1, 0]
    assert float(read.accuracy("false", "permuted")[-1, -1]) > 0.95
    assert read.accuracy("true", "plain")[[0, -1], -1].tolist() == [1, 1]


def test_random_labels_teach_no_class(gpt2):
    read = context_accuracy(*tiny_case("gpt2", "random"))
    with WORDS.raises(ResultError, "random_labels_teach_no"):
        ends_of(read, "false", "permuted")
    assert "false label" not in read.drawing().names
    assert [panel.title for panel in read.drawing().panels] == ["Calibrated accuracy"]
    (figure,) = read.figures()
    assert "permuted score" not in figure.caption


def test_one_number_and_selections(gpt2):
    read = context_accuracy(*gpt2)
    assert list(read.quantities()) == list(METRICS)
    assert read.sel().dims == ("side", "seen", "layer")
    scores = read.scores[METRICS.index("plain"), 1, :, 4, 2].bool()
    found = read.interval("plain", side="false", seen=4, layer=2)
    assert found == pytest.approx(wilson_interval(scores))
    assert read.sel(side="true", layer=3).values.tolist() == read.accuracy("true")[:, 3].tolist()
    reference = context_accuracy(*gpt2, interval="reference")
    own = read.scores[0, 0, :, 5, 1]
    half = 1.96 * float(own.std()) / N**0.5
    mean = float(own.mean())
    assert reference.interval(side="true", seen=5, layer=1) == pytest.approx(
        (mean, mean - half, mean + half)
    )
    assert float(reference.drawing(entry=1).low[0, 5]) == pytest.approx(mean - half)


def test_a_difference_to_a_run_without_the_heads_is_paired():
    model, true, false = planted_case()
    edit = [ZeroHeads(INDUCTION_HEADS)]
    plain, other = (
        context_accuracy(model, true, false, interventions=changes) for changes in ([], edit)
    )
    found = other - plain
    expected = (other.scores[0] - plain.scores[0]).transpose(0, 1)
    assert_close(found.values, expected.mean(0))
    low, high = mean_ends(expected, "change")
    assert_close(torch.stack([found.low, found.high]), torch.stack([low, high]))
    assert found.interval(side="false", seen=3, layer=4).low > 0.5
    alone = layer_accuracy(model, true, false, interventions=edit)
    assert_close(other.accuracy("false")[-1], alone.accuracy("false"))


def test_accuracies_share_their_runs(monkeypatch):
    made = []

    def counted(model, prompts, readings, *args, **kwargs):
        made.append(len(readings))
        return run(model, prompts, readings, *args, **kwargs)

    monkeypatch.setattr("icl_mech.measurements.running.run", counted)
    model, *pair = planted_case()
    found = measure(model, tuple(pair), LayerAccuracy(), ContextAccuracy(), progress=False)
    assert made == [2, 2]
    alone = context_accuracy(model, *pair)
    assert torch.equal(found.context_accuracy.scores, alone.scores)
    assert without_date(found.context_accuracy) == without_date(alone)
    assert_close(found.layer_accuracy.accuracy("false"), alone.accuracy("false")[-1])


def test_what_one_measurement_refuses_stops_all_before_they_run(gpt2, monkeypatch):
    model, _, _ = gpt2
    monkeypatch.setattr("icl_mech.measurements.running.run", None)
    with pytest.raises(PromptError, match="demonstrations='per_prompt'"):
        measure(
            model, tiny_pairs(model, demonstrations="shared"), LayerAccuracy(),
            ContextAccuracy(),
        )  # fmt: skip


def test_the_same_demonstrations_for_all_are_refused(gpt2):
    model, _, _ = gpt2
    with pytest.raises(PromptError, match="demonstrations='per_prompt'"):
        context_accuracy(model, *tiny_pairs(model, demonstrations="shared"))


def test_sets_that_are_not_pairs_or_unequal(gpt2):
    model, true, false = gpt2
    with WORDS.raises(PromptError, "sets_pairs_unequal"):
        context_accuracy(model, true, false[:3])
    ragged = [
        PromptBatch((*cut_pair(true, false, 2)[i][:1], *cut_pair(true, false, 1)[i][:1]))
        for i in range(2)
    ]
    with WORDS.raises(PromptError, "sets_pairs_unequal_2"):
        context_accuracy(model, *ragged)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"variant": "best"}, "variant='best'"), ({"interval": "wide"}, "interval='wide'")],
)
def test_unknown_options(gpt2, options, message, unchecked):
    with pytest.raises(RunError, match=message):
        context_accuracy(*gpt2, **options)


def test_unknown_names(gpt2):
    read = context_accuracy(*gpt2)
    with WORDS.raises(ResultError, "unknown_names", "'false'"):
        read.accuracy("flase")
    with WORDS.raises(ResultError, "unknown_names_2", "'plain'"):
        read.accuracy("true", "plian")
    with WORDS.raises(ResultError, "unknown_names_3", "'plian'", "'plain'"):
        read.sel("plian")
    with WORDS.raises(ResultError, "unknown_names_4", "'true'", "7", "0"):
        read.interval(side="true", seen=7, layer=0)


def test_files_figures_and_tables(gpt2, tmp_path):
    read = context_accuracy(*gpt2)
    read.save(tmp_path / "result")
    loaded = ContextAccuracyResult.load(tmp_path / "result")
    assert torch.equal(loaded.scores, read.scores)
    assert torch.equal(loaded.reachable, read.reachable)
    assert torch.equal(loaded.tie_counts, read.tie_counts)
    assert loaded.summary() == read.summary()
    assert loaded.n_labels == 3
    drawn = read.drawing()
    assert_close(drawn.values[1], read.accuracy("false")[:, -1])
    assert_close(drawn.values[0], read.accuracy("true")[:, -1])
    assert_close(drawn.values[3], read.accuracy("false", "permuted")[:, -1])
    for row, (side, metric) in {0: ("true", "calibrated"), 3: ("false", "permuted")}.items():
        cells = [read.interval(metric, side=side, seen=seen, layer=3) for seen in range(7)]
        assert drawn.low[row].tolist() == pytest.approx([cell.low for cell in cells])
        assert drawn.high[row].tolist() == pytest.approx([cell.high for cell in cells])
    assert_close(read.drawing(entry=1).values[0], read.accuracy("true")[:, 1])
    accuracy, permuted = drawn.panels
    assert (accuracy.curves, permuted.curves) == ((0, 1, 2), (3,))
    without = float(read.accuracy("true")[0, -1])
    assert accuracy.levels == (
        (1 / 3, "chance 0.33"),
        (pytest.approx(without), f"without demonstrations {told(without)}"),
    )
    assert permuted.levels == ((1 / 3, "chance 0.33"),)
    assert read.plot().data
    table = read.to_pandas()
    assert len(table) == 2 * 7 * 4
    last = table[(table.seen == 6) & (table.side == "false")]
    assert last.calibrated.tolist() == read.accuracy("false")[6].tolist()
    assert "with 6:" in read.summary()

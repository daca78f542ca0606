"""Anchor tokens: masses from whole maps, cases by hand, and a planted column."""

import json
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.anchors.anchor_tokens import AnchorTokensResult
from icl_mech.metrics import standing_out
from icl_mech.metrics.outliers import matched_means, nearby_medians, uniform_mass
from icl_mech.results.wording import told
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.saved import reseal
from tests.tiny import tiny_model

WORDS = Words(__file__)

TEXTS = [
    "The film was a wonderful story. It was good! Was it bad? The plot was good.",
    "Stocks fell sharply on Monday. The home team won. A movie is good.",
]


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def labelled(model):
    return icl.build_prompts(TASK, model, shots=2, n=4)


def test_medians_by_hand():
    nan = torch.nan
    mass = torch.tensor([nan, 1.0, 9, 3, 5])
    wanted = torch.tensor([5.0, 9.0, 2, 7, 3]).double()
    assert_close(nearby_medians(mass, 1)[2:], wanted[2:])
    assert_close(nearby_medians(mass, 2)[1:], torch.tensor([6.0, 3, 5, 6]).double())


def test_matched_means_by_hand():
    values = torch.tensor([torch.nan, 2.0, 8, 4, 6, 1])
    marked = torch.tensor([True, False, True, False, False, True])
    # To 8 belong 2 and 4, to 1 belongs 6; the first token has no value.
    assert matched_means(values, marked, 1) == (4.5, 4.5)
    assert matched_means(values, marked, 2) == ((8 + 1) / 2, ((2 + 4 + 6) / 3 + (4 + 6) / 2) / 2)
    undefined = matched_means(values, torch.ones(6).bool(), 2)
    assert all(value != value for value in undefined)


@pytest.mark.parametrize("loss", ["label", "next"])
def test_masses_are_means_of_columns(model, labelled, loss):
    result = icl.anchor_tokens(model, labelled, loss=loss)
    maps = icl.saliency_maps(model, labelled, loss=loss)
    for mass, values, prompt in zip(result.mass, maps.values, labelled, strict=True):
        assert mass.shape == (3, prompt.target)
        for j in (0, 3, prompt.target - 1):
            assert_close(mass[:, j], values[:, j + 1 : prompt.target + 1, j].mean(1))


def test_the_rest_counts_every_row_that_predicts(model):
    prompts = icl.texts(TEXTS, model, continuation=" It was good.")
    result = icl.anchor_tokens(model, prompts, loss="rest")
    maps = icl.saliency_maps(model, prompts, loss="rest")
    for mass, values in zip(result.mass, maps.values, strict=True):
        assert_close(mass[:, 5], values[:, 6:-1, 5].mean(1))


def test_attention_is_averaged_over_heads(model):
    prompts = icl.texts(TEXTS, model)
    result = icl.anchor_tokens(model, prompts, of="attention")
    ends = [len(prompt) for prompt in prompts]
    single = icl.PromptBatch(
        tuple(icl.Prompt.from_spans(p.tokens, [(i, i + 1) for i in range(len(p))]) for p in prompts)
    )
    between = icl.span_flow(model, single)
    for mass, matrix, end in zip(result.mass, between.matrices, ends, strict=True):
        values = matrix.mean(1)
        for j in (0, 4, end - 2):
            assert_close(mass[:, j], values[:, j + 1 :, j].mean(1), atol=1e-6, rtol=1e-4)


def test_anchors_are_those_above_the_ratio(model, labelled):
    result = icl.anchor_tokens(model, labelled, layers=[1, 2], ratio=2.0, window=5)
    assert any(result.anchors)
    for mass, times, anchors in zip(result.mass, result.times, result.anchors, strict=True):
        average = mass.double()[[1, 2]].mean(0)
        average[0] = torch.nan
        wanted = average / nearby_medians(average, 5)
        assert_close(times, wanted, equal_nan=True, rtol=1e-5, atol=0)
        assert list(anchors) == [i for i, own in enumerate(times.tolist()) if own > 2.0]
        assert 0 not in anchors


@pytest.mark.parametrize(
    ("of", "loss"), [("attention", None), ("saliency", "label"), ("saliency", "next")]
)
def test_anchors_stand_out_of_the_spread_of_their_text(model, labelled, of, loss):
    result = icl.anchor_tokens(model, labelled, of=of, loss=loss, layers=[0, 2], window=7)
    assert result.ratio is None
    for number, prompt in enumerate(labelled):
        average = result.mass[number].double()[[0, 2]].mean(0)
        average[0] = torch.nan
        expected = uniform_mass(prompt.target, 0 if of == "attention" else prompt.target)
        wanted = standing_out(average, expected, 7)
        assert_close(result.scores[number], wanted.scores, equal_nan=True, atol=1e-5, rtol=1e-4)
        assert result.limits[number] == wanted.limit
        assert list(result.anchors[number]) == wanted.stands.nonzero()[:, 0].tolist()


def test_the_rest_is_read_from_the_target_on(model):
    prompts = icl.texts(TEXTS, model, continuation=" It was good.")
    result = icl.anchor_tokens(model, prompts, loss="rest", layers=[2])
    for mass, scores, prompt in zip(result.mass, result.scores, prompts, strict=True):
        average = mass[2].double()
        average[0] = torch.nan
        expected = uniform_mass(len(prompt) - 2, prompt.target)
        wanted = standing_out(average, expected).scores
        assert_close(scores, wanted, equal_nan=True, atol=1e-5, rtol=1e-4)


def test_label_words_are_compared_with_tokens_near_them(model, labelled):
    result = icl.anchor_tokens(model, labelled, ratio=3.0)
    assert result.compared == "label words"
    assert result.marked == tuple(prompt.label_positions for prompt in labelled)
    for number, prompt in enumerate(labelled):
        marked = torch.zeros(prompt.target, dtype=torch.bool)
        marked[list(prompt.label_positions)] = True
        own, near = matched_means(result.times[number], marked, 16)
        assert_close(result.multiple[number], torch.tensor([own, near]).double())
    difference = result.interval("multiple_difference").value
    assert difference == pytest.approx(
        float((result.multiple[:, 0] - result.multiple[:, 1]).mean())
    )


def test_ends_of_spans_are_compared_in_texts(model):
    result = icl.anchor_tokens(model, icl.texts(TEXTS, model), of="attention")
    WORDS.exactly(result.compared, "ends_spans_compared_texts")
    for marked, prompt in zip(result.marked, icl.texts(TEXTS, model), strict=True):
        # The last one is the target itself.
        assert marked == tuple(stop - 1 for _, stop in prompt.text_spans[:-1])


def test_the_result_is_complete(model, labelled, tmp_path):
    result = icl.anchor_tokens(model, labelled)
    loaded = AnchorTokensResult.load(result.save(tmp_path / "anchors"))
    assert loaded.anchors == result.anchors
    assert loaded.limits == result.limits
    assert loaded.status == result.status
    assert_close(loaded.times[0], result.times[0], equal_nan=True)
    for show in result.shows:
        assert result.plot(show).data
    assert "hatched" in result.view()._repr_html_()
    WORDS(result.summary(), "result_complete")


def test_the_strongest_are_as_many_as_are_compared(model, labelled):
    result = icl.anchor_tokens(model, labelled)
    shares = result.quantities()["strongest"].per_prompt
    for number, scores in enumerate(result.scores):
        marked = result.marked[number]
        order = sorted(range(1, len(scores)), key=lambda i: -float(scores[i]))
        flags = torch.tensor([float(i in order[: len(marked)]) for i in range(len(scores))])
        flags[0] = torch.nan
        places = torch.tensor([i in marked for i in range(len(scores))])
        assert_close(shares[number], torch.tensor(matched_means(flags, places, 16)).double())
    assert 0 < float(shares.sum()) < shares.numel()
    few = replace(result, scores=tuple(torch.full_like(own, torch.nan) for own in result.scores))
    assert few.quantities()["strongest"].per_prompt.isnan().all()


def test_results_saved_with_a_ratio_load(model, labelled, tmp_path):
    """Before there were scores, every result had a ratio."""
    result = icl.anchor_tokens(model, labelled, ratio=2.0)
    folder = replace(result, scores=(), limits=()).save(tmp_path / "anchors")
    values = json.loads((folder / "result.json").read_text())["values"]
    kept = {name: own for name, own in values.items() if name not in ("scores", "limits")}
    reseal(folder / "result.json", values=kept)
    loaded = AnchorTokensResult.load(folder)
    assert loaded.ratio == 2.0
    assert "strongest" not in loaded.quantities()
    assert loaded.status == "cannot be judged"
    assert loaded.anchors == result.anchors
    WORDS.starts(loaded.figures()[0].answer, "results_saved_ratio_load_2", "Cannot be judged")
    WORDS(loaded.figures()[1].caption, "results_saved_ratio_load_3", "2")
    with WORDS.raises(ResultError, "results_saved_ratio_load_4"):
        _ = loaded.words_test


@pytest.mark.parametrize(
    ("shift", "opening"), [(9.0, "Yes: "), (0.0, "Not shown: "), (-9.0, "No: ")]
)
def test_the_answer_rests_on_scores(model, labelled, shift, opening):
    """Scores drawn by word, label words shifted: by prompts alone every shift would be certain."""
    result = icl.anchor_tokens(model, labelled[[0, 1, 2, 3] * 3])
    generator = torch.Generator().manual_seed(0)
    level = {w: float(torch.randn(1, generator=generator)) for t in result.tokens for w in t}
    scores = []
    for text, own, marked in zip(result.tokens, result.scores, result.marked, strict=True):
        values = torch.tensor([level[word] for word in text[: len(own)]]).double()
        values += 0.1 * torch.randn(len(own), generator=generator)
        values[list(marked)] += shift
        scores.append(values)
    shown = replace(result, scores=tuple(scores))
    answer = shown.figures()[0].answer
    assert answer.startswith(opening)
    WORDS(answer, "answer_rests_scores", told(shown.words_test.p_value))
    if shift:
        few = icl.anchor_tokens(model, labelled)
        WORDS.starts(few.figures()[0].answer, "answer_rests_scores_2", "Cannot be judged")


def test_what_one_word_in_few_can_show_is_nothing(model):
    """A word among less than forty cannot have a p-value of 0.025."""
    result = icl.anchor_tokens(
        model, icl.texts(["It was. He was. We was. She was. It was."] * 8, model)
    )
    assert result.words_test.smallest > 0.025
    assert result.status == "cannot be judged"


def test_what_is_refused(model, labelled):
    with pytest.raises(RunError, match="layer 9"):
        icl.anchor_tokens(model, labelled, layers=[9])
    with pytest.raises(RunError, match="ratio=0"):
        icl.anchor_tokens(model, labelled, ratio=0.0)
    with pytest.raises(PromptError, match="shots >= 1"):
        icl.anchor_tokens(model, icl.build_prompts(TASK, model, shots=0, n=4))

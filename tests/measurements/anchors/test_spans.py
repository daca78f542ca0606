"""Attention between spans: the reference code's numbers, a case by hand, identities."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine import run
from icl_mech.errors import PromptError, ResultError
from icl_mech.measurements.anchors.between import SaliencyBetweenSpans
from icl_mech.measurements.anchors.span_flow import SpanFlowResult
from icl_mech.measurements.saliency.saliency_maps import SaliencyReading
from icl_mech.metrics import kurtosis, vertical_scores
from icl_mech.metrics.flow import rank_correlation, span_sums
from tests.golden_data import golden_model, thought_anchors, thought_anchors_prompts
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

TEXTS = [
    "The film was a wonderful story. It was good! Was it bad? The plot was good.",
    "Stocks fell sharply on Monday. The home team won. A movie is good.",
]
LONG = [f"{text} We left it early. The hall was full." for text in TEXTS]
"""Six and five spans: enough for a kurtosis, which takes four scores."""


@pytest.fixture(scope="module")
def golden():
    return thought_anchors()


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def found():
    def flow(**options):
        return icl.span_flow(
            golden_model("overthinking", "tiny_gpt2"), thought_anchors_prompts(), **options
        )

    return flow


@pytest.mark.parametrize(("clamp", "suffix"), [("reference", ""), ("none", "_full")])
def test_matrices_are_those_of_the_reference_code(golden, found, clamp, suffix):
    result = found(clamp=clamp)
    for i in range(3):
        wanted = torch.tensor(golden[f"t{i}_sentence_matrix{suffix}"]).double()
        assert_close(result.matrices[i].double(), wanted, atol=1e-6, rtol=0)
        vertical = torch.tensor(golden[f"t{i}_vertical_p4{suffix}"]).double()
        assert_close(result.vertical[i], vertical, atol=1e-6, rtol=0, equal_nan=True)
        peaked = torch.tensor(golden[f"t{i}_kurtosis_p4{suffix}"]).double()
        assert_close(result.kurtosis[i], peaked, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("p2", {"proximity": 2}),
        ("p4_median", {"average": "median"}),
        ("p4_depth", {"control_depth": True}),
    ],
)
def test_variants_of_vertical_scores(golden, found, name, options):
    result = found(clamp="reference", **options)
    for i in range(3):
        wanted = torch.tensor(golden[f"t{i}_vertical_{name}"]).double()
        assert_close(result.vertical[i], wanted, atol=1e-6, rtol=0, equal_nan=True)


def test_receiver_heads_are_those_of_the_reference_code(golden, found):
    result = found(clamp="reference")
    gaps, heads = golden["kurtosis_gap_between_ranks"], golden["top5_layer_head"].tolist()
    assert_close(result.kurtosis.mean(0).float(), torch.tensor(golden["kurtosis_mean"]), atol=1e-4, rtol=0)  # fmt: skip
    assert gaps.min() > 1e-4  # so that ranks can be compared
    assert [list(head) for head in result.receiver_heads(5)] == heads
    above = golden["top5_layer_head_without_layer0"].tolist()
    assert [list(head) for head in result.receiver_heads(5, first_layer=1)] == above
    for i in range(3):
        wanted = torch.tensor(golden[f"t{i}_receiver_head_score_top5"]).double()
        scores = result.scores(i, result.receiver_heads(5))
        assert_close(scores, wanted, atol=1e-6, rtol=0, equal_nan=True)


def test_a_planted_column_of_a_given_map(golden):
    values, spans = torch.tensor(golden["given_attention"]).double(), golden["given_spans"]
    last = values.shape[-1] - 1  # the reference loses the last token
    member = torch.zeros(len(spans), last + 1, dtype=torch.float64)
    for number, (start, stop) in enumerate(spans):
        member[number, min(start, last) : min(stop, last)] = 1
    sizes = member.sum(1)
    matrix = span_sums(values, member, member) / (sizes[:, None] * sizes).clamp(min=1)
    assert_close(matrix, torch.tensor(golden["given_sentence_matrix"]).double(), atol=1e-7, rtol=0)
    vertical = vertical_scores(matrix, 4)
    wanted = torch.tensor(golden["given_vertical_p4"]).double()
    assert_close(vertical, wanted, atol=1e-7, rtol=0, equal_nan=True)
    assert_close(kurtosis(vertical), torch.tensor(golden["given_kurtosis"]).double(), atol=1e-5, rtol=0)  # fmt: skip
    order = kurtosis(vertical).flatten().argsort(descending=True)[:2].tolist()
    assert [[i // 3, i % 3] for i in order] == golden["given_top2_layer_head"].tolist()
    assert order[0] == 1 * 3 + 2  # where the column was planted


def test_vertical_scores_by_hand():
    matrix = torch.tensor([[9.0, 0, 0, 0], [1, 9, 0, 0], [2, 6, 9, 0], [6, 2, 5, 9]])
    nan = torch.nan
    assert_close(
        vertical_scores(matrix, 1), torch.tensor([3.0, 4, 5, nan]).double(), equal_nan=True
    )
    assert_close(
        vertical_scores(matrix, 2), torch.tensor([4.0, 2, nan, nan]).double(), equal_nan=True
    )
    median = vertical_scores(matrix, 1, average="median")
    assert_close(median, torch.tensor([2.0, 4, 5, nan]).double(), equal_nan=True)
    ranked = vertical_scores(matrix, 1, control_depth=True)
    # Rows become [1], [.5, 1] and [1, 1/3, 2/3].
    wanted = torch.tensor([(1 + 0.5 + 1) / 3, (1 + 1 / 3) / 2, 2 / 3, nan]).double()
    assert_close(ranked, wanted, equal_nan=True)


def test_kurtosis_by_hand():
    values = torch.tensor([[0.0, 0, 0, 4, torch.nan], [1, 1, 1, 1, 1]])
    # m2 = 3, m4 = (3 + 81) / 4 = 21
    assert_close(kurtosis(values), torch.tensor([21 / 9 - 3, torch.nan]).double(), equal_nan=True)


def test_fewer_than_four_numbers_have_no_kurtosis():
    """Two always give -2 and three -1.5: what is left of the heads' order is rounding."""
    values = torch.rand(20, 4, generator=torch.Generator().manual_seed(0))
    assert kurtosis(values).isfinite().all()
    for count in (1, 2, 3):
        assert kurtosis(values[:, :count]).isnan().all()
        assert kurtosis(values.index_fill(1, torch.arange(count, 4), torch.nan)).isnan().all()


def test_rank_correlation_is_spearmans():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 5, (2, 20)).astype(float)
    found = rank_correlation(torch.tensor(one), torch.tensor(other))
    assert found == pytest.approx(spearmanr(one, other).statistic)
    undefined = rank_correlation(torch.tensor([1.0, 2, torch.nan]), torch.tensor([1.0, 2, 3]))
    assert undefined != undefined
    same = rank_correlation(torch.ones(4), torch.arange(4.0))
    assert same != same


def test_rows_of_attention_add_up(model):
    """Spans that tile a text: sums over the spans that are read give the rows of attention."""
    prompts = icl.PromptBatch(
        tuple(
            icl.Prompt.from_spans(own.tokens, [(0, own.text_spans[0][1]), *own.text_spans[1:]])
            for own in icl.texts(TEXTS, model)
        )
    )
    result = icl.span_flow(model, prompts, proximity=1)
    for matrix, spans in zip(result.matrices, result.spans, strict=True):
        sizes = torch.tensor([stop - start for start, stop in spans])
        assert_close((matrix * sizes).sum(-1), torch.ones(matrix.shape[:-1]), atol=1e-5, rtol=0)
        assert not matrix.triu(1).any()


@pytest.mark.parametrize("loss", ["next", "rest"])
def test_saliency_between_spans_is_summed_from_the_maps(model, loss):
    prompts = icl.texts(TEXTS, model, continuation=" It was good.")
    result = icl.span_flow(model, prompts, of="saliency", loss=loss, proximity=1)
    maps = icl.saliency_maps(model, prompts, loss=loss)
    for matrix, values, spans in zip(result.matrices, maps.values, result.spans, strict=True):
        assert matrix.shape[1] == 1
        for a, (i, j) in enumerate(spans):
            for b, (k, m) in enumerate(spans):
                assert_close(matrix[:, 0, a, b], values[:, i:j, k:m].mean((1, 2)))


def test_a_shared_beginning_gives_the_same_saliency(model):
    texts = [f"{TEXTS[0]} {end}" for end in ("It was sad. The end.", "We left it early. Good.")]
    prompts = icl.texts(texts, model)
    readings = [SaliencyBetweenSpans(8), SaliencyReading("next")]
    (shared,), (whole, _) = (
        run(model, prompts, readings[:1]), run(model, prompts, readings, path="whole"),
    )  # fmt: skip
    assert whole.abs().max() > 0
    assert_close(shared, whole, atol=1e-6, rtol=1e-4)


def test_spans_of_another_text_are_not_shared(model):
    ids = icl.texts(TEXTS[:1], model)[0].tokens
    prompts = icl.PromptBatch(
        (
            icl.Prompt.from_spans(ids, [(0, 9), (9, 20)]),
            icl.Prompt.from_spans(ids, [(0, 14), (15, 20)]),
        )
    )
    readings = [SaliencyBetweenSpans(2)]
    assert_close(run(model, prompts, readings)[0], run(model, prompts, readings, path="whole")[0])


def test_the_result_is_complete(model, tmp_path):
    prompts = icl.texts(LONG, model)
    result = icl.span_flow(model, prompts, proximity=1)
    assert result.kurtosis.shape == (2, 3, 4)
    loaded = SpanFlowResult.load(result.save(tmp_path / "spans"))
    assert_close(loaded.matrices[1], result.matrices[1])
    assert loaded.spans == result.spans
    assert "receiver heads" in result.summary()
    for show in result.shows:
        assert result.plot(show).data
    assert "hatched" in result.view()._repr_html_()
    assert "arcs" in repr(result.arcs())
    assert result.interval("kurtosis", layer=0, head=1).value == pytest.approx(
        float(result.kurtosis[:, 0, 1].mean())
    )
    changes = result - icl.span_flow(model, prompts, proximity=1, interventions=[icl.Suppress([0])])
    assert float(changes.values.abs().max()) > 0


def test_kurtosis_that_is_undefined_in_some_texts(model):
    # The second text has three vertical scores at a proximity of 2: any three have the same kurtosis.
    prompts = icl.texts([*LONG, LONG[0]], model)
    result = icl.span_flow(model, prompts, proximity=2)
    assert result.kurtosis[1].isnan().all()
    assert result.kurtosis[0].isfinite().all()
    assert_close(result.quantities()["kurtosis"].value(), result.kurtosis[[0, 2]].mean(0))
    assert len(result.receiver_heads(2)) == 2


def test_what_is_refused(model):
    prompts = icl.texts(TEXTS, model)
    result = icl.span_flow(model, prompts, of="saliency")
    with WORDS.raises(ResultError, "what_refused"):
        result.receiver_heads()
    with WORDS.raises(ResultError, "what_refused"):
        result.plot("heads")
    short = icl.span_flow(model, prompts, proximity=6)
    with WORDS.raises(ResultError, "what_refused_2", "10"):
        short.receiver_heads()
    with pytest.raises(PromptError, match="continuation="):
        icl.span_flow(model, prompts, of="saliency", loss="rest")
    with WORDS.raises(PromptError, "what_refused_3"):
        icl.span_flow(model, prompts, of="saliency", loss="label")

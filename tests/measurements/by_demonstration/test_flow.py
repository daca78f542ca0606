"""Flow demonstration by demonstration: against maps cell by cell, whole scores, and by hand."""

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech import PromptBatch
from icl_mech.errors import PromptError, ResultError
from icl_mech.measurements import FlowByDemonstration
from icl_mech.measurements.by_demonstration.flow_by_demonstration import FlowByDemonstrationResult
from icl_mech.measurements.by_demonstration.leave_one_out import LeaveOneOutResult
from tests.measurements.saliency.cases import sharing, with_roles, written
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

SAME = {"rtol": 1e-4, "atol": 1e-7}


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.mark.parametrize("path", ["auto", "whole"])
@pytest.mark.parametrize("reduction", ["sum_then_abs", "abs_then_sum"])
def test_cells_of_the_maps(model, path, reduction):
    prompts = sharing()
    found = icl.flow_by_demonstration(model, prompts, path=path, reduction=reduction)
    maps = icl.saliency_maps(model, prompts, reduction=reduction)
    for row, (prompt, values) in enumerate(zip(prompts, maps.values, strict=True)):
        below = values.double().tril(-1)
        for demo, place in enumerate(prompt.label_positions):
            assert_close(found.wp[row, demo], below[:, place].sum(-1) / place, **SAME)
            assert_close(found.pq[row, demo], below[:, prompt.target, place], **SAME)
            tokens = [
                i for s in prompt.spans if s.demo == demo for i in range(s.start, s.stop)
            ]  # fmt: skip
            assert_close(found.read[row, demo], below[:, prompt.target, tokens].sum(-1), **SAME)
        assert_close(found.received[row], below[:, prompt.target].sum(-1), **SAME)


def test_the_first_token_belongs_to_no_demonstration(model):
    prompts = with_roles()[[2]]  # no BOS: a text begins it
    found, (values,) = (
        icl.flow_by_demonstration(model, prompts), icl.saliency_maps(model, prompts).values
    )  # fmt: skip
    row = values.double().tril(-1)[:, prompts[0].target]
    assert_close(found.read[0, 0], row[:, 1:5].sum(-1), **SAME)
    assert float(row[0, 0]) > 0


def test_weighted_by_their_edges_they_are_the_scores(model):
    for prompts in (sharing(), with_roles()[[2]], with_roles()[[1]]):
        found = icl.flow_by_demonstration(model, prompts)
        whole = icl.flow_scores(model, prompts)
        assert_close(found.scores(), whole.per_prompt[:, :2], **SAME)


def test_classes_weighted_by_their_edges_are_the_scores_too(model):
    prompts = with_roles()[[1]]  # classes 0, 2, 0
    found = icl.flow_by_demonstration(model, prompts)
    wp, pq = (found.by_class(score) for score in ("wp", "pq"))
    assert wp[:, 1].isnan().all()
    assert pq[:, 1].isnan().all()
    edges = found.edges[0].double()
    of_class = torch.stack([edges[0] + edges[2], edges[1]])
    assert_close(
        (wp[0, [0, 2]] * of_class[:, None]).sum(0) / edges.sum(), found.scores()[0, 0], **SAME
    )
    assert_close((2 * pq[0, 0] + pq[0, 2]) / 3, found.scores()[0, 1], **SAME)
    assert "class_pq" not in found.quantities()


def known(pq, read=None, received=None):
    pq = torch.tensor(pq, dtype=torch.float64)[..., None]
    batch, demos, _ = pq.shape
    return FlowByDemonstrationResult(
        wp=torch.ones_like(pq), pq=pq,
        read=None if read is None else torch.tensor(read, dtype=torch.float64)[..., None],
        received=torch.tensor(received or [[1.0]] * batch, dtype=torch.float64),
        edges=torch.arange(1, demos + 1).expand(batch, -1),
        distance=torch.arange(demos, 0, -1).expand(batch, -1),
        classes=torch.zeros(batch, demos, dtype=torch.long), labels=("a", "b"),
        provenance={"prompts": {"digest": "x", "count": batch}},
    )  # fmt: skip


def test_recency_by_hand():
    """Mean saliency (1, 2, 5): the last third has 5/8, the first 1/8, the middle counts in neither."""
    found = known([[0.0, 4.0, 6.0], [2.0, 0.0, 4.0]])
    assert found.recency().value == pytest.approx(4 / 8)
    share = found.quantities()["pq_share"].value()[:, 0]
    assert_close(share, torch.tensor([1.0, 2.0, 5.0]).double() / 8)
    curves = found.drawing()
    assert curves.x == (1.0, 2.0, 3.0)
    assert_close(curves.values[0], torch.tensor([5.0, 2.0, 1.0]).double() / 8)
    assert found.most_read("last") == (1, 5 / 8)
    assert_close(found.shares_of("last")["pq_share"][0], share)
    with WORDS.raises(ResultError, "recency_hand"):
        known([[1.0], [2.0]]).recency()


def test_what_is_read_is_a_share_of_all_received():
    found = known([[1.0, 1.0]] * 2, read=[[3.0, 1.0], [1.0, 1.0]], received=[[8.0], [2.0]])
    share = found.quantities()["read_share"].value()[:, 0]
    assert_close(share, torch.tensor([4.0, 2.0]).double() / 10)
    assert_close(found.drawing().values[1], torch.tensor([0.2, 0.4]).double())
    # Behind the shares of demonstrations stand one value more for each prompt: all that is received.
    assert set(found.to_xarray()) == {"pq_share", "wp_share", "pq", "wp"}
    assert_close(found.sel("read_share", demo=0).values, share[:1])


def left_out(change):
    change = torch.tensor(change, dtype=torch.float64)
    return LeaveOneOutResult(
        change=change, log_prob=torch.zeros(len(change)),
        classes=torch.zeros(change.shape, dtype=torch.long), answers=torch.zeros(len(change)).long(),
        labels=("a", "b"), provenance={"prompts": {"digest": "x", "count": len(change)}},
    )  # fmt: skip


def test_agreement_is_a_rank_correlation_of_sizes():
    read = [[3.0, 1.0, 2.0]] * 8
    found = known(read, read=read)
    assert found.agreement(left_out([[-9.0, 0.1, 0.2]] * 8)).value == pytest.approx(1.0)
    assert found.agreement(left_out([[0.1, 0.3, 0.2]] * 8)).value == pytest.approx(-1.0)
    with WORDS.raises(ResultError, "agreement_rank_correlation_sizes"):
        known([[1.0, 2.0]]).agreement(left_out([[1.0, 2.0]]))
    with WORDS.raises(ResultError, "agreement_rank_correlation_sizes_2"):
        found.agreement(left_out([[0.1, 0.3, 0.2]]))


def test_many_demonstrations_are_shown_and_told(model, tmp_path):
    parts = [("demo_text", 2), ("label_word", 1), ("format", 1)] * 64
    prompts = PromptBatch(tuple(
        written(("bos", 1), *parts, ("query_text", 2), ("target", 1), classes=(0, 2) * 32, seed=seed)
        for seed in range(6)
    ))  # fmt: skip
    found = icl.flow_by_demonstration(model, prompts)
    assert found.count == 64
    assert_close(found.scores(), icl.flow_scores(model, prompts).per_prompt[:, :2], **SAME)
    first, second = found.figures()
    assert "later half" in first.answer
    WORDS(second.answer, "many_demonstrations_shown_told")
    for show in found.shows:
        assert found.plot(show).data
    WORDS(found.summary(), "many_demonstrations_shown_told_2")
    again = type(found).load(found.save(tmp_path / "r"))
    assert_close(again.pq, found.pq)


def test_refusals(model):
    with WORDS.raises(PromptError, "refusals", "1", "3"):
        icl.flow_by_demonstration(model, with_roles())
    none = PromptBatch((written(("query_text", 3), ("target", 1), classes=()),))
    with WORDS.raises(PromptError, "refusals_2"):
        icl.flow_by_demonstration(model, none)
    first = PromptBatch(
        (written(("label_word", 1), ("query_text", 3), ("target", 1), classes=(1,)),)
    )
    with WORDS.raises(PromptError, "refusals_3"):
        icl.flow_by_demonstration(model, first)
    found = icl.flow_by_demonstration(model, sharing())
    with WORDS.raises(ResultError, "refusals_4", "'ww'", "'wp'"):
        found.by_class("ww")


def test_the_measurement_is_the_function(model):
    found = icl.measure(model, sharing(), FlowByDemonstration())["flow_by_demonstration"]
    assert_close(found.pq, icl.flow_by_demonstration(model, sharing()).pq)

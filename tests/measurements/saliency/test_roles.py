"""Saliency by role of destination and source: against whole maps, cell by cell."""

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import ResultError
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.measurements.saliency.roles import grouped, share_of_all, share_of_row
from icl_mech.metrics import flow_counts
from icl_mech.prompts.spans import ROLES
from tests.engine.cases import ragged
from tests.measurements.saliency.cases import roles_of, sharing, sums_of_map, with_roles
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

SAME = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def maps(model):
    return icl.saliency_maps(model, with_roles())


@pytest.fixture(scope="module")
def flow(model):
    return icl.flow_scores(model, with_roles())


@pytest.mark.parametrize("reduction", ["sum_then_abs", "abs_then_sum"])
@pytest.mark.parametrize("loss", ["label", "vocab"])
def test_sums_by_role_are_those_of_the_maps_cells(model, reduction, loss):
    prompts, variants = with_roles(), {"reduction": reduction, "loss": loss}
    found = icl.flow_scores(model, prompts, **variants)
    maps = icl.saliency_maps(model, prompts, **variants)
    assert found.roles == tuple(
        role for role in ROLES if role not in ("narrative", "rationale", "unknown", "span")
    )
    expected = [
        sums_of_map(values, roles_of(prompt), found.roles)
        for values, prompt in zip(maps.values, prompts, strict=True)
    ]
    assert_close(found.role_saliency.double(), torch.stack(expected), **SAME)


def test_roles_add_up_to_all_below_the_diagonal(flow, maps):
    expected = torch.stack([values.tril(-1).sum((1, 2)) for values in maps.values])
    assert_close(flow.role_saliency.sum((1, 2)), expected, **SAME)
    counts = flow_counts(with_roles().label_positions, with_roles().targets)
    by_kind = (flow.per_prompt * counts[:, :, None]).sum(1)
    assert_close(flow.role_saliency.sum((1, 2)).double(), by_kind, **SAME)


def test_roles_of_one_token_are_the_scores_times_their_edges(model):
    """Label words of one token each, all before the target, which ends the prompt."""
    prompts = ragged()
    found = icl.flow_scores(model, prompts)
    assert found.roles == ("label_word", "target", "unknown")
    into = found.role_saliency[:, 0].sum(1).double()
    to_target = found.role_saliency[:, 1, 0].double()
    counts = flow_counts(prompts.label_positions, prompts.targets)
    assert_close(into, found.per_prompt[:, 0] * counts[:, :1], **SAME)
    assert_close(to_target, found.per_prompt[:, 1] * counts[:, 1:2], **SAME)


def test_nothing_is_sent_by_the_target_or_received_by_the_first_token(flow):
    sums = flow.role_saliency
    assert float(sums[:, :, flow.roles.index("target")].abs().max()) == 0
    assert float(sums[:, flow.roles.index("bos")].abs().max()) == 0
    assert float(sums[1, flow.roles.index("target")].min(1).values[:-1].min()) > 0


def test_a_padded_batch_is_its_single_prompts(model, flow):
    for i, prompt in enumerate(with_roles()):
        alone = icl.flow_scores(model, type(with_roles())((prompt,)))
        kept = [flow.roles.index(role) for role in alone.roles]
        own = flow.role_saliency[i][kept][:, kept]
        assert_close(alone.role_saliency[0], own, **SAME)
        # Roles this prompt lacks hold nothing.
        assert_close(own.sum(), flow.role_saliency[i].sum())
        assert_close(alone.null[0], flow.null[i], **SAME)


def test_a_shared_beginning_counts_for_every_prompt(model):
    """Computed once for all, its rows and columns have roles of their own."""
    prompts = sharing()
    maps = icl.saliency_maps(model, prompts)
    for path in ("auto", "whole"):
        found = icl.flow_scores(model, prompts, path=path)
        expected = [
            sums_of_map(values, roles_of(prompt), found.roles)
            for values, prompt in zip(maps.values, prompts, strict=True)
        ]
        assert_close(found.role_saliency.double(), torch.stack(expected), **SAME)
        again = icl.flow_scores(model, prompts[[3, 1]], path=path)
        assert_close(found.null[[3, 1]], again.null, **SAME)


def test_tokens_behind_the_target_count_nowhere(model):
    """Read at its fifth token, a prompt gives what its first five tokens give."""
    whole = ragged()[0]
    early = type(whole).from_positions(
        whole.tokens, label_positions=(2, 5), label_classes=(0, 1), target=4,
        label_tokens=whole.label_tokens, answer=1,
    )  # fmt: skip
    cut = type(whole).from_positions(
        whole.tokens[:5], label_positions=(2,), label_classes=(0,),
        label_tokens=whole.label_tokens, answer=1,
    )  # fmt: skip
    found, expected = (icl.flow_scores(model, type(ragged())((p,))) for p in (early, cut))
    assert_close(found.role_saliency, expected.role_saliency, **SAME)


# --- by hand ---


def known(roles, cells):
    """Flow scores of one layer with these sums by role, `[batch, dest, src]`."""
    sums = torch.tensor(cells).float()[..., None]
    scores = torch.ones(len(sums), 3, 1).double()
    ends = torch.full((3, 1), 1 / 3).double()
    return FlowScores(
        per_prompt=scores, values=ends, low=ends, high=ends, roles=roles, role_saliency=sums
    )


NAMES = ("bos", "format", "demo_text", "label_word", "query_text", "target")
CELLS = [
    [
        [0, 0, 0, 0, 0, 0],
        [2, 0, 1, 0, 0, 0],
        [1, 1, 4, 0, 0, 0],
        [3, 2, 5, 0, 0, 0],
        [1, 0, 0, 2, 0, 0],
        [1, 3, 2, 6, 4, 0],
    ]
]


def test_shares_by_role_by_hand():
    """38 in all; 16 in the target's row, of which 4 from the template and the first token."""
    found = known(NAMES, CELLS)
    names, received = found.by_role("receiving")
    assert names == ("texts", "label words", "template", "query", "target")
    assert_close(received.value()[:, 0], torch.tensor([6, 10, 3, 3, 16]).double() / 38)
    names, row = found.by_role()
    assert_close(row.value()[:, 0], torch.tensor([2, 6, 4, 4, 0]).double() / 16)
    shares = found.quantities()["role_share"].value()[..., 0]
    assert_close(shares, torch.tensor(CELLS[0]).double() / 38)
    assert_close(
        found.quantities()["target_share"].value()[:, 0], torch.tensor(CELLS[0][5]).double() / 16
    )
    assert row.unit != received.unit


def test_means_over_prompts_come_before_shares():
    """Sums (1, 0) and (1, 8): means (1, 4) give 0.2 and 0.8, not the mean of shares 5/9, 4/9."""
    cells = [[[0, 0, 0], [1, 0, 0], [1, 0, 0]], [[0, 0, 0], [0, 0, 0], [1, 8, 0]]]
    _, row = known(("demo_text", "label_word", "target"), cells).by_role()
    assert_close(row.value()[:, 0], torch.tensor([0.2, 0.8, 0.0]).double())


def test_groups_of_roles():
    names, member = grouped(("bos", "narrative", "demo_text", "label_word", "target"))
    assert names == ("texts", "label words", "template", "target")
    rows = [[0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [1, 1, 0, 0, 0], [0, 0, 0, 0, 1]]
    assert member.tolist() == rows
    names, member = grouped(("label_word", "target", "unknown"))
    assert names == ("label words", "other tokens", "target")
    assert member.sum(0).tolist() == [1, 1, 1]


def test_layers_without_saliency_have_shares_of_0():
    totals = torch.tensor([[3.0, 0.0], [1.0, 0.0]])
    assert share_of_row(totals).tolist() == [[0.75, 0.0], [0.25, 0.0]]
    assert share_of_all(totals[None]).tolist() == [[[0.75, 0.0], [0.25, 0.0]]]


def test_the_drawing_leaves_out_what_the_target_sends(flow):
    drawn = flow.drawing("roles")
    names, received = flow.by_role("receiving")
    _, row = flow.by_role()
    sources = [name for name in names if name != "target"]
    assert drawn.names == (*names, *sources)
    assert [panel.curves for panel in drawn.panels] == [
        tuple(range(5)), tuple(range(5, 9))
    ]  # fmt: skip
    assert_close(drawn.values[:5], received.value())
    assert_close(drawn.values[5:], row.value()[:4])
    assert_close(drawn.values[5:].sum(0), torch.ones(3, dtype=torch.float64))
    assert bool((drawn.low <= drawn.values + 1e-9).all())


def test_scores_without_roles():
    plain = known((), [[[0.0]]])
    none = FlowScores(
        per_prompt=plain.per_prompt, values=plain.values, low=plain.low, high=plain.high
    )
    with WORDS.raises(ResultError, "scores_without_roles"):
        none.by_role()
    assert set(none.quantities()) == {"share", "saliency"}

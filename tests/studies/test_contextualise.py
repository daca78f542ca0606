"""The study of contextualising and aggregating: claims on planted and untrained networks, page, sweep."""

from dataclasses import replace

import pytest
import torch

import icl_mech as icl
from icl_mech.studies.contextualise import AGGREGATE, CONTEXT, CONTEXTUALISE, ORDER
from tests.measurements.isolation.test_edge_cuts import planted
from tests.said import Words
from tests.saved import with_tensors

WORDS = Words(__file__)

SUPPORTED = {ORDER: "not shown", CONTEXT: "not shown", AGGREGATE: "supported"}


@pytest.fixture(scope="module")
def study():
    return icl.analyze(*planted(), study="contextualise", progress=False)


def test_the_claims_of_the_planted_circuit(study):
    """Nothing goes between demonstrations; the target reads them late."""
    found = {own.claim: own.status for own in study.verdicts()}
    assert found == {claim.text: status for claim, status in SUPPORTED.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_nothing_of_networks_that_learned_nothing(seed):
    model, prompts = planted(24)
    for network in (icl.planted_model(anchors=False, seed=seed), icl.untrained(model, seed)):
        run = icl.analyze(network, prompts, study="contextualise", progress=False)
        shown = [own.status for claim in CONTEXTUALISE.claims for own in claim.verdicts(run)]
        assert "supported" not in shown  # each claim alone, without what it needs
        # Most do not do the task either, so that how they do it cannot be judged.
        assert {own.status for own in run.verdicts()} <= {"not shown", "cannot be judged"}


def test_a_little_less_of_a_logit_is_not_enough(study):
    """Edges between demonstrations have no control, so that answers must be lost."""
    found = study["edge_cuts"]
    less = found.difference.clone()
    less[:, 0, 0] = found.plain_difference - 0.05 - 0.01 * torch.rand(len(less))
    statuses = {}
    for lost in (0, len(less) // 2):
        right = found.plain_right[:, None, None].repeat(1, *less.shape[1:])
        right[:lost, 0, 0] = False
        right[:lost, 1, 2] = False
        run = icl.Analysis({"edge_cuts": replace(found, difference=less, right=right)}, "")
        statuses[lost] = [CONTEXT.verdicts(run)[0].status, ORDER.verdicts(run)[0].status]
    assert list(statuses.values()) == [["not shown"] * 2, ["supported"] * 2]


def test_a_run_saved_before_right_answers_were_kept(study, tmp_path):
    """It loads; claims that need them cannot be judged."""
    place = study["edge_cuts"].save(tmp_path / "cuts")
    with_tensors(place, lambda own: [own.pop(name) for name in ("right", "plain_right")])
    cuts = icl.load(place)
    assert cuts.right_answers("contextualise", "early") is None
    assert set(study["edge_cuts"].quantities()) - set(cuts.quantities()) == {"accuracy_change"}
    WORDS.starts(cuts.figures()[0].answer, "without right answers")
    run = icl.Analysis({"edge_cuts": cuts}, "")
    found = [claim.verdicts(run)[0].status for claim in (CONTEXT, ORDER, AGGREGATE)]
    assert found == ["cannot be judged"] * 3


def test_its_page(study, tmp_path):
    page = study.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    WORDS(page, "page")
    assert "<b>{}:</b> {} <b ".format(*AGGREGATE.text.split(": ")) in page
    assert tuple(study) == tuple(CONTEXTUALISE.gives)


def test_in_a_sweep():
    model, _ = planted(2)
    found = icl.sweep(
        model, icl.planted_task(), study="contextualise", seeds=(0, 1), n=8, shots=1, progress=False,
    )  # fmt: skip
    (cell,) = found.average("cut to the target, late, logits", over="seed").cells
    assert float(cell.value.max()) < -1
    assert found.average("edge_cuts.change", over="seed").cells

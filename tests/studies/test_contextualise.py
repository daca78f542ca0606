"""The study of contextualising and aggregating: claims on planted and untrained networks, page, sweep."""

from dataclasses import replace

import pytest
import torch

import icl_mech as icl
from icl_mech.studies.contextualise import AGGREGATE, CONTEXT, CONTEXTUALISE, ORDER
from icl_mech.studies.judge import verdict
from tests.measurements.isolation.test_edge_cuts import planted
from tests.planted_results import without_needs
from tests.said import Words
from tests.saved import with_tensors

WORDS = Words(__file__)

SUPPORTED = {ORDER: "not shown", CONTEXT: "not shown", AGGREGATE: "supported"}


@pytest.fixture(scope="module")
def study():
    return icl.analyze(*planted(), study="contextualise", progress=False)


def with_cuts(study, cuts):
    """The same run with other cuts."""
    return icl.Analysis({**study.results, "edge_cuts": cuts}, "")


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
        for claim in CONTEXTUALISE.claims:  # each alone, whatever it needs and carries
            assert without_needs(replace(claim, share=None), run).status != "supported"
        # Most do not do the task either, so that how they do it cannot be judged.
        assert {own.status for own in run.verdicts()} <= {"not shown", "cannot be judged"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "nats", "context", "order"),
    [
        (0.0, 0.5, "not shown", "not shown"),
        (0.5, 0.02, "present, not used", "supported"),
        (0.5, 0.1, "not shown", "supported"),
        (0.5, 0.5, "supported", "supported"),
    ],
)
def test_a_little_less_of_a_logit_is_not_enough(study, answers, nats, context, order):
    """Edges between demonstrations have no control: answers must be lost, and a share of what demonstrations add."""
    found = study["edge_cuts"]
    less = found.difference.clone()
    fallen = found.plain_difference - 0.05 - 0.01 * torch.arange(len(less)) / len(less)
    less[:, :2, 0] = fallen[:, None]
    right = found.plain_right[:, None, None].repeat(1, *less.shape[1:])
    lost = round(answers * len(less))
    right[:lost, :2, 0] = False
    right[:lost, 2, 2] = False
    sure = found.log_prob.clone()
    sure[:, 0, 0] = found.plain_log_prob - nats * study["gain"].added("zero_shot")
    cuts = replace(found, difference=less, right=right, log_prob=sure)
    run = with_cuts(study, cuts)
    assert [verdict(claim, run).status for claim in (CONTEXT, ORDER)] == [context, order]
    read = replace(cuts, difference=less.clone(), right=right.clone())
    read.difference[:, 1, 0], read.right[:, 1, 0] = read.plain_difference, read.plain_right
    other = with_cuts(study, read)  # whatever the demonstrations before display
    assert verdict(CONTEXT, other).status == "not shown"
    assert verdict(ORDER, other).status == order


@pytest.mark.parametrize("claim", [CONTEXT, ORDER, AGGREGATE])
@pytest.mark.parametrize(
    ("lacking", "said"),
    [("gain", "without gain"), ("over_shuffled", "without shuffled"), ("edge_cuts", "")],
)
def test_what_each_claim_needs(study, claim, lacking, said):
    """Only *Aggregate* does without the gain over shuffled labels."""
    results = {name: own for name, own in study.results.items() if name != lacking}
    if lacking == "over_shuffled":
        gain, two = study["gain"], slice(0, 2)
        results["gain"] = replace(
            gain, log_prob=gain.log_prob[:, two], right=gain.right[:, two], contexts=gain.contexts[two]
        )  # fmt: skip
    found = verdict(claim, icl.Analysis(results, ""))
    if lacking == "edge_cuts":
        assert found is None
    elif lacking == "over_shuffled" and claim is AGGREGATE:
        assert (found.status, found.lacking) == ("supported", "")
    else:
        assert (found.status, found.p) == ("cannot be judged", None)
        WORDS(found.lacking, said)


@pytest.mark.slow
def test_a_run_saved_before_right_answers_were_kept(study, tmp_path):
    """It loads; claims that need them cannot be judged."""
    place = study["edge_cuts"].save(tmp_path / "cuts")
    with_tensors(place, lambda own: [own.pop(name) for name in ("right", "plain_right")])
    cuts = icl.load(place)
    assert cuts.right_answers("contextualise", "early") is None
    assert set(study["edge_cuts"].quantities()) - set(cuts.quantities()) == {"accuracy_change"}
    WORDS.starts(cuts.figures()[0].answer, "without right answers")
    found = [verdict(claim, with_cuts(study, cuts)) for claim in (CONTEXT, ORDER, AGGREGATE)]
    assert [(own.status, own.lacking) for own in found] == [("cannot be judged", "")] * 3


@pytest.mark.slow
def test_a_run_saved_before_log_probabilities_were_kept(study):
    """Claims with a share cannot be judged, and say why."""
    cuts = replace(study["edge_cuts"], log_prob=None, random_log_prob=None, plain_log_prob=None)
    context, order, aggregate = (
        verdict(claim, with_cuts(study, cuts)) for claim in (CONTEXT, ORDER, AGGREGATE)
    )
    assert (context.status, order.status) == ("not shown", "not shown")  # nothing is there
    assert aggregate.status == "cannot be judged"
    WORDS.ends(aggregate.finding, "share not measured")


@pytest.mark.slow
def test_its_page(study, tmp_path):
    page = study.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    WORDS(page, "page")
    assert "<b>{}:</b> {} <b ".format(*AGGREGATE.text.split(": ")) in page
    assert tuple(study) == tuple(CONTEXTUALISE.gives)


@pytest.mark.slow
def test_in_a_sweep():
    model, _ = planted(2)
    found = icl.sweep(
        model, icl.planted_task(), study="contextualise", seeds=(0, 1), n=8, shots=1, progress=False,
    )  # fmt: skip
    (cell,) = found.average("cut to the target, late, logits", over="seed").cells
    assert float(cell.value.max()) < -1
    assert found.average("edge_cuts.change", over="seed").cells

"""Demonstrations that are read together first: the planted circuit, and what its study says of it."""

from dataclasses import replace

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.measurements import EdgeCuts, Gain, Predict
from icl_mech.models import adapt
from icl_mech.planted import GATHERING_HEAD, LEARNING_HEAD
from icl_mech.planted.heads import LEARNED, lessons_circuit
from icl_mech.planted.words import planted_tokenizer
from icl_mech.studies import CONTEXTUALISE
from tests.planted_results import without_needs
from tests.said import Words

WORDS = Words(__file__)

N = 48
NEEDED = LEARNED / 2


def build(model, n=N, **options):
    options = {"shots": 1, "demonstrations": "per_prompt", "seed": 1, **options}
    return icl.build_prompts(icl.planted_task(), model, n=n, **options)


def cut(model, n=N):
    own = EdgeCuts(edges=("contextualise", "exchange", "aggregate"), draws=2)
    return icl.measure(model, build(model, n), Predict(), Gain(), own, progress=False)


def supported(run):
    """First words of the claims that are; of the others it is not shown."""
    found = CONTEXTUALISE.verdicts(run)
    assert len(found) == 3
    assert {own.status for own in found} <= {"supported", "not shown"}
    return {own.claim.split(":")[0] for own in found if own.status == "supported"}


@pytest.fixture(scope="module")
def model():
    return icl.planted_model(circuit="lessons", seed=1)


@pytest.fixture(scope="module")
def run(model):
    return cut(model)


def test_it_passes_the_load_time_checks(model):
    assert adapt(model).info.notes == ()


def test_it_answers_as_the_demonstrations_teach(model):
    pair = icl.build_prompt_pairs(icl.planted_task(), model, shots=1, n=24)
    true, false = (icl.predict(model, own, progress=False) for own in pair)
    assert true.accuracy.value == 1
    taught = torch.tensor([own.false_answer for own in pair[1]])
    assert torch.equal(false.predicted, taught)


def test_edges_between_demonstrations_are_needed_early_and_those_to_the_target_late(model, run):
    changes = run["edge_cuts"].changes
    # The last demonstration needs no other; its label word holds its own pair.
    prompts = build(model)
    others = torch.tensor([own.label_classes[-1] != own.answer for own in prompts])
    assert 0.5 < float(others.double().mean()) < 1
    assert bool((changes[others, 0, 0] < -NEEDED).all())
    assert bool((changes[others, 1, 0] < -NEEDED).all())
    assert bool((changes[:, 2, 2] < -NEEDED).all())
    assert run["edge_cuts"].right_answers("contextualise", "early").high < -0.3
    assert run["edge_cuts"].right_answers("contextualise", "middle").value == 0
    rest = [changes[~others, :2, 0], changes[:, :2, 1:3], changes[:, 2, :2]]
    assert max(float(own.abs().max()) for own in rest) < 1.5


def test_the_two_heads_alone_are_the_circuit(model):
    prompts = build(model, 24)

    def accuracy(heads, at):
        zero = icl.ZeroHeads(heads, at=at)
        return icl.predict(model, prompts, interventions=[zero], progress=False).accuracy.value

    others = [(layer, head) for layer in range(1, 6) for head in range(4)]
    others = [own for own in others if own not in (GATHERING_HEAD, LEARNING_HEAD)]
    assert accuracy(others, "all") == 1
    assert accuracy([LEARNING_HEAD], "target") < 0.6
    assert accuracy([GATHERING_HEAD], "target") == 1
    assert accuracy([GATHERING_HEAD], "all") < 0.6


def test_its_claims_are_supported(run):
    assert supported(run) == {"Contextualise", "Aggregate", "Then"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heads", "status"),
    [
        ({"gathering": 2}, {"Aggregate"}),
        ({"learning": 3}, {"Contextualise"}),
        ({"gathering": 2, "learning": 3}, set()),
    ],
)
def test_in_other_blocks_other_claims_are(heads, status):
    own = icl.load_model(lessons_circuit(2, 1.0, **heads), tokenizer=planted_tokenizer())
    assert icl.predict(own, build(own, 24), progress=False).accuracy.value == 1
    assert supported(cut(own, 24)) == status


def test_at_strength_0_nothing_is():
    own = icl.planted_model(circuit="lessons", strength=0, seed=1)
    assert icl.predict(own, build(own, 24), progress=False).accuracy.value == 1
    run = cut(own, 12)
    found = CONTEXTUALISE.verdicts(run)
    assert [one.status for one in found] == ["cannot be judged"] * 3
    for one in found:
        WORDS.starts(one.lacking, "nothing_added")
    for claim in CONTEXTUALISE.claims:
        assert without_needs(replace(claim, share=None), run).status == "not shown"


def test_the_answer_is_handed_over_in_the_block_that_was_asked_for():
    own = icl.planted_model(circuit="lessons", hand_over=5)
    pair = icl.build_prompt_pairs(icl.planted_task(), own, shots=1, n=8)
    found = icl.transplant(own, *pair, layers=[2, 4, 5], draws=1, progress=False)
    flips = found.sel("flips").values[0]
    assert flips[0].tolist() == [1, 1, 1]
    assert flips[1].tolist() == [0, 0, 0]
    with WORDS.raises(ModelError, "answer_handed_over_block"):
        icl.planted_model(circuit="lessons", anchors=False)

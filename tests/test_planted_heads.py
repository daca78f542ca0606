"""The planted heads do what is said of them, and every measurement of heads finds exactly these."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.measurements import HeadScores
from icl_mech.models import adapt
from icl_mech.planted import (
    FALSE_INDUCTION_HEADS,
    FUNCTION_VECTOR_HEADS,
    INDUCTION_HEADS,
    LABEL_PROMOTING_HEADS,
    READING_HEAD,
)
from icl_mech.planted.heads import (
    AGAINST,
    ASKING,
    CARRIED_OUT,
    COLLECTING,
    COPIED,
    KNOWN,
    N_HEADS,
    N_LAYERS,
    PREVIOUS_TOKEN_HEAD,
    TASK,
)
from icl_mech.planted.spaces import SIZE
from icl_mech.studies import CAUSAL, OVERTHINKING
from tests.said import Words

WORDS = Words(__file__)

N = 24
TASK_OF_WORDS = icl.planted_task()
KINDS = (FUNCTION_VECTOR_HEADS, INDUCTION_HEADS, FALSE_INDUCTION_HEADS, LABEL_PROMOTING_HEADS)


def pairs(model, **options):
    options = {"shots": 1, "n": N, "demonstrations": "per_prompt", **options}
    return icl.build_prompt_pairs(TASK_OF_WORDS, model, **options)


@pytest.fixture(scope="module")
def model():
    return icl.planted_model(circuit="heads")


@pytest.fixture(scope="module")
def pair(model):
    return pairs(model)


def logits(model, prompts, heads=()):
    edits = [icl.ZeroHeads(heads)] if heads else []
    return icl.predict(model, prompts, interventions=edits, progress=False).label_logits


def right_above_taught(model, pair, side, heads=()):
    found, rows = logits(model, pair[side], heads), torch.arange(N)
    taught = torch.tensor([prompt.false_answer for prompt in pair[1]])
    return found[rows, pair[side].answers] - found[rows, taught]


# The model


def test_every_head_has_at_most_one_part():
    parts = [PREVIOUS_TOKEN_HEAD, COLLECTING, ASKING, *(head for kind in KINDS for head in kind)]
    assert len(set(parts)) == len(parts)
    # As many heads of each kind as the causal study chooses, and others to compare them with.
    assert {len(kind) for kind in KINDS} == {N_LAYERS * N_HEADS // 8}


def test_it_passes_the_load_time_checks(model):
    assert adapt(model).info.notes == ()


def test_layer_norms_change_nothing_much(model, pair):
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.tensor([prompt.tokens for prompt in pair[0][:4]]))
    for layer in range(N_LAYERS):
        residual = cache[f"blocks.{layer}.hook_resid_pre"]
        assert residual.mean(-1).abs().max() < 1e-4
        assert (residual.norm(dim=-1) / SIZE).min() >= 0.99
        assert (residual.norm(dim=-1) / SIZE).max() < 1.02


@pytest.mark.slow
def test_it_is_the_same_for_a_seed_and_another_for_another():
    def weights(seed):
        return icl.planted_model(circuit="heads", seed=seed).state_dict()

    first, again, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_it_knows_its_answers_and_false_demonstrations_take_them_away(model, pair):
    bare = pairs(model, shots=0)[0]
    assert icl.predict(model, bare).accuracy.value == 1
    assert icl.predict(model, pair[0]).accuracy.value == 1
    followed = icl.predict(model, pair[1]).predicted.tolist()
    assert followed == [prompt.false_answer for prompt in pair[1]]


@pytest.mark.parametrize(
    ("heads", "side", "written"),
    [
        (FUNCTION_VECTOR_HEADS, 0, -TASK["function vector"] * CARRIED_OUT),
        (INDUCTION_HEADS, 0, -TASK["induction"] * CARRIED_OUT),
        (FALSE_INDUCTION_HEADS, 1, COPIED),
        (LABEL_PROMOTING_HEADS, 1, AGAINST),
    ],
    ids=["function vector", "induction", "false induction", "label promoting"],
)
def test_what_a_head_does_to_the_right_answer(model, pair, heads, side, written):
    plain = right_above_taught(model, pair, side)
    for head in heads:
        change = right_above_taught(model, pair, side, [head]) - plain
        assert (change - written).abs().max() < 0.3 * abs(written)


def test_behind_false_demonstrations_there_is_no_task(model, pair):
    plain = right_above_taught(model, pair, 1)
    for heads in (FUNCTION_VECTOR_HEADS, INDUCTION_HEADS):
        assert (right_above_taught(model, pair, 1, heads) - plain).abs().max() < 0.1


@pytest.mark.slow
def test_the_task_is_one_vector_whatever_is_asked(model, pair):
    bare = pairs(model, shots=0)[0]
    mediation = icl.head_mediation(model, *pair, mean="class", progress=False)
    vector = icl.function_vector(model, mediation, len(FUNCTION_VECTOR_HEADS), by="difference")
    assert set(vector.heads) == set(FUNCTION_VECTOR_HEADS)
    behind = icl.steer(model, bare, vector.vector, progress=False).changes
    task = len(FUNCTION_VECTOR_HEADS) * TASK["function vector"] * CARRIED_OUT
    assert (behind[:, :3] / task - 1).abs().max() < 0.2
    assert behind[:, 3:].abs().max() < 0.5  # it comes too late to be carried out


# Exactly these are found


def test_each_measure_finds_its_heads(model, pair):
    mediation = icl.head_mediation(model, *pair, mean="class", progress=False)
    assert set(mediation.top(3, "difference")) == set(FUNCTION_VECTOR_HEADS)
    assert set(FUNCTION_VECTOR_HEADS) <= set(mediation.clear())
    induction = icl.induction_scores(model, progress=False)
    assert set(induction.top(3)) == set(INDUCTION_HEADS)
    assert (
        induction.values.flatten().sort().values[-4]
        < 0.5
        < 0.9
        < induction.values[INDUCTION_HEADS[0]]
    )
    scores = icl.measure(model, pair, HeadScores(), progress=False)["head_scores"]
    assert set(scores.top(3)) == set(FALSE_INDUCTION_HEADS)
    assert set(scores.top(3, "label_promoting")) == set(LABEL_PROMOTING_HEADS)
    matching = scores.matching.mean(0)
    assert all(matching[head] > 0.95 for head in FALSE_INDUCTION_HEADS)


@pytest.mark.slow
def test_their_claims_are_supported(model, pair):
    found = icl.analyze(model, pair, study="causal", progress=False)
    by_claim = {own.claim.split(":")[0]: own.status for own in CAUSAL.verdicts(found)}
    assert by_claim.pop("Calibration") != "supported"  # it has no prior
    assert set(by_claim.values()) == {"supported"}
    of_heads = pairs(model, seed=1000)[1]
    found = icl.analyze(
        model, pair, study="overthinking", heads_from=of_heads, nulls=0, progress=False
    )
    assert {own.status for own in OVERTHINKING.verdicts(found)} == {"supported"}


@pytest.mark.slow
def test_at_strength_0_nothing_acts():
    model = icl.planted_model(circuit="heads", strength=0)
    pair = pairs(model)
    for side in (0, 1):
        plain = right_above_taught(model, pair, side)
        assert (plain - KNOWN).abs().max() < 2
        for heads in KINDS:
            assert (right_above_taught(model, pair, side, heads) - plain).abs().max() < 0.2


@pytest.mark.slow
def test_strength_is_the_share_of_queries_on_which_heads_act():
    shares = []
    for strength in (0.25, 0.75):
        weaker = icl.planted_model(circuit="heads", strength=strength)
        false = pairs(weaker, n=96)[1]
        shares.append(1 - icl.predict(weaker, false).accuracy.value)
    assert abs(shares[0] - 0.25) < 0.15
    assert abs(shares[1] - 0.75) < 0.15


# Where the answer goes from label words to the target


@pytest.mark.slow
@pytest.mark.parametrize("block", [3, 4, 5])
def test_the_answer_is_handed_over_in_the_block_that_was_asked_for(block):
    model = icl.planted_model(hand_over=block)
    true, false = pairs(model, demonstrations="shared", n=12)
    taught, right = (icl.predict(model, own, progress=False).predicted for own in (false, true))
    differ = taught != right
    assert differ.double().mean() > 0.5

    def answers(at, layer):
        patch = icl.Patch("resid_post", layers=[layer], at=at, source=true)
        return icl.predict(model, false, interventions=[patch], progress=False).predicted[differ]

    for layer in range(model.cfg.n_layers):
        there, gone = (right, taught) if layer < block else (taught, right)
        assert torch.equal(answers("label_word", layer), there[differ])
        assert torch.equal(answers("target", layer), gone[differ])


def test_the_usual_block_is_that_of_the_reading_head():
    usual, same = icl.planted_model(), icl.planted_model(hand_over=READING_HEAD[0])
    for (name, own), (_, other) in zip(
        usual.named_parameters(), same.named_parameters(), strict=True
    ):
        assert torch.equal(own, other), name


def test_options_of_another_circuit():
    for block in (2, 6):
        with WORDS.raises(ModelError, "options_another_circuit", "3", "5"):
            icl.planted_model(hand_over=block)
    for more in ({"hand_over": 5}, {"anchors": False}):
        with WORDS.raises(ModelError, "options_another_circuit_2"):
            icl.planted_model(circuit="heads", **more)
    with pytest.raises(ModelError, match="circuit"):
        icl.planted_model(circuit="vectors")

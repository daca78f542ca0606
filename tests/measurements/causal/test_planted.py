"""On the planted model: what carries the task, what works against it, and what matches tokens."""

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements import HeadMediation
from icl_mech.measurements.causal.head_mediation import class_weights
from tests.planted import (
    INDUCTION_HEADS,
    N_HEADS,
    N_LAYERS,
    PROMOTING_DECOYS,
    planted_model,
    planted_task,
)
from tests.said import Words

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def model():
    return planted_model()


@pytest.fixture(scope="module")
def sets(model):
    how = {"shots": 3, "n": 60, "demonstrations": "per_prompt"}
    true = icl.build_prompts(planted_task(), model, **how)
    return true, icl.build_prompts(planted_task(), model, labels="random", **how)


@pytest.fixture(scope="module")
def one_class(model, sets):
    """The same sets with queries of one class, for which mean outputs carry its label."""
    return tuple(s[[i for i, prompt in enumerate(s) if prompt.answer == 0]] for s in sets)


@pytest.fixture(scope="module")
def mediation(model, one_class):
    return icl.head_mediation(model, *one_class)


def test_planted_heads_come_first(mediation):
    assert set(mediation.top(2, "difference")) == set(INDUCTION_HEADS)
    assert set(mediation.top(2)) == set(INDUCTION_HEADS)
    assert set(INDUCTION_HEADS) <= set(mediation.clear())
    assert not set(PROMOTING_DECOYS) & set(mediation.clear())


def test_means_over_the_class_find_the_planted_heads_among_all_classes(model, sets):
    """The mean over all queries also takes the decoys' harm away; that of a class does not."""
    over_all = icl.head_mediation(model, *sets)
    by_class = icl.head_mediation(model, *sets, mean="class")
    assert set(by_class.top(2, "difference")) == set(INDUCTION_HEADS)
    decoys = [
        (own.effect("difference")[head])
        for own in (over_all, by_class)
        for head in PROMOTING_DECOYS
    ]
    assert min(decoys[:2]) > 0.3
    assert max(map(abs, decoys[2:])) < 0.1
    assert not set(PROMOTING_DECOYS) & set(by_class.clear())
    assert_close(by_class.means, over_all.means)


def test_what_the_decoys_write_works_against_the_answer(model, mediation):
    """They write the same with true and with other labels, so only adding it shows it."""
    info = model.cfg
    prompts = icl.build_prompts(planted_task(), model, shots=0, n=12)
    mine = prompts[[i for i, prompt in enumerate(prompts) if prompt.answer == 0]]
    for layer, head in PROMOTING_DECOYS:
        written = mediation.means[layer, head] @ model.blocks[layer].attn.W_O[head].detach()
        assert written.shape == (info.d_model,)
        assert bool((icl.steer(model, mine, written, layers=[3]).changes < -0.1).all())


def test_a_class_mean_is_over_other_queries_of_the_class(model, sets):
    true, shuffled = (own[:12] for own in sets)
    weights = class_weights(true, shuffled)
    answers = true.answers.tolist()
    for row, own in enumerate(answers):
        others = [n for n, other in enumerate(answers) if other == own and n != row]
        expected = torch.zeros(12, dtype=torch.float64)
        expected[others] = 1 / len(others)
        assert_close(weights[row], expected)
    found = icl.head_mediation(model, true, shuffled, mean="class")
    layer, head = INDUCTION_HEADS[0]
    others = [n for n, other in enumerate(answers) if other == answers[0] and n != 0]
    patch = icl.Patch("z", [(layer, head)], source=true[others], mean=True)
    plain, patched = (
        icl.predict(model, shuffled[[0]], interventions=own).label_logits[0]
        for own in ([], [patch])
    )
    rest = [c for c in range(3) if c != answers[0]]
    change = (patched - plain)[answers[0]] - (patched - plain)[rest].mean()
    assert_close(float(found.difference[0, layer, head]), float(change), atol=1e-4, rtol=1e-4)
    whole = icl.head_mediation(model, true, shuffled, mean="class", path="whole")
    assert_close(found.difference, whole.difference, atol=5e-4, rtol=1e-4)
    with WORDS.raises(icl.IclMechError, "class_mean_over_other"):
        icl.head_mediation(model, true[:3], shuffled[:3], mean="class")


def test_effects_are_paired_changes(model, one_class, mediation):
    true, shuffled = one_class
    head = INDUCTION_HEADS[0]
    patch = icl.Patch("z", [head], source=true, mean=True)
    plain, patched = (
        icl.predict(model, shuffled, interventions=own).label_logits for own in ([], [patch])
    )
    for row, answer in enumerate(shuffled.answers.tolist()):
        above = [
            own[row, answer] - own[row][[c for c in range(3) if c != answer]].mean()
            for own in (plain, patched)
        ]
        assert_close(
            float(mediation.difference[row][head]), float(above[1] - above[0]), atol=1e-4, rtol=1e-4
        )


def test_every_path_gives_the_same(model, one_class, mediation):
    whole = icl.head_mediation(model, *one_class, path="whole")
    assert_close(mediation.difference, whole.difference, atol=5e-4, rtol=1e-4)


def test_the_function_vector_brings_the_answer(model, mediation, one_class):
    vector = icl.function_vector(model, mediation, 2, by="difference")
    assert set(vector.heads) == set(INDUCTION_HEADS)
    prompts = icl.build_prompts(planted_task(), model, shots=0, n=12)
    effect = icl.steer(model, prompts, vector)
    mine = prompts.answers == 0
    raised = effect.changes[:, -1]
    assert bool((raised[mine] > 1).all())
    assert bool((raised[~mine] < 0).all())
    opposite = icl.steer(model, prompts, vector, scale=-1.0)
    assert_close(opposite.changes[:, -1], -raised, atol=0.2, rtol=0.05)
    none = icl.steer(model, prompts, torch.zeros_like(vector.vector))
    assert float(none.changes.abs().max()) == 0.0


def test_a_task_vector_of_the_last_block_is_its_answer(model, one_class):
    true, _ = one_class
    vector = icl.task_vector(model, true)
    prompts = icl.build_prompts(planted_task(), model, shots=0, n=12)
    effect = icl.steer(model, prompts, vector)
    assert effect.kind == "replace"
    assert bool((effect.correct[:, -1] == (prompts.answers == 0)).all())
    assert float(vector.similarity.min()) > 0.9
    assert icl.task_vector(model, true[:1]).similarity.isnan().all()


def test_results_are_shown_saved_and_compared(model, one_class, mediation, tmp_path):
    vector = icl.function_vector(model, mediation, 2)
    prompts = icl.build_prompts(planted_task(), model, shots=0, n=12)
    results = (mediation, vector, icl.task_vector(model, one_class[0]), icl.steer(model, prompts, vector),
               icl.induction_scores(model, n=6, length=9), icl.induction_scores(model, n=6, length=9, variant="mul"))  # fmt: skip
    for number, result in enumerate(results):
        result.save(tmp_path / str(number))
        again = type(result).load(tmp_path / str(number))
        assert again.summary() == result.summary()
        assert all(figure.answer for figure in result.figures())
        if result is vector:
            continue
        assert len(result.to_pandas())
        for show in result.shows:
            assert result.plot(show or None).data
        for figure in result.figures():
            assert figure.question.endswith("?")
            assert figure.caption
    both = icl.measure(model, one_class, HeadMediation())
    both.to_html(tmp_path / "page.html")
    WORDS((tmp_path / "page.html").read_text(), "results_shown_saved_compared")
    assert len(mediation.to_pandas()) == N_LAYERS * N_HEADS


def test_refusals(model, one_class, mediation):
    from tests.tiny import tiny_model

    _, shuffled = one_class
    other = tiny_model("gpt2")
    with WORDS.raises(icl.IclMechError, "refusals"):
        icl.function_vector(other, mediation)
    with pytest.raises(icl.IclMechError, match="heads"):
        icl.function_vector(model, mediation, 99)
    with WORDS.raises(icl.IclMechError, "refusals_2", "'replace'"):
        icl.steer(model, shuffled, torch.zeros(84), kind="replace", scale=2.0)
    with WORDS.raises(icl.IclMechError, "refusals_3"):
        icl.steer(model, shuffled, torch.zeros(84), layers=[])


def test_vectors_of_other_weights_are_refused(model, sets, mediation):
    vectors = icl.function_vector(model, mediation), icl.task_vector(model, sets[0][:4])
    bare, other = icl.build_prompts(planted_task(), model, shots=0, n=4), icl.untrained(model)
    for vector in vectors:
        assert len(icl.steer(model, bare, vector, layers=[2]).correct) == 4
        with WORDS.raises(RunError, "vectors_other_weights_refused"):
            icl.steer(other, bare, vector, layers=[2])
    assert len(icl.steer(other, bare, vectors[0].vector, layers=[2]).correct) == 4


def test_pairs_without_demonstrations_are_refused(model):
    pair = icl.build_prompt_pairs(planted_task(), model, shots=0, n=4)
    for function in (icl.layer_accuracy, icl.head_mediation, icl.attribution_patching):
        with WORDS.raises(PromptError, "pairs_without_demonstrations_refused"):
            function(model, *pair)

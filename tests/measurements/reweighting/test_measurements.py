"""Re-weighting under the user's interventions, and what its results say about prompts."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine import prepare, single_rows
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import FittedReweight, Isolate, Reweight, ZeroHeads
from icl_mech.measurements.reweighting.evaluate_reweighting import (
    EvaluateReweighting,
    ReweightingResult,
    evaluate_reweighting,
)
from icl_mech.measurements.reweighting.reweighting import Reweighting, fit_reweighting, split
from icl_mech.metrics import mean_interval
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.results.wording import said, told
from tests.engine.cases import Edge, ragged
from tests.interventions.test_prompt_dependent import Swap
from tests.measurements.reweighting.test_reweighting import (
    plain_gradient,
    random_beta,
    token_gradient,
)
from tests.prompts.cases import toy_task
from tests.said import Words
from tests.saved import without_date
from tests.tiny import FAMILIES, N_HEADS, N_LAYERS, tiny_model

WORDS = Words(__file__)

EDGE = Edge(0, dest=2, src=1, factor=0.0, term=4.0)
SETTINGS = {"lr": 0.1, "epochs": 2}


def edge_hook(pattern, hook):
    pattern = pattern.clone()
    pattern[:, :, 2, 1] = 4.0
    return pattern


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def prompts(gpt2):
    """Twelve prompts behind shared demonstrations of two classes."""
    return icl.build_prompts(toy_task(per_class=8), gpt2, n=12)


@pytest.fixture(scope="module")
def found(gpt2, prompts):
    return icl.measure(gpt2, prompts, Reweighting(per_class=2, **SETTINGS)).reweighting


# Under interventions


def test_gradients_behind_edited_prompts(model):
    rows = single_rows(prepare(model, ragged(), interventions=[EDGE]))
    plain = single_rows(prepare(model, ragged()))
    hooks = [("blocks.0.attn.hook_pattern", edge_hook)]
    for number, one in enumerate(ragged()):
        found = token_gradient([rows[number]], random_beta(), [EDGE])
        expected = plain_gradient(model, one, random_beta(), hooks)
        assert_close(found[0], expected[0], atol=1e-5, rtol=1e-4)
        assert_close(found[1], expected[1], atol=1e-5, rtol=1e-3)
        without = token_gradient([plain[number]], random_beta())
        assert float((found[0] - without[0]).abs()) > 1e-3


@pytest.mark.slow
def test_training_under_an_intervention_starts_at_its_losses(gpt2):
    prompts = ragged()
    generator = torch.Generator().manual_seed(0)
    patch = Swap(3 * torch.randn(5, gpt2.cfg.d_model, generator=generator), layer=1, position=1)
    heads = ZeroHeads([(1, 0)])
    for changes in ([EDGE], [patch], [heads], [Isolate([0])], [patch, heads]):
        fitted = fit_reweighting(
            gpt2, prompts, lr=1e-9, epochs=1, shuffle=False, interventions=changes
        )
        logits = icl.predict(gpt2, prompts, interventions=changes).label_logits
        expected = cross_entropy(logits, prompts.answers, reduction="none")
        assert_close(fitted.losses, expected, atol=1e-4, rtol=1e-4)
        plain = fit_reweighting(gpt2, prompts, lr=1e-9, epochs=1, shuffle=False)
        assert not torch.allclose(fitted.losses, plain.losses, atol=1e-3)
        assert fitted.training["interventions"] == [change.to_dict() for change in changes]


def test_means_are_measured_on_the_training_prompts(gpt2):
    prompts, held_out = ragged(), ragged()[[4]]
    held_out = PromptBatch(tuple(replace(p, tokens=(7, *p.tokens[1:])) for p in held_out))
    asked = ZeroHeads([(1, 0)], kind="mean")
    fitted = fit_reweighting(
        gpt2, prompts, lr=1e-9, epochs=1, interventions=[asked], validation=held_out
    )
    (kept,) = fitted.training["interventions"]
    filled = ZeroHeads([(1, 0)], kind="mean", means=torch.tensor(kept["means"]))
    logits = icl.predict(gpt2, held_out, interventions=[filled]).label_logits
    expected = float(cross_entropy(logits, held_out.answers))
    assert float(fitted.held_out_losses[0]) == pytest.approx(expected, abs=1e-4)
    with WORDS.raises(RunError, "means_measured_training_prompts"):
        prepare(gpt2, prompts, interventions=[asked])


def test_interventions_that_do_nothing_are_refused(gpt2):
    nowhere = Isolate([0], positions=((),) * 5)
    with WORDS.raises(RunError, "interventions_nothing_refused"):
        fit_reweighting(gpt2, ragged(), interventions=[nowhere])
    with WORDS.raises(RunError, "interventions_nothing_refused_2", "9"):
        fit_reweighting(gpt2, ragged(), interventions=[Isolate([9])])


@pytest.mark.parametrize("path", ["auto", "whole"])
@pytest.mark.parametrize("shared", [True, False])
def test_both_conditions_are_those_of_predict(gpt2, prompts, shared, path):
    data = prompts if shared else ragged()
    factors = Reweight(random_beta()[..., : data.n_labels])
    for changes in ([], [EDGE], [ZeroHeads([(1, 0)])]):
        found = evaluate_reweighting(gpt2, factors, data, interventions=changes, path=path)
        for row, own in enumerate(([], [factors])):
            expected = icl.predict(gpt2, data, interventions=[*changes, *own], path="whole")
            assert_close(found.label_logits[row], expected.label_logits, atol=2e-5, rtol=1e-5)
        gap = found.label_logits[1] - found.label_logits[0]
        assert float(gap.abs().max()) > 1e-2
        assert found.provenance["interventions"] == [change.to_dict() for change in changes]


def test_more_shots_are_run_under_the_interventions_too(gpt2, prompts):
    more = icl.build_prompts(toy_task(per_class=8), gpt2, n=12, shots=3)
    factors = Reweight(torch.zeros(N_LAYERS, N_HEADS, 2))
    found = evaluate_reweighting(gpt2, factors, prompts, more_shots=more, interventions=[EDGE])
    expected = icl.predict(gpt2, more, interventions=[EDGE]).label_logits
    assert_close(found.label_logits[2], expected, atol=2e-5, rtol=1e-5)


# Measurements


def test_the_measurement_gives_what_the_function_gives(gpt2, prompts):
    factors = Reweight(random_beta()[..., :2])
    report = icl.measure(gpt2, prompts, EvaluateReweighting(factors))
    expected = evaluate_reweighting(gpt2, factors, prompts)
    assert torch.equal(report.evaluate_reweighting.label_logits, expected.label_logits)
    assert without_date(report.evaluate_reweighting) == without_date(expected)


@pytest.mark.parametrize("changes", [(), (EDGE,)])
def test_learned_on_a_few_and_judged_on_the_others(gpt2, prompts, changes):
    answers = prompts.answers.tolist()
    training, test = split(prompts, 2)
    assert training.answers.bincount().tolist() == [2, 2]
    first = sorted(answers.index(c, start) for c in (0, 1) for start in (0, answers.index(c) + 1))
    assert training.prompts == tuple(prompts[i] for i in first)
    assert {*training.prompts, *test.prompts} == {*prompts.prompts}
    assert len(test) == 8
    found = icl.measure(
        gpt2, prompts, Reweighting(per_class=2, seed=3, **SETTINGS), interventions=changes
    ).reweighting
    fitted = fit_reweighting(gpt2, training, seed=3, interventions=changes, **SETTINGS)
    expected = evaluate_reweighting(gpt2, fitted, test, interventions=changes)
    assert torch.equal(found.beta, fitted.beta)
    assert torch.equal(found.label_logits, expected.label_logits)
    assert torch.equal(found.losses, fitted.losses)
    assert found.seen_in_training == 0
    assert found.provenance["training"] == fitted.training
    assert found.provenance["tested_on"]["digest"] == test.digest
    assert found.provenance["prompts"]["digest"] == prompts.digest
    assert found.provenance["variants"] == {
        "per_class": 2, "lr": 0.1, "epochs": 2, "batch_size": 1, "seed": 3,
    }  # fmt: skip
    plain = fit_reweighting(gpt2, training, seed=3, **SETTINGS)
    assert torch.equal(fitted.beta, plain.beta) == (not changes)


def test_too_few_prompts_of_a_class(gpt2, prompts, monkeypatch):
    monkeypatch.setattr(type(prompts), "digest", None)  # nothing is run
    few = prompts[[i for i in range(12) if int(prompts.answers[i]) == 0 or i < 6]]
    rarest = min(few.answers.bincount().tolist())
    assert rarest < 8
    with WORDS.raises(PromptError, "rarest_class", rarest, "8"):
        icl.measure(gpt2, few, Reweighting())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"per_class": 0}, "per_class0 1"),
        ({"epochs": 0}, "epochs0"),
        ({"lr": -1.0}, "lr-1.0"),
        ({"seed": 0.5}, "seed0.5"),
    ],
)
def test_options_out_of_range(gpt2, prompts, options, words, unchecked):
    with WORDS.raises(RunError, words):
        icl.measure(gpt2, prompts, Reweighting(**options))


# Results


def given(predicted, **changes):
    """A result over four prompts with these predicted classes."""
    return replace(
        ReweightingResult(
            label_logits=torch.nn.functional.one_hot(torch.tensor(predicted), 2).float(),
            answers=torch.tensor([0, 1, 0, 0]),
            beta=torch.tensor([[[1.0, -3.0], [0.5, 0.5]]]),
            conditions=("plain", "reweighted"),
            demonstrations=(2, 2),
            labels=("no", "yes"),
            provenance={"prompts": {"digest": "same", "count": 9}},
        ),
        **changes,
    )


def test_accuracies_are_labelled_samples():
    result = given([[0, 0, 1, 1], [0, 1, 0, 1]])
    assert result.interval(condition="reweighted").value == 0.75
    assert result.accuracy("plain") == result.interval("accuracy", condition="plain")
    assert result.to_xarray()["accuracy"].sel(condition="plain").values.tolist() == [1, 0, 0, 0]
    assert result.sel(condition=["reweighted"]).labels == (("reweighted",),)


def test_notes_count_the_prompts_that_were_tested():
    result = given([[0, 0, 1, 1], [0, 1, 0, 1]])
    WORDS(result.drawing().note, "notes_count_prompts_tested", "4", "95")
    assert result.sel().note.startswith("4 prompts")


def test_paired_differences():
    one, other = given([[0, 0, 1, 1], [0, 1, 0, 0]]), given([[0, 0, 1, 0], [1, 1, 0, 1]])
    gap = one - other
    assert gap.values.tolist() == [-0.25, 0.5]
    expected = mean_interval(torch.tensor([1.0, 0.0, 0.0, 1.0]), "change")
    assert gap.interval(condition="reweighted") == pytest.approx(tuple(expected), abs=1e-12)
    fewer = replace(one, label_logits=one.label_logits[:, :1], answers=one.answers[:1])
    with WORDS.raises(ResultError, "paired_differences", "4", "1"):
        _ = one - fewer


def test_under_an_intervention_minus_plain(gpt2, prompts):
    factors = Reweight(random_beta()[..., :2])
    cut, plain = (
        evaluate_reweighting(gpt2, factors, prompts, interventions=changes)
        for changes in ([EDGE], [])
    )
    expected = (cut.correct.double() - plain.correct.double()).mean(1)
    assert_close((cut - plain).values, expected)


def test_figures_of_a_page(found):
    shown = found.figures()
    assert [figure.show for figure in shown] == ["accuracy", "beta", "training"]
    accuracy, beta, training = shown
    assert said(found.difference(), sign=True) in accuracy.answer
    for condition in ("plain", "reweighted"):
        assert said(found.accuracy(condition)) in accuracy.answer
    WORDS(accuracy.answer, "figures_page", "4", "8")
    ends = (float(found.beta.min()), float(found.beta.max()))
    assert f"between {told(ends[0], sign=True)} and {told(ends[1], sign=True)}" in beta.answer
    assert f"{float((found.beta > 0).double().mean()):.0%}" in beta.answer.replace(" %", "%")
    layer, head = divmod(int(found.beta.abs().mean(-1).argmax()), N_HEADS)
    WORDS(beta.answer, "figures_page_2", layer, head)
    first, last = found.losses.reshape(2, 4).double().mean(1).tolist()
    WORDS(training.answer, "figures_page_3", told(first), told(last))
    assert "uniform guess: 0.69" in training.answer
    for figure in shown:
        assert figure.question.endswith("?")
        assert found.plot(figure.show).layout.title.text


def over_class_0(predicted):
    """The same over ten prompts of class 0."""
    logits = torch.nn.functional.one_hot(torch.tensor(predicted), 2).float()
    return replace(
        given([[0, 0, 1, 1], [0, 1, 0, 1]]),
        label_logits=logits,
        answers=torch.zeros(10, dtype=torch.long),
    )


@pytest.mark.parametrize(
    ("reweighted", "opening", "end"),
    [
        ([0] * 9 + [1], "Yes, +0.40", "test prompts"),
        ([0] + [1] * 9, "No, −0.40", "test prompts"),
        ([1] * 4 + [0] * 6, "Not shown", "touches 0"),
    ],
)
def test_an_answer_follows_the_interval(reweighted, opening, end):
    result = over_class_0([[0] * 5 + [1] * 5, reweighted])
    figure = result.figures()[0]
    WORDS.starts(figure.answer, opening, *opening.split(", "))
    WORDS.ends(figure.answer, end)
    assert bool(figure.establishes) == opening.startswith("Yes")


def test_what_cannot_be_judged():
    few = given([[0, 0, 1, 1], [0, 1, 0, 1]]).figures()
    WORDS.starts(few[0].answer, "what_cannot_judged", "Cannot be judged", "+0.50")
    assert [figure.show for figure in few] == ["accuracy", "beta"]
    trained = replace(over_class_0([[1] * 10, [0] * 10]), seen_in_training=3)
    text = trained.figures()[0].answer
    WORDS.starts(text, "what_cannot_judged_2", "Cannot be judged", "3", "10")


def test_training_is_drawn_from_files_of_before(found, tmp_path):
    fitted = FittedReweight(
        beta=found.beta, losses=found.losses, training=found.provenance["training"]
    )
    before = replace(found, provenance={"interventions": [fitted.to_dict()]})
    loaded = Result.load(before.save(tmp_path / "result"))
    assert_close(loaded.drawing("training").values, found.drawing("training").values)
    WORDS.exactly(loaded.drawing("training").note, "training_drawn_files_before", "2", "4")

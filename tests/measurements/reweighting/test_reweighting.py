"""Re-weighting: gradients by plain autograd, the reference's training, and honest reports."""

import json
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine import Work, prepare, single_rows
from icl_mech.engine.prepared import merged
from icl_mech.errors import IclMechError, PromptError, ResultError, RunError
from icl_mech.interventions import FittedReweight, Reweight, load_intervention
from icl_mech.measurements.reweighting.evaluate_reweighting import (
    ReweightingResult,
    evaluate_reweighting,
)
from icl_mech.measurements.reweighting.reweighting import fit_reweighting
from icl_mech.metrics import mean_interval, wilson_interval
from icl_mech.models import adapt
from icl_mech.plots import figure
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result, jsonable
from icl_mech.results.wording import said
from icl_mech.shapes import Bars
from tests.engine.cases import prompt, ragged
from tests.golden_data import arrays, golden_model, label_words_prompts
from tests.margins import apart
from tests.prompts.cases import toy_task
from tests.said import Words
from tests.tiny import FAMILIES, N_HEADS, N_LAYERS, tiny_model

WORDS = Words(__file__)

SHAPE = (N_LAYERS, N_HEADS, 3)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


def random_beta(seed=0):
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))


def plain_gradient(bridge, prompt, beta, before=()):
    """Loss and gradient by autograd over the whole prompt, with the bridge's own hooks.

    `before` are hooks of an edit made before the re-weighting.
    """
    adapt(bridge)  # puts the hooks of some families inside the computation
    leaf = beta.clone().requires_grad_()

    def hook_for(layer):
        def scaled(pattern, hook):
            factors = torch.ones_like(pattern)
            for position, label in zip(prompt.label_positions, prompt.label_classes, strict=True):
                factors[0, :, prompt.target, position] = leaf[layer, :, label].exp()
            return pattern * factors

        return scaled

    hooks = [(f"blocks.{layer}.attn.hook_pattern", hook_for(layer)) for layer in range(N_LAYERS)]
    with torch.enable_grad(), bridge.hooks(fwd_hooks=[*before, *hooks]):
        logits = bridge(torch.tensor([prompt.tokens]))[0, prompt.target]
    loss = cross_entropy(logits[list(prompt.label_tokens)], torch.tensor(prompt.answer))
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


def token_gradient(rows, beta, before=()):
    leaf = beta.clone().requires_grad_()
    work = Work([], [*before, Reweight(leaf)], checkpoint=False)
    with rows[0].model.gradients():
        loss = work.losses(merged(rows), "label").mean()
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


# Gradients


def test_single_tokens_give_the_gradients_of_whole_prompts(model):
    prompts = ragged()
    rows = single_rows(prepare(model, prompts))
    for number, (row, one) in enumerate(zip(rows, prompts, strict=True)):
        assert row.indices == (number,)
        found, expected = (
            token_gradient([row], random_beta()),
            plain_gradient(model, one, random_beta()),
        )
        assert float(expected[1].abs().max()) > 1e-3
        assert_close(found[0], expected[0], atol=1e-5, rtol=1e-4)
        assert_close(found[1], expected[1], atol=1e-5, rtol=1e-3)


def test_a_batch_has_the_mean_of_its_prompts_gradients(model):
    chosen = [2, 0, 4, 1]
    rows = single_rows(prepare(model, ragged()))
    singles = [token_gradient([rows[i]], random_beta(1)) for i in chosen]
    loss, gradient = token_gradient([rows[i] for i in chosen], random_beta(1))
    assert_close(loss, torch.stack([one for one, _ in singles]).mean(), atol=1e-5, rtol=1e-4)
    assert_close(gradient, torch.stack([g for _, g in singles]).mean(0), atol=1e-5, rtol=1e-3)


def test_demonstrations_of_one_class_share_their_factor(gpt2):
    """Class 1 stands at 2, 4 and 6; raising one shared beta raises all three columns."""
    (row,) = single_rows(prepare(gpt2, ragged()[[4]]))
    _, gradient = token_gradient([row], random_beta())
    assert float(gradient[..., 1].abs().max()) > 1e-3
    assert float(gradient[..., [0, 2]].abs().max()) == 0.0
    step = 1e-2 * gradient
    with torch.no_grad():
        works = [Work([], [Reweight(random_beta() + d)], checkpoint=False) for d in (-step, step)]
        before, after = (float(work.losses(row, "label")) for work in works)
    assert after - before == pytest.approx(2e-2 * float((gradient**2).sum()), rel=1e-2)


# Training


def test_the_first_step_moves_each_factor_by_the_learning_rate(gpt2):
    prompts = ragged()[[0]]
    _, gradient = plain_gradient(gpt2, prompts[0], torch.zeros(SHAPE))
    with WORDS.warns(UserWarning, "first_step_moves_each", "No", "'class 2'"):
        fitted = fit_reweighting(gpt2, prompts, lr=0.02, epochs=1)
    known = gradient.abs() > 1e-4  # smaller ones may have either sign
    expected = torch.where(known, -0.02 * gradient.sign(), fitted.beta)
    assert int(known.sum()) > 10
    assert_close(fitted.beta, expected, atol=1e-4, rtol=0)
    assert fitted.beta[..., 2].eq(0).all()


def test_steps_of_two_follow_adam(gpt2):
    prompts = ragged()
    options = {"lr": 0.05, "epochs": 2, "batch_size": 2, "shuffle": False}
    fitted = fit_reweighting(gpt2, prompts, **options)
    beta = torch.zeros(SHAPE)
    first, second = torch.zeros(SHAPE), torch.zeros(SHAPE)
    losses = []
    for step, chosen in enumerate(2 * [[0, 1], [2, 3], [4]], start=1):
        pairs = [plain_gradient(gpt2, prompts[i], beta) for i in chosen]
        losses.append(torch.stack([loss for loss, _ in pairs]).mean())
        gradient = torch.stack([gradient for _, gradient in pairs]).mean(0)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        sizes = (second / (1 - 0.999**step)).sqrt() + 1e-8
        beta = beta - 0.05 * first / (1 - 0.9**step) / sizes
    assert_close(fitted.losses, torch.stack(losses), atol=1e-4, rtol=1e-4)
    assert_close(fitted.beta, beta, atol=1e-3, rtol=0)


def test_losses_start_with_those_of_the_plain_model_in_order(gpt2):
    prompts = ragged()
    logits = icl.predict(gpt2, prompts).label_logits
    fitted = fit_reweighting(gpt2, prompts, lr=1e-9, epochs=2, shuffle=False)
    expected = cross_entropy(logits, prompts.answers, reduction="none")
    assert_close(fitted.losses, expected.repeat(2), atol=1e-4, rtol=1e-4)


def test_training_lowers_the_loss(model):
    fitted = fit_reweighting(model, ragged(), lr=0.1, epochs=8, batch_size=5)
    assert len(fitted.losses) == 8
    assert float(fitted.losses[-1]) < float(fitted.losses[0]) - 0.05


def test_the_order_is_drawn_from_the_seed(gpt2):
    prompts = ragged()
    runs = [fit_reweighting(gpt2, prompts, lr=0.1, epochs=2, seed=seed) for seed in (3, 3, 4)]
    assert runs[0] == runs[1]
    assert torch.equal(runs[0].losses, runs[1].losses)
    assert runs[0] != runs[2]
    epochs = runs[0].losses.reshape(2, 5)
    assert epochs[0].argsort().tolist() != epochs[1].argsort().tolist()


def test_the_model_is_left_as_it_was(gpt2):
    before = {name: p.clone() for name, p in gpt2.named_parameters()}
    wanted = {name: p.requires_grad for name, p in gpt2.named_parameters()}
    logits = icl.predict(gpt2, ragged()).label_logits
    fit_reweighting(gpt2, ragged(), lr=0.5, epochs=1)
    assert {name: p.requires_grad for name, p in gpt2.named_parameters()} == wanted
    assert all(torch.equal(p, before[name]) for name, p in gpt2.named_parameters())
    assert all(p.grad is None for p in gpt2.parameters())
    assert torch.equal(icl.predict(gpt2, ragged()).label_logits, logits)


# Held-out prompts


def answered(answer, seeds):
    return PromptBatch(
        tuple(prompt(9, (2, 4, 6), (0, 1, 2), answer=answer, seed=seed) for seed in seeds)
    )


@pytest.mark.parametrize(("asked", "best"), [(1, 0), (2, 1)])
def test_no_factors_are_kept_that_the_held_out_prompts_do_not_want(gpt2, asked, best):
    """Trained on one answer, judged by another: only the first epoch may help a little."""
    train, held_out = answered(asked, (1, 2, 3)), answered(0, (4, 5))
    fitted = fit_reweighting(
        gpt2, train, lr=0.1, epochs=9, validation=held_out, patience=2, shuffle=False
    )
    plain = cross_entropy(icl.predict(gpt2, held_out).label_logits, held_out.answers)
    assert float(fitted.held_out_losses[0]) == pytest.approx(float(plain), abs=1e-4)
    assert bool(apart(-fitted.held_out_losses))
    assert int(fitted.held_out_losses.argmin()) == best
    assert fitted.training["epoch_kept"] == best
    assert fitted.training["epochs_run"] == best + 2
    assert len(fitted.held_out_losses) == best + 3
    assert len(fitted.losses) == 3 * (best + 2)
    assert bool(fitted.beta.eq(0).all()) == (best == 0)


@pytest.mark.parametrize(("asked", "wanted", "best"), [(2, 0, 1), (0, 2, 4)])
def test_the_best_factors_are_kept(gpt2, asked, wanted, best):
    train, held_out = answered(asked, (1, 2, 3)), answered(wanted, (4, 5))
    options = {"lr": 0.1, "shuffle": False}
    fitted = fit_reweighting(gpt2, train, epochs=4, validation=held_out, **options)
    assert bool(apart(-fitted.held_out_losses))
    assert fitted.training["epochs_run"] == 4  # without patience all epochs are run
    assert fitted.training["epoch_kept"] == best
    assert fitted == fit_reweighting(gpt2, train, epochs=best, **options)


# The value itself


def test_a_fit_survives_its_document(gpt2):
    for validation in (None, answered(0, (4, 5))):
        fitted = fit_reweighting(gpt2, ragged(), epochs=1, validation=validation)
        document = json.loads(json.dumps(jsonable(fitted.to_dict())))
        loaded = load_intervention(document)
        assert type(loaded) is FittedReweight
        assert loaded == fitted
        assert torch.equal(loaded.losses, fitted.losses)
        assert loaded.training == jsonable(fitted.training)
        if validation is None:
            assert loaded.held_out_losses is None
        else:
            assert torch.equal(loaded.held_out_losses, fitted.held_out_losses)


def test_equal_factors_are_equal_however_they_came_about():
    beta = random_beta()
    fitted = FittedReweight(beta=beta, losses=torch.zeros(4))
    assert fitted == Reweight(beta)
    assert Reweight(beta) == fitted
    assert fitted != Reweight(beta + 1)
    assert repr(fitted) == f"FittedReweight(beta=tensor{list(SHAPE)}, 4 steps)"


def test_a_fit_is_an_intervention_of_every_analysis(gpt2):
    prompts = ragged()
    fitted = fit_reweighting(gpt2, prompts, lr=0.3, epochs=3)
    plain = Reweight(fitted.beta)
    for analysis, field in ((icl.predict, "label_logits"), (icl.flow_scores, "per_prompt")):
        found, expected, without = (
            getattr(analysis(gpt2, prompts, interventions=changes), field)
            for changes in ([fitted], [plain], [])
        )
        assert torch.equal(found, expected)
        assert not torch.allclose(found, without)


# Evaluation


def test_factors_of_one_are_the_plain_model_bit_for_bit(model):
    result = evaluate_reweighting(model, Reweight(torch.zeros(SHAPE)), ragged())
    assert torch.equal(result.label_logits[0], result.label_logits[1])
    assert result.difference().value == 0
    assert_close(
        result.label_logits[0], icl.predict(model, ragged()).label_logits, atol=1e-4, rtol=1e-4
    )


def by_hand(**changes):
    """Four prompts: plain right on 1, re-weighted on 3, more shots on 2."""
    predicted = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]])
    return replace(
        ReweightingResult(
            label_logits=torch.nn.functional.one_hot(predicted, 2).float(),
            answers=torch.tensor([0, 1, 0, 0]),
            beta=torch.tensor([[[1.0, -3.0], [0.5, 0.5]]]),
            conditions=("plain", "reweighted", "more_shots"),
            demonstrations=(2, 2, 10),
            labels=("no", "yes"),
        ),
        **changes,
    )


def test_accuracies_and_their_paired_difference(unchecked):
    result = by_hand()
    assert [result.accuracy(name).value for name in result.conditions] == [0.25, 0.75, 0.75]
    expected = wilson_interval(torch.tensor([1, 0, 0, 0]).bool())
    assert result.accuracy("plain") == pytest.approx(tuple(expected), abs=1e-15)
    assert result.difference() == mean_interval(torch.tensor([0.0, 1.0, 1.0, 0.0]), "change")
    assert result.difference("more_shots", "reweighted").value == 0.0
    for ask in (result.accuracy, result.difference):
        with WORDS.raises(ResultError, "accuracies_their_paired_difference", "'plane'", "'plain'"):
            ask("plane")


def test_table():
    table = by_hand().to_pandas()
    assert list(table.columns) == ["condition", "accuracy", "accuracy_low", "accuracy_high"]
    assert table["condition"].tolist() == ["plain", "reweighted", "more_shots"]
    assert table["accuracy"].tolist() == [0.25, 0.75, 0.75]
    assert table["accuracy_low"].tolist() == [by_hand().accuracy(c).low for c in table["condition"]]


def test_summary_says_whether_there_is_a_gain():
    unclear = by_hand()
    assert "re-weighted 0.75 [" in unclear.summary()
    written = said(unclear.difference(), sign=True)
    WORDS(unclear.summary(), "summary_says_whether_there", written)
    assert "; 10 demonstrations 0.75 [" in unclear.summary()
    logits = torch.eye(2)[torch.tensor([[1] * 40, [0] * 40])]
    clear = by_hand(
        label_logits=logits,
        answers=torch.zeros(40, dtype=torch.long),
        conditions=("plain", "reweighted"),
        demonstrations=(2, 2),
    )
    assert 0.8 < clear.difference().low < clear.difference().high == 1
    written = said(clear.difference(), sign=True)
    WORDS.ends(clear.summary(), "difference", written, "40")
    shared = replace(clear, provenance={"conditional_on_demonstrations": True}, seen_in_training=3)
    WORDS.ends(shared.summary(), "summary_says_whether_there_2", "3")


def test_drawings_hold_the_numbers():
    result = by_hand()
    bars = result.drawing()
    assert isinstance(bars, Bars)
    assert len(bars.groups) == 3
    WORDS.exactly(bars.groups, "groups", "2", "10")
    assert bars.values[:, 0].tolist() == [0.25, 0.75, 0.75]
    assert float(bars.low[1, 0]) == result.accuracy("reweighted").low
    assert float(bars.high[1, 0]) == result.accuracy("reweighted").high
    assert bars.levels == ((0.5, "chance 0.50"),)
    written = said(result.difference(), sign=True)
    WORDS.starts(bars.note, "note_of_bars", written, "4")
    grid = result.drawing("beta")
    assert grid.signed
    assert (grid.row_title, grid.column_title) == ("head", "layer")
    assert_close(grid.values, torch.tensor([[-1.0], [0.5]]))
    assert_close(result.drawing("beta", label="yes").values, torch.tensor([[-3.0], [0.5]]))
    for drawing in (bars, grid):
        figure(drawing)
    with WORDS.raises(ResultError, "drawings_hold_numbers", "'yess'", "'yes'"):
        result.drawing("beta", label="yess")
    with WORDS.raises(ResultError, "drawings_hold_numbers_2", "'bars'", "'beta'"):
        result.drawing("bars")
    with WORDS.raises(ResultError, "drawings_hold_numbers_3"):
        result.drawing("training")


def test_training_curve(gpt2):
    held_out = answered(1, (6, 7))
    fitted = fit_reweighting(
        gpt2, answered(0, (1, 2, 3)), lr=0.1, epochs=2, batch_size=2, validation=held_out
    )
    curves = evaluate_reweighting(gpt2, fitted, answered(1, (8, 9))).drawing("training")
    assert curves.x == (1.0, 2.0, 3.0, 4.0)
    assert curves.x_title == "step"
    assert_close(curves.values[0], fitted.losses)
    means = fitted.losses.reshape(2, 2).mean(1)
    assert_close(curves.values[1], means[[0, 0, 1, 1]])
    assert_close(curves.values[2, [1, 3]], fitted.held_out_losses[1:])
    assert curves.values[2, [0, 2]].isnan().all()
    figure(curves)


@pytest.fixture(scope="module")
def study():
    """Training prompts, test prompts and more shots of one small task, and the model."""
    bridge = tiny_model("gpt2")
    task = toy_task(per_class=8)
    extra = icl.build_prompts(task, bridge, n=8, split="train")
    test, more = (icl.build_prompts(task, bridge, n=12, shots=shots) for shots in (1, 3))
    return bridge, extra, test, more


def test_from_a_task_to_a_saved_result(study, tmp_path):
    bridge, extra, test, more = study
    fitted = fit_reweighting(bridge, extra, lr=0.1, epochs=2)
    result = evaluate_reweighting(bridge, fitted, test, more_shots=more)
    for row, changes, prompts in ((0, [], test), (1, [fitted], test), (2, [], more)):
        expected = icl.predict(bridge, prompts, interventions=changes).label_logits
        assert_close(result.label_logits[row], expected, atol=1e-4, rtol=1e-4)
    assert result.demonstrations == (2, 2, 6)
    assert result.seen_in_training == 0
    assert result.provenance["variants"] == {
        "reweighting": fitted.to_dict(),
        "more_shots": {"digest": more.digest, "count": 12},
    }
    assert result.provenance["more_shots"]["shots"] == 3
    assert result.provenance["interventions"] == []
    loaded = Result.load(result.save(tmp_path / "result"))
    assert type(loaded) is ReweightingResult
    assert torch.equal(loaded.label_logits, result.label_logits)
    assert torch.equal(loaded.losses, fitted.losses)
    assert loaded.summary() == result.summary()
    assert loaded.drawing("training").values.shape == (2, 16)
    assert load_intervention(loaded.provenance["variants"]["reweighting"]) == fitted


def test_training_prompts_are_told_apart_from_test_prompts(study):
    bridge, extra, test, _ = study
    fitted = fit_reweighting(bridge, extra, epochs=1)
    mixed = PromptBatch((*extra[:3], *test[:4]), test.source)
    with WORDS.warns(UserWarning, "training_prompts_told_apart", "3", "7"):
        result = evaluate_reweighting(bridge, fitted, mixed)
    assert result.seen_in_training == 3


# What is refused


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"lr": 0.0}, RunError, "lr0.0 0"),
        ({"lr": -0.1}, RunError, "lr-0.1"),
        ({"lr": float("nan")}, RunError, "lrnan"),
        ({"epochs": 0}, RunError, "epochs0 1"),
        ({"batch_size": 0}, RunError, "batch_size0"),
        ({"patience": 3}, RunError, "validation"),
        ({"patience": 0, "validation": answered(0, (4,))}, RunError, "patience0"),
        ({"validation": ragged()[2:4]}, PromptError, "2 trained on"),
        ({"validation": ragged(answers=False)}, PromptError, "5 without answer"),
    ],
)
def test_options_out_of_range(gpt2, options, error, words):
    with pytest.raises(error) as caught:
        fit_reweighting(gpt2, ragged(), **options)
    WORDS(str(caught.value), words)


def bare():
    return prompt(6, (), (), answer=1, seed=9)


def behind():
    """Its only label word stands behind the target."""
    whole = prompt(9, (7,), (1,), answer=1, seed=3)
    return icl.Prompt.from_positions(
        whole.tokens, label_positions=(7,), label_classes=(1,),
        label_tokens=whole.label_tokens, answer=1, target=5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        (ragged(answers=False), "no answer 5"),
        (PromptBatch((*ragged(), bare())), "no demonstration 1 6"),
        (PromptBatch((behind(),)), "no demonstration before 1"),
    ],
)
def test_prompts_nothing_can_be_learned_from(gpt2, prompts, words):
    with WORDS.raises(PromptError, words, "training"):
        fit_reweighting(gpt2, prompts)
    with WORDS.raises(PromptError, words, "test"):
        evaluate_reweighting(gpt2, Reweight(torch.zeros(SHAPE)), prompts)


def test_validation_of_another_task(gpt2):
    other = PromptBatch((prompt(9, (2,), (0,), answer=0, seed=1, label_tokens=(301, 302, 304)),))
    with WORDS.raises(PromptError, "validation_another_task"):
        fit_reweighting(gpt2, ragged(), validation=other)


def test_more_shots_with_other_queries(study):
    bridge, _, test, more = study
    factors = Reweight(torch.zeros(N_LAYERS, N_HEADS, 2))
    other = PromptBatch(more.prompts[::-1], more.source)
    for wrong in (more[:5], other):
        with WORDS.raises(PromptError, "more_shots_other_queries"):
            evaluate_reweighting(bridge, factors, test, more_shots=wrong)


def test_factors_of_another_size(gpt2):
    for size, words in (((2, N_HEADS, 3), "two layers"), ((*SHAPE[:2], 2), "two classes")):
        with WORDS.raises(RunError, words, "beta", "2"):
            evaluate_reweighting(gpt2, Reweight(torch.zeros(size)), ragged())


def test_a_training_that_leaves_the_finite_numbers(gpt2):
    with WORDS.raises(IclMechError, "training_leaves_finite_numbers"):
        fit_reweighting(gpt2, ragged(), lr=1e30, epochs=9)


# The reference


@pytest.mark.tl3
@pytest.mark.parametrize("task", ["sst2", "agnews"])
def test_training_of_the_reference(task):
    golden = {
        name.removeprefix(f"{task}_"): torch.from_numpy(values)
        for name, values in arrays("label_words", "reweight.npz").items()
        if name.startswith(f"{task}_")
    }
    model = golden_model("label_words", "tiny_gpt2")
    extra, test = (
        label_words_prompts(f"{name}") for name in (f"reweight_train/{task}", f"icl/{task}_s1")
    )
    options = {"lr": 0.1, "batch_size": 1, "shuffle": False}
    three = fit_reweighting(model, extra[:3], epochs=1, **options)
    assert_close(three.beta, golden["train_first_betas"][2], atol=5e-4, rtol=0)
    for epochs in (1, 2, 3):
        fitted = fit_reweighting(model, extra, epochs=epochs, **options)
        assert_close(fitted.beta, golden["train_betas_epoch"][epochs - 1], atol=5e-4, rtol=0)
    losses = golden["train_step_losses"].float().flatten()
    assert_close(fitted.losses, losses, atol=5e-5, rtol=0)
    result = evaluate_reweighting(model, fitted, test)
    for row, name in ((0, "vanilla_class_logits"), (1, "trained_class_logits")):
        assert_close(
            result.label_logits[row], golden[name], atol=5e-5 if row == 0 else 5e-4, rtol=0
        )
    assert bool(apart(result.label_logits).all())
    trained, vanilla = golden["acc_trained_vanilla"].tolist()
    assert result.accuracy("reweighted").value == pytest.approx(trained, abs=1e-12)
    assert result.accuracy("plain").value == pytest.approx(vanilla, abs=1e-12)


@pytest.mark.tl3
@pytest.mark.parametrize("task", ["sst2", "agnews"])
def test_first_gradients_of_the_reference(task):
    golden = arrays("label_words", "reweight.npz")
    prompts = label_words_prompts(f"reweight_train/{task}")
    rows = single_rows(prepare(golden_model("label_words", "tiny_gpt2"), prompts))
    betas = torch.from_numpy(golden[f"{task}_train_first_betas"])
    gradients = torch.from_numpy(golden[f"{task}_train_first_grads"])
    for step in range(3):
        beta = torch.zeros_like(betas[0]) if step == 0 else betas[step - 1]
        _, found = token_gradient([rows[step]], beta)
        assert_close(found, gradients[step], atol=1e-5, rtol=0)

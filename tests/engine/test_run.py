"""What a run does to the model, what it refuses, and how edits and readings meet."""

import pytest
import torch

import icl_mech as icl
from icl_mech.engine import Work, run
from icl_mech.errors import ModelError, PromptError, RunError
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.flow import FlowReading
from icl_mech.measurements.saliency.saliency_maps import SaliencyReading
from icl_mech.models import adapt
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment
from tests.engine.cases import (
    LABEL_TOKENS,
    Broken,
    Edge,
    EdgeReading,
    plain_saliency,
    prompt,
    ragged,
    three_tokens,
)
from tests.said import Words
from tests.tiny import N_CTX, tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module", params=["gpt2", "gptj", "llama"])
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


def installed(model):
    """Hooks at the hook points and on the modules beneath."""
    points = {name: len(point.fwd_hooks) for name, point in model.hook_dict.items()}
    modules = {
        name: (len(module._forward_hooks), len(module._backward_hooks))
        for name, module in model.named_modules()
    }
    return points, modules


# --- edits and readings ---


def test_edits_apply_in_the_order_given_and_readings_see_the_result(model):
    edge = {"layer": 1, "dest": 2, "src": 1}
    double, shift = Edge(**edge, factor=2.0), Edge(**edge, term=0.25)
    reading = EdgeReading(**edge)
    plain, doubled_first, shifted_first = (
        run(model, ragged(), [reading], edits)[0]
        for edits in ((), (double, shift), (shift, double))
    )
    torch.testing.assert_close(doubled_first, 2 * plain + 0.25)
    torch.testing.assert_close(shifted_first, 2 * (plain + 0.25))


def test_an_edit_reaches_later_blocks_and_the_logits(model):
    edit = Edge(0, dest=2, src=1, factor=0.0, term=3.0)
    before, after = (
        run(model, three_tokens(), [EdgeReading(1, 2, 1), PredictionReading()], edits)
        for edits in ((), (edit,))
    )
    assert float((before[0] - after[0]).abs().max()) > 1e-3
    assert float((before[1][0] - after[1][0]).abs().max()) > 1e-2


def test_an_edit_that_changes_nothing_gives_the_plain_numbers(model):
    nothing = [Edge(layer, dest=2, src=1) for layer in range(3)]
    plain, edited = (icl.flow_scores(model, ragged(), interventions=i) for i in ((), nothing))
    torch.testing.assert_close(edited.per_prompt, plain.per_prompt, rtol=0, atol=0)
    assert [edit.to_dict() for edit in nothing] == edited.provenance["interventions"]


def test_saliency_is_that_of_the_edited_pattern(model):
    """The map of the edited model; the same edit made by a hook of this test."""
    layer, dest, src = 1, 2, 0

    def edit(pattern, hook):
        edited = pattern.clone()
        edited[:, :, dest, src] = edited[:, :, dest, src] * 0.5 + 0.3
        return edited

    prompts = three_tokens()
    adapt(model)
    with model.hooks(fwd_hooks=[(f"blocks.{layer}.attn.hook_pattern", edit)]):
        expected = plain_saliency(model, prompts[0], "label").sum(1).abs()
    edits = [Edge(layer, dest, src, factor=0.5, term=0.3)]
    (found,) = icl.saliency_maps(model, prompts, interventions=edits).values
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-6)
    (plain,) = icl.saliency_maps(model, prompts).values
    assert float((plain - found).abs().max()) > 1e-3 * float(plain.max())


def test_an_edge_set_to_zero_has_no_saliency(model):
    edits = [Edge(1, dest=2, src=1, factor=0.0)]
    (values,) = icl.saliency_maps(model, three_tokens(), interventions=edits).values
    assert float(values[1, 2, 1]) == 0.0
    assert float(values[1, 2, 0]) > 0.0
    assert float(values[0, 2, 1]) > 0.0


def test_several_readings_in_one_pass_equal_single_passes(model):
    readings = [FlowReading(), SaliencyReading(), PredictionReading(), EdgeReading(0, 2, 1)]
    flow, maps, predicted, edge = run(model, ragged(), readings)
    alone = [run(model, ragged(), [reading])[0] for reading in readings]
    same = {"rtol": 1e-4, "atol": 3e-6}
    torch.testing.assert_close(flow, alone[0], **same)
    torch.testing.assert_close(maps, alone[1], **same)
    torch.testing.assert_close(predicted[0], alone[2][0], rtol=0, atol=5e-5)
    torch.testing.assert_close(edge, alone[3], **same)


# --- the model afterwards ---


def test_hooks_are_gone_after_a_run(model):
    adapt(model)
    before = installed(model)
    icl.analyze(model, ragged(), interventions=[Edge(0, 2, 1, factor=0.5)])
    assert installed(model) == before


def test_hooks_and_flags_are_restored_after_an_error_inside_a_hook(model):
    adapt(model)
    before = installed(model)
    plain = icl.predict(model, ragged()).label_logits
    flags = [parameter.requires_grad for parameter in model.parameters()]
    for study in (icl.flow_scores, icl.predict):
        with WORDS.raises(ValueError, "hooks_flags_restored_after"):
            study(model, ragged(), interventions=[Edge(0, 2, 1, factor=0.0), Broken()])
    assert installed(model) == before
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    torch.testing.assert_close(icl.predict(model, ragged()).label_logits, plain, rtol=0, atol=0)


def test_hooks_of_the_user_survive_and_act():
    model = tiny_model("gpt2")
    plain = icl.predict(model, three_tokens()).label_logits
    seen = []

    def own(residual, hook):
        seen.append(residual.shape)
        return residual + torch.linspace(-1, 1, residual.shape[-1])

    model.add_hook("blocks.1.hook_resid_post", own)
    steered = icl.predict(model, three_tokens()).label_logits
    icl.flow_scores(model, three_tokens())
    with WORDS.raises(ValueError, "hooks_user_survive_act"):
        icl.predict(model, three_tokens(), interventions=[Broken()])
    assert float((steered - plain).abs().max()) > 1e-2
    seen.clear()
    logits = model(torch.tensor([three_tokens()[0].tokens]))[0, -1]
    assert seen == [(1, 3, 32)]
    torch.testing.assert_close(logits[list(LABEL_TOKENS)], steered[0], rtol=0, atol=5e-5)
    model.reset_hooks()
    after = icl.predict(model, three_tokens()).label_logits
    torch.testing.assert_close(after, plain, rtol=0, atol=0)


@pytest.mark.slow
def test_gradient_flags_are_restored_and_no_parameter_gets_a_gradient():
    model = tiny_model("llama")
    for number, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(number % 2 == 0)
    flags = [parameter.requires_grad for parameter in model.parameters()]
    assert set(flags) == {True, False}
    icl.flow_scores(model, ragged())
    icl.saliency_maps(model, ragged())
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert [name for name, p in model.named_parameters() if p.grad is not None] == []


def test_gradients_are_read_inside_no_grad(model):
    expected = icl.flow_scores(model, ragged()).per_prompt
    with torch.no_grad():
        found = icl.flow_scores(model, ragged()).per_prompt
        assert not torch.is_grad_enabled()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_the_global_random_state_is_left_alone(gpt2):
    before = torch.get_rng_state()
    icl.analyze(gpt2, ragged())
    torch.testing.assert_close(torch.get_rng_state(), before)


def test_no_progress_bar_outside_a_terminal(gpt2, capfd):
    icl.flow_scores(gpt2, ragged())
    assert capfd.readouterr() == ("", "")


# --- what is refused ---


def test_a_hook_that_does_not_fire_is_an_error(gpt2, monkeypatch):
    adapt(gpt2)
    silent = gpt2.hook_dict["blocks.1.attn.hook_pattern"]
    monkeypatch.setattr(silent, "add_hook", lambda function: None)
    with WORDS.raises(RunError, "hook_fire_error", "1", "'pattern'"):
        icl.predict(gpt2, three_tokens(), interventions=[Edge(1, 2, 1, factor=0.0)])
    with WORDS.raises(RunError, "hook_fire_error_2", "'pattern'", "1"):
        run(gpt2, three_tokens(), [EdgeReading(1, 2, 1)])
    with WORDS.raises(RunError, "hook_fire_error_3", "1"):
        Work([], [Edge(1, 2, 1)], False).begin(Segment.whole(adapt(gpt2), three_tokens()))
    with WORDS.raises(RunError, "hook_fire_error_4"):
        icl.flow_scores(gpt2, three_tokens())


def test_a_site_the_model_does_not_have(gpt2):
    before = installed(gpt2)
    with WORDS.raises(ModelError, "site_model", "'pattern'", "3"):
        run(gpt2, three_tokens(), [EdgeReading(3, 2, 1)])
    assert installed(gpt2) == before


def test_two_losses_in_one_run(gpt2):
    with WORDS.raises(RunError, "two_losses_run", "'label'", "'vocab'"):
        run(gpt2, ragged(), [FlowReading(loss="label"), SaliencyReading(loss="vocab")])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("study", [icl.flow_scores, icl.saliency_maps, icl.analyze])
def test_unknown_variants(gpt2, study):
    with WORDS.raises(RunError, "unknown_variants", "'labels'", "'label'"):
        study(gpt2, ragged(), loss="labels")
    with pytest.raises(RunError, match=r"reduction='sum'. .*sum_then_abs"):
        study(gpt2, ragged(), reduction="sum")


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_word_score(gpt2):
    with WORDS.raises(RunError, "unknown_word_score", "'means'", "'mean'"):
        icl.predict(gpt2, ragged(), score="means")


@pytest.mark.parametrize("study", [icl.flow_scores, icl.saliency_maps, icl.analyze])
@pytest.mark.parametrize("loss", ["label", "vocab"])
def test_a_loss_that_needs_answers(gpt2, study, loss):
    with WORDS.raises(PromptError, "loss_needs_answers", "5", "'prediction'"):
        study(gpt2, ragged(answers=False), loss=loss)


@pytest.mark.parametrize("study", [icl.flow_scores, icl.analyze])
@pytest.mark.parametrize("positions", [(), (0,)], ids=["no demonstration", "label word first"])
def test_flow_needs_demonstrations(gpt2, study, positions):
    without = prompt(6, positions, (0,) * len(positions), answer=0)
    with WORDS.raises(PromptError, "flow_needs_demonstrations"):
        study(gpt2, PromptBatch((*ragged(), without)))


def test_maps_and_predictions_need_no_demonstrations(gpt2):
    zero_shot = PromptBatch((prompt(6, (), (), answer=0, seed=3),))
    expected = plain_saliency(gpt2, zero_shot[0], "label").sum(1).abs()
    (found,) = icl.saliency_maps(gpt2, zero_shot).values
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-6)
    logits = gpt2(torch.tensor([zero_shot[0].tokens]))[0, -1, list(LABEL_TOKENS)]
    torch.testing.assert_close(
        icl.predict(gpt2, zero_shot).label_logits[0], logits, rtol=0, atol=5e-5
    )


@pytest.mark.parametrize("study", [icl.flow_scores, icl.saliency_maps, icl.predict, icl.analyze])
def test_a_token_outside_the_vocabulary(gpt2, study):
    size = gpt2.cfg.d_vocab
    tokens = (7, LABEL_TOKENS[0], size, 8)
    foreign = Prompt.from_positions(
        tokens, label_positions=[1], label_classes=[0], label_tokens=LABEL_TOKENS, answer=0
    )
    with WORDS.raises(PromptError, "outside_the_vocabulary", size, size, "'tiny-gpt2'"):
        study(gpt2, PromptBatch((foreign,)))


@pytest.mark.parametrize("study", [icl.flow_scores, icl.saliency_maps, icl.predict, icl.analyze])
def test_a_prompt_longer_than_the_context(gpt2, study):
    long = PromptBatch((*ragged(), prompt(N_CTX + 1, (4,), (0,), answer=0)))
    with WORDS.raises(PromptError, "longer_than_the_context", N_CTX + 1, N_CTX, "1", "'tiny-gpt2'"):
        study(gpt2, long)
    fits = PromptBatch((prompt(N_CTX, (4,), (0,), answer=0),))
    assert icl.predict(gpt2, fits).label_logits.isfinite().all()

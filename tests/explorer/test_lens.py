"""The explorer reads layers through a fitted lens: the numbers of the public functions, in every view."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import RunError
from icl_mech.explorer import explore
from tests.explorer.cases import TASK, TEXTS, model_of
from tests.said import Words
from tests.tiny import D_MODEL, N_LAYERS, tiny_model

WORDS = Words(__file__)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module", params=["tuned", "jacobian"])
def lens(request):
    model = model_of()
    if request.param == "tuned":
        weight, bias = 0.1 * drawn(N_LAYERS, D_MODEL, D_MODEL), drawn(N_LAYERS, D_MODEL, seed=1)
        return icl.TunedLens.given(model, weight, bias)
    return icl.JacobianLens.given(model, drawn(N_LAYERS, D_MODEL, D_MODEL, seed=2))


@pytest.fixture
def view(lens):
    opened = explore(model_of(), TASK, n=6, shots=1, threads=1, lens=lens)
    yield opened
    opened.close()


def close(values, expected):
    torch.testing.assert_close(torch.tensor(values), expected.float(), rtol=1e-3, atol=1e-4)


def test_layers_are_read_through_it(view, lens):
    asker, now = view.session.asker, view.experiment
    prompts = asker.prompts(now)
    public = icl.logit_lens(model_of(), prompts, lens=lens, progress=False)
    plain = icl.logit_lens(model_of(), prompts, progress=False)
    values = asker.ask("now", now)["lens"]
    close(values, public.label_logits[0].softmax(-1))
    assert not torch.allclose(torch.tensor(values)[:-1], plain.label_logits[0, :-1].softmax(-1))
    close(values[-1], plain.label_logits[0, -1].softmax(-1))


def test_all_queries_and_baselines_use_it(view, lens):
    asker, now = view.session.asker, view.experiment
    batch = now.prompts(asker.stage.task, asker.model, asker.stage.queries)
    public = icl.logit_lens(model_of(), batch, lens=lens, progress=False).label_logits
    board = asker.board.lenses(now)
    for number in range(len(batch)):
        torch.testing.assert_close(board[number], public[number], rtol=1e-5, atol=1e-4)
    close(asker.ask("prior", now)["mean"], public.softmax(-1).mean(0))
    assert view.over_all().after["logit_lens"].lens == lens.kind


def test_changes_and_baselines_without_content_use_it(view, lens):
    view.isolate(range(1))
    asker, now = view.session.asker, view.experiment
    prompts = asker.prompts(now)
    changes = asker.changes(now, prompts)
    public = icl.logit_lens(
        model_of(), prompts, lens=lens, interventions=changes, progress=False
    ).label_logits[0]
    close(asker.ask("now", now)["lens"], public.softmax(-1))
    assert len(asker.ask("prior", now)["calibrated"]) == N_LAYERS + 1


def test_page_and_code_name_it(view, lens):
    state = []
    view.session.join(state.append)
    view.session.do({"do": "hello"})
    names = {message["lens"] for message in state if message.get("kind") == "state"}
    assert names == {lens.called}
    assert f"fitted = ...  # the {lens.called}" in view.code()
    assert "icl.logit_lens(model, prompts, lens=fitted" in view.code()


def test_texts_are_read_through_it(lens):
    model = model_of()
    batch = icl.texts(TEXTS, model)
    view = explore(model, batch, threads=1, lens=lens)
    public = icl.logit_lens(model, batch[:1], lens=lens, progress=False)
    assert view.session.asker.stage.lens is lens
    values = torch.tensor(view.session.asker.ask("now", view.experiment)["lens"])
    assert values.shape[0] == public.label_logits.shape[1]
    view.close()


def test_a_lens_of_another_model(lens):
    with pytest.raises(RunError):
        explore(tiny_model("gpt2", seed=1), TASK, n=4, shots=1, threads=1, lens=lens)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_lens():
    with WORDS.raises(RunError, "no_lens"):
        explore(model_of(), TASK, n=4, shots=1, threads=1, lens="tuned")

"""Free texts in the explorer: numbers of the public functions, what they have no use for, and texts typed in."""

import base64
import random

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import PromptError, RunError
from icl_mech.explorer import explore
from icl_mech.explorer.history import History
from tests.explorer.cases import TEXTS, Page, between, model_of, opened_texts
from tests.said import Words

WORDS = Words(__file__)

OWN = "The team is a movie. The price was World and"

HIDDEN = between("span", 0, 1, demo=0)
STATES = {
    "nothing": [],
    "a hidden span": [HIDDEN],
    "an isolated token": [between("position", 0, 2, token=5)],
    "a head": [{"do": "head", "layer": 1, "head": 2}],
    "all at once, in another text": [
        {"do": "query", "number": 2},
        between("span", 1, 2, demo=1),
        between("position", 0, 0, token=3),
        {"do": "heads", "heads": [[0, 1], [2, 3]]},
    ],
    "a text of one's own": [{"do": "ask", "text": OWN}, HIDDEN],
}


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def shared(request):
    view = opened_texts(request.param)
    view.model = model_of(request.param)
    yield view
    view.close()


@pytest.fixture
def view(shared):
    """At the start, and nothing else is known."""
    shared.session.history = History([shared.session.history.past[0]])
    return shared


def after(view, actions):
    for action in actions:
        view.session.do(action)
    query = view.experiment.query
    return icl.texts([query.text], view.model), view.changes


@pytest.mark.parametrize("state", STATES)
def test_numbers_are_those_of_the_public_functions(view, state):
    texts, changes = after(view, STATES[state])
    now = view.figures()
    predicted = icl.predict(view.model, texts, interventions=changes)
    lens = icl.logit_lens(view.model, texts, interventions=changes)
    heads = icl.logit_lens(view.model, texts, per="head", interventions=changes).label_logits[0]
    close = {"atol": 2e-4, "rtol": 1e-3}
    torch.testing.assert_close(
        torch.tensor(now["probs"]).double(), predicted.log_probs[0].double().exp(), **close
    )
    torch.testing.assert_close(torch.tensor(now["lens"]).double(), lens.probs[0], **close)
    torch.testing.assert_close(torch.tensor(now["heads"]), heads[..., 0] - heads[..., 1], **close)


@pytest.mark.parametrize("state", STATES)
def test_what_tokens_read_is_their_saliency_towards_the_next_token(view, state):
    texts, changes = after(view, STATES[state])
    flow = view.figures("flow")
    maps = icl.saliency_maps(view.model, texts, interventions=changes).values[0].tril(-1)
    assert flow["values"] == []
    assert flow["top"] == pytest.approx(float(maps.max()), rel=1e-3)
    codes = torch.tensor([*base64.b64decode(flow["maps"])]).double()
    rows, columns = torch.tril_indices(*maps.shape[-2:])
    steps = (maps / maps.max()).clamp(min=1e-30).log10() / 4 + 1
    expected = (steps.clamp(0, 1) * 255)[..., rows, columns].flatten().double()
    torch.testing.assert_close(codes, expected, atol=1.01, rtol=0)


@pytest.mark.parametrize("state", STATES)
def test_the_script_gives_the_numbers_on_the_screen(view, state, capsys):
    after(view, STATES[state])
    space = {"model": view.model}
    lines = [line for line in view.code().splitlines() if not line.startswith("model = ")]
    exec("\n".join(lines), space)  # noqa: S102 - what a reader would do with them
    assert float(space["after"].log_probs.exp()[0, 0]) == pytest.approx(
        view.figures()["probs"][0], rel=1e-3
    )
    lens = space["lens"].sel("prob").values
    torch.testing.assert_close(
        lens.double(), torch.tensor(view.figures()["lens"]).double(), atol=2e-4, rtol=1e-3
    )


def test_the_followed_token_stays_whatever_is_changed(view):
    names = view.session.state()["labels"]
    assert names[0] == view.figures()["next"][0][0]
    after(view, [HIDDEN, *STATES["an isolated token"]])
    assert view.session.state()["labels"] == names


def test_a_continuation_is_followed():
    model = model_of()
    texts = icl.texts(TEXTS, model, continuation=" river")
    view = explore(model, texts, threads=1)
    predicted = icl.predict(model, texts)
    assert view.figures()["probs"][0] == pytest.approx(
        float(predicted.log_probs[0, 0].exp()), rel=1e-3
    )
    space = {"model": model, "icl": icl}
    lines = view.code(every=True).splitlines()[3:]
    exec("\n".join(lines), space)  # noqa: S102 - what a reader would do with them
    torch.testing.assert_close(space["after"].log_probs, predicted.log_probs)
    view.close()


def test_special_tokens_are_read_as_in_the_set():
    model = model_of("llama")
    texts = icl.texts([f"{own}</s>" for own in TEXTS], model, special_tokens="control")
    view = explore(model, texts, threads=1)
    view.do("ask", text=f"{OWN}</s>")
    assert view.prompts[0].tokens[-1] == texts[0].tokens[-1]
    space = {"model": model, "icl": icl}
    lines = view.code().splitlines()[3:]
    exec("\n".join(lines), space)  # noqa: S102 - what a reader would do with them
    assert space["prompts"][0].tokens == view.prompts[0].tokens
    view.close()


def test_texts_with_anchors_of_their_own_have_these_spans():
    model = model_of()
    view = explore(model, icl.texts(TEXTS[:1], model, anchors=[["story", "movie"]]), threads=1)
    tokens = view.session.state()["tokens"]
    assert max(token["d"] for token in tokens if token["d"] is not None) == 2
    space = {"model": model, "icl": icl}
    lines = view.code().splitlines()[3:]
    exec("\n".join(lines), space)  # noqa: S102 - what a reader would do with them
    assert space["prompts"].text_spans == view.prompts.text_spans
    view.close()


def test_what_needs_label_words_is_absent(view):
    page = Page(view)
    look = {"calibrated": True, "pair": True, "prior": True, "board": True, "heads": "labels"}
    page.do("hello", look=look)
    page.settled()
    assert set(page.parts()) == {"now", "ref", "flow", "refflow"}
    assert set(page.kinds()) == {"state", "busy", "part"}
    state = view.session.state()
    assert [kind["what"] for kind in state["kinds"]] == ["span", "position"]
    assert [mode["mode"] for mode in state["modes"]] == ["logit", "matching", "change"]
    assert state["queries"] == []
    for part in ("cal", "pair", "prior", "heads labels", "heads texts"):
        with pytest.raises(RunError, match="needs demonstrations"):
            view.figures(part)
    for measured in (view.over_all, view.finding):
        with WORDS.raises(RunError, "right answers"):
            measured()
    view.session.leave(page.hear)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ({"do": "add"}, "no demonstrations"),
        (between("isolate", 0, 1), "isolate"),
        (between("span", 0, 1, demo=2), "span 3"),
        (between("position", 0, 1, token=99), "token 99"),
        (between("position", 0, 1, token=0), "first token"),
        ({"do": "flip", "demo": 0}, "flip"),
    ],
)
def test_what_is_impossible_changes_nothing(view, action, said):
    before = view.experiment
    with WORDS.raises(RunError, said):
        view.session.do(action)
    assert view.experiment == before


def test_another_text_keeps_heads_only(view):
    after(view, [HIDDEN, *STATES["an isolated token"], *STATES["a head"]])
    view.do("query", number=1)
    assert [change.what for change in view.experiment.changes] == ["heads"]
    assert view.session.note


def test_a_line_break_at_the_end_of_a_text_typed_in_stays(view):
    view.do("ask", text=f"{OWN}\n")
    assert view.prompts[0].text == f"{OWN}\n"


def test_a_text_of_one_sentence_is_refused(view):
    with WORDS.raises(PromptError, "one sentence"):
        view.do("ask", text="One")


def test_states_are_shared_saved_and_stored_as_a_page(view, tmp_path):
    after(view, STATES["a text of one's own"])
    line, now = view.share(), view.experiment
    view.undo().undo()
    assert view.open(line).experiment == now
    view.save(tmp_path)
    again = explore(view.model, icl.texts(TEXTS, view.model), history=tmp_path, threads=1)
    assert again.experiment == now
    again.close()
    view.save_page(tmp_path / "page.html")
    assert "texts, " in (tmp_path / "page.html").read_text()


def test_a_notebook_without_a_kernel_has_a_picture_of_the_text(view):
    after(view, [{"do": "query", "number": 1}, HIDDEN])
    mime = view._repr_mimebundle_()
    assert "Business" in mime["text/plain"]
    assert f"{view.figures()['probs'][0]:.2f}" in mime["text/plain"]
    assert "<svg" in mime["text/html"]


def test_random_actions_leave_a_state_that_can_be_measured(view):
    rng = random.Random(0)
    for _ in range(40):
        layers = {"from": rng.randrange(3), "to": rng.randrange(3)}
        action = rng.choice(
            [
                {"do": "range", "what": "span", "demo": rng.randrange(4), **layers},
                {"do": "range", "what": "position", "token": rng.randrange(40), **layers},
                {"do": "head", "layer": rng.randrange(3), "head": rng.randrange(4)},
                {"do": "query", "number": rng.randrange(-2, 5)},
                {"do": "ask", "text": f"{OWN} {rng.randrange(9)}"},
                {"do": "remove", "change": rng.randrange(3)},
                {"do": "undo"},
            ]
        )
        page = Page(view)
        page.do(action.pop("do"), **action)
        view.session.leave(page.hear)
        assert 0 < sum(view.figures()["probs"]) < 1


def test_other_prompts_of_texts_are_refused():
    model = model_of()
    prompt = icl.Prompt.from_spans([5, 6, 7, 8], [(0, 2), (2, 4)])
    with WORDS.raises(PromptError, "from their text"):
        explore(model, icl.PromptBatch((prompt,), {}), threads=1)

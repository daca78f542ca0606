"""Heads: values of every mode are those of the public functions, and zeroed heads are compared with random ones."""

import base64

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import RunError
from icl_mech.explorer import heads
from icl_mech.explorer.asking import Asker
from icl_mech.models import adapt
from tests.explorer.cases import EVERY, Page, asked, done, model_of, opened, opened_open
from tests.said import Words
from tests.tiny import FAMILIES

WORDS = Words(__file__)

GROUP = [[0, 1], [1, 3], [2, 0]]


def attended(experiment, asker, row="target", family="gpt2"):
    """Attention of every head from a token, by the public function."""
    prompts = asker.prompts(experiment)
    changes = asker.changes(experiment, prompts)
    return icl.head_attention(
        model_of(family), prompts, row=row, interventions=changes, progress=False
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("what", EVERY)
def test_attention_is_that_of_the_public_function(family, what):
    asker, start = asked(family)
    own = done(start, asker.stage, *EVERY[what])
    prompt = asker.prompts(own)[0]
    public = attended(own, asker, family=family)
    expected = public.values[0].reshape(3, 4, -1)
    found = heads.attention(asker, own, prompt.target)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    labels = torch.tensor(asker.ask("heads labels", own)["values"])
    torch.testing.assert_close(
        labels.double(), public.sel("to_label_words").values.double(), atol=1e-3, rtol=1e-3
    )
    columns = [
        place
        for span in prompt.spans
        if span.role == "demo_text"
        for place in range(span.start, span.stop)
    ]
    texts = torch.tensor(asker.ask("heads texts", own)["values"])
    torch.testing.assert_close(texts, expected[..., columns].sum(-1), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("what", ["nothing", "isolated label words", "patched", "a head"])
def test_rows_of_any_token(what):
    asker, start = asked()
    own = done(start, asker.stage, *EVERY[what])
    size = len(asker.prompts(own)[0])
    for token in (0, 7, size - 1):
        rows = asker.ask(f"rows {token}", own)
        steps = torch.tensor([*base64.b64decode(rows["maps"])]).reshape(3, 4, token + 1) / 255
        expected = attended(own, asker, row=token).values[0].reshape(3, 4, -1)
        assert (rows["token"], rows["t"]) == (token, size)
        torch.testing.assert_close(steps, expected, atol=0.003, rtol=0)


def test_prefix_matching_is_that_of_the_model_alone():
    asker, start = asked()
    found = torch.tensor(asker.ask("heads matching", start)["values"])
    public = icl.induction_scores(model_of(), n=heads.SEQUENCES, progress=False).values
    torch.testing.assert_close(found, public.float(), atol=1e-3, rtol=1e-3)


def test_from_cached_rows_one_row_is_computed():
    model = model_of()
    own, start = Asker(adapt(model), asked()[0].stage), asked()[1]
    own.read(start)
    rows = []

    def counting(forward):
        def counted(tokens, *args, **more):
            rows.append(tokens.shape[1])
            return forward(tokens, *args, **more)

        return counted

    own.model.forward = counting(own.model.forward)
    own.ask("heads labels", start)
    assert rows == [1]


def test_zeroed_heads_beside_random_ones():
    view = opened()
    asker = view.session.asker
    before = view.figures()["probs"]
    view.do("heads", heads=GROUP)
    null, answer = view.figures("null"), view.experiment.query.answer
    assert null["count"] == 3
    assert null["without"] == pytest.approx(before[answer], abs=1e-4)
    assert null["zeroed"] == pytest.approx(view.figures()["probs"][answer], abs=1e-4)
    draws = heads.drawn([(0, 1), (1, 3), (2, 0)], 3, 4)
    expected = []
    for draw in draws:
        prompts = asker.prompts(view.experiment)
        public = icl.predict(
            model_of(), prompts, interventions=[icl.ZeroHeads([*draw])], progress=False
        )
        expected.append(float(public.label_probs[0, answer]))
    assert null["random"] == pytest.approx(expected, abs=1e-4)
    assert len(set(expected)) > 1
    view.close()


def test_random_heads_are_others_of_the_same_layers():
    draws = heads.drawn([(0, 1), (0, 2), (2, 0)], 3, 4)
    assert len(draws) == heads.DRAWS
    assert draws == heads.drawn([(0, 1), (0, 2), (2, 0)], 3, 4)
    for draw in draws:
        assert sorted(layer for layer, _ in draw) == [0, 0, 2]
        assert not {(0, 1), (0, 2), (2, 0)} & {*draw}
        assert len({*draw}) == 3
    (crowded, *_) = heads.drawn([(0, 0), (0, 1), (0, 2)], 2, 4)
    assert [layer for layer, _ in crowded] == [0, 1, 1]
    assert heads.drawn([(0, 0), (0, 1), (0, 2)], 1, 4) == []


def test_a_group_of_heads_is_one_step():
    view = opened()
    view.zero_head(1, 3)
    view.do("heads", heads=GROUP)
    assert view.experiment.changes[0].heads == ((0, 1), (1, 3), (2, 0))
    view.do("heads", heads=GROUP[:2])
    assert view.experiment.changes[0].heads == ((2, 0),)
    view.undo()
    view.undo()
    assert view.experiment.changes[0].heads == ((1, 3),)
    view.close()


@pytest.mark.parametrize(
    ("group", "words"),
    [([], "no_heads"), ("all", "no_list"), ([[0, 9]], "no_such_head"), ([[0]], "no_pair")],
)
def test_groups_that_are_none(group, words):
    view = opened()
    with WORDS.raises(RunError, words):
        view.do("heads", heads=group)
    view.close()


def test_a_page_is_sent_what_it_shows():
    view = opened()
    page = Page(view)
    page.do("hello")
    page.settled()
    assert "heads" not in page.parts()
    generation = view.session.generation
    page.heard.clear()
    page.do("look", look={"heads": "labels", "rows": True, "token": 3})
    page.settled()
    assert page.parts().keys() == {"heads", "rows"}
    assert page.parts()["heads"]["mode"] == "labels"
    assert page.parts()["rows"]["token"] == 3
    assert view.session.generation == generation
    page.do("head", layer=0, head=1)
    page.settled()
    assert page.parts()["null"]["count"] == 1
    view.close()


def test_prefix_matching_is_measured_once_for_all_states(monkeypatch):
    measured = []

    def counted(*args, **more):
        measured.append(args)
        return icl.induction_scores(*args, **more)

    monkeypatch.setattr(heads, "induction_scores", counted)
    view = opened()
    page = Page(view)
    page.do("flip", demo=0, look={"heads": "matching"})
    page.settled()
    page.do("flip", demo=1, look={"heads": "matching"})
    page.settled()
    assert page.parts()["heads"]["mode"] == "matching"
    assert len(measured) == 1
    view.close()


def test_modes_of_free_form_answers_speak_of_answers():
    view = opened_open()
    short = [mode["short"] for mode in view.session.state()["modes"]]
    assert "to answers" in short
    assert len(torch.tensor(view.figures("heads labels")["values"])) == 3
    view.close()

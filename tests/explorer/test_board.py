"""All queries before and after: the numbers of the public functions, in batches, measured once, and only if shown."""

import threading

import pytest
import torch

import icl_mech as icl
from icl_mech.explorer.asking import Asker
from icl_mech.explorer.board import TOGETHER, StoppedError, answered
from icl_mech.measurements.calibration.calibration import CONTENT_FREE
from icl_mech.measurements.calibration.content_free import replaced
from icl_mech.metrics.calibration import calibrate_labels
from tests.explorer.cases import EVERY, TASK, Page, asked, done, model_of, opened, opened_open
from tests.patience import seconds

LOOK = {"layer": 0, "token": None, "mode": "roles"}


@pytest.fixture
def view():
    own = opened()
    yield own
    own.close()


@pytest.fixture(scope="module")
def of_answers():
    own = opened_open()
    yield own
    own.close()


def everywhere(asker, experiment):
    """Prompts and interventions over all queries."""
    queries = asker.stage.queries
    prompts = experiment.prompts(asker.stage.task, asker.model, queries)
    return prompts, asker.changes(experiment, prompts, queries)


def same(asker, experiment):
    """The board's rows are those of `predict`."""
    prompts, changes = everywhere(asker, experiment)
    expected = icl.predict(model_of(), prompts, interventions=changes, progress=False)
    lenses = asker.board.lenses(experiment)
    for number, query in enumerate(asker.stage.queries):
        probability, best = answered(lenses[number], query.answer)
        wanted = float(expected.label_probs[number, query.answer])
        assert probability == pytest.approx(wanted, abs=1e-5, rel=1e-3)
        assert best == int(expected.predicted[number])


@pytest.mark.parametrize("what", EVERY)
def test_rows_of_classes(what):
    asker, start = asked()
    same(asker, done(start, asker.stage, *EVERY[what]))


@pytest.mark.parametrize("what", EVERY)
def test_rows_of_free_form_answers(of_answers, what):
    session = of_answers.session
    session.history.past[1:] = []
    for action in EVERY[what]:
        session.do(action)
    same(session.asker, of_answers.experiment)


def board(page):
    """The messages of a board, and its rows by query."""
    messages = [own for own in page.heard if own["kind"] == "board"]
    return messages, {row["q"]: row for own in messages for row in own["rows"]}


def test_a_board_streams_after_what_is_on_show_and_is_counted_once_shown(view):
    page = Page(view)
    page.do("flip", demo=0, look={**LOOK, "board": True})
    page.settled()
    messages, rows = board(page)
    assert len(messages) == 1 + -(-6 // TOGETHER)
    assert sorted(rows) == [*range(6)]
    assert {own["of"] for own in messages} == {6}
    assert (messages[-1]["rows"], messages[-1]["tried"], messages[-1]["done"]) == ([], [1, 1], True)
    kinds = [(own["kind"], own.get("part")) for own in page.heard]
    assert kinds.index(("part", "flow")) < kinds.index(("board", None))
    here = rows[view.experiment.query.number]
    answer = view.experiment.query.answer
    probs = [page.parts()[part]["probs"] for part in ("ref", "now")]
    assert [here[side][0] for side in ("before", "now")] == pytest.approx(
        [own[answer] for own in probs], abs=1e-3
    )
    assert [here[side][1] for side in ("before", "now")] == [own.index(max(own)) for own in probs]


def test_a_board_of_the_reference_itself_streams_too_and_is_no_try(view):
    page = Page(view)
    page.do("hello", look={**LOOK, "board": True})
    page.settled()
    messages, rows = board(page)
    assert [len(own["rows"]) for own in messages] == [TOGETHER, 6 - TOGETHER, 0]
    assert all(row["before"] == row["now"] for row in rows.values())
    assert messages[-1]["tried"] == [0, 0]


def test_a_board_that_is_not_shown_is_not_measured_and_showing_it_makes_no_new_state(view):
    page = Page(view)
    page.do("flip", demo=0, look=LOOK)
    page.settled()
    assert board(page)[0] == []
    generation, parts = view.session.generation, page.parts()
    page.heard.clear()
    page.do("look", look={**LOOK, "board": True, "calibrated": True})
    page.settled()
    assert view.session.generation == generation
    assert "state" not in page.kinds()
    assert {*page.parts()} == {"cal", "refcal"}  # the others were sent before
    assert not {*page.parts()} & {*parts}
    assert len(board(page)[1]) == 6


def test_what_was_measured_is_not_measured_again(view, monkeypatch):
    page = Page(view)
    look = {**LOOK, "board": True}
    page.do("flip", demo=0, look=look)
    page.settled()
    ran = []
    run = icl.explorer.board.run
    monkeypatch.setattr(
        "icl_mech.explorer.board.run",
        lambda model, prompts, *more, **how: (
            ran.append(len(prompts)),
            run(model, prompts, *more, **how),
        )[1],
    )
    page.do("query", number=3, look=look)  # another query, the same board
    page.settled()
    page.do("undo", look=look)
    page.do("undo", look=look)
    page.settled()
    assert ran == []
    page.heard.clear()
    page.do("flip", demo=1, look=look)
    page.settled()
    assert ran == [6]  # the reference was there
    assert len(board(page)[1]) == 6


def test_the_next_change_stops_a_board_and_keeps_what_it_has(view, monkeypatch):
    page = Page(view)
    inside, release = threading.Event(), threading.Event()
    asker = view.session.asker
    monkeypatch.setattr("icl_mech.explorer.board.TOGETHER", 2)
    asker.board.lenses(view.experiment)
    finished = icl.explorer.board._Streamed.finished

    def slow(reading, info):
        found = finished(reading, info)
        if found and not release.is_set():
            inside.set()
            release.wait(seconds(60))
        return found

    monkeypatch.setattr("icl_mech.explorer.board._Streamed.finished", slow)
    page.do("flip", demo=0, look={**LOOK, "board": True})
    assert inside.wait(seconds(60))
    old = view.session.generation
    flipped = view.experiment
    page.do("flip", demo=1, look={**LOOK, "board": True})
    release.set()
    page.settled()
    messages = board(page)[0]
    assert not [own for own in messages if own["gen"] == old and own.get("done")]
    assert [own["gen"] for own in messages if own.get("done")] == [view.session.generation]
    assert [*view.session.history.tried.values()] == [
        [own] for (own,) in view.session.history.tried.values()
    ]
    assert len(asker.board.known(flipped)) == 2


def test_stopping_leaves_no_hook_and_the_rest_can_follow():
    asker, start = Asker(asked()[0].model, asked()[0].stage), asked()[1]
    batches = []
    with pytest.raises(StoppedError):
        asker.board.lenses(start, batches.append, lambda: any(batches))
    assert not asker.model.has_own_hooks
    assert 0 < len(asker.board.known(start)) < 6
    same(asker, start)


def test_queries_that_stand_among_the_demonstrations_have_no_row(view):
    page = Page(view)
    text = view.session.asker.stage.queries[2].text
    page.do("edit", demo=0, text=text, look={**LOOK, "board": True})
    page.settled()
    rows = board(page)[1]
    assert rows[2]["now"] is None
    assert rows[2]["before"] is not None
    assert all(rows[number]["now"] for number in rows if number != 2)


def test_the_state_lists_the_queries(view, of_answers):
    (first, *_) = view.session.state()["queries"]
    query = view.session.asker.stage.queries[0]
    assert first == {"text": query.text, "answer": query.answer, "label": TASK.labels[query.answer]}
    words = of_answers.session.state()["queries"]
    assert [own["label"] for own in words] == [
        own.words[0] for own in of_answers.session.asker.stage.queries
    ]


def test_attention_is_measured_only_while_a_head_is_shown(view):
    page = Page(view)
    page.do("attend", layer=1, head=2, look=LOOK)
    assert "attention" in {own["part"] for own in page.settled() if own["kind"] == "part"}
    for mode, measured in (("into", True), ("roles", False)):
        page.heard.clear()
        page.do("flip", demo=0, look={**LOOK, "mode": mode})
        page.settled()
        assert ("attention" in page.parts()) == measured
    page.do("attend", layer=1, head=2, look=LOOK)
    page.do("attend", layer=None, look=LOOK)
    page.settled()
    page.heard.clear()
    page.do("flip", demo=0, look={**LOOK, "mode": "into"})
    page.settled()
    assert "attention" not in page.parts()


def test_kept_rows_have_calibrated_values(view):
    page = Page(view)
    view.flip(0).do("keep").undo()
    page.do("hello", look={**LOOK, "calibrated": True})
    page.settled()
    parts = page.parts()
    kept = view.session.history.beside(view.session.history.named[0][1])
    assert parts["kept0cal"] == view.session.asker.ask("cal", kept) != parts["cal"]


def test_mass_is_the_probability_of_all_label_words():
    asker, start = asked()
    for what in ("nothing", "isolated label words"):
        own = done(start, asker.stage, *EVERY[what])
        prompts = asker.prompts(own)
        how = {"interventions": asker.changes(own, prompts), "progress": False}
        expected = icl.logit_lens(model_of(), prompts, **how).probs[0].sum(-1)
        found = torch.tensor(asker.ask("now", own)["mass"]).double()
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(
    "what", ["nothing", "a head", "isolated label words", "patched", "a hidden demonstration"]
)
def test_the_prior_of_the_lens(what):
    asker, start = asked()
    own = done(start, asker.stage, *EVERY[what])
    found = asker.ask("prior", own)
    bare = icl.build_prompts(TASK, model_of(), demonstrations=[], queries=[own.query.example])
    lens = icl.logit_lens(model_of(), bare, progress=False).label_probs[0]
    torch.testing.assert_close(torch.tensor(found["zero"]), lens, atol=1e-4, rtol=1e-3)
    prompts, changes = everywhere(asker, own)
    every = icl.logit_lens(model_of(), prompts, interventions=changes, progress=False)
    torch.testing.assert_close(
        torch.tensor(found["mean"]), every.label_probs.mean(0), atol=1e-4, rtol=1e-3
    )
    assert found["calibrated"][-1] == pytest.approx(asker.ask("cal", own)["probs"], rel=2e-3)
    if what == "patched":  # its source has to be without content too
        return
    plain = asker.prompts(own)
    without = replaced(plain, CONTENT_FREE, asker.model.tokenizer).prompts
    how = {"interventions": asker.changes(own, plain), "progress": False}
    of_none = icl.logit_lens(model_of(), without, **how).label_probs.transpose(0, 1)
    now = icl.logit_lens(model_of(), plain, **how).label_probs[0]
    expected = calibrate_labels(now, of_none).float()
    torch.testing.assert_close(torch.tensor(found["calibrated"]), expected, atol=1e-3, rtol=2e-3)


def test_free_form_answers_have_no_mean_and_no_content_free_prior(of_answers):
    of_answers.session.history.past[1:] = []
    found = of_answers.figures("prior")
    assert (found["mean"], found["calibrated"]) == (None, None)
    assert found["zero"][0]


def test_the_prior_comes_when_asked_for(view):
    page = Page(view)
    page.do("hello", look={**LOOK, "prior": True})
    page.settled()
    assert len(page.parts()["prior"]["mean"]) == 4
    assert board(page)[0] == []

"""The protocol: what a page hears, in which order, and what it never hears."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import PromptError, RunError
from icl_mech.explorer.pace import pace
from icl_mech.metrics import mean_interval
from tests.explorer.cases import LABELS, TASK, Page, between, model_of, opened
from tests.patience import seconds, until
from tests.said import Words

WORDS = Words(__file__)


@pytest.fixture
def view():
    own = opened()
    yield own
    own.close()


def test_the_state_comes_before_any_figure_and_every_part_comes_once(view):
    page = Page(view)
    page.do("hello", version=1)
    heard = page.settled()
    assert page.kinds()[0] == "state"
    parts = [own["part"] for own in heard if own["kind"] == "part"]
    assert parts == ["now", "ref", "flow", "pair", "refflow"]
    assert len({own["gen"] for own in heard if "gen" in own}) == 1
    json.dumps(heard)
    state = heard[0]
    assert state["labels"] == list(LABELS)
    assert "".join(own["t"] for own in state["tokens"]).count("Topic:") == 4
    assert (state["started"], state["undo"], state["n"], state["layers"]) == (True, False, 6, 3)


def test_many_actions_at_once_measure_only_the_newest(view):
    page = Page(view)
    page.do("hello", version=1)
    page.settled()
    page.heard.clear()
    for _ in range(20):
        page.do("flip", demo=0)
    newest = view.session.generation
    page.settled()
    generations = {own["gen"] for own in page.heard if own["kind"] == "part"}
    assert len(generations) <= 2
    assert newest in generations
    order = [own["gen"] for own in page.heard if own["kind"] == "part"]
    assert order == sorted(order)


def test_what_cannot_be_is_told_to_who_asked_and_changes_nothing(view):
    page, other = Page(view), Page(view)
    before = view.experiment
    for message in (
        None,
        [],
        "x",
        {"do": 3},
        {"do": "explode"},
        {"do": "flip", "demo": 99},
        {"do": "restore", "index": 0},
        {"do": "keep", "name": ""},
        {"do": "hello", "version": 7},
    ):
        view.session.do(message, page.hear)
    assert page.kinds() == ["error"] * 9
    assert other.heard == []
    assert view.experiment == before
    assert "version 7" in page.heard[-1]["text"]
    with WORDS.raises(RunError, "what_cannot_told_who"):
        view.flip(99)


def test_a_prompt_longer_than_the_context_is_refused_before_anything_changes(view):
    page = Page(view)
    page.do("edit", demo=0, text="river " * 700)
    assert page.kinds() == ["error"]
    WORDS(page.heard[0]["text"], "prompt_longer_than_context")
    assert len(view.session.history.past) == 1


def test_an_error_while_measuring_leaves_the_worker_alive(view, monkeypatch):
    page = Page(view)
    monkeypatch.setattr(view.session.asker, "read", lambda experiment: 1 / 0)
    page.do("flip", demo=0)
    page.settled()
    assert "ZeroDivisionError" in next(own["text"] for own in page.heard if own["kind"] == "error")
    monkeypatch.undo()
    page.heard.clear()
    page.do("flip", demo=0)
    page.settled()
    assert "now" in page.parts()


def test_undo_of_everything_is_the_start_bit_for_bit(view):
    page = Page(view)
    page.do("hello", version=1)
    page.settled()
    first, state = page.parts(), page.heard[0]
    for action in (
        {"do": "flip_all"},
        between("isolate", 0, 1),
        {"do": "head", "layer": 1, "head": 1},
        {"do": "query", "number": 3},
    ):
        view.session.do(action)
    for _ in range(4):
        page.do("undo")
    page.settled()
    page.heard.clear()
    page.do("hello", version=1)
    page.settled()
    assert page.parts() == first
    changing = ("gen", "seq", "redo")
    assert {k: v for k, v in page.heard[0].items() if k not in changing} == {
        k: v for k, v in state.items() if k not in changing
    }


def test_kept_states_are_measured_before_the_present_query_and_can_be_compared(view):
    page = Page(view)
    view.flip(0)
    view.do("keep", name="flipped")
    view.undo()
    page.do("reference", index=0)
    page.settled()
    assert page.parts()["kept0"] == page.parts()["ref"] != page.parts()["now"]
    state = [own for own in page.heard if own["kind"] == "state"][-1]
    assert state["reference"] == {"index": 0, "name": "flipped"}
    page.heard.clear()
    page.do("restore", index=0)
    page.do("forget", index=0)
    page.settled()
    assert page.parts()["now"]["probs"]
    assert view.experiment.demos[0].shown != view.experiment.demos[0].true


@pytest.mark.slow
def test_over_all_queries_with_intervals_as_public_functions_give_them(view):
    page = Page(view)
    view.do("flip_all")
    view.isolate(range(2))
    page.do("over_all")
    page.settled()
    found = next(own["data"] for own in page.heard if own["kind"] == "set")
    shares = [own["share"] for own in page.heard if own["kind"] == "progress"]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    model, stage = model_of(), view.session.asker.stage
    sides = []
    for experiment, how in (
        (view.session.history.start, []),
        (view.experiment, [icl.Isolate(range(2))]),
    ):
        prompts = icl.build_prompts(
            TASK,
            model,
            demonstrations=[demo.example for demo in experiment.demos],
            queries=[query.example for query in stage.queries],
        )
        sides.append(icl.predict(model, prompts, interventions=how, progress=False))
    before, after = sides
    assert found["now"]["accuracy"] == pytest.approx([*after.accuracy], abs=1e-6)
    assert found["before"]["accuracy"] == pytest.approx([*before.accuracy], abs=1e-6)
    own = torch.arange(6), after.answers
    gain = after.label_probs[own] - before.label_probs[own]
    assert found["difference"][0] == pytest.approx(float(gain.mean()), abs=1e-5)
    assert found["difference"] == pytest.approx([*mean_interval(gain, "change")], abs=1e-5)
    for side, own_side in (("before", before), ("now", after)):
        ends = mean_interval(own_side.label_probs[own], "outcome")
        drawn = [found[side][end][-1] for end in ("lens", "low", "high")]
        assert drawn == pytest.approx([*ends], abs=1e-3)
    assert found["same"][0] == pytest.approx(
        float((before.predicted == after.predicted).float().mean())
    )
    right = [(side.predicted == side.answers).double() for side in sides]
    assert view.over_all().accuracy_gain == mean_interval(right[1] - right[0], "change")
    assert "accuracy" in found["sentence"]
    WORDS(found["sentence"], "over_all_queries_intervals", "6")
    WORDS(found["sentence"], "over_all_queries_intervals_2")
    WORDS.exactly(found["warning"], "over_all_queries_intervals_3", "1")


@pytest.mark.slow
def test_different_changes_tried_on_the_same_queries_are_counted_and_the_third_warned_of(
    view, tmp_path
):
    def over_all(page):
        page.heard.clear()
        page.do("over_all")
        page.settled()
        return next(own["data"]["warning"] for own in page.heard if own["kind"] == "set")

    page = Page(view)
    assert over_all(page) == ""  # the start beside itself is no change
    view.flip(0)
    WORDS.exactly(over_all(page), "different_changes_tried_same", "1")
    view.do("query", number=2)  # the same change, looked at from another query
    WORDS.exactly(over_all(page), "different_changes_tried_same", "1")
    WORDS.ends(view.flip(1).over_all().sentence(), "different_changes_tried_same_2", "2")
    view.do("keep").undo().do("reference", index=0)  # the same state against another reference
    both = view.over_all()
    assert (both.number, both.tried) == (3, 3)
    WORDS(both.sentence(), "different_changes_tried_same_3", "3")
    view.do("reference").save(tmp_path)
    again, fresh = opened(history=tmp_path), opened(history=tmp_path, seed=1)
    WORDS.starts(over_all(Page(again)), "different_changes_tried_same_4", "1", "3")
    WORDS.ends(fresh.over_all().sentence(), "different_changes_tried_same", "1")
    for own in (again, fresh):
        own.close()


def test_a_stopped_run_is_no_try(view):
    page = Page(view)
    view.flip(0)
    page.do("over_all")
    page.do("stop")
    page.settled()
    assert not any(view.session.history.tried.values())


@pytest.mark.slow
def test_a_run_over_all_stops_and_goes_on_when_a_page_comes_back(view):
    page = Page(view)
    release, inside = threading.Event(), threading.Event()
    own = view.session.asker
    plain = own.changes

    def slow(*args):
        if args[2:] not in ((), (None,)):  # for all queries
            inside.set()
            release.wait(seconds(60))
        return plain(*args)

    own.changes = slow
    view.flip(0)
    page.settled()
    page.heard.clear()
    page.do("over_all")
    assert inside.wait(seconds(60))
    page.do("hello", version=1)  # reloaded: the run goes on
    release.set()
    page.settled()
    assert "set" in page.kinds()
    release.clear()
    inside.clear()
    view.flip(1)
    page.settled()
    page.heard.clear()
    page.do("over_all")
    assert inside.wait(seconds(60))
    page.do("stop")
    release.set()
    page.settled()
    assert page.heard
    assert "set" not in page.kinds()
    assert any(own["kind"] == "progress" and own["share"] is None for own in page.heard)


def test_an_action_during_a_run_over_all_ends_it(view):
    page = Page(view)
    view.flip(0)
    page.do("over_all")
    page.do("flip", demo=1)
    page.settled()
    assert "set" not in page.kinds()
    assert view.session.wanted is None


def test_a_page_that_is_gone_keeps_nobody_waiting(view):
    def gone(message):
        raise ConnectionError

    view.session.join(gone)
    page = Page(view)
    page.do("flip", demo=0)
    page.settled()
    assert "now" in page.parts()


def test_two_views_of_one_model_wait_for_each_other():
    views = [opened(), opened()]
    pages = [Page(own) for own in views]
    for _ in range(3):
        for page in pages:
            page.do("flip", demo=0)
    for page in pages:
        page.settled()
    assert pages[0].parts()["now"]["probs"] == pages[1].parts()["now"]["probs"]
    for own in views:
        own.close()


def test_a_saved_history_goes_on(view, tmp_path):
    view.flip(1).isolate(range(2)).do("keep", name="x")
    view.save(tmp_path)
    again = opened(history=tmp_path)
    assert again.session.history == view.session.history
    again.undo().undo()
    assert again.experiment == view.session.history.start
    again.close()
    for text in ("{", "[]", '{"task": "other"}'):
        (tmp_path / "history.json").write_text(text)
        with pytest.raises(RunError):
            opened(history=tmp_path)
    with WORDS.raises(RunError, "saved_history_goes"):
        opened(history=tmp_path / "nowhere")


def test_values_in_python(view):
    view.flip(0).isolate(range(2)).zero_head(1, 2)
    assert [type(own).__name__ for own in view.changes] == ["Isolate", "ZeroHeads"]
    found = icl.predict(model_of(), view.prompts, interventions=view.changes, progress=False)
    assert view.figures()["probs"] == pytest.approx(found.label_probs[0].tolist(), abs=1e-3)
    WORDS(repr(view), "values_python")
    both = view.over_all()
    assert len(both.after["predictions"].predicted) == 6


@pytest.mark.parametrize(
    ("given", "said"), [(lambda: icl.build_prompts(TASK, model_of(), n=4), "built")]
)
def test_prompts_that_cannot_be_explored(given, said):
    with WORDS.raises(PromptError, said):
        icl.explore(model_of(), given())


def test_prompts_of_ones_own_task_and_false_ones():
    prompts = icl.build_prompts(TASK, model_of(), n=4, labels="permuted")
    view = icl.explore(model_of(), prompts, task=TASK, threads=1)
    assert not view.experiment.all_true
    assert view.prompts[0].tokens == prompts[0].tokens
    view.close()


def test_prompts_with_demonstrations_of_their_own_run_after_those_of_the_first():
    prompts = icl.build_prompts(TASK, model_of(), n=4, demonstrations="per_prompt")
    assert len({prompt.tokens[: prompt.target // 2] for prompt in prompts}) > 1
    view = icl.explore(model_of(), prompts, task=TASK, threads=1)
    assert view.prompts[0].tokens == prompts[0].tokens
    state = view.session.state()
    assert (state["shared"], state["n"]) == (False, 4)
    WORDS.exactly(state["note"], "demonstrations_their_own")
    page = Page(view)
    page.do("flip", demo=0)
    page.settled()
    assert [own["note"] for own in page.heard if own["kind"] == "state"] == [""]
    view.close()


def test_without_demonstrations_all_but_the_flow_is_measured():
    prompts = icl.build_prompts(TASK, model_of(), n=4, shots=0)
    view = icl.explore(model_of(), prompts, task=TASK, threads=1)
    page = Page(view)
    page.do("hello", look={"calibrated": True, "prior": True, "board": True})
    heard = page.settled()
    assert [own["text"] for own in heard if own["kind"] == "error"] == []
    parts = page.parts()
    assert parts["flow"]["values"] == []
    assert parts["flow"]["top"] > 0
    assert parts["prior"]["zero"] == parts["now"]["lens"]
    expected = icl.predict(model_of(), prompts[0:1], progress=False).label_probs[0]
    assert parts["now"]["probs"] == pytest.approx(expected.tolist(), abs=1e-3)
    assert "flow_scores" not in view.code()
    view.do("flip_all").zero_head(1, 1)
    with WORDS.raises(RunError, "without_demonstrations"):
        view.isolate(range(2))
    view.do("add")
    assert len(view.experiment.demos) == 1
    assert "flow_scores" in view.code()
    view.isolate(range(2))
    page.do("drop", demo=0)
    assert [change.what for change in view.experiment.changes] == ["heads"]
    WORDS.exactly(view.session.note, "without_demonstrations_2")
    assert len(view.over_all().after["predictions"].predicted) == 4
    view.close()


def test_the_same_state_with_another_query_is_not_compared_with_itself(view):
    assert not view.session.state()["compared"]
    view.do("query", number=3)
    assert not view.session.state()["compared"]
    assert not view.session.state()["started"]
    view.flip(0)
    assert view.session.state()["compared"]
    view.do("keep").do("reference", index=0)
    assert not view.session.state()["compared"]
    view.do("query", number=1)
    assert not view.session.state()["compared"]
    view.flip(1)
    assert view.session.state()["compared"]


def test_a_page_names_a_token_by_its_position(view):
    prompt = view.prompts[0]
    for place in (2, prompt.label_positions[1], prompt.target - 1):
        view.do("range", what="token", token=place, **{"from": 0, "to": 1})
        assert view.session.state()["changes"][-1]["token"] == place
    view.do("drop", demo=0)
    moved = [own["token"] for own in view.session.state()["changes"]]
    assert [view.prompts[0].tokens[own] for own in moved] == [
        prompt.tokens[own] for own in (prompt.label_positions[1], prompt.target - 1)
    ]
    with WORDS.raises(RunError, "page_names_token_position"):
        view.do("range", what="token", token=999, **{"from": 0, "to": 1})


def test_threads_come_back():
    before = torch.get_num_threads()
    with pace(3):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == before


def test_threads_come_back_when_the_last_of_two_ends():
    before = torch.get_num_threads()
    one, other = pace(3), pace(2)
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert torch.get_num_threads() == 2
    other.__exit__(None, None, None)
    assert torch.get_num_threads() == before


def test_closing_ends_the_worker():
    own = opened()
    own.close()
    until(lambda: not own.session._thread.is_alive(), 20, "the worker's end")


@pytest.mark.slow
def test_weights_that_change_are_noticed_in_every_figure_and_over_all():
    model = icl.untrained(model_of(), seed=4)
    view = icl.explore(model, TASK, n=6, threads=1)
    page = Page(view)
    view.flip(0)
    page.do("over_all")
    page.settled()
    old = next(own["data"]["difference"] for own in page.heard if own["kind"] == "set")
    heads = view.figures()["heads"]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)
    expected = (
        icl.logit_lens(model, view.prompts, per="head", progress=False).sel("contrast").values
    )
    assert view.figures()["heads"] != heads
    torch.testing.assert_close(
        torch.tensor(view.figures()["heads"]).double(), expected, atol=1e-3, rtol=1e-3
    )
    page.heard.clear()
    page.do("over_all")
    page.settled()
    new = next(own["data"]["difference"] for own in page.heard if own["kind"] == "set")
    assert new != old
    assert new[0] == pytest.approx(view.over_all().gain.value, abs=1e-6)
    view.close()


def test_hooks_of_ones_own_come_and_go():
    model = icl.untrained(model_of(), seed=5)
    view = icl.explore(model, TASK, n=6, threads=1)
    plain = view.figures()["probs"]
    model.add_hook("blocks.1.hook_resid_post", lambda value, hook: value * 1.5)
    hooked = icl.predict(model, view.prompts, progress=False).label_probs[0]
    assert view.figures()["probs"] == pytest.approx(hooked.tolist(), abs=1e-3)
    view.flip(0)
    hooked = icl.predict(model, view.prompts, progress=False).label_probs[0]
    assert view.figures()["probs"] == pytest.approx(hooked.tolist(), abs=1e-3)
    model.reset_hooks()
    found = icl.predict(model, view.prompts, progress=False).label_probs[0]
    assert view.figures()["probs"] == pytest.approx(found.tolist(), abs=1e-3)
    assert view.undo().figures()["probs"] == plain
    view.close()


def test_another_reference_ends_a_run_over_all_and_one_query_has_none(view):
    page = Page(view)
    view.flip(0).do("keep")
    view.flip(1)
    page.do("over_all")
    page.do("reference", index=0)
    page.settled()
    assert "set" not in page.kinds()
    one = icl.explore(model_of(), TASK, n=1, threads=1)
    with WORDS.raises(RunError, "another_reference_ends_run"):
        one.do("over_all")
    one.close()


def test_a_part_that_cannot_be_leaves_the_others(view):
    page = Page(view)
    old = view.experiment.demos[0].text
    view.do("edit", demo=0, text="quite another story")
    view.do("ask", text=old, answer=0)
    page.settled()
    # The reference has the query among its demonstrations.
    WORDS(
        next(own["text"] for own in page.heard if own["kind"] == "error"),
        "part_cannot_leaves_others",
    )
    assert {"now", "pair", "flow"} >= set(page.parts()) >= {"now", "flow"}


def test_labels_of_other_lengths_are_not_patched():
    from icl_mech.tasks import Task

    task = Task(
        "longer", TASK.template, ("World", "Sports news story", "Business"), TASK.train, TASK.test
    )
    view = icl.explore(model_of(), task, n=3, threads=1)
    view.do("range", what="patch", **{"from": 0, "to": 1})
    with pytest.raises(PromptError, match="align"):
        view.figures()
    view.close()


@pytest.mark.parametrize(
    "change",
    [
        {"what": "explode"},
        {"demo": 99},
        {"layers": [0, 99]},
        {"token": -1},
        {"factor": -2.0},
        {"heads": [[0, 9]]},
    ],
    ids=str,
)
def test_a_history_with_what_no_action_makes(view, tmp_path, change):
    view.isolate(range(2)).save(tmp_path)
    file = tmp_path / "history.json"
    saved = json.loads(file.read_text())
    saved["past"][-1]["changes"][0] |= change
    file.write_text(json.dumps(saved))
    with WORDS.raises(RunError, "history_what_no_action"):
        opened(history=tmp_path)


def test_a_view_that_is_shown_twice_has_one_widget(view):
    pytest.importorskip("anywidget")
    before = len(view.session._listeners)
    for _ in range(3):
        view._repr_mimebundle_()
    assert len(view.session._listeners) == before + 1


@pytest.mark.slow
def test_python_ends_while_something_is_measured():
    code = (
        "from tests.explorer.cases import opened\n"
        "views = [opened(), opened()]\n"
        "[own.flip(0).do('over_all') for own in views]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True
    )
    # A thread inside torch at the end would abort: "terminate called without an active exception".
    assert done.returncode == 0, done.stderr
    assert "terminate called" not in done.stderr


def test_all_positions_of_a_dragged_bar_are_one_step(view):
    view.isolate(range(2))
    steps = len(view.session.history.past)
    for _ in range(2):
        for number, end in enumerate((0, 1, 0, 1)):
            view.do("stretch", change=0, **{"from": 0, "to": end}, over=number > 0)
    view.do("stretch", change=0, **{"from": 0, "to": 0}, over=False)
    assert len(view.session.history.past) == steps + 1  # dragging to where it began left nothing
    view.do("stretch", change=0, **{"from": 1, "to": 1}, over=True)
    assert len(view.session.history.past) == steps + 1
    assert view.undo().experiment.changes[0].layers == (0, 1)

"""Actions on experiments, without model and browser."""

import json
import random

import pytest

from icl_mech.errors import RunError
from icl_mech.explorer.actions import ACTIONS, act
from icl_mech.explorer.experiment import Demo, Experiment
from icl_mech.explorer.history import History
from tests.explorer.cases import asked, between, done, random_action
from tests.said import Words

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def begun():
    asker, start = asked()
    return start, asker.stage


def test_a_flip_goes_through_the_classes_and_back(begun):
    start, stage = begun
    shown = [start.demos[0].shown]
    now = start
    for _ in range(3):
        now = done(now, stage, {"do": "flip", "demo": 0})
        shown.append(now.demos[0].shown)
    assert shown == [(shown[0] + step) % 3 for step in range(4)]
    assert now == start
    assert done(start, stage, {"do": "flip", "demo": 0, "to": 2}).demos[0].shown == 2


def test_flipping_all_twice_is_nothing_and_once_leaves_none_true(begun):
    start, stage = begun
    flipped = done(start, stage, {"do": "flip_all"})
    assert all(demo.shown == (demo.true + 1) % 3 for demo in flipped.demos)
    assert done(flipped, stage, {"do": "flip_all"}) == start
    mixed = done(start, stage, {"do": "flip", "demo": 1}, {"do": "flip_all"})
    assert mixed == start


def test_changes_go_with_their_demonstration(begun):
    start, stage = begun
    hidden = done(
        start, stage, between("hide", 0, 1, demo=1), between("token", 0, 2, demo=2, token=1)
    )
    moved = done(hidden, stage, {"do": "move", "demo": 1, "by": -1})
    assert [own.demo for own in moved.changes] == [0, 2]
    dropped, note = act(hidden, {"do": "drop", "demo": 1}, stage)
    assert [(own.what, own.demo) for own in dropped.changes] == [("token", 1)]
    WORDS(note, "changes_go_their_demonstration")
    assert [own.demo for own in done(hidden, stage, {"do": "drop", "demo": 0}).changes] == [0, 1]


def test_a_token_of_a_text_that_is_edited_is_no_longer_isolated(begun):
    start, stage = begun
    own = done(
        start, stage, between("token", 0, 2, demo=0, token=1), between("token", 0, 2, token=1)
    )
    edited, note = act(own, {"do": "edit", "demo": 0, "text": "a new text"}, stage)
    assert [change.demo for change in edited.changes] == [None]
    WORDS(note, "token_text_edited_no")
    asked_anew, note = act(own, {"do": "query", "number": 3}, stage)
    assert [change.demo for change in asked_anew.changes] == [0]
    WORDS(note, "token_text_edited_no")


def test_one_change_of_a_kind_and_place(begun):
    start, stage = begun
    twice = done(start, stage, between("isolate", 2, 0), between("isolate", 1, 2))
    assert [own.layers for own in twice.changes] == [(1, 2)]
    both = done(start, stage, between("hide", 0, 0, demo=0), between("hide", 0, 0, demo=1))
    assert len(both.changes) == 2
    assert done(both, stage, {"do": "stretch", "change": 1, "from": 2, "to": 1}).changes[
        1
    ].layers == (1, 2)
    assert (
        done(
            start,
            stage,
            between("reweight", 0, 1, factor=2),
            {"do": "scale", "change": 0, "factor": 1},
        )
        == start
    )


def test_heads_are_chosen_and_let_go(begun):
    start, stage = begun
    two = done(
        start, stage, {"do": "head", "layer": 2, "head": 1}, {"do": "head", "layer": 0, "head": 3}
    )
    assert two.changes[0].heads == ((0, 3), (2, 1))
    assert "2 heads" in two.title(start)
    assert (
        done(
            two,
            stage,
            *({"do": "head", "layer": layer, "head": head} for layer, head in two.changes[0].heads),
        )
        == start
    )


def test_an_added_demonstration_is_fresh_and_of_the_rarest_class(begun):
    start, stage = begun
    left = done(start, stage, {"do": "drop", "demo": 0})
    rare = ({0, 1, 2} - {demo.true for demo in left.demos}).pop()
    added = done(left, stage, {"do": "add"}).demos[-1]
    assert added.true == added.shown == rare
    used = {demo.text for demo in left.demos} | {query.text for query in stage.queries}
    assert added.text not in used
    full = done(left, stage, *[{"do": "add", "label": 0}] * 3)
    with WORDS.raises(RunError, "added_demonstration_fresh_rarest"):
        done(full, stage, {"do": "add", "label": 0})


BAD = [
    ({"do": "explode"}, "explode"),
    ({}, "there action none"),
    ({"do": "flip", "demo": 9}, "demo9 3"),
    ({"do": "flip", "demo": True}, "demoTrue"),
    ({"do": "flip", "demo": 0, "to": 7}, "class"),
    ({"do": "edit", "demo": 0, "text": "  "}, "empty"),
    ({"do": "edit", "demo": 0, "text": None}, "empty"),
    ({"do": "edit", "demo": 0, "text": "a" * 100_000}, "100000 characters"),
    ({"do": "move", "demo": 0, "by": 5}, "moves by 1"),
    ({"do": "query", "number": "2"}, "query"),
    ({"do": "ask", "text": "a film", "answer": 3}, "class"),
    (between("delete", 0, 1), "delete"),
    (between("heads", 0, 1), "heads"),
    (between("isolate", 0, 3), "to3 3"),
    (between("isolate", -1, 2), "from-1"),
    (between("hide", 0, 1), "demoNone"),
    (between("token", 0, 1, demo=0), "tokenNone"),
    (between("reweight", 0, 1, factor=1), "factor of 1"),
    (between("reweight", 0, 1, factor=float("nan")), "factornan"),
    (between("reweight", 0, 1, factor=1e9), "factor 0.001 to 1000"),
    ({"do": "head", "layer": 3, "head": 0}, "layer3"),
    ({"do": "head", "layer": 0, "head": 4}, "head4 4"),
    ({"do": "remove", "change": 0}, "change0 0"),
]


@pytest.mark.parametrize(("action", "said"), BAD, ids=lambda own: str(own)[:40])
def test_what_cannot_be_is_said(begun, action, said):
    with WORDS.raises(RunError, said):
        act(begun[0], action, begun[1])


def test_the_last_demonstration_takes_its_changes_along(begun):
    start, stage = begun
    kept = [between("token", 0, 1, demo=None, token=1), {"do": "head", "layer": 0, "head": 0}]
    one = done(start, stage, {"do": "drop", "demo": 0}, between("isolate", 0, 1), *kept)
    bare = done(one, stage, *[{"do": "drop", "demo": 0}] * len(one.demos))
    assert bare.demos == ()
    assert [change.what for change in bare.changes] == ["token", "heads"]
    with WORDS.raises(RunError, "last_demonstration"):
        done(bare, stage, between("isolate", 0, 1))
    assert len(done(bare, stage, {"do": "add"}).demos) == 1


def test_heads_are_not_stretched(begun):
    start, stage = begun
    headed = done(start, stage, {"do": "head", "layer": 0, "head": 0})
    for action, said in (
        ({"do": "stretch", "change": 0, "from": 0, "to": 1}, "one by one"),
        ({"do": "scale", "change": 0, "factor": 2}, "no factor"),
    ):
        with WORDS.raises(RunError, said):
            done(headed, stage, action)


@pytest.mark.slow
def test_ten_thousand_random_actions_and_all_undone(begun):
    start, stage = begun
    history, rng, seen = History([start]), random.Random(0), set()
    for _ in range(10_000):
        try:
            history.push(act(history.now, random_action(rng, history.now), stage)[0])
        except RunError:
            continue
        seen.add(history.now)
        numbers = [own.demo for own in history.now.changes if own.demo is not None]
        assert all(number < len(history.now.demos) for number in numbers)
    assert len(seen) > 1000
    saved = json.loads(json.dumps(history.to_dict()))
    assert History.from_dict(saved) == history
    last = history.now
    steps = len(history.past) - 1
    for _ in range(steps):
        history.undo()
    assert history.now == start
    for _ in range(steps):
        history.redo()
    assert history.now == last


def test_kept_states_and_the_reference(begun):
    start, stage = begun
    history = History([start])
    history.push(done(start, stage, {"do": "flip_all"}))
    history.keep()
    history.push(done(start, stage, between("isolate", 0, 1)))
    history.keep("mine")
    history.keep()
    assert [name for name, _ in history.named] == ["A", "mine", "B"]
    history.reference = 1
    history.push(done(history.now, stage, {"do": "query", "number": 2}))
    assert history.compared.query == history.now.query
    assert history.compared.changes == history.named[1][1].changes
    history.forget(0)
    assert history.reference == 0
    history.forget(0)
    assert history.reference is None
    assert history.compared.plain == start.asking(history.now.query)


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"past": [], "future": [], "named": [], "reference": None},
        {"past": [{}], "future": [], "named": [], "reference": None},
        {
            "past": [{"demos": [], "query": {}, "changes": []}],
            "future": [],
            "named": [],
            "reference": None,
        },
    ],
)
def test_a_damaged_history_is_refused(saved):
    with pytest.raises(RunError, match="saved"):
        History.from_dict(saved)


def test_every_action_is_tried_by_the_random_walk():
    rng = random.Random(0)
    one = Experiment((Demo("a", 0, 0),), asked()[1].query)
    assert {random_action(rng, one)["do"] for _ in range(1000)} == set(ACTIONS)

"""A state as a link, a file and a page: what comes back, what is refused, and that nothing changes by it."""

import base64
import json
import random
import re
import zlib

import pytest

import icl_mech as icl
from icl_mech.errors import IclMechError, RunError
from icl_mech.explorer import sharing
from icl_mech.explorer.board import answered
from icl_mech.explorer.saved_page import _live
from icl_mech.tasks import Task
from tests.explorer.cases import (
    EVERY,
    OPEN,
    TASK,
    Page,
    model_of,
    opened,
    opened_open,
    random_action,
)
from tests.said import Words

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def view():
    own = opened()
    yield own
    own.close()


@pytest.fixture(scope="module")
def other():
    own = opened()
    yield own
    own.close()


def fresh(view):
    """The view as it began."""
    history = view.session.history
    view.do("reset")
    while history.named:
        view.do("forget", index=0)
    view.session.look, view.session.attended = {}, None
    return view


def content(view):
    return view.session.shared().to_dict(view.session.asker.stage)


@pytest.mark.parametrize("what", EVERY)
def test_a_state_comes_back(view, other, what):
    fresh(view), fresh(other)
    for action in EVERY[what]:
        view.session.do(action)
    text = view.share()
    assert other.open(text).experiment == view.experiment
    assert other.session.history.compared == view.session.history.compared
    assert other.session.history.reference is None
    assert other.open(f'view.open("{text}")').experiment == view.experiment
    assert other.open(f"http://127.0.0.1:1234/?token=ab#{text}").experiment == view.experiment
    assert other.open(json.dumps(content(view))).experiment == view.experiment
    assert other.share() == text


def test_a_file_and_a_new_explorer(view, tmp_path):
    fresh(view).flip(0).isolate(range(2))
    view.save_state(tmp_path / "state.json")
    again = opened(state=tmp_path / "state.json")
    assert again.experiment == view.experiment
    assert again.undo().experiment == again.session.history.start
    again.close()
    for state in (str(tmp_path / "state.json"), view.share()):
        again = opened(state=state)
        assert again.experiment == view.experiment
        again.close()
    with WORDS.raises(RunError, "no_file"):
        opened(state=tmp_path / "none.json")
    with WORDS.raises(RunError, "cannot_write"):
        view.save_state(tmp_path)


def test_one_step_that_is_undone_whole(view, other):
    fresh(view).flip(0).do("keep", name="mine").do("reference", index=0).zero_head(1, 2)
    fresh(other).flip(1)
    before, history = other.experiment, other.session.history
    other.open(view.share())
    assert [name for name, _ in history.named] == ["shared"]
    assert history.compared == view.session.history.compared
    other.undo()
    assert (other.experiment, history.reference) == (before, None)
    other.do("redo")
    assert (other.experiment, history.reference) == (view.experiment, 0)
    other.do("keep", name="shared 2").do("reset").do("reference", index=None).open(view.share())
    assert [name for name, _ in history.named] == ["shared", "shared 2"]
    assert history.reference == 0
    other.undo().flip(2).undo().do("redo")
    assert history.reference is None


def test_two_references_of_one_name(view, other):
    fresh(view).flip(0).do("keep").do("reference", index=0).zero_head(1, 2)
    first = view.share()
    fresh(view).flip(1).do("keep").do("reference", index=0).zero_head(1, 2)
    fresh(other).open(first).open(view.share())
    assert [name for name, _ in other.session.history.named] == ["shared", "shared 2"]
    assert other.session.history.compared == view.session.history.compared


def test_another_set_of_queries(view):
    """A query of one's set keeps its number, another is asked as if it was typed in."""
    fresh(view).do("query", number=3)
    fewer = icl.explore(model_of(), TASK, n=2, seed=3, threads=1)
    fewer.open(view.share())
    assert fewer.experiment.demos == view.experiment.demos
    assert fewer.experiment.query.text == view.experiment.query.text
    texts = [query.text for query in fewer.session.asker.stage.queries]
    number = fewer.experiment.query.number
    assert number is None or texts[number] == view.experiment.query.text
    # Its own start had other demonstrations: what it was compared with is kept.
    assert fewer.session.history.compared.demos == view.session.history.start.demos
    assert fewer.undo().experiment == fewer.session.history.start
    fewer.close()


def test_open_answers_come_back():
    one, other = opened_open(), opened_open()
    one.flip(0).answer(1, "movie").do("query", number=2)
    other.open(one.share())
    assert other.experiment == one.experiment
    for change in ({"words": []}, {"words": ["a", "a"]}, {"shown": 7}, {"true": 1}):
        saved = content(one)
        saved["now"]["demos"][0] |= change
        with pytest.raises(RunError):
            other.open(saved)
    one.close()
    other.close()


def test_what_is_on_show_comes_back(view, other):
    page, there = Page(fresh(view)), Page(fresh(other))
    look = {"layer": 2, "token": 5, "mode": "out", "calibrated": True, "attend": [1, 2]}
    page.do("share", look={**look, "unknown": 1, "heads": "x" * 999})
    shared = page.heard[-1]
    assert (shared["kind"], shared["name"]) == ("shared", "stories")
    assert shared["content"]["look"] == look
    json.dumps(shared)
    generation = view.session.generation
    there.do("open", state=shared["content"])
    there.settled()
    kinds = [kind for kind in there.kinds() if kind in ("state", "look", "part")]
    opened = kinds[kinds.index("state") :]  # before it, parts of the state before may still come
    assert opened[:3] == ["state", "look", "part"]
    assert next(own for own in there.heard if own["kind"] == "look")["look"] == look
    assert there.parts()["attention"]["head"] == 2
    assert view.session.generation == generation, "sharing changes nothing"
    view.session.leave(page.hear)
    other.session.leave(there.hear)


def test_another_task_or_model_is_refused_by_name(view):
    task = Task("tales", TASK.template, TASK.labels, TASK.train, TASK.test)
    labels = Task("stories", TASK.template, ("A", "B", "C"), TASK.train, TASK.test)
    before = fresh(view).experiment
    for wrong, words in ((task, "another_task"), (labels, "other_labels"), (OPEN, "open_task")):
        own = icl.explore(model_of(), wrong, n=3, threads=1)
        with WORDS.raises(RunError, words):
            view.open(own.share())
        own.close()
    saved = content(view)
    with WORDS.raises(RunError, "another_model"):
        view.open({**saved, "model": "gpt-17"})
    assert view.experiment == before


def changed(saved, path, value):
    own = json.loads(json.dumps(saved))
    place = own
    for step in path[:-1]:
        place = place[step]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return own


WRONG = {
    "a text that is none": (("now", "demos", 0, "text"), 7),
    "a blank text": (("now", "demos", 0, "text"), "  "),
    "half a surrogate": (("now", "query", "text"), "\ud800"),
    "a class too far": (("now", "demos", 1, "shown"), 3),
    "a class that is true": (("now", "demos", 1, "shown"), True),
    "no answer": (("now", "query", "answer"), KeyError),
    "no demonstrations": (("now", "demos"), None),
    "too many": (("now", "demos"), [{"text": "a", "shown": 0, "true": 0}] * 1001),
    "another member": (("now", "demos", 0, "__class__"), "x"),
    "open words": (("now", "demos", 0, "words"), ["a"]),
    "a layer too far": (("now", "changes", 0, "layers"), [0, 3]),
    "half a range": (("now", "changes", 0, "layers"), [0]),
    "a change that is none": (("now", "changes", 0, "what"), "explode"),
    "a demonstration too far": (
        ("now", "changes", 0),
        {"what": "hide", "layers": [0, 1], "demo": 9},
    ),
    "a head too far": (("now", "changes", 0), {"what": "heads", "heads": [[1, 4]]}),
    "heads of nothing": (("now", "changes", 0), {"what": "heads"}),
    "not a factor": (
        ("now", "changes", 0),
        {"what": "reweight", "layers": [0, 1], "factor": float("nan")},
    ),
    "a token too far": (
        ("now", "changes", 0),
        {"what": "token", "layers": [0, 1], "demo": 0, "token": 99},
    ),
    "an action": (("now", "changes", 0, "do"), "reset"),
    "no reference": (("reference",), KeyError),
    "a reference too long": (("reference", "demos", 0, "text"), "word " * 30_000),
    "a strange look": (("look", "mode"), "sideways"),
    "a strange head": (("look", "attend"), [1, 2, 3]),
    "another format": (("format",), "icl_mech explorer state 2"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_damaged_state_is_refused_and_changes_nothing(view, what):
    fresh(view).isolate(range(2)).do("keep")
    page = Page(view)
    page.do("share", look={"layer": 1, "mode": "into"})
    saved, history = page.heard[-1]["content"], view.session.history
    before = json.dumps(history.to_dict())
    generation = view.session.generation
    with WORDS.raises(IclMechError, what):
        view.open(changed(saved, *WRONG[what]))
    page.do("open", state=changed(saved, *WRONG[what]))
    assert page.heard[-1]["kind"] == "error"
    assert json.dumps(history.to_dict()) == before
    assert view.session.generation == generation
    view.session.leave(page.hear)


def test_a_damaged_line_is_refused(view):
    text = fresh(view).flip(0).share()
    bomb = sharing.MARK + sharing.letters("[" * 3_000_000)
    damaged = {
        "half of it": text[: len(text) // 2],
        "no letters": sharing.MARK,
        "no state": sharing.MARK + "A" * 50,
        "too long": bomb,
        "no object": sharing.MARK + sharing.letters("[1]"),
        "deep": "{" + '"a":[' * 90_000,
    }
    for what, wrong in damaged.items():
        with WORDS.raises(RunError, what):
            view.open(wrong)
    for wrong in (None, 7, [], {}):
        with pytest.raises(RunError):
            view.do("open", state=wrong)


def test_a_thousand_mutations_of_a_line_never_raise_anything_else(view):
    rng = random.Random(4)
    text = fresh(view).flip(0).isolate(range(2)).share()
    saved = json.dumps(content(view))
    for source, letters in ((text, "aZ09-_."), (saved, '{}[]",:0x\\u ')):
        for _ in range(500):
            own = [*source]
            for _ in range(rng.randrange(1, 4)):
                own[rng.randrange(len(own))] = rng.choice(letters)
            try:
                sharing.Shared.read("".join(own), view.session.asker.stage)
            except RunError:
                continue


@pytest.mark.slow
def test_random_states_come_back(view, other):
    rng = random.Random(5)
    fresh(view), fresh(other)
    for _ in range(150):
        try:
            view.session.do(random_action(rng, view.experiment))
        except RunError:
            continue
        assert other.open(view.share()).experiment == view.experiment


def test_sixty_four_demonstrations_fit_in_a_message():
    from icl_mech.explorer.experiment import Demo, Experiment, Query
    from icl_mech.explorer.session import LONGEST

    rng = random.Random(6)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(3000)]
    stage = opened_stage()
    demos = tuple(Demo(" ".join(rng.choices(words, k=60)), 0, 1) for _ in range(64))
    shared = sharing.Shared(
        Experiment(demos, Query("q", 0)), Experiment(demos[::-1], Query("q", 0))
    )
    message = {"do": "open", "state": shared.to_dict(stage)}
    assert len(json.dumps(message)) < LONGEST
    assert len(shared.to_text(stage)) < LONGEST / 2
    assert sharing.Shared.read(shared.to_text(stage), stage).now == shared.now


def opened_stage():
    from tests.explorer.cases import asked

    return asked()[0].stage


# A saved page


def stored(text):
    """The messages of a saved page, and its maps."""
    data = re.search(r'id="saved">([A-Za-z0-9+/=]+)</script>', text)[1]
    content, _, maps = zlib.decompress(base64.b64decode(data), wbits=-15).partition(b"\0")
    return json.loads(content), maps


def kept(view):
    """Two kept states, one of them the reference, a head that was looked at, and a change that was not kept."""
    fresh(view).do("flip_all").do("keep", name="false").do("reset").isolate(range(2)).do("keep")
    view.do("reference", index=0).do("query", number=2).zero_head(1, 2)
    view.figures("now")
    view.session.asker.ask("attention 1 2", view.experiment)
    return view


def test_a_saved_page_has_the_numbers_of_every_state(view, tmp_path):
    kept(view).save_page(tmp_path / "page.html")
    content, maps = stored((tmp_path / "page.html").read_text())
    now, start, false, isolated = content["states"]
    assert content["reference"] == 0

    asker = view.session.asker

    def numbers(name):
        if name == "board":
            lenses = asker.board.lenses(view.experiment)
            queries = enumerate(asker.stage.queries)
            return {"rows": [answered(lenses[q], query.answer) for q, query in queries]}
        if name == "heads matching":
            return asker.ask(name, view.session.history.start)
        return view.figures(f"rows {view.prompts[0].target}" if name == "rows" else name)

    def check(state):
        """It has the numbers of what is on the screen."""
        for name, place in state["parts"].items():
            shown = content["pool"][place]
            figures = json.loads(json.dumps(numbers(name))) if name != "pair" else shown
            if "maps" in figures:
                begin, length = shown["maps"]
                assert base64.b64decode(figures["maps"]) == maps[begin : begin + length]
                figures["maps"] = shown["maps"]
            assert figures == shown
        assert state["state"]["title"] == view.experiment.title(view.session.history.start)
        assert state["code"] == view.code()

    check(now)
    for state, action in ((start, {"do": "reset"}), (false, 0), (isolated, 1)):
        view.session.do(action if state is start else {"do": "restore", "index": action})
        check(state)
        view.undo()
    assert [*now["attention"]] == ["attention 1 2"]
    assert not start["attention"]
    # All rows beside a state have its query; those with a query of their own have their flow, too.
    answers = [content["pool"][own["now"]]["probs"] for own in now["beside"]]
    for own, probs in zip((None, 0, 1), answers, strict=True):
        view.do("reference", index=own)
        assert view.session.asker.ask("now", view.session.history.compared)["probs"] == probs
    assert not any("flow" in own for own in now["beside"])
    assert all("flow" in own for own in start["beside"])
    # The page is a state that can be opened.
    again = opened(state=tmp_path / "page.html")
    assert again.experiment == view.experiment
    again.close()


def test_a_saved_page_repeats_nothing_and_is_strict(view):
    text = kept(view).session.page()
    content, _ = stored(text)
    numbers = [json.dumps(own) for own in content["pool"]]
    assert len({*numbers}) == len(numbers)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in re.sub(r"http://www\.w3\.org|ws(s?)://|http://", "", policy)


def test_coarser_maps_keep_a_page_small(view, monkeypatch):
    text = kept(view).session.page()
    monkeypatch.setattr("icl_mech.explorer.saved_page.SMALL", len(text) - 200)
    coarse = view.session.page()
    assert len(coarse) < len(text)
    maps, rounded = stored(text)[1], stored(coarse)[1]
    assert len(maps) == len(rounded)
    step = next(own for own in (5, 17, 51) if all(code % own == 0 for code in rounded))
    assert all(abs(one - other) <= step // 2 for one, other in zip(maps, rounded, strict=True))


def test_the_page_asks_for_a_page_and_a_newer_action_comes_first(view):
    page = Page(kept(view))
    page.do("save_page")
    page.do("flip", demo=0)
    page.do("hello", version=1)
    page.settled()
    (file,) = [own for own in page.heard if own["kind"] == "file"]
    assert file["name"] == "stories.html"
    assert stored(file["text"])[0]["states"][0]["state"]["changes"]
    assert not view.session.errands
    view.session.leave(page.hear)


def test_the_command_that_opens_a_page_live():
    task = 'task = icl.load_task("headlines")'
    WORDS.exactly(_live('model = icl.load_model("gpt2")', task), "command")
    WORDS.exactly(_live("model = ...  # mine", task), "in Python")


@pytest.mark.slow
def test_a_page_of_the_default_model_is_below_two_megabytes():
    own = icl.explore(icl.load_model(), "headlines", threads=1)
    for what in ("isolate", "to_target", "patch", "between", "reweight"):
        own.do("range", what=what, **{"from": 4, "to": 12}).do("keep").do("reset")
    own.do("flip_all").do("keep").do("reset").flip(0)
    assert len(own.session.asker.stage.queries) == 24
    assert len(own.session.page().encode()) < 2_000_000
    own.close()

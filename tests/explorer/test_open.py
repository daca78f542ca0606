"""Open answers in the explorer: words of a demonstration, choices that stay, numbers of the public functions."""

import hashlib
import json
import random

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import IclMechError, PromptError, RunError
from icl_mech.explorer.experiment import Experiment
from icl_mech.explorer.history import History
from icl_mech.metrics import mean_interval
from tests.explorer.cases import EVERY, OPEN, SAME, Page, between, model_of, open_task, opened_open
from tests.said import Words

WORDS = Words(__file__)

TYPED = {"do": "answer", "demo": 1, "answer": "Output"}
EXTRA = {
    "a typed answer": [TYPED],
    "typed, and another query": [TYPED, {"do": "query", "number": 2}, {"do": "flip", "demo": 0}],
    "a query of one's own": [{"do": "ask", "text": "what is it", "answer": "Input"}],
    "a fresh demonstration, all false": [{"do": "add"}, {"do": "flip_all"}],
}
STATES = {**EVERY, **EXTRA}


@pytest.fixture(scope="module")
def shared():
    own = opened_open()
    yield own
    own.close()


@pytest.fixture
def view(shared):
    """At the start, and nothing else is known."""
    shared.session.history = History([shared.session.history.past[0]])
    return shared


def labels(view):
    return view.session.state()["labels"]


def test_demonstrations_have_their_own_and_a_false_answer_and_the_query_is_right_first(view):
    known = {own.text: own for own in (*OPEN.train, *OPEN.test)}
    now = view.experiment
    for demo in now.demos:
        assert demo.words == (known[demo.text].answers[0], known[demo.text].other)
        assert (demo.shown, demo.true) == (0, 0)
    query = known[now.query.text]
    assert now.query.words == (query.answers[0], query.other)
    assert now.query.also == query.answers[1:]
    words = [word for demo in now.demos for word in demo.words]
    assert labels(view) == [*now.query.words, *words]
    state = view.session.state()
    assert (state["open"], state["query"]["answer"], len(state["labels"])) == (True, 0, 8)
    assert [own["words"] for own in state["kinds"]][:2] == [
        "isolate answers",
        "cut answers → target",
    ]


def test_a_flip_is_the_next_word_and_all_false_or_all_true(view):
    start = view.experiment
    view.flip(0)
    assert view.experiment.demos[0].shown == 1
    assert view.experiment.title(start) == "1 answer false"
    assert view.flip(0).experiment == start
    view.do("flip_all")
    assert [demo.shown for demo in view.experiment.demos] == [1, 1, 1]
    WORDS.exactly(view.experiment.title(start), "flip_next_word_all")
    assert view.do("flip_all").experiment == start
    view.do("answer", demo=0, answer=" Output ")
    assert view.experiment.demos[0].words[2:] == ("Output",)
    assert view.flip(0).experiment.demos[0].shown == 0
    assert view.flip(0, to=2).experiment.demos[0].shown == 2
    view.answer(0, start.demos[0].words[1])
    assert view.experiment.demos[0].shown == 1
    assert len(view.experiment.demos[0].words) == 3


def test_choices_stay_when_labels_are_flipped_and_demonstrations_move_or_go(view):
    first = labels(view)
    for action in (
        {"do": "flip", "demo": 1},
        {"do": "move", "demo": 0, "by": 1},
        {"do": "drop", "demo": 0},
        between("isolate", 0, 1),
    ):
        view.session.do(action)
        assert labels(view) == first
    view.do("add").answer(0, "Output")
    added = view.experiment.demos[-1].words
    assert sorted(labels(view)[len(first) :]) == sorted([*added, "Output"])
    both = [
        view.session.asker.names(own) for own in (view.session.history.compared, view.experiment)
    ]
    assert both[0] == both[1] == labels(view)
    view.do("keep").do("reset")
    assert labels(view) == both[0]  # the kept state stands beside it
    assert view.do("forget", index=0) is view
    assert labels(view) == first


def test_rows_stand_side_by_side_over_the_same_choices(view):
    view.answer(1, "Output").do("keep", name="typed").do("reset").do("query", number=1)
    page = Page(view)
    page.do("reference", index=0)
    page.settled()
    parts = page.parts()
    assert not {"cal", "refcal"} & {*parts}
    counts = {name: len(parts[name]["probs"]) for name in ("now", "ref", "kept0")}
    assert set(counts.values()) == {len(labels(view))}
    assert parts["ref"]["probs"] == parts["kept0"]["probs"] != parts["now"]["probs"]
    assert len(parts["pair"]["true"][0]) == len(labels(view))
    view.session.leave(page.hear)


def test_the_same_prompt_over_other_choices_is_measured_anew(view):
    before = view.figures()
    view.answer(1, "Output").do("keep").do("reset").zero_head(2, 1)
    assert len(view.figures()["probs"]) == len(before["probs"]) + 1
    for plain in (False, True):
        if plain:
            view.undo()
        how = {"interventions": view.changes, "progress": False}
        expected = icl.logit_lens(model_of(), view.prompts, per="head", **how).sel("contrast")
        found = torch.tensor(view.figures()["heads"]).double()
        torch.testing.assert_close(found, expected.values, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("what", STATES)
def test_numbers_are_those_of_the_public_functions_and_of_the_copied_lines(view, what, capsys):
    for action in STATES[what]:
        view.session.do(action)
    view.session.look = {"token": 5, "layer": 1, "mode": "into"}
    logits, components = view.session.asker.read(view.experiment)
    own = logits[:, view.session.asker.labels(view.experiment)]
    how = {"interventions": view.changes, "progress": False}
    plain = icl.predict(model_of(), view.prompts, **how).label_probs[0]
    torch.testing.assert_close(plain, own[-1].softmax(-1), atol=1e-6, rtol=0)
    found = run(view.code())
    assert found["prompts"].digest == view.prompts.digest
    assert list(found["prompts"][0].labels) == labels(view)
    torch.testing.assert_close(
        found["after"].label_probs[0], own[-1].softmax(-1), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(found["lens"].label_logits[0], own, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(
        found["heads"].label_logits[0], components.heads[0], atol=1e-4, rtol=1e-5
    )
    contrast = found["heads"].sel("contrast").values
    shown = torch.tensor(view.figures()["heads"]).double()
    torch.testing.assert_close(contrast, shown, atol=1e-3, rtol=1e-3)
    flow = torch.tensor(view.figures("flow")["values"]).double()
    torch.testing.assert_close(found["flow"].values, flow, atol=1e-3, rtol=1e-3)


def run(text):
    """The names a script makes; its model and task are given."""
    lines = [own for own in text.splitlines() if not own.startswith(("model = ", "task = "))]
    found = {"model": model_of(), "task": OPEN}
    exec("\n".join(lines), found)  # noqa: S102 - what a reader would do with them
    return found


@pytest.mark.slow
def test_every_change_changes_something(view):
    start = view.session.asker.read(view.experiment)[0][-1]
    for what, actions in EVERY.items():
        view.session.history = History([view.session.history.past[0]])
        for action in actions:
            view.session.do(action)
        # Another prompt may have been gone on from: equal to rounding.
        found = view.session.asker.read(view.experiment)[0][-1]
        same = torch.allclose(found, start, rtol=0, atol=1e-5)
        assert same == (what in SAME), what


@pytest.mark.slow
@pytest.mark.parametrize("actions", [[{"do": "flip_all"}], [TYPED, between("patch", 1, 1)]])
def test_over_all_queries(view, actions, capsys):
    for action in actions:
        view.session.do(action)
    both = view.over_all()
    found = run(view.code(every=True))
    after = both.after["predictions"]
    torch.testing.assert_close(found["after"].label_probs, after.label_probs, atol=1e-6, rtol=0)
    before = view.session.history.compared.prompts(
        OPEN, model_of(), view.session.asker.stage.queries
    )
    was = icl.predict(model_of(), before, progress=False)
    gain = mean_interval((after.label_probs[:, 0] - was.label_probs[:, 0]).double(), "change")
    assert [*both.gain] == pytest.approx([*gain], abs=1e-5)
    right = [(own.predicted == 0).double() for own in (was, after)]
    assert both.accuracy_gain == mean_interval(right[1] - right[0], "change")
    figures = both.figures()
    assert figures["now"]["shares"] == figures["before"]["shares"] == []
    WORDS(both.sentence(), "over_all_queries")
    assert "label" not in both.sentence()


BAD = [
    ({"do": "answer", "demo": 0, "answer": "  "}, RunError, "answer empty"),
    ({"do": "answer", "demo": 0, "answer": None}, RunError, "answer empty"),
    ({"do": "answer", "demo": 0, "answer": ["a"]}, RunError, "answer empty"),
    ({"do": "answer", "demo": 0, "answer": "a" * 9000}, RunError, "9000 characters"),
    ({"do": "answer", "demo": 0, "answer": "movie " * 1300}, PromptError, "context"),
    ({"do": "answer", "demo": 0, "answer": "\ud800"}, RunError, "surrogate"),
    ({"do": "answer", "demo": 7, "answer": "Output"}, RunError, "demonstration"),
    ({"do": "flip", "demo": 0, "to": 2}, RunError, "no third answer"),
    ({"do": "ask", "text": "what", "answer": 1}, RunError, "answer empty"),
    ({"do": "ask", "text": "what"}, RunError, "answer empty"),
]


@pytest.mark.parametrize(("action", "error", "said"), BAD, ids=lambda own: str(own)[:40])
def test_what_cannot_be_is_said_and_changes_nothing(view, action, error, said):
    before = view.experiment
    with WORDS.raises(error, said):
        view.session.do(action)
    assert view.experiment == before
    assert len(view.session.history.past) == 1


def test_words_that_begin_with_the_same_token_are_refused_with_both_names(view):
    right = view.experiment.query.words[0]
    with WORDS.raises(PromptError, "same_first_token", f"'{right}'", f"'{right} plant'"):
        view.answer(0, f"{right} plant")
    also = next(own for own in view.session.asker.stage.queries if own.also)
    view.do("query", number=also.number)
    with WORDS.raises(PromptError, "words_begin_same_token", "'Zebra'"):
        view.answer(0, also.also[0])
    assert len(view.session.history.past) in (1, 2)


def test_a_step_to_what_cannot_stand_side_by_side_is_no_step(view):
    view.answer(0, "Output").do("keep", name="typed").do("forget", index=0)
    view.do("reset").do("ask", text="what", answer="Output plant")
    view.undo().undo()
    view.do("keep", name="typed").do("redo")
    before = view.session.history.to_dict()
    with WORDS.raises(PromptError, "step_what_cannot_stand", "'Output plant'", "'Output'"):
        view.do("redo")
    assert view.session.history.to_dict() == before
    view.do("forget", index=0).do("redo")
    assert view.experiment.query.words == ("Output plant",)


def test_classes_have_no_answers_that_are_typed(capsys):
    from tests.explorer.cases import opened

    own = opened()
    with WORDS.raises(RunError, "classes_no_answers_typed"):
        own.answer(0, "a")
    own.close()


@pytest.mark.parametrize(
    "text", ["<script>document.title='bad'</script>", "\u202eabc", "a\nb", "'"]
)
def test_hostile_answers_are_texts(view, text, capsys):
    simple = next(own for own in view.session.asker.stage.queries if not own.also)
    view.do("query", number=simple.number).answer(0, text)
    assert view.experiment.demos[0].words[2] == text.strip()
    assert text.strip() in labels(view)
    found = run(view.code())
    assert found["after"].label_probs[0].tolist() == pytest.approx(
        view.figures()["probs"], abs=1e-3
    )
    json.dumps(view.session.state())


def test_saved_and_gone_on_with(view, tmp_path):
    view.answer(1, "Output").do("keep", name="x").flip(0).isolate(range(2))
    view.save(tmp_path)
    again = opened_open(history=tmp_path)
    assert again.session.history == view.session.history
    assert again.figures() == view.figures()
    again.close()
    file = tmp_path / "history.json"
    saved = json.loads(file.read_text())
    for damage in (
        lambda own: own["demos"][0].update(words=[]),
        lambda own: own["demos"][0].update(words=["Review", " "]),
        lambda own: own["demos"][0].update(shown=9),
        lambda own: own["demos"][0].update(true=1),
        lambda own: own["query"].update(words=["a", "b", "c"]),
        lambda own: own["query"].pop("words"),
        lambda own: own["query"].update(words=3),
    ):
        broken = json.loads(json.dumps(saved))
        damage(broken["past"][-1])
        file.write_text(json.dumps(broken))
        with pytest.raises(RunError):
            opened_open(history=tmp_path)


def test_files_from_before_open_answers_still_load():
    old = {
        "demos": [{"text": "a", "shown": 1, "true": 0, "text2": None}],
        "query": {"text": "b", "answer": 1, "number": 0, "text2": None},
        "changes": [],
    }
    found = Experiment.from_dict(old)
    assert (found.demos[0].words, found.query.also, found.choices) == ((), (), ())
    history = History([found])
    flipped = Experiment.from_dict(
        {**old, "demos": [{"text": "a", "shown": 0, "true": 0, "text2": None}]}
    )
    assert history.count(found, flipped, [found.query]) == (1, 1)

    def digest(text):
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def side(shown):
        return f"((Demo(text='a', shown={shown}, true=0, text2=None),), ())"

    query = "Query(text='b', answer=1, number=0, text2=None)"
    assert history.tried == {digest(f"[{query}]"): [digest(f"[{side(1)}, {side(0)}]")]}


def random_action(rng, experiment):
    demo = rng.randrange(len(experiment.demos) + 1)
    ends = {"from": rng.randrange(3), "to": rng.randrange(3)}
    what = rng.choice(["isolate", "to_target", "between", "patch", "reweight", "hide", "token"])
    word = rng.choice(["Output", "Input", "Review", "Entity", "Person one", "bad", "World"])
    return rng.choice(
        [
            {"do": "flip", "demo": demo},
            {"do": "flip_all"},
            {"do": "answer", "demo": demo, "answer": word},
            {"do": "edit", "demo": demo, "text": f"another story {rng.randrange(99)}"},
            {"do": "drop", "demo": demo},
            {"do": "move", "demo": demo, "by": rng.choice([-1, 1])},
            {"do": "add"},
            {"do": "query", "number": rng.randrange(4)},
            {"do": "ask", "text": f"a question {rng.randrange(99)}", "answer": word},
            {"do": "range", "what": what, **ends, "demo": demo, "token": 1, "factor": 2.0},
            {"do": "head", "layer": rng.randrange(3), "head": rng.randrange(4)},
            {"do": rng.choice(["undo", "redo", "keep", "reset"])},
            {"do": rng.choice(["restore", "reference", "forget"]), "index": 0},
        ]
    )


@pytest.mark.slow
def test_a_hundred_actions_of_a_monkey_and_all_undone():
    view = opened_open()
    page, rng = Page(view), random.Random(5)
    page.do("hello", version=1)
    page.settled()
    first, start, done = page.parts(), view.experiment, 0
    refused: set[str] = set()
    while done < 100:
        action = random_action(rng, view.experiment)
        try:
            view.session.do(action)
        except IclMechError as error:
            refused.add(type(error).__name__)
            continue
        done += 1
        if done % 10 == 0:
            how = {"interventions": view.changes, "progress": False}
            try:
                expected = icl.predict(model_of(), view.prompts, **how).label_probs[0]
            except IclMechError:
                continue
            assert view.figures()["probs"] == pytest.approx(expected.tolist(), abs=1e-3)
    assert refused == {"RunError", "PromptError"}
    while view.session.history.named:
        view.do("forget", index=0)
    while len(view.session.history.past) > 1:
        view.undo()
    page.settled()
    page.heard.clear()
    page.do("hello", version=1)
    page.settled()
    assert view.experiment == start
    assert {name: own for name, own in page.parts().items() if name in first} == first
    view.close()


def test_without_another_relation_the_false_answer_is_the_next_demonstrations():
    task = open_task("plain", other=False)
    view = opened_open(task)
    right = [demo.words[0] for demo in view.experiment.demos]
    assert [demo.words[1] for demo in view.experiment.demos] == [*right[1:], right[0]]
    assert view.experiment.query.words == (labels(view)[0],)
    assert len(labels(view)) == 4
    view.do("add")
    assert view.experiment.demos[-1].words[1] == right[0]
    view.do("flip_all")
    assert not any(demo.shown == 0 for demo in view.experiment.demos)
    view.close()
    one = opened_open(task, shots=1)
    own = one.experiment.demos[0].words
    assert len(set(own)) == 2
    assert own[1] in {example.answers[0] for example in task.train}
    one.close()


@pytest.mark.parametrize("side", ["correct", "other", "permuted"])
def test_prompts_that_are_given(side):
    prompts = icl.build_prompts(OPEN, model_of(), shots=2, n=3, labels=side, seed=1)
    with WORDS.raises(PromptError, "prompts_given"):
        icl.explore(model_of(), prompts)
    view = icl.explore(model_of(), prompts, task=OPEN, threads=1)
    assert view.prompts[0].tokens == prompts[0].tokens
    assert view.experiment.all_true == (side == "correct")
    view.close()


def test_the_still_shows_choices():
    from icl_mech.explorer.widget import still, still_text

    view = opened_open()
    view.do("flip_all")
    text = still_text(view.session)
    assert f"→ {view.experiment.demos[0].words[1]}" in text
    assert view.experiment.query.words[0] in text.splitlines()[-1]
    WORDS(still(view.session, "x"), "still_shows_choices")
    view.close()

"""The lines that are copied give the numbers on the screen."""

import random

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import IclMechError, RunError
from icl_mech.measurements.heads.chosen import random_heads
from icl_mech.metrics import mean_interval
from tests.explorer.cases import EVERY, OPEN, TASK, model_of, opened, opened_open, random_action
from tests.said import Words

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def view():
    own = opened()
    yield own
    own.close()


def run(text):
    """The names a script makes; its model and task are given."""
    lines = [own for own in text.splitlines() if not own.startswith(("model = ", "task = "))]
    assert len(text.splitlines()) - len(lines) == 2
    found = {"model": model_of(), "task": TASK}
    exec("\n".join(lines), found)  # noqa: S102 - what a reader would do with them
    return found


@pytest.mark.parametrize("what", EVERY)
def test_one_prompt(view, what, capsys):
    view.do("reset")
    for action in EVERY[what]:
        view.session.do(action)
    view.session.look = {"token": 5, "layer": 1, "mode": "into"}
    found = run(view.code())
    logits, components = view.session.asker.read(view.experiment)
    own = logits[:, view.session.asker.labels(view.experiment)]
    torch.testing.assert_close(
        found["after"].label_probs[0], own[-1].softmax(-1), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(found["lens"].label_logits[0], own, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(
        found["heads"].label_logits[0], components.heads[0], atol=1e-4, rtol=1e-5
    )
    shown = torch.tensor(view.figures("flow")["values"]).double()
    torch.testing.assert_close(found["flow"].values, shown, atol=1e-3, rtol=1e-3)
    assert "maps" in found


@pytest.mark.parametrize(
    "what", ["nothing", "a hidden demonstration", "an isolated token", "all at once"]
)
def test_all_queries(view, what, capsys):
    view.do("reset")
    for action in EVERY[what]:
        view.session.do(action)
    found = run(view.code(every=True))
    both = view.over_all()
    torch.testing.assert_close(
        found["after"].label_logits, both.after["predictions"].label_logits, atol=1e-4, rtol=1e-5
    )


@pytest.mark.slow
def test_two_hundred_random_states(view, capsys):
    view.do("reset")
    rng = random.Random(2)
    tried = 0
    while tried < 200:
        try:
            view.session.do(random_action(rng, view.experiment))
        except RunError:
            continue
        tried += 1
        text = view.code()
        compile(text, "code", "exec")
        if tried % 20:
            continue
        try:
            expected = view.session.asker.read(view.experiment)[0][-1]
        except IclMechError:
            continue
        found = run(text)["after"].label_probs[0]
        own = expected[view.session.asker.labels(view.experiment)].softmax(-1)
        torch.testing.assert_close(found, own, atol=1e-6, rtol=0)


def test_the_lines_say_where_model_and_task_come_from():
    view = opened()
    assert "model = ...  # tiny-gpt2" in view.code()
    assert "task = ...  # Task('stories'" in view.code()
    view.close()


def test_a_false_label_says_the_true_one(view):
    view.do("reset").flip(0)
    demo = view.experiment.demos[0]
    assert f"# {TASK.labels[demo.shown]}; true: {TASK.labels[demo.true]}" in view.code()
    assert icl.Example(demo.text, demo.shown) == demo.example


def all_of(found, queries="queries"):
    return found["finding"](found[queries])


@pytest.mark.parametrize(
    "what", ["a flipped label", "patched", "an isolated token of the query", "all at once"]
)
def test_a_finding_gives_the_numbers_over_all(view, what, capsys):
    view.do("reset")
    for action in EVERY[what]:
        view.session.do(action)
    found = run(view.finding())
    both, measured = view.over_all(), all_of(found)
    probability, accuracy = measured["now - before"]
    assert probability == pytest.approx(both.gain, abs=1e-6)
    assert accuracy == pytest.approx(both.accuracy_gain, abs=1e-9)
    said = capsys.readouterr().out
    assert f"label {probability}, accuracy {accuracy}" in said
    assert said.count("now - before") == 2
    texts = {query.text for query in found["queries"]}
    assert len(found["fresh"]) == 3
    assert not texts.intersection(query.text for query in found["fresh"])


NULLS = {
    "isolated label words": icl.Isolate((0, 1), tokens="random", seed=3),
    "cut to the target": icl.Cut("label_word", layers=(1, 2), control=True, seed=3),
    "a head": icl.ZeroHeads(random_heads([(1, 2)], (3, 4), 5)[3]),
}


@pytest.mark.parametrize("what", NULLS)
def test_a_finding_has_the_null_of_its_claim(view, what):
    view.do("reset")
    for action in EVERY[what]:
        view.session.do(action)
    found = run(view.finding())
    prompts, changes = found["null"](found["queries"], 3)
    assert [prompt.tokens for prompt in prompts] == [
        prompt.tokens for prompt in found["now"](found["queries"])[0]
    ]
    assert repr(changes) == repr([NULLS[what]])
    values = [
        icl.logit_lens(model_of(), prompts, interventions=found["null"](found["queries"], i)[1])
        .sel("true_label", layer=3)
        .per_prompt
        for i in range(5)
    ]
    after = found["answers"](*found["now"](found["queries"]))[0]
    expected = mean_interval(after - torch.stack(values).double().mean(0), "change")
    assert all_of(found)["now - null"][0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("what", ["re-weighted", "an isolated token", "cut between demonstrations"])
def test_a_finding_without_a_null(view, what):
    view.do("reset")
    for action in EVERY[what]:
        view.session.do(action)
    assert [*all_of(run(view.finding()))] == ["now - before"]


def test_a_change_that_the_reference_has_too_is_no_claim(view):
    view.do("reset").isolate(range(2)).do("keep").do("reference", index=0).flip(1)
    found = run(view.finding())
    assert "null" not in found
    assert all_of(found)["now - before"][0] == pytest.approx(view.over_all().gain, abs=1e-6)
    view.do("reference", index=None).do("forget", index=0)


def test_nothing_changed_is_no_finding(view):
    view.do("reset")
    with WORDS.raises(RunError, "no_change"):
        view.finding()


def test_a_finding_of_open_answers(capsys):
    own = opened_open(n=3)
    own.flip(0).isolate(range(2))
    text = own.finding()
    lines = [line for line in text.splitlines() if not line.startswith(("model = ", "task = "))]
    found = {"model": model_of(), "task": OPEN}
    exec("\n".join(lines), found)  # noqa: S102 - what a reader would do with them
    measured, both = all_of(found), own.over_all()
    assert measured["now - before"][0] == pytest.approx(both.gain, abs=1e-6)
    assert measured["now - before"][1] == pytest.approx(both.accuracy_gain, abs=1e-9)
    assert "true answer" in capsys.readouterr().out
    own.close()


@pytest.mark.slow
def test_a_finding_with_the_default_model(capsys):
    """As it is copied, with the lines that load model and task."""
    model = icl.load_model()
    own = icl.explore(model, "reviews", n=4, threads=1)
    own.isolate(range(5))
    found: dict = {}
    exec(own.finding(), found)  # noqa: S102 - what a reader would do with them
    both = own.over_all()
    assert all_of(found)["now - before"][0] == pytest.approx(both.gain, abs=1e-5)
    assert len(found["fresh"]) == 4
    own.close()

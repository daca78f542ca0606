"""The lines that are copied give the numbers on the screen."""

import random

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import IclMechError, RunError
from tests.explorer.cases import EVERY, TASK, model_of, opened, random_action


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

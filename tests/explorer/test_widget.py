"""What a notebook shows, with anywidget and without."""

import builtins
import json

import pytest

from icl_mech.explorer import widget
from tests.explorer.cases import LABELS, opened
from tests.said import Words

WORDS = Words(__file__)

anywidget = pytest.importorskip("anywidget")
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def view():
    own = opened()
    yield own
    widget.widget_class.cache_clear()
    own.close()


def test_a_widget_and_a_still_beside_it(view):
    view.flip(0)
    shown = view._repr_mimebundle_()
    assert VIEW in shown
    for mime in ("text/plain", "text/html"):
        assert "1 label false" in shown[mime]
        assert all(label in shown[mime] for label in LABELS)
        assert len(shown[mime]) < 30_000
    assert "install anywidget" in shown["text/html"]


def test_without_anywidget_the_still_says_what_to_install(view, monkeypatch):
    own = builtins.__import__

    def missing(name, *args):
        if name == "anywidget":
            raise ImportError(name)
        return own(name, *args)

    widget.widget_class.cache_clear()
    monkeypatch.setattr(builtins, "__import__", missing)
    shown = view._repr_mimebundle_()
    assert VIEW not in shown
    WORDS(shown["text/html"], "without_anywidget_still_says")


def test_messages_go_both_ways(view):
    made = widget.widget_class()(view.session)
    heard = []
    made.send = heard.append
    view.session._listeners[:] = [made.send]
    made._heard(made, {"do": "flip", "demo": 0}, [])
    assert heard[0]["kind"] == "state"
    assert view.experiment.demos[0].shown != view.experiment.demos[0].true
    made._heard(made, {"do": "flip", "demo": 99}, [])
    assert any(own["kind"] == "error" for own in heard)


def test_a_widget_holds_what_a_page_draws_before_the_kernel_answers(view):
    view.flip(0)
    view._repr_mimebundle_()
    state, *parts = view.session.widget.get_state("first")["first"]
    assert state["kind"] == "state"
    assert (state["title"], state["gen"]) == ("1 label false", view.session.generation)
    heard = {part["part"]: part["data"] for part in parts}
    assert heard["now"] == view.figures()
    assert all(part["gen"] == state["gen"] for part in parts)
    view.flip(1)
    view._repr_mimebundle_()
    state, *parts = view.session.widget.get_state("first")["first"]
    assert state["title"] == "2 labels false"
    assert {part["part"]: part["data"] for part in parts}["now"] == view.figures()


def test_the_still_is_text_whatever_it_says(view):
    view.do("edit", demo=0, text="<script>alert(1)</script>")
    assert "<script>" not in view._repr_mimebundle_()["text/html"]


def test_colours_stand_behind_those_of_the_sheet():
    from icl_mech.explorer.theme import css
    from icl_mech.plots.style import LOOKS

    text = css()
    assert text.rindex("--icl-true: " + LOOKS["true"].light) > text.index(".ex-token")
    assert "--icl-true: " + LOOKS["true"].dark in text


def test_beside_the_widget_stands_a_small_still_with_one_sentence(view):
    view.flip(0)
    data = view._repr_mimebundle_()
    assert VIEW in data
    assert "install anywidget" in data["text/html"]
    assert "label word" in data["text/html"]
    assert "<svg" in data["text/html"]
    assert "1 label false" in data["text/html"]
    assert "World" in data["text/plain"]
    assert len(json.dumps(data)) < 30_000


def test_without_anywidget_the_still_says_so(view, monkeypatch):
    monkeypatch.setattr(widget, "widget_class", lambda: None)
    data = view._repr_mimebundle_()
    assert VIEW not in data
    assert widget.MISSING in data["text/html"]

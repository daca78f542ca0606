"""What a notebook and a shell show of results, and how far a run is."""

import json

import plotly.graph_objects as go
import plotly.io as pio
import pytest
from IPython.core.interactiveshell import InteractiveShell

import icl_mech as icl
from icl_mech.engine import progress
from icl_mech.engine.progress import Progress
from icl_mech.measurements import Flow, Predict
from icl_mech.plots import MIME
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)


class Page:
    """A notebook page: what was displayed, by place; an update replaces."""

    def __init__(self):
        self.outputs, self.pictures = [], []

    def display(self, data, *, raw, display_id=False):
        assert raw
        self.outputs.append(data)
        return self if display_id else None

    def update(self, data, *, raw):
        assert raw
        self.pictures.append(data)


@pytest.fixture
def page(monkeypatch):
    own = Page()
    shell = type("Shell", (), {"kernel": object()})()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", own.display)
    return own


@pytest.fixture(scope="module")
def analysis():
    model = tiny_model("llama")
    prompts = icl.build_prompts(TASK, model, shots=2, n=4)
    return icl.measure(model, prompts, Predict(), Flow())


def test_figures_are_data_and_no_script(page, analysis):
    analysis._ipython_display_()
    texts = [data["text/plain"] for data in page.outputs]
    assert texts[:2] == [analysis.title, analysis.predictions.summary()]
    figures = [data[MIME] for data in page.outputs if MIME in data]
    assert len(figures) == 2
    assert "script" not in json.dumps(page.outputs)
    for figure in figures:
        go.Figure({"data": figure["data"], "layout": figure["layout"]})
        assert figure["config"] == {"displaylogo": False, "showSendToCloud": False}


def test_sentences_are_text(page, analysis):
    icl.studies.Analysis({}, title="<b>&")._ipython_display_()
    assert page.outputs == [{"text/html": "<p>&lt;b&gt;&amp;</p>", "text/plain": "<b>&"}]


def test_another_renderer_is_followed(page, analysis, monkeypatch):
    monkeypatch.setattr(pio.renderers, "default", "json")
    shown = []
    monkeypatch.setattr(go.Figure, "_ipython_display_", lambda own: shown.append(own))
    analysis.flow._ipython_display_()
    assert len(shown) == 1
    assert isinstance(shown[0], go.Figure)
    assert all(MIME not in data for data in page.outputs)


def test_a_shell_prints_the_repr(analysis):
    shell = InteractiveShell.instance()
    try:
        formatted, _ = shell.display_formatter.format(analysis.flow)
        assert formatted["text/plain"] == repr(analysis.flow)
    finally:
        InteractiveShell.clear_instance()


def test_a_bar_without_widgets(page, monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(now)))
    with Progress("a <title>", 10, None) as bar:
        bar.advance(4)
    (first,) = page.outputs
    later, end = page.pictures
    assert first["text/plain"] == "a <title> "
    WORDS(first["text/html"], "bar_without_widgets")
    assert '<progress max="1" value="0.4000"' in later["text/html"]
    # Clocks of the bar and of its picture are asked in turn, a second apart.
    assert "4/10, 2.0/s, 3 s left" in later["text/plain"]
    assert end == {"text/html": "", "text/plain": ""}


def test_no_bar_if_told_so(page):
    with Progress("x", 10, False) as bar:
        bar.advance(4)
    assert page.outputs == []

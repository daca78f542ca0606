"""One bar over many runs: what is known to come, what is done, and what is said of it."""

import contextlib

import pytest

import icl_mech as icl
from icl_mech.engine import bars, progress
from icl_mech.engine.progress import Overall, Progress, cost, expect
from icl_mech.measurements import Flow, Isolation, Predict
from tests.engine.test_paths import TASK
from tests.tiny import tiny_model


class Watched(bars.Bar):
    """Remembers what it was to show."""

    def __init__(self):
        self.shown = []

    def show(self, title, share, words):
        self.shown.append((title, share, words))


@pytest.fixture
def watched(monkeypatch):
    bar = Watched()
    monkeypatch.setattr(progress, "bar_for", lambda show, lines=False: bar)
    return bar


def shares(bar):
    return [share for _, share, _ in bar.shown]


def test_runs_count_in_the_bar_over_them(watched):
    with Overall("study", True) as whole:
        expect(10.0 + 3 * 5)
        with Progress("prompts", 10, None) as bar:
            bar.advance(10)
        assert whole.share == pytest.approx(10 / 25)
        with Progress("flow", 5, None, cost=cost(gradient=True)) as bar:
            bar.advance(5)
        assert whole.share == 1
        with Progress("not expected", 25, None) as bar:
            bar.advance(5)
        assert whole.share == pytest.approx(30 / 50)
    assert {title for title, _, _ in watched.shown} >= {"study"}


def test_what_will_not_come_is_taken_back():
    whole = Overall("study", True)
    whole.expect(30.0)
    whole.expect(-10.0)
    whole.begin("prompts", 20.0)
    whole.advance(20.0)
    assert whole.share == 1


def test_words():
    whole = Overall("study", True)
    whole.begin("prompts", 100.0)
    assert whole.words(3.0) == "0 %, 3 s (prompts)"
    whole.advance(25.0)
    assert whole.words(100.0) == "25 %, 2 min, about 5 min left (prompts)"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, "0 s"), (89.0, "89 s"), (120.0, "2 min"), (5400.0, "1.5 h")]
)
def test_durations(seconds, said):
    assert bars.duration(seconds) == said


def test_one_inside_of_another_does_nothing(watched):
    with Overall("sweep", True) as outer, Overall("study", True):
        with Progress("prompts", 4, None) as bar:
            bar.advance(4)
        assert outer.share == 1


def test_silence(capsys):
    with Overall("study", False) as whole:
        expect(4.0)
        with Progress("prompts", 4, False) as bar:
            bar.advance(4)
    assert whole.share == 0
    assert capsys.readouterr() == ("", "")


def test_nothing_is_left_after_an_error(watched):
    with contextlib.suppress(ValueError), Overall("study", True):
        raise ValueError
    expect(5.0)
    with Overall("another", True) as whole, Progress("prompts", 2, None) as bar:
        bar.advance(1)
        assert whole.share == 0.5


def test_lines_where_nobody_watches(monkeypatch, capsys):
    now = iter(range(0, 1000, 16))
    monkeypatch.setattr(bars.time, "monotonic", lambda: float(next(now)))
    bar = bars.bar_for(None, lines=True)
    bar.start("study")
    for share in (0.1, 0.2, 0.3, 0.4):
        bar.show("study", share, f"{share:.0%}")
    bar.stop()
    captured = capsys.readouterr()
    assert captured.err == "study 20%\nstudy 40%\n"
    assert captured.out == ""


def test_no_lines_for_a_single_run_or_if_told_so():
    for silent in (bars.bar_for(None), bars.bar_for(False, lines=True)):
        assert type(silent) is bars.Bar


def test_a_study_reaches_its_end_and_never_goes_back(watched):
    """Passes that are shared are not counted twice, and none is forgotten."""
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=2, n=4)
    icl.measure(model, prompts, Flow(), Predict(), Isolation(depths=(1,), draws=2), progress=True)
    found = shares(watched)
    assert found == sorted(found)
    assert found[-1] == pytest.approx(1)
    assert {title for title, _, _ in watched.shown} == {"measuring"}

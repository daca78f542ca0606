"""One bar over many runs: what is known to come, what is done, and what is said of it."""

import contextlib
from itertools import pairwise

import pytest

import icl_mech as icl
from icl_mech import bars
from icl_mech.engine import progress, runs
from icl_mech.engine.progress import Overall, Progress, cost, expect
from icl_mech.interventions import Intervention, ZeroHeads
from icl_mech.measurements import EdgeCuts, Flow, Isolation, Predict, Transplant
from icl_mech.measurements.base import Options
from icl_mech.measurements.running import Item, work_of
from icl_mech.models import Site, adapt
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)
NO_NULLS = {"overthinking": {"nulls": 0}, "causal": {}}


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
        with Progress("flow", 5, None, cost=cost([80, 120], gradient=True)) as bar:
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
    WORDS.exactly(whole.words(100.0), "words", "25")
    early = Overall("study", show=False)
    early.begin("loading", 100.0)
    early.advance(2.0)
    assert (
        early.words(40.0) == "2 %, 40 s (loading)"
    )  # 33 minutes would be said of a slow beginning


# Seconds from the beginning, and what happens then: work that is expected, and work that is done.
ROUGH = [
    *((second, 0.0, 0.05) for second in range(1, 40)),  # slow ones first
    *((second, 0.0, 1.5) for second in range(40, 85)),  # then fast ones
    (85, 400.0, 0.0),  # measurements that are known late
    *((second, 0.0, 0.5) for second in range(86, 420)),
    (420, -200.0, 0.0),  # what will not come
    *((second, 0.0, 0.2) for second in range(421, 600)),
]
EXPECTED = 90.0


def test_what_is_left_is_told_steadily():
    """Every half minute, as a log shows it: no jump by more than 1.5, where plain rates jump fivefold."""
    whole = Overall("study", True)
    whole.expect(EXPECTED)
    whole.begin("prompts", EXPECTED)
    plain, told = [], []
    for second, expected, done in ROUGH:
        whole.expect(expected)
        whole.advance(done)
        left = whole.left(float(second))
        if second % 30 == 0:
            plain.append(second * (1 - whole.share) / whole.share)
            told.append(left)
    assert jump(told) <= 1.5
    assert jump(plain) > 5
    # It is no constant: what is said follows the rate.
    assert told[-1] == pytest.approx(plain[-1], rel=0.1)


def jump(told):
    """The largest factor between two lines, beside the half minute that has passed."""
    return max(max(b / a, (a - 30) / b) for a, b in pairwise(told))


def test_a_long_prompt_counts_for_more_than_a_short_one():
    assert cost([300], gradient=False) == 10 * cost([30, 30], gradient=False)
    assert cost([100], gradient=True) == 3


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, "0 s"), (89.0, "89 s"), (120.0, "2 min"), (5400.0, "1.5 h")]
)
def test_durations(seconds, said):
    assert progress.duration(seconds) == said


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


def test_a_run_counts_by_the_rows_that_its_blocks_compute(watched):
    with Overall("study", True) as whole, Progress("isolation", 10, None) as bar:
        bar.expect(100, 10.0)
        bar.ran(30)
        assert whole.share == pytest.approx(0.3)
        bar.advance(1)  # of ten prompts
        assert whole.share == pytest.approx(0.3)
        bar.ran(80)
        assert whole.share == 1


def test_an_interrupted_run_does_not_count_as_finished(watched):
    with Overall("study", True) as whole:
        with contextlib.suppress(KeyboardInterrupt), Progress("prompts", 10, None) as bar:
            bar.advance(4)
            raise KeyboardInterrupt
        assert whole.share == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("measurement", "demonstrations"),
    [
        (Predict(), "shared"),
        (Predict(), "per_prompt"),
        (Flow(), "per_prompt"),
        (Isolation(), "shared"),
        (Isolation(), "per_prompt"),
        (EdgeCuts(rows="target", draws=1), "shared"),
        (Transplant(), "shared"),
        (Transplant(), "per_prompt"),
    ],
)
def test_layouts_know_the_rows_that_their_passes_compute(
    monkeypatch, watched, measurement, demonstrations
):
    bars = []

    class Kept(Progress):
        def __init__(self, *given, **how):
            super().__init__(*given, **how)
            bars.append(self)

    monkeypatch.setattr(runs, "Progress", Kept)
    model = tiny_model("gpt2")
    build = icl.build_prompt_pairs if isinstance(measurement, Transplant) else icl.build_prompts
    prompts = build(TASK, model, shots=1, n=6, demonstrations=demonstrations)
    icl.measure(model, prompts, measurement, progress=True)
    counted = [bar for bar in bars if bar._rows]
    assert counted
    for bar in counted:
        assert bar._rows == bar._rows_done


@pytest.mark.parametrize("demonstrations", ["shared", "per_prompt"])
@pytest.mark.parametrize(
    "measurement", [Predict(), Flow(), Isolation(), EdgeCuts(rows="target", draws=1)]
)
def test_what_is_announced_of_a_measurement_is_its_work(monkeypatch, measurement, demonstrations):
    """No announcement is left over, and nothing is added when its passes begin."""
    model = adapt(tiny_model("gpt2"))
    prompts = icl.build_prompts(TASK, model, shots=2, n=6, demonstrations=demonstrations)
    options = Options(progress=True)
    work = work_of(Item.checked(measurement, model, prompts, options), model, options)
    with Overall("study", True, Watched()) as whole:
        icl.measure(model, prompts, measurement, progress=True)
        assert whole._promised == pytest.approx(0, abs=1e-6)
        assert whole._done == pytest.approx(whole._total)
        if not isinstance(measurement, Predict):  # runs whole words in addition
            assert whole._total == pytest.approx(work)


def test_means_that_are_filled_later_do_not_keep_work_from_being_announced():
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=2, n=6)
    means = ZeroHeads([(0, 0)], kind="mean", at="all")
    with Overall("study", True, Watched()) as whole:
        icl.measure(model, prompts, Isolation(), interventions=[means], progress=True)
        assert whole._done == pytest.approx(whole._total)


class Asked(Intervention):
    """Counts how often its hooks are asked for; they may draw random numbers."""

    def __init__(self):
        self.asked = 0

    def hooks(self, segment):
        self.asked += 1
        return [(Site("resid_pre", 0), lambda residual: residual * 1.0)]

    def shares(self, prompts, length):
        return True

    def to_dict(self):
        return {"type": "Asked"}


def test_a_bar_does_not_ask_for_the_hooks_of_an_intervention(watched):
    """The numbers of an intervention that draws random ones are the same with a bar and without."""
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=2, n=6)
    asked = []
    for progress_shown in (False, True):
        change = Asked()
        icl.measure(model, prompts, Isolation(), interventions=[change], progress=progress_shown)
        asked.append(change.asked)
    assert asked[0] == asked[1] > 0


def test_the_time_left_is_that_of_what_runs_now(monkeypatch):
    now, bar = [0.0], Watched()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "bar_for", lambda show: bar)
    with Progress("isolation", 10, True) as run:
        run.expect(100, 1.0)
        run.ran_before(90)
        now[0] = 5.0
        run.ran(5)
    WORDS.exactly(bar.shown[-1][2], "time_left")


@pytest.mark.parametrize("study", ["overthinking", "causal"])
def test_work_that_depends_on_chosen_heads_is_announced(study):
    model = tiny_model("gpt2")
    pair = icl.build_prompt_pairs("reviews", model, shots=1, n=24)
    with Overall("study", True, Watched()) as whole:
        icl.analyze(model, pair, study=study, progress=True, **NO_NULLS[study])
        assert whole._promised == pytest.approx(0, abs=0.02 * whole._total)
        assert whole._done == pytest.approx(whole._total, rel=0.02)


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

"""`budget=`: the largest run that fits into a time, and what is said about the rest."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ModelError, PromptError, RunError
from icl_mech.measurements import Flow, Isolation
from icl_mech.measurements.base import Options
from icl_mech.models import adapt
from icl_mech.results import Result
from icl_mech.studies import budget, nulls
from icl_mech.studies.bench import Bench
from icl_mech.studies.budget import Costs, in_budget, seconds_of
from icl_mech.studies.kept_nulls import KeptNull
from tests.said import Words
from tests.saved import contents
from tests.tiny import tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def prompts(model):
    return icl.build_prompts("reviews", model, shots=1, n=24, demonstrations="per_prompt")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2 min", 120),
        ("45", 45),
        ("90 s", 90),
        ("1.5h", 5400),
        (" 3min ", 180),
        (90, 90),
        (0.5, 0.5),
    ],
)
def test_times(given, seconds):
    assert seconds_of(given) == seconds


@pytest.mark.parametrize(
    "given", ["2 minutes", "two min", "", "1.2.3 s", ". s", "0 s", 0, -1, True, float("nan"), [2]]
)
def test_what_is_no_time_is_refused(given):
    with WORDS.raises(RunError, "no_time"):
        seconds_of(given)


def test_networks_come_after_enough_prompts():
    costs = Costs(each=1.0, network=10.0)
    assert costs.fitting(100.0, total=50, networks=3) == (50, 3)
    assert costs.fitting(60.0, total=50, networks=3) == (30, 3)
    assert costs.fitting(54.0, total=50, networks=3) == (24, 3)
    assert costs.fitting(53.0, total=50, networks=3) == (
        50,
        0,
    )  # 23 prompts with networks are too few
    assert costs.fitting(40.0, total=50, networks=3) == (40, 0)
    assert costs.fitting(45.0, total=10, networks=3) == (10, 3)  # these are all
    assert costs.fitting(0.5, total=50, networks=3) == (0, 0)


def test_networks_that_earlier_runs_measured_cost_nothing():
    costs = Costs(each=1.0, network=0.0)
    assert costs.fitting(53.0, total=80, networks=3) == (53, 3)
    assert costs.fitting(10.0, total=80, networks=3) == (10, 3)


def test_kept_networks_are_known_to_cost_nothing(monkeypatch, model, prompts):
    monkeypatch.setattr(nulls, "_KNOWN", {})
    bench = Bench(adapt(model), Options())
    bench.for_nulls = {"flow": (Flow(), 8), "isolation": (Isolation(), 8)}
    assert nulls.missing_share(bench, prompts, 2) == 1
    for seed, measurement in ((0, Flow()), (1, Flow()), (0, Isolation())):
        place = KeptNull(bench.model, measurement, prompts[:8], (), seed)
        nulls._KNOWN[place.identity] = Result()
    assert 0.2 < nulls.missing_share(bench, prompts, 2) < 0.5
    nulls._KNOWN[KeptNull(bench.model, Isolation(), prompts[:8], (), 1).identity] = Result()
    assert nulls.missing_share(bench, prompts, 2) == 0


def test_networks_that_were_asked_for_and_left_out_are_said_once(model, prompts):
    report = icl.analyze(model, prompts, budget=1e-3, nulls=3, progress=False)
    assert nulls.LEFT_OUT not in report.notes


def test_networks_kept_for_more_prompts_are_paid_for(monkeypatch, model, prompts):
    clock = Clock(monkeypatch, model)
    shares = iter([0.0, 1.0])
    monkeypatch.setattr(budget, "missing_share", lambda *_: next(shares))
    _, _, record = in_budget(20, prompts, 3, clock.run, None, lambda *_: None)
    assert clock.runs == [(8, 0), (10, 0)]
    assert record["networks"] == 0


class Clock:
    """A second per prompt, and eight per network."""

    def __init__(self, monkeypatch, model):
        self.now, self.model = 0.0, adapt(model)
        monkeypatch.setattr(budget.time, "monotonic", lambda: self.now)
        self.runs = []

    def run(self, data, folder, networks):
        self.runs.append((len(data), networks))
        self.now += len(data) + 8 * networks
        return Bench(self.model, Options(), folder)


@pytest.mark.parametrize(
    ("seconds", "runs", "note"),
    [
        (1000, [(8, 0), (24, 2)], "all_measured"),
        (60, [(8, 0), (24, 2)], "all_measured"),
        (45, [(8, 0), (24, 0)], "without_networks"),
        (20, [(8, 0), (10, 0)], "few_prompts"),
        (5, [(8, 0)], "over_time"),
    ],
)
def test_what_fits_is_measured(monkeypatch, model, prompts, seconds, runs, note):
    clock, seen = Clock(monkeypatch, model), []
    bench, data, record = in_budget(
        seconds, prompts, 2, clock.run, None, lambda bench, data: seen.append(len(data))
    )
    assert clock.runs == runs
    assert len(data) == record["n"] == runs[-1][0]
    assert data.digest == prompts[: len(data)].digest
    assert record["spent"] == clock.now
    assert seen == ([8] if len(runs) > 1 else [])
    WORDS(bench.notes[-1], note)


def test_numbers_are_those_of_one_run(model, prompts, tmp_path):
    within = icl.analyze(
        model, prompts, budget="1 h", nulls=2, out=tmp_path / "run", progress=False
    )
    plain = icl.analyze(model, prompts, nulls=2, progress=False)
    assert torch.equal(within.flow.per_prompt, plain.flow.per_prompt)
    assert list(within) == list(plain)
    assert within.made["budget"]["n"] == 24
    loaded = icl.load_analysis(tmp_path / "run")
    assert loaded.made["budget"] == within.made["budget"]
    assert list(loaded) == list(plain)


def test_the_first_stage_is_kept_if_nothing_else_fits(model, prompts, tmp_path):
    report = icl.analyze(model, prompts, budget=1e-3, out=tmp_path / "run", progress=False)
    plain = icl.analyze(model, prompts[:8], nulls=0, progress=False)
    assert torch.equal(report.flow.per_prompt, plain.flow.per_prompt)
    assert list(icl.load_analysis(tmp_path / "run")) == list(plain)
    assert "flow" in icl.load_analysis(tmp_path / "run")


def test_a_folder_that_holds_a_run_is_left_alone(model, prompts, tmp_path):
    icl.analyze(model, prompts, nulls=0, out=tmp_path / "run", progress=False)
    before = contents(tmp_path / "run")
    with WORDS.raises(RunError, "not_empty"):
        icl.analyze(model, prompts, nulls=0, budget=1e-3, out=tmp_path / "run", progress=False)
    assert contents(tmp_path / "run") == before


def test_a_study_that_needs_more_prompts_begins_with_more(monkeypatch, model, prompts):
    clock = Clock(monkeypatch, model)

    def run(data, folder, networks):
        if len(data) < 20:
            raise PromptError("too few")
        return clock.run(data, folder, networks)

    _, data, _ = in_budget(1000, prompts, 0, run, None, lambda bench, data: None)
    assert clock.runs == [(24, 0)]
    assert len(data) == 24
    with pytest.raises(PromptError, match="too few"):
        in_budget(1000, prompts[:16], 0, run, None, lambda bench, data: None)


def test_networks_that_cannot_be_made_are_left_out_with_a_note(monkeypatch, model, prompts):
    def untrained(*given, **options):
        raise ModelError("impossible")

    monkeypatch.setattr(nulls, "untrained", untrained)
    monkeypatch.setattr(nulls, "_KNOWN", {})
    report = icl.analyze(model, prompts[:9], budget="1 h", progress=False)
    assert any("impossible" in note for note in report.notes)


def test_two_rules_for_the_number_of_prompts_are_refused(model, prompts):
    with WORDS.raises(RunError, "two_rules"):
        icl.analyze(model, prompts, budget="1 min", until=0.1)


def test_a_forecast_counts_all_prompts(model, prompts):
    forecast = icl.analyze(model, prompts, budget="1 s", nulls=0, plan=True, progress=False)
    assert forecast.items[0].prompts == 24
    WORDS("".join(forecast.items[0].notes), "counted")

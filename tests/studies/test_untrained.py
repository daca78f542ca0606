"""Claims about flow beside untrained networks: the range by hand, and the rule of verdicts."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import RunError
from icl_mech.metrics import Interval
from icl_mech.models import adapt
from icl_mech.results.judging import Required, disagreeing, required, together
from icl_mech.studies import nulls
from icl_mech.studies.untrained import UntrainedFlow, flow_required
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def report():
    model = tiny_model("llama")
    prompts = icl.build_prompts("reviews", model, shots=1, n=8)
    return icl.analyze(model, prompts, nulls=3, progress=False)


def test_the_prediction_interval_by_hand(report):
    found = replace(report.untrained, late=torch.tensor([0.0, 0.1, 0.2]))
    # mean .1, s = .1, t with 2 degrees of freedom 4.3027, sqrt(4 / 3)
    reach = 4.302653 * 0.1 * math.sqrt(4 / 3)
    assert found.range("last") == pytest.approx((0.1 - reach, 0.1 + reach), abs=1e-5)
    assert found.bound("last") == pytest.approx(0.1 + reach, abs=1e-5)


@pytest.mark.parametrize(
    ("effect", "status"),
    [
        ((0.7, 0.65, 0.75), "supported"),
        ((0.7, 0.55, 0.85), "not shown"),  # its lower end is not beyond
        ((0.05, 0.01, 0.09), "not shown"),
        ((0.0, -0.1, 0.1), "not shown"),
        ((-0.2, -0.25, -0.15), "not shown"),
        ((-0.7, -0.8, -0.6), "opposite"),
    ],
)
def test_a_claim_lies_beyond_with_its_whole_interval(report, effect, status):
    found = replace(report.untrained, early=torch.tensor([0.0, 0.1, 0.2]))
    assert found.status(Interval(*effect), "first", 24) == status
    assert found.status(Interval(*effect), "first", 3) == "cannot be judged"


@pytest.mark.parametrize(("low", "far"), [(0.596827, 4.302653), (0.1, 0.0), (1.5, 12.124356)])
def test_its_p_value_by_hand(report, low, far):
    # One more network: mean .1, spread .1 sqrt(4 / 3); t with 2 degrees of freedom.
    found = replace(report.untrained, early=torch.tensor([0.0, 0.1, 0.2]))
    by_hand = (1 - far / math.sqrt(2 + far**2)) / 2
    effect = Interval(low + 1e-4, low, low + 2e-4)
    assert required("saliency", found.beside(effect, "first"), prompts=24).p == pytest.approx(
        by_hand, rel=1e-4
    )


def test_without_untrained_networks_nothing_is_supported(report):
    flow = report.flow
    above = flow.above_null("wp", "first")[1]
    sign = torch.where(torch.tensor(above.value) > 0, 1.0, -1.0)
    assert sign in (1.0, -1.0)
    assert flow_required(flow, None, "wp", "first").status != "supported"
    assert flow_required(None, report.untrained, "wp", "first").status == "cannot be judged"


@pytest.mark.parametrize(
    ("required", "status"),
    [
        (("supported", "supported"), "supported"),
        (("supported", "cannot be judged"), "cannot be judged"),
        (("opposite", "opposite"), "opposite"),
        (("not shown", "not shown"), "not shown"),
        (("supported", "not shown"), "mixed"),
        (("supported", "opposite"), "mixed"),
        (("mixed", "mixed"), "mixed"),
        ((), "cannot be judged"),
    ],
)
def test_a_claim_requires_all_its_measures(required, status):
    assert together(*required) == status


def test_measures_that_disagree_are_named():
    isolated = Required("isolation", "supported", 0.001)
    told = disagreeing([isolated, Required("saliency", "not shown", 0.3)])
    WORDS.exactly(told, "measures_disagree_named")
    told = disagreeing([isolated, Required("saliency", "cannot be judged", None)])
    WORDS.starts(told, "measures_disagree_named_2")


@pytest.mark.slow
def test_networks_are_measured_once_and_kept(report, tmp_path, monkeypatch):
    model = tiny_model("llama", seed=3)  # other weights, the same architecture
    prompts = icl.build_prompts("reviews", model, shots=1, n=8)

    def never(*_, **__):
        raise AssertionError("measured again")

    monkeypatch.setattr(nulls, "untrained", never)
    again = icl.analyze(model, prompts, nulls=3, progress=False, out=tmp_path / "run")
    assert torch.equal(again.untrained.late, report.untrained.late)
    loaded = icl.Analysis.load(tmp_path / "run")
    assert isinstance(loaded.untrained, UntrainedFlow)
    assert torch.equal(loaded.untrained.curves, again.untrained.curves)
    monkeypatch.setattr(nulls, "_KNOWN", {})
    resumed = icl.analyze(model, prompts, nulls=3, progress=False, out=tmp_path / "run")
    assert torch.equal(resumed.untrained.late, report.untrained.late)


def test_curves_are_those_of_the_networks(report):
    model = tiny_model("llama")
    prompts = icl.build_prompts("reviews", model, shots=1, n=8)
    flow = icl.flow_scores(icl.untrained(model, 1), prompts, progress=False)
    assert torch.allclose(
        report.untrained.curves[1, 0].double(), flow.values[1].double(), atol=1e-6
    )
    assert float(report.untrained.late[1]) == pytest.approx(
        flow.above_null("pq", "last")[1].value, abs=1e-6
    )
    assert report.untrained.figures()[0].answer
    assert report.untrained.drawing().values.shape == (6, 3)


def test_none_or_two_at_least():
    model = tiny_model("llama")
    prompts = icl.build_prompts("reviews", model, shots=1, n=6)
    without = icl.analyze(model, prompts, nulls=0, progress=False)
    assert "untrained" not in without
    assert any("nulls=3" in note for note in without.notes)


def test_one_network_is_refused_before_anything_runs(monkeypatch):
    model = tiny_model("llama")
    prompts = icl.build_prompts("reviews", model, shots=1, n=6)
    monkeypatch.setattr("icl_mech.studies.Bench", None)  # nothing may begin
    with WORDS.raises(RunError, "network_refused_before_anything", "1"):
        icl.analyze(model, prompts, nulls=1, progress=False)


@pytest.mark.slow
def test_curves_of_untrained_networks_lie_behind_the_figures(report):
    model = tiny_model("llama")
    prompts = icl.build_prompts("reviews", model, shots=1, n=8)
    behind = report["untrained_flow"]
    for seed in range(3):
        own = icl.flow_scores(icl.untrained(model, seed), prompts, progress=False)
        assert torch.allclose(behind.values[seed, :3], own.values.float(), atol=1e-6)
    shape = behind.behind(report.flow.drawing())
    assert [area.curve for area in shape.behind] == [0, 1, 2]
    for area, curves in zip(shape.behind, behind.values.unbind(1)[:3], strict=True):
        assert list(area.low) == curves.amin(0).tolist()
        assert list(area.high) == curves.amax(0).tolist()
    WORDS(shape.note, "curves_untrained_networks_lie", "3", "8")
    # Another drawing has other curves and gets none.
    assert behind.behind(report.flow.drawing("null")).behind == ()
    figure = report.plot("flow")
    assert sum(trace.name == "untrained" for trace in figure.data) == 3
    named = [note.font.color for note in figure.layout.annotations if note.text == "untrained"]
    assert named == [trace.line.color for trace in figure.data if trace.name == "untrained"]
    assert not any(trace.name == "untrained" for trace in report.flow.plot().data)
    assert "untrained_flow" not in report.summary()


def test_gaps_of_networks_are_left_out(report):
    values = report["untrained_flow"].values.clone()
    values[0, 0, 0], values[:, 1, 1] = torch.nan, torch.nan
    low, middle, high = replace(report["untrained_flow"], values=values)._range()
    assert float(low[0, 0]) == float(values[1:, 0, 0].min())
    assert float(middle[0, 0]) == pytest.approx(float(values[1:, 0, 0].mean()))
    assert bool(low[1, 1].isnan())
    assert bool(high[1, 1].isnan())


def test_what_the_figure_says(report):
    def said(early, late):
        effects = torch.tensor([early, late])
        some = torch.tensor([0.0, 0.01, 0.02])
        own = replace(report.untrained, effects=effects, early=some, late=some, prompts=24)
        return own.figures()[0].answer

    far, near = (0.5, 0.4, 0.6), (0.05, 0.01, 0.09)
    WORDS.starts(said(far, far), "what_figure_says", "No", "+0.50", "[+0.40, +0.60]")
    WORDS.starts(said(far, near), "what_figure_says_2")
    WORDS.starts(said(near, far), "what_figure_says_3")
    WORDS.starts(said(near, near), "what_figure_says_4", "Yes")


@pytest.mark.parametrize(
    ("shape", "packed", "dtype", "count"),
    [
        ((1000, 1000, 1000), None, torch.bfloat16, 3),  # 2 GB
        ((2200, 1000, 1000), None, torch.bfloat16, 0),  # 4.4 GB
        ((1000, 1000, 500), (7200, 1000, 1000), torch.uint8, 0),  # 4 bits: two weights a byte
        ((1000, 1000, 1000), None, torch.int8, 3),
        ((2200, 1000, 1000), None, torch.int8, 0),
    ],
)
def test_packed_weights_count_unpacked(shape, packed, dtype, count, monkeypatch):
    """Networks without quantisation are made of a model with it."""
    weight = torch.empty(shape, dtype=dtype, device="meta")
    if packed is not None:
        weight.quant_state = SimpleNamespace(shape=torch.Size(packed))
    model = adapt(tiny_model("gpt2"))
    monkeypatch.setattr(model.module, "parameters", lambda: iter([weight]))
    assert nulls.usual_nulls(model) == count

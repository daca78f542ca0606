"""`measure`: values side by side, passes shared, refusals first, finished parts kept."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech._typing import Float, Tensor
from icl_mech.engine import Kept, Reading, run
from icl_mech.errors import MissingResult, PromptError, ResultError, RunError
from icl_mech.interventions import Isolate, ZeroLayers
from icl_mech.measurements import Flow, Measurement, PairMeasurement, Pass, Predict, SaliencyMaps
from icl_mech.models import ModelInfo, Site, adapt
from icl_mech.results import Result
from icl_mech.studies import bench
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.saved import as_earlier, contents
from tests.tiny import tiny_model

WORDS = Words(__file__)

SAME = {"rtol": 1e-4, "atol": 3e-6}


@dataclass(frozen=True, eq=False, kw_only=True)
class Norms(Result):
    """Length of the residual stream at the target."""

    norm: Float[Tensor, "batch layer"]


@dataclass
class NormReading(Reading[Tensor]):
    """The length of what leaves each block."""

    target_only: ClassVar[bool] = True

    def sites(self, info: ModelInfo):
        return [Site("resid_post", layer) for layer in range(info.n_layers)]

    def reduce(self, site, activation, segment):
        return segment.at_target(activation).norm(dim=-1)

    def collect(self, kept: Kept):
        return kept.stacked()


@dataclass(frozen=True)
class ResidualNorms(Measurement[Norms]):
    """A measurement of one's own."""

    scale: float = 1.0

    def check(self, model, data):
        if self.scale <= 0:
            raise RunError(f"scale={self.scale}; it must be above 0.")

    def passes(self, model, data):
        return [Pass(data, [NormReading()])]

    def result(self, model, data, read):
        ((norms,),) = read
        return Norms(norm=norms * self.scale)


@dataclass(frozen=True)
class TwoSteps(Measurement[Norms]):
    """Asks for passes, then for more that depend on what they gave."""

    name: ClassVar[str] = "two_steps"

    def passes(self, model, data):
        return [Pass(data, [NormReading()])]

    def steps(self, model, data, options):
        ((plain,),) = yield self.passes(model, data)
        start = int(plain.mean(0).argmax())
        ((changed,),) = yield [Pass(data, [NormReading()], [ZeroLayers(max(1, start))])]
        return Norms(norm=plain - changed)

    def result(self, model, data, read):
        raise NotImplementedError


@dataclass(frozen=True)
class OfPairs(PairMeasurement[Norms]):
    """Takes true and false prompts."""

    def passes(self, model, data):
        return [Pass(side, [NormReading()]) for side in data]

    def result(self, model, data, read):
        (true,), (false,) = read
        return Norms(norm=true - false)


@dataclass(frozen=True)
class OfFalse(ResidualNorms):
    """Takes the false prompts of a pair."""

    side: ClassVar = "false"


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture(scope="module")
def prompts(model):
    return icl.build_prompts(TASK, model, shots=2, n=6)


@pytest.fixture(scope="module")
def pair(model):
    return icl.build_prompt_pairs(TASK, model, shots=2, n=6)


def forward_calls(model, monkeypatch):
    adapted, calls = adapt(model), []
    forward = type(adapted).forward

    def counted(self, *args, **options):
        calls.append(args[0].shape)
        return forward(self, *args, **options)

    monkeypatch.setattr(type(adapted), "forward", counted)
    return calls


def test_values_are_those_of_the_functions(model, prompts):
    report = icl.measure(model, prompts, Predict(), Flow(reduction="abs_then_sum"), ResidualNorms())
    assert [own for own in report if not own.startswith("untrained")] == [
        "predictions",
        "flow",
        "residual_norms",
    ]
    flow = icl.flow_scores(model, prompts, reduction="abs_then_sum")
    assert_close(report.flow.per_prompt, flow.per_prompt, **SAME)
    logits = icl.predict(model, prompts).label_logits
    assert_close(report.predictions.label_logits, logits, rtol=0, atol=5e-5)
    (norms,) = (read for read in [report["residual_norms"]])
    assert norms.norm.shape == (6, 3)
    assert report.flow.provenance["variants"] == {
        "loss": "label", "reduction": "abs_then_sum", "draws": 20, "seed": 0,
    }  # fmt: skip
    assert norms.provenance["variants"] == {"scale": 1.0}
    assert norms.provenance["prompts"]["digest"] == prompts.digest


def test_passes_over_the_same_prompts_are_made_once(model, prompts, monkeypatch):
    calls = forward_calls(model, monkeypatch)
    for one in (Flow(), Predict(), ResidualNorms()):
        icl.measure(model, prompts, one, progress=False)
    apart = len(calls)
    calls.clear()
    icl.measure(model, prompts, Flow(), Predict(), ResidualNorms(), progress=False)
    together = len(calls)
    calls.clear()
    icl.measure(model, prompts, Flow(), progress=False)
    assert together == len(calls) < apart


def test_equal_readings_are_read_once(model, prompts, monkeypatch):
    seen = []
    reduce = NormReading.reduce
    monkeypatch.setattr(NormReading, "reduce", lambda *a: seen.append(1) or reduce(*a))
    icl.measure(model, prompts, ResidualNorms(), progress=False)
    once = len(seen)
    report = icl.measure(model, prompts, ResidualNorms(), ResidualNorms(2.0), progress=False)
    assert len(seen) == 2 * once
    assert list(report) == ["residual_norms", "residual_norms_2"]
    assert_close(report["residual_norms_2"].norm, 2 * report["residual_norms"].norm)


def test_different_losses_are_different_passes(model, prompts):
    report = icl.measure(model, prompts, Flow(loss="label"), Flow(loss="vocab"))
    for name, loss in (("flow", "label"), ("flow_2", "vocab")):
        alone = icl.flow_scores(model, prompts, loss=loss)
        assert_close(report[name].per_prompt, alone.per_prompt, **SAME)


def test_interventions_reach_every_pass(model, prompts):
    edit = ZeroLayers(1)
    report = icl.measure(
        model, prompts, Predict(), TwoSteps(), ResidualNorms(), interventions=[edit]
    )
    alone = icl.predict(model, prompts, interventions=[edit])
    assert_close(report.predictions.label_logits, alone.label_logits, rtol=0, atol=5e-5)
    # With the last blocks zeroed already, zeroing them again changes nothing.
    assert_close(report["two_steps"].norm, torch.zeros(6, 3), rtol=0, atol=1e-5)
    assert float(icl.measure(model, prompts, TwoSteps())["two_steps"].norm.abs().max()) > 0.1
    for result in report.results.values():
        assert result.provenance["interventions"] == [edit.to_dict()]


def test_the_whole_path_gives_the_same(model, prompts):
    auto = icl.measure(model, prompts, Flow(), ResidualNorms())
    whole = icl.measure(model, prompts, Flow(), ResidualNorms(), path="whole")
    assert_close(auto.flow.per_prompt, whole.flow.per_prompt, rtol=1e-3, atol=1e-5)
    assert_close(auto["residual_norms"].norm, whole["residual_norms"].norm, **SAME)


def test_pairs_and_their_sides(model, pair):
    report = icl.measure(model, pair, OfPairs(), OfFalse())
    true, false = (icl.measure(model, side, ResidualNorms())["residual_norms"] for side in pair)
    assert_close(report["of_pairs"].norm, true.norm - false.norm, rtol=0, atol=1e-4)
    assert_close(report["of_false"].norm, false.norm, rtol=0, atol=1e-4)
    assert report["of_pairs"].provenance["false_prompts"]["digest"] == pair[1].digest
    assert report["of_false"].provenance["prompts"]["digest"] == pair[1].digest


def test_refusals_come_before_anything_runs(model, prompts, pair, monkeypatch):
    calls = forward_calls(model, monkeypatch)
    for error, message, data, given in (
        (RunError, "nothing", prompts, ()),
        (RunError, "scale=0", prompts, (Predict(), ResidualNorms(0))),
        (PromptError, "Flow of pairs", pair, (OfPairs(), Flow())),
        (PromptError, "OfPairs of one set", prompts, (Predict(), OfPairs())),
        (RunError, "top_k=0", prompts, (Flow(), Predict(top_k=0))),
        (RunError, "Isolate layer 9", prompts, (Flow(),)),
    ):
        edits = [Isolate([9])] if "layer 9" in message else []
        with WORDS.raises(error, message):
            icl.measure(model, data, *given, interventions=edits)
    assert calls == []


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: Flow(loss="labels"), "losslabels label"),
        (lambda: Flow(loss=3), "loss3"),
        (lambda: Predict(top_k=2.5), "top_k2.5"),
        (lambda: Predict(top_k=True), "top_kTrue"),
        (lambda: ResidualNorms(scale="big"), "scalebig"),
        (lambda: SaliencyMaps(first="all"), "firstall"),
    ],
)
def test_fields_are_checked_against_their_types(given, message):
    with WORDS.raises(RunError, message):
        given()


@pytest.mark.usefixtures("unchecked")
def test_wrong_kinds_of_arguments(model, prompts):
    for data, given, message in (
        (None, Flow(), "None"),
        (["text"], Flow(), "list of 1"),
        ((prompts, prompts, prompts), OfPairs(), "tuple of 3"),
    ):
        with WORDS.raises(PromptError, message):
            icl.measure(model, data, given)
    with WORDS.raises(RunError, "wrong_kinds_arguments"):
        icl.measure(model, prompts, Flow)


def test_results_by_name_and_kind(model, prompts):
    report = icl.measure(model, prompts, Predict(), ResidualNorms())
    assert report[Norms] is report["residual_norms"] is report.residual_norms
    assert hasattr(report, "predictions")
    assert not hasattr(report, "flow")
    assert "predictions" in report
    assert "flow" not in report
    assert "predictions" in dir(report)
    assert "flow" not in dir(report)
    with WORDS.raises(MissingResult, "results_name_kind", "'flow'"):
        _ = report.flow
    with pytest.raises(KeyError, match="no result 'flows'"):
        _ = report["flows"]


@pytest.mark.slow
def test_a_measurement_of_ones_own_is_saved_drawn_and_subtracted(model, prompts, tmp_path):
    report = icl.analyze(model, prompts, maps=0, measurements=[ResidualNorms()])
    assert [own for own in report if not own.startswith("untrained")] == [
        "predictions",
        "gain",
        "flow",
        "residual_norms",
    ]
    loaded = icl.Analysis.load(report.save(tmp_path / "run"))
    assert_close(loaded["residual_norms"].norm, report["residual_norms"].norm)
    page = loaded.to_html(tmp_path / "page.html", offline=False).read_text(encoding="utf-8")
    assert re.search(r'<span class="no">\d+</span> <span class="brief">Norms</span>', page)
    changed = icl.measure(model, prompts, ResidualNorms(), interventions=[Isolate([0, 1, 2])])
    found = changed["residual_norms"] - loaded["residual_norms"]
    assert found.values.shape == (3,)
    assert_close(found.values[0], torch.tensor(0.0).double(), rtol=0, atol=1e-5)


# --- finished parts on disk ---


def test_finished_parts_are_not_run_again(model, prompts, tmp_path, monkeypatch):
    first = icl.measure(model, prompts, Predict(), Flow(), out=tmp_path / "run")
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("result.json")}
    calls = forward_calls(model, monkeypatch)
    again = icl.measure(model, prompts, Predict(), Flow(), out=tmp_path / "run")
    assert calls == []
    assert {file: file.stat().st_mtime_ns for file in files} == files
    assert torch.equal(again.flow.per_prompt, first.flow.per_prompt)
    more = icl.measure(model, prompts, Predict(), Flow(), ResidualNorms(), out=tmp_path / "run")
    assert calls
    assert list(icl.Analysis.load(tmp_path / "run")) == list(more)


def test_other_things_are_not_mixed(model, prompts, tmp_path):
    icl.measure(model, prompts, Flow(), out=tmp_path / "run")
    other = icl.build_prompts(TASK, model, shots=2, n=5)
    edit = [Isolate([0])]
    for change, options in (
        ("prompts", {"data": other}),
        ("loss of the variants", {"given": Flow(loss="vocab")}),
        ("interventions", {"interventions": edit}),
        ("weights of the model", {"model": tiny_model("llama", seed=1)}),
    ):
        chosen = {"model": model, "data": prompts, "given": Flow(), **options}
        with WORDS.raises(RunError, "result_of_another_study", change):
            icl.measure(
                chosen["model"], chosen["data"], chosen["given"], out=tmp_path / "run",
                interventions=chosen.get("interventions", ()),
            )  # fmt: skip


def test_a_folder_with_other_files_keeps_them(model, prompts, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    icl.measure(model, prompts, Predict(), out=tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "flow").mkdir()
    (tmp_path / "flow" / "mine.txt").write_text("mine")
    with WORDS.raises(RunError, "folder_other_files_keeps"):
        icl.measure(model, prompts, Flow(), out=tmp_path)
    assert (tmp_path / "flow" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("content", ["my own list", '{"format": 1}', '{"title": 1, "results": 2}'])
def test_an_index_of_somebody_else_is_found_before_anything_runs(
    model, prompts, tmp_path, monkeypatch, content
):
    calls = forward_calls(model, monkeypatch)
    (tmp_path / "analysis.json").write_text(content)
    with WORDS.raises(ResultError, "index_somebody_else_found"):
        icl.measure(model, prompts, Predict(), out=tmp_path)
    assert calls == []
    assert (tmp_path / "analysis.json").read_text() == content


def test_what_another_process_finished_meanwhile_is_taken(model, prompts, tmp_path, monkeypatch):
    other = {}

    def faster(*args):
        for item, result in completed(*args):
            if not other:
                other["now"] = True
                report = icl.measure(model, prompts, ResidualNorms(), out=tmp_path)
                other["stamp"] = (tmp_path / "residual_norms/result.json").stat().st_mtime_ns
                assert_close(report["residual_norms"].norm, result.norm)
            yield item, result

    completed = bench.completed
    monkeypatch.setattr(bench, "completed", faster)
    icl.measure(model, prompts, ResidualNorms(), out=tmp_path)
    assert (tmp_path / "residual_norms/result.json").stat().st_mtime_ns == other["stamp"]


def test_what_was_saved_in_the_folder_before_stays(model, prompts, tmp_path):
    icl.measure(model, prompts, Predict()).save(tmp_path / "run", page=True)
    icl.measure(model, prompts, ResidualNorms(), out=tmp_path / "run")
    assert list(icl.Analysis.load(tmp_path / "run")) == ["residual_norms"]
    assert Result.load(tmp_path / "run" / "predictions")
    report = icl.measure(model, prompts, Predict(), ResidualNorms(), out=tmp_path / "run")
    report.save(tmp_path / "run", page=True, overwrite=True)
    assert sorted(contents(tmp_path / "run")) == sorted(
        [
            *("analysis.json", "index.html", "prompts.json"),
            *(
                f"{name}/{file}"
                for name in report
                for file in ("result.json", "tensors.safetensors")
            ),
        ]
    )


def test_parts_of_the_layout_without_checksums_are_gone_on_with(model, prompts, tmp_path):
    icl.measure(model, prompts, Predict(), out=tmp_path / "run")
    as_earlier(tmp_path / "run")
    stamp = (tmp_path / "run/predictions/result.json").stat().st_mtime_ns
    report = icl.measure(model, prompts, Predict(), ResidualNorms(), out=tmp_path / "run")
    assert (tmp_path / "run/predictions/result.json").stat().st_mtime_ns == stamp
    assert icl.Analysis.load(tmp_path / "run").summary() == report.summary()
    tensors = tmp_path / "run/predictions/tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"x")  # what was listed then is checked now
    with WORDS.raises(ResultError, "parts_layout_without_checksums"):
        icl.Analysis.load(tmp_path / "run")


@dataclass(frozen=True)
class BadlyNamed(ResidualNorms):
    """Would write beside the folder."""

    name: ClassVar[str] = "../norms"


def test_a_name_that_leads_out_of_the_folder(model, prompts, tmp_path, monkeypatch):
    calls = forward_calls(model, monkeypatch)
    with WORDS.raises(ResultError, "name_leads_out_folder", "'../norms'"):
        icl.measure(model, prompts, BadlyNamed(), out=tmp_path / "run")
    assert calls == []


def test_a_folder_that_cannot_be_written(model, prompts, tmp_path):
    (tmp_path / "file").write_text("")
    with WORDS.raises(ResultError, "folder_cannot_written"):
        icl.measure(model, prompts, Predict(), out=tmp_path / "file")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_killed_and_started_again(tmp_path):
    """Five kills at random moments: equal values in the end, no finished part made twice."""

    def start(folder):
        command = [sys.executable, "-m", "tests.studies.resumed", str(folder)]
        root = Path(__file__).parents[2]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
        )  # fmt: skip

    with start(tmp_path / "whole") as process:
        assert process.stdout.readline() == "begun\n"
        clock = time.monotonic()
        assert process.stdout.readline() == "done\n"
        length = time.monotonic() - clock
    moments = random.Random(0)
    made = {}
    for _ in range(5):
        with start(tmp_path / "killed") as process:
            assert process.stdout.readline() == "begun\n"
            time.sleep(moments.uniform(0.05, 0.45) * length)  # any moment of a run: what is tested
            process.send_signal(signal.SIGKILL)
        for file, stamp in made.items():
            assert file.stat().st_mtime_ns == stamp
        parts = (tmp_path / "killed").glob("*/result.json")
        made = {file: file.stat().st_mtime_ns for file in parts}
    with start(tmp_path / "killed") as process:
        assert process.communicate()[0] == "begun\ndone\n"
    for file, stamp in made.items():
        assert file.stat().st_mtime_ns == stamp
    whole, killed = (icl.Analysis.load(tmp_path / name) for name in ("whole", "killed"))
    assert list(whole) == list(killed)
    for name in whole:
        values = [
            json.loads((tmp_path / f / name / "result.json").read_text())["values"]
            for f in ("whole", "killed")
        ]
        # Only the clock may tell them apart.
        assert all(own["provenance"].pop("date") for own in values)
        assert values[0] == values[1]
        tensors = [
            (tmp_path / f / name / "tensors.safetensors").read_bytes() for f in ("whole", "killed")
        ]
        assert tensors[0] == tensors[1]
    litter = [entry.name for entry in (tmp_path / "killed").iterdir() if entry.name[0] == "."]
    assert litter == []


# --- what must not go by unnoticed ---


@dataclass(frozen=True)
class Along(ResidualNorms):
    """Has a tensor for a field."""

    direction: Any = None


def test_any_change_of_the_weights_is_another_model(prompts, tmp_path):
    """Also one of a single column, such as a head's part of an output projection."""
    model = tiny_model("llama")
    icl.measure(model, prompts, ResidualNorms(), out=tmp_path)
    before = adapt(model).fingerprint()
    with torch.no_grad():
        next(p for p in model.parameters() if p.ndim == 2)[3, 5] *= -3
    assert adapt(model).fingerprint() != before
    with WORDS.raises(RunError, "any_change_weights_another"):
        icl.measure(model, prompts, ResidualNorms(), out=tmp_path)


def test_tensors_of_a_measurement_are_part_of_it(model, prompts, tmp_path):
    direction = torch.zeros(2048)
    icl.measure(model, prompts, Along(direction=direction), out=tmp_path)
    direction[1000] = 1e-6
    with WORDS.raises(RunError, "tensors_measurement_part"):
        icl.measure(model, prompts, Along(direction=direction), out=tmp_path)
    with WORDS.raises(RunError, "tensors_measurement_part_2"):
        icl.measure(model, prompts, Along(direction=object()))


def test_own_hooks_and_a_folder(model, prompts, tmp_path):
    model.add_hook("blocks.0.hook_resid_post", lambda tensor, hook: tensor)
    try:
        with WORDS.raises(RunError, "own_hooks_folder"):
            icl.measure(model, prompts, ResidualNorms(), out=tmp_path)
    finally:
        model.reset_hooks()


def test_mistakes_of_an_author_are_told(model, prompts):
    class NoResult(ResidualNorms):
        def result(self, model, data, read):
            return None

    class OnePass(ResidualNorms):
        def passes(self, model, data):
            return Pass(data, [NormReading()])

    with WORDS.raises(RunError, "mistakes_author_told"):
        icl.measure(model, prompts, NoResult())
    with WORDS.raises(RunError, "mistakes_author_told_2"):
        icl.measure(model, prompts, OnePass())


def test_values_stand_in_the_order_of_sites(model, prompts):
    class Backwards(NormReading):
        def sites(self, info):
            return super().sites(info)[::-1]

    forwards, backwards = run(adapt(model), prompts, [NormReading(), Backwards()])
    assert torch.equal(backwards, forwards.flip(1))


@pytest.mark.usefixtures("unchecked")
def test_measurements_of_ones_own_are_checked_before_a_study(model, prompts, monkeypatch):
    calls = forward_calls(model, monkeypatch)
    for given, message in (
        ([ResidualNorms], "class"),
        (ResidualNorms(), "no list"),
        ([ResidualNorms(-1.0)], "scale below 0"),
    ):
        with WORDS.raises(RunError, message):
            icl.analyze(model, prompts, study="label_words", measurements=given)
    assert calls == []


def test_a_result_of_another_kind_under_a_known_name(model, prompts):
    report = icl.measure(model, prompts, ResidualNorms())
    other = icl.Analysis({"flow": report["residual_norms"]}, "x")
    with WORDS.raises(ResultError, "result_another_kind_under", "'flow'"):
        _ = other.flow

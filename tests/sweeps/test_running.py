"""Items run once, are kept at once, fail alone and are gone on with."""

import json
import shutil
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import pytest
import torch

import icl_mech as icl
from icl_mech.engine import trials
from icl_mech.errors import ResultError, SweepError
from icl_mech.measurements import Flow, LayerAccuracy, Predict
from icl_mech.studies import forecast as forecasts
from icl_mech.sweeps import Sweep, sweep
from icl_mech.sweeps import work as working
from icl_mech.sweeps.item import item_folder
from tests.said import Words
from tests.saved import contents
from tests.sweeps.loaders import LOADED, OTHER, PREDICT, TASK, broken, dying, other, tiny
from tests.tiny import tiny_hf, tiny_tokenizer

WORDS = Words(__file__)

QUIET = {"n": 4, "progress": False}


@pytest.fixture(autouse=True)
def nothing_kept():
    working._LOADED.clear()
    LOADED.clear()


def numbers(found):
    return {
        item.key: {name: result.to_pandas().to_dict() for name, result in analysis.results.items()}
        for item, analysis in found
    }


@pytest.fixture(scope="module")
def serial():
    return sweep(tiny, [TASK, OTHER], PREDICT, seeds=(0, 1), **QUIET)


def test_items_are_what_measure_gives(serial):
    assert serial.items.state.tolist() == ["done"] * 4
    item, analysis = list(serial)[1]
    prompts = icl.build_prompts(TASK, tiny(), n=4, seed=1)
    alone = icl.measure(tiny(), prompts, Predict(), progress=False)
    own, plain = analysis.predictions, alone.predictions
    assert torch.equal(own.label_logits, plain.label_logits)
    assert analysis.prompts[0].digest == prompts.digest
    assert (item.seed, item.task) == (1, "tiny")


def test_a_folder_holds_the_same(serial, tmp_path):
    found = sweep(tiny, [TASK, OTHER], PREDICT, seeds=(0, 1), out=tmp_path / "s", **QUIET)
    assert numbers(found) == numbers(serial)
    assert numbers(Sweep.load(tmp_path / "s")) == numbers(serial)
    for item in found.plan:
        icl.Analysis.load(item_folder(found.folder, item.key))
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == ["items", "sweep.json"]


def test_models_are_loaded_once(tmp_path):
    tiny.cache_clear()
    sweep([tiny, other], [TASK, OTHER], PREDICT, seeds=(0, 1), **QUIET)
    assert LOADED == ["gpt2", "neox"]


def test_a_failing_item_is_recorded_and_the_others_go_on(tmp_path):
    found = sweep([broken, tiny], TASK, PREDICT, seeds=(0,), out=tmp_path, **QUIET)
    assert found.items.state.tolist() == ["failed", "done"]
    WORDS(found.items.error[0], "failing_item_recorded_others")
    error = json.loads((item_folder(tmp_path, found.plan[0].key) / "error.json").read_text())
    assert (error["type"], error["message"]) == ("ValueError", "no such weights")
    WORDS(found.summary(), "failing_item_recorded_others_2")
    with WORDS.raises(SweepError, "failing_item_recorded_others_2"):
        found.analysis(found.plan[0])
    memory = sweep([broken, tiny], TASK, PREDICT, seeds=(0,), **QUIET)
    assert memory.items.state.tolist() == ["failed", "done"]


def test_ctrl_c_passes(tmp_path, monkeypatch):
    def interrupted(job):
        raise KeyboardInterrupt

    monkeypatch.setattr("icl_mech.sweeps.executors.run_job", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(tiny, TASK, PREDICT, seeds=(0,), out=tmp_path, **QUIET)
    assert Sweep.load(tmp_path).items.state.tolist() == ["unfinished"]


def test_resuming_repeats_nothing_and_runs_failed_items_again(tmp_path, monkeypatch):
    marker = tmp_path / "mended"
    moody = partial(until, marker)
    given = ({"moody": moody, "tiny": tiny}, TASK, PREDICT)
    first = sweep(*given, seeds=(0,), out=tmp_path / "s", **QUIET)
    assert first.items.state.tolist() == ["failed", "done"]
    before = contents(item_folder(first.folder, first.plan[1].key))
    marker.touch()
    ran = []
    monkeypatch.setattr(
        working, "run_item", lambda job, folder, run=working.run_item: ran.append(job.item) or run(job, folder)
    )  # fmt: skip
    with pytest.raises(SweepError, match="resume=True"):
        sweep(*given, seeds=(0,), out=tmp_path / "s", **QUIET)
    again = sweep(*given, seeds=(0, 1), out=tmp_path / "s", resume=True, **QUIET)
    assert [(i.model, i.seed) for i in ran] == [("moody", 0), ("moody", 1), ("tiny", 1)]
    assert again.items.state.tolist() == ["done"] * 4
    assert contents(item_folder(first.folder, first.plan[1].key)) == before
    assert not list((tmp_path / "s").rglob("error.json"))
    ran.clear()
    sweep(*given, seeds=(0, 1), out=tmp_path / "s", resume=True, **QUIET)
    assert ran == []
    sweep(*given, seeds=(0,), out=tmp_path / "s", overwrite=True, **QUIET)
    assert len(ran) == 2
    assert len(Sweep.load(tmp_path / "s")) == 2


def until(marker):
    if not marker.exists():
        raise RuntimeError("not yet")
    return tiny()


def test_other_measurements_are_not_mixed(tmp_path):
    sweep(tiny, TASK, PREDICT, seeds=(0,), out=tmp_path, **QUIET)
    with WORDS.raises(SweepError, "other_measurements_mixed"):
        sweep(tiny, TASK, [Predict(score="sum")], seeds=(1,), out=tmp_path, resume=True, **QUIET)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("mine")
    with WORDS.raises(SweepError, "other_measurements_mixed_2"):
        sweep(tiny, TASK, PREDICT, out=tmp_path / "b", **QUIET)


def test_an_unfinished_item_goes_on_with_its_parts(tmp_path):
    given = (tiny, TASK, [Predict(), Flow()])
    first = sweep(*given, seeds=(0,), out=tmp_path / "s", **QUIET)
    place = item_folder(first.folder, first.plan[0].key)
    kept = (place / "flow" / "result.json").read_bytes()
    for name in ("analysis.json", "prompts.json"):  # as if killed right before the end
        (place / name).unlink()
    assert Sweep.load(tmp_path / "s").items.state.tolist() == ["unfinished"]
    again = sweep(*given, seeds=(0,), out=tmp_path / "s", resume=True, **QUIET)
    assert again.items.state.tolist() == ["done"]
    assert again.analysis(again.plan[0]).made["resumed"] == 2
    assert (place / "flow" / "result.json").read_bytes() == kept


def test_a_study_and_a_dose(tmp_path):
    found = sweep(
        tiny, TASK, [LayerAccuracy()], false_share=(0.0, 0.5, 1.0), seeds=(0,), n=6,
        progress=False,
    )  # fmt: skip
    assert found.items.state.tolist() == ["done"] * 3
    gaps = [analysis.layer_accuracy.final_gap.value for _, analysis in found]
    assert gaps[0] == 0.0  # nothing is false
    assert [a.prompts[1].source["false_share"] for _, a in found] == [0.0, 0.5, 1.0]


def test_threads_take_turns(serial):
    with ThreadPoolExecutor(3) as pool:
        found = sweep(tiny, [TASK, OTHER], PREDICT, seeds=(0, 1), executor=pool, **QUIET)
    assert numbers(found) == numbers(serial)


def test_a_model_that_was_given_is_recognised_by_its_weights(tmp_path):
    model = tiny()
    found = sweep({"mine": model}, TASK, PREDICT, seeds=(0,), out=tmp_path, **QUIET)
    changed = other()
    with WORDS.raises(SweepError, "model_given_recognised_weights", "'mine'", "1"):
        sweep({"mine": changed}, TASK, PREDICT, seeds=(0, 1), out=tmp_path, resume=True, **QUIET)
    again = sweep(
        {"mine": changed}, TASK, PREDICT, seeds=(0, 1), out=tmp_path, resume="again", **QUIET
    )
    assert len(again) == 2
    assert found.plan[0].key not in {item.key for item in again.plan}
    alone = icl.predict(changed, icl.build_prompts(TASK, changed, n=4)).provenance["model"]
    assert {own.predictions.provenance["model"]["weights"] for _, own in again} == {
        alone["weights"]
    }
    for executor in ({"workers": 2}, {"executor": ProcessPoolExecutor(1)}):
        with WORDS.raises(SweepError, "model_given_recognised_weights_2"):
            sweep(model, TASK, PREDICT, **executor, **QUIET)


def test_a_folder_is_recognised_by_its_files(tmp_path):
    place, out = tmp_path / "model", tmp_path / "runs"
    tiny_tokenizer("sentencepiece").save_pretrained(place)
    tiny_hf("llama", 0).save_pretrained(place)
    options = {"seeds": (0,), "out": out, **QUIET}
    sweep(str(place), TASK, PREDICT, **options)
    tiny_hf("llama", 1).save_pretrained(place)
    with WORDS.raises(SweepError, "folder_recognised_files"):
        sweep(str(place), TASK, PREDICT, resume=True, **options)
    ((_, found),) = sweep(str(place), TASK, PREDICT, resume="again", **options)
    model = icl.load_model(str(place))
    wanted = icl.predict(model, icl.build_prompts(TASK, model, n=4)).label_logits
    torch.testing.assert_close(found.predictions.label_logits, wanted)


def test_a_word_for_resume_is_refused(unchecked, tmp_path):
    with WORDS.raises(SweepError, "word_resume_refused", "'again'"):
        sweep(tiny, TASK, PREDICT, resume="twice", out=tmp_path, **QUIET)


def test_loaders_of_one_name_are_told_apart():
    models = [lambda seed=seed: tiny() if seed else other() for seed in (0, 1)]
    logits = []
    for load in models:
        ((_, found),) = sweep({"m": load}, TASK, PREDICT, seeds=(0,), **QUIET)
        logits.append(found.predictions.label_logits)
    assert not torch.equal(*logits)


def test_a_task_that_changed_is_named(tmp_path):
    options = {"seeds": (0,), "out": tmp_path, **QUIET}
    sweep(tiny, {"t": TASK}, PREDICT, **options)
    with WORDS.raises(SweepError, "task_changed_named", "'t'"):
        sweep(tiny, {"t": OTHER}, PREDICT, resume=True, **options)
    assert len(sweep(tiny, {"t": OTHER}, PREDICT, resume="again", **options)) == 1


class Flaky(ThreadPoolExecutor):
    """Loses every item a few times, as a cluster does that loses workers."""

    def __init__(self, times, error):
        super().__init__(1)
        self.times, self.error, self.lost = times, error, {}

    def submit(self, function, job):
        count = self.lost[job.item.key] = self.lost.get(job.item.key, 0) + 1
        if count > self.times:
            return super().submit(function, job)
        future = Future()
        future.set_exception(self.error)
        return future


def test_a_lost_item_is_submitted_again_within_bounds(serial, tmp_path):
    given = (tiny, [TASK, OTHER], PREDICT)
    found = sweep(*given, seeds=(0, 1), executor=Flaky(2, RuntimeError("lost")), **QUIET)
    assert numbers(found) == numbers(serial)
    pool = Flaky(9, RuntimeError("lost"))
    found = sweep(*given, seeds=(0, 1), executor=pool, out=tmp_path, **QUIET)
    assert found.items.state.tolist() == ["failed"] * 4
    assert "RuntimeError: lost" in found.items.error[0]
    assert set(pool.lost.values()) == {3}
    with WORDS.raises(SweepError, "lost_item_submitted_again"):
        sweep(*given, executor=Flaky(1, BrokenProcessPool("gone")), **QUIET)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"executor": 3}, "concurrent futures executor"),
        ({"executor": ThreadPoolExecutor(1), "workers": 2}, "brings own workers"),
        ({"workers": 2, "devices": ("cpu",)}, "each"),
        ({"workers": 0}, "at least 1"),
        ({"resume": True}, "need out="),
        ({"resume": True, "overwrite": True, "out": "x"}, "measures them again"),
        ({"batchsize": 3}, "batch_size"),
        ({"maps": 2}, "study chosen"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be_is_refused(given, message):
    with WORDS.raises(SweepError, message):
        sweep(tiny, TASK, PREDICT, **given, **QUIET)


# --- processes ---


@pytest.mark.slow
def test_two_processes_give_the_same(serial, tmp_path):
    found = sweep(tiny, [TASK, OTHER], PREDICT, seeds=(0, 1), workers=2, out=tmp_path, **QUIET)
    assert numbers(found) == numbers(serial)
    memory = sweep(tiny, TASK, PREDICT, seeds=(0,), workers=1, **QUIET)
    assert numbers(memory).items() <= numbers(serial).items()


@pytest.mark.slow
def test_the_item_of_a_killed_process_is_run_again(tmp_path):
    (tmp_path / "marks").mkdir()
    model = {"tiny": partial(dying, str(tmp_path / "marks"), 2)}
    found = sweep(model, TASK, PREDICT, seeds=(0, 1), workers=2, out=tmp_path / "s", **QUIET)
    assert found.items.state.tolist() == ["done"] * 2
    assert len(list((tmp_path / "marks").iterdir())) == 2


@pytest.mark.slow
def test_an_item_that_always_kills_its_process_is_given_up_alone(tmp_path):
    (tmp_path / "marks").mkdir()
    models = {"deadly": partial(dying, str(tmp_path / "marks"), 99), "tiny": tiny}
    found = sweep(models, TASK, PREDICT, seeds=(0,), workers=2, out=tmp_path / "s", **QUIET)
    assert found.items.state.tolist() == ["failed", "done"]
    WORDS(found.items.error[0], "item_always_kills_process")
    assert len(list((tmp_path / "marks").iterdir())) == 3


def test_a_plan_counts_items_that_differ_in_their_seed_once_and_writes_nothing(
    tmp_path, monkeypatch
):
    tries = []
    real = forecasts.tried
    monkeypatch.setattr(trials, "SECONDS", 0.05)
    monkeypatch.setattr(forecasts, "tried", lambda ledger: tries.append(ledger) or real(ledger))
    found = sweep(
        tiny, [TASK, OTHER], PREDICT, seeds=(0, 1, 2), out=tmp_path / "s", plan=True, **QUIET
    )
    assert [own.items for own in found.items] == [3, 3]
    assert [own.title.split(",")[0] for own in found.items] == ["tiny on tiny", "tiny on other"]
    assert found.total("prompts") == 2 * 3 * 4
    assert not (tmp_path / "s").exists()
    assert len(tries) == 1, "items of one model share its trials"
    sweep(tiny, [TASK], PREDICT, seeds=(0, 1), out=tmp_path / "s", **QUIET)
    before = contents(tmp_path)
    rest = sweep(
        tiny, [TASK], PREDICT, seeds=(0, 1, 2), out=tmp_path / "s", resume=True, plan=True, **QUIET
    )
    assert [own.items for own in rest.items] == [1], "finished items cost nothing"
    assert contents(tmp_path) == before


DAMAGES = {
    "a number": lambda place: changed(place / "predictions" / "result.json", "0", "1"),
    "a tensor": lambda place: changed(place / "predictions" / "tensors.safetensors", "", "x"),
    "prompts": lambda place: changed(place / "prompts.json", "0", "1"),
    "a file gone": lambda place: (place / "predictions" / "tensors.safetensors").unlink(),
}


def changed(file, old, new):
    content = file.read_bytes()
    file.write_bytes(content.replace(old.encode(), new.encode(), 1))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_item_is_neither_done_nor_measured_over(tmp_path, damage):
    given = (tiny, TASK, PREDICT)
    first = sweep(*given, seeds=(0, 1), out=tmp_path, **QUIET)
    assert first.items.state.tolist() == ["done", "done"]
    place = item_folder(tmp_path, first.plan[0].key)
    DAMAGES[damage](place)
    before = contents(place)
    again = sweep(*given, seeds=(0, 1), out=tmp_path, resume=True, **QUIET)
    assert again.items.state.tolist() == ["damaged", "done"]
    assert contents(place) == before
    WORDS(again.summary(), "damaged_item", place)
    with pytest.raises(ResultError):
        list(again)
    shutil.rmtree(place)
    mended = sweep(*given, seeds=(0, 1), out=tmp_path, resume=True, **QUIET)
    assert mended.items.state.tolist() == ["done", "done"]

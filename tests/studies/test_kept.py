"""What a run keeps beside its results: its prompts, and how it was made."""

import json
from dataclasses import dataclass
from datetime import datetime

import pytest

import icl_mech as icl
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import Isolate, ZeroLayers
from icl_mech.measurements import Flow, Predict
from icl_mech.results import PROMPTS
from icl_mech.studies import by_command
from icl_mech.studies.measuring import call_line
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.saved import as_earlier, reseal
from tests.tiny import tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture(scope="module")
def prompts(model):
    return icl.build_prompts(TASK, model, shots=2, n=6)


@pytest.fixture(scope="module")
def pair(model):
    return icl.build_prompt_pairs(TASK, model, shots=2, n=6)


@pytest.fixture(scope="module")
def report(model, prompts):
    return icl.measure(model, prompts, Predict())


def digests(analysis):
    return [batch.digest for batch in analysis.prompts]


# --- prompts ---


def test_prompts_come_back_from_a_folder(report, prompts, tmp_path):
    assert report.prompts == (prompts,)
    found = icl.Analysis.load(report.save(tmp_path / "run"))
    (batch,) = found.prompts
    assert batch.prompts == prompts.prompts
    assert batch.digest == found.predictions.provenance["prompts"]["digest"]
    again = icl.Analysis.load(found.save(tmp_path / "again"))
    assert digests(again) == digests(found)


def test_of_a_pair_both_are_kept_in_order(model, pair, tmp_path):
    from tests.studies.test_measure import OfFalse

    report = icl.measure(model, pair, OfFalse(), out=tmp_path / "run")
    assert digests(report) == [side.digest for side in pair]
    assert digests(icl.Analysis.load(tmp_path / "run")) == digests(report)


def test_a_study_keeps_its_prompts(model, pair):
    found = icl.analyze(model, pair[0], maps=0)
    assert digests(found) == [pair[0].digest]


def test_a_file_with_its_checksum(report, tmp_path):
    folder = report.save(tmp_path / "run")
    index = json.loads((folder / "analysis.json").read_text())
    assert PROMPTS in index["files"]
    assert index["prompts"] == 1
    assert (folder / PROMPTS).read_bytes().count(b"\n") == 0
    (folder / PROMPTS).write_bytes(
        (folder / PROMPTS).read_bytes().replace(b'"seed":0', b'"seed":1')
    )
    with WORDS.raises(ResultError, "file_checksum"):
        icl.Analysis.load(folder)
    (folder / PROMPTS).unlink()
    with WORDS.raises(ResultError, "file_checksum_2"):
        icl.Analysis.load(folder)


def exchange(folder, change):
    """Change the prompts and give files and index the checksums they then have."""
    from icl_mech.results.files import digest

    batches = json.loads((folder / PROMPTS).read_text())["batches"]
    change(batches)
    reseal(folder / PROMPTS, batches=batches)
    index = json.loads((folder / "analysis.json").read_text())
    files = {**index["files"], PROMPTS: digest((folder / PROMPTS).read_bytes())}
    reseal(folder / "analysis.json", files=files)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.clear(), "batches 1"),
        (lambda b: b[0]["prompts"][0]["tokens"].reverse(), "not saved"),
        (lambda b: b[0].pop("prompts"), "cannot be read"),
    ],
)
def test_damage_that_checksums_do_not_see(report, tmp_path, change, message):
    folder = report.save(tmp_path / "run")
    exchange(folder, change)
    with WORDS.raises(ResultError, message, "prompts.json"):
        icl.Analysis.load(folder)


def test_prompts_of_another_study_are_refused(model, report, tmp_path):
    other = icl.build_prompts(TASK, model, shots=1, n=6)
    with WORDS.raises(ResultError, "prompts_another_study_refused"):
        icl.Analysis(report.results, "x", prompts=(other,))
    folder = report.save(tmp_path / "run")
    exchange(folder, lambda batches: batches.__setitem__(0, other.to_dict()))
    with WORDS.raises(ResultError, "prompts_another_study_refused"):
        icl.Analysis.load(folder)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("given", [3, ("text",), None])
def test_what_are_no_prompts(report, given):
    with WORDS.raises(ResultError, "what_no_prompts"):
        icl.Analysis(report.results, "x", prompts=given)


@pytest.mark.usefixtures("unchecked")
def test_one_batch_needs_no_tuple(report, prompts):
    assert icl.Analysis(report.results, "x", prompts=prompts).prompts == (prompts,)


def test_runs_of_earlier_versions_have_none(report, tmp_path):
    folder = report.save(tmp_path / "run")
    index = json.loads((folder / "analysis.json").read_text())
    files = {name: value for name, value in index["files"].items() if name != PROMPTS}
    (folder / PROMPTS).unlink()
    file = folder / "analysis.json"
    reseal(file, files=files, format=2)
    plain = json.loads(file.read_text())
    for name in ("made", "prompts", "sha256"):
        plain.pop(name)
    file.write_text(json.dumps(plain))
    reseal(file)
    found = icl.Analysis.load(folder)
    assert (found.prompts, found.made) == ((), {})
    as_earlier(folder)
    assert icl.Analysis.load(folder).prompts == ()


def test_without_prompts_none_are_taken_from_another_save(report, tmp_path):
    folder = report.save(tmp_path / "run")
    bare = icl.Analysis(report.results, "bare")
    bare.save(folder, overwrite=True)
    assert not (folder / PROMPTS).exists()
    assert icl.Analysis.load(folder).prompts == ()


def test_a_file_of_the_users_is_not_replaced(model, prompts, report, tmp_path):
    (tmp_path / PROMPTS).write_text("mine")
    with WORDS.raises(ResultError, "file_users_replaced"):
        report.save(tmp_path, overwrite=True)
    with WORDS.raises(ResultError, "file_users_replaced"):
        icl.measure(model, prompts, Predict(), out=tmp_path)
    assert (tmp_path / PROMPTS).read_text() == "mine"


# --- resuming ---


def test_resuming_keeps_prompts_and_dates(model, prompts, tmp_path):
    first = icl.measure(model, prompts, Predict(), out=tmp_path / "run")
    assert "resumed" not in first.made
    (tmp_path / "run" / "analysis.json").unlink()  # as if it had been stopped
    (tmp_path / "run" / PROMPTS).unlink()
    again = icl.measure(model, prompts, Predict(), Flow(), out=tmp_path / "run")
    assert again.made["resumed"] == 1
    date = first.predictions.provenance["date"]
    assert again.predictions.provenance["date"] == date
    assert digests(icl.Analysis.load(tmp_path / "run")) == [prompts.digest]


def test_results_without_a_format_of_weights_are_gone_on_with(model, prompts, tmp_path):
    icl.measure(model, prompts, Predict(), out=tmp_path / "run")
    file = tmp_path / "run" / "predictions" / "result.json"
    values = json.loads(file.read_text())["values"]
    del values["provenance"]["model"]["weights_format"]
    del values["provenance"]["date"]
    reseal(file, values=values)
    assert icl.measure(model, prompts, Predict(), out=tmp_path / "run").made["resumed"] == 1


def test_prompts_of_two_studies_are_not_mixed(model, prompts, tmp_path):
    other = icl.build_prompts(TASK, model, shots=1, n=6)
    icl.measure(model, prompts, Predict(), out=tmp_path / "run")
    with WORDS.raises(RunError, "prompts_two_studies_mixed"):
        icl.measure(model, other, Predict(), out=tmp_path / "run")
    assert digests(icl.Analysis.load(tmp_path / "run")) == [prompts.digest]
    # Under other names both may lie there; the list and the prompts are the later ones.
    icl.measure(model, other, Flow(), out=tmp_path / "run")
    found = icl.Analysis.load(tmp_path / "run")
    assert (list(found), digests(found)) == (["flow"], [other.digest])


# --- how it was made ---


def test_when_where_and_how_long(report, tmp_path):
    made = icl.Analysis.load(report.save(tmp_path / "run")).made
    assert made == report.made
    assert datetime.fromisoformat(made["date"]).tzinfo is not None
    assert made["call"] == "measure(model, prompts, Predict())"
    assert made["device"] == "cpu"
    assert made["command"] == ""
    assert made["setup"] == []  # neither model nor task is one that everybody has
    assert 0 <= made["seconds"] < 600
    date = report.predictions.provenance["date"]
    assert datetime.fromisoformat(date) >= datetime.fromisoformat(made["date"])


def test_the_command_line_is_noted_while_it_runs(model, prompts):
    with by_command("icl-mech analyze --task reviews"):
        assert icl.measure(model, prompts, Predict()).made["command"].endswith("--task reviews")
    assert icl.measure(model, prompts, Predict()).made["command"] == ""


@pytest.mark.slow
def test_the_call_has_the_options_that_are_not_the_usual_ones(model, prompts):
    found = icl.analyze(model, prompts, maps=0, loss="vocab", seed=0, progress=False)
    assert found.made["call"] == 'analyze(model, prompts, maps=0, loss="vocab")'
    edits = [ZeroLayers(1)]
    found = icl.measure(
        model, prompts, Flow(reduction="abs_then_sum"), Predict(), interventions=edits, batch_size=2
    )
    assert found.made["call"] == (
        'measure(model, prompts, Flow(reduction="abs_then_sum"), Predict(), '
        "interventions=[ZeroLayers(start=1)], batch_size=2)"
    )


def test_values_in_a_call():
    @dataclass
    class Kind:
        words: tuple = ()
        far: bool = False

    def function(model, given=None, *, out=None, progress=None):
        pass

    def line(given):
        return call_line(function, {"model": 0, "given": given, "out": "x", "progress": True})

    assert line(None) == "function(model)"
    assert line('a "b"') == "function(model, given='a \"b\"')"
    assert line(("a",)) == 'function(model, given=("a",))'
    assert line([Kind(), Kind(("x",), far=True)]) == (
        'function(model, given=[Kind(), Kind(words=("x",), far=True)])'
    )
    assert len(line("x" * 30)) < 60
    assert line(list(range(3))) == "function(model, given=[0, 1, 2])"
    assert line(0) == "function(model, given=0)"


def test_lines_that_make_prompts_of_a_built_in_task(model):
    from icl_mech.studies.measuring import _prompts_line  # written for people, so tested as text
    from tests.tiny import tiny_tokenizer

    adapted = icl.models.adapt(model)
    adapted = type(adapted)(adapted.wrapped, adapted.info, tiny_tokenizer("bpe"))
    task = icl.load_task("reviews")
    built = icl.build_prompts(task, adapted.tokenizer, shots=1, n=8, demonstrations="per_prompt")
    expected = 'build_prompts("reviews", model, shots=1, n=8, seed=0, demonstrations="per_prompt")'
    assert _prompts_line(adapted, built) == [f"prompts = {expected}"]
    assert _prompts_line(adapted, built[:3]) == []
    pair = icl.build_prompt_pairs(task, adapted.tokenizer, n=8, false_labels="half_permuted")
    assert _prompts_line(adapted, pair) == [
        'prompts = build_prompt_pairs("reviews", model, shots=1, n=8, seed=0, '
        'false_labels="half_permuted")'
    ]
    own = icl.Task(task.name, task.template, task.labels, task.train, task.test)
    assert _prompts_line(adapted, icl.build_prompts(own, adapted.tokenizer, n=8)) == []


def test_isolation_is_written_as_python():
    assert "Isolate" in repr(Isolate([0]))


def test_what_was_measured_under_other_interventions_is_not_taken_for_it(model, prompts, tmp_path):
    plain = icl.measure(model, prompts, Predict(), out=tmp_path / "run")
    edits = [ZeroLayers(1)]
    with pytest.raises(RunError, match="interventions"):
        icl.measure(model, prompts, Predict(), interventions=edits, out=tmp_path / "run")
    kept = icl.Analysis.load(tmp_path / "run").predictions
    assert kept.label_logits.equal(plain.predictions.label_logits)

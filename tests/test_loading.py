"""`icl_mech.load`: one door to everything that was saved."""

import pytest

import icl_mech as icl
from icl_mech.errors import ResultError, RunError
from tests.engine.cases import ragged
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)


def test_an_analysis_a_sweep_a_result_and_a_lens(tmp_path):
    model, other = tiny_model("gpt2"), tiny_model("llama")
    report = icl.analyze(model, ragged(), nulls=0, maps=0, progress=False)
    report.save(tmp_path / "analysis")
    assert icl.load(tmp_path / "analysis").summary() == report.summary()

    report.flow.save(tmp_path / "flow")
    assert icl.load(str(tmp_path / "flow")).values.equal(report.flow.values)

    size = model.cfg.d_model
    blocks = model.cfg.n_layers
    weight, bias = report.flow.values.new_zeros(blocks, size, size), report.flow.values.new_zeros(blocks, size)  # fmt: skip
    icl.TunedLens.given(model, weight.float(), bias.float()).save(tmp_path / "lens")
    assert isinstance(icl.load(tmp_path / "lens", model), icl.TunedLens)
    with pytest.raises(RunError):
        icl.load(tmp_path / "lens", other)


def test_a_kind_that_is_insisted_on(tmp_path):
    model = tiny_model("gpt2")
    report = icl.analyze(model, ragged(), nulls=0, maps=0, progress=False)
    folder = report.save(tmp_path / "analysis")
    for load in (icl.load, icl.load_analysis):
        assert load(folder, kind=icl.Analysis).summary() == report.summary()
    with WORDS.raises(ResultError, "kind_insisted"):
        icl.load(folder, kind=icl.Sweep)


def test_a_folder_without_anything_of_ours(tmp_path, unchecked):
    (tmp_path / "notes.txt").write_text("mine")
    with WORDS.raises(ResultError, "folder_without_anything_ours"):
        icl.load(tmp_path)
    with WORDS.raises(ResultError, "folder_without_anything_ours_2"):
        icl.load(tmp_path / "nope")
    with WORDS.raises(ResultError, "folder_without_anything_ours_3"):
        icl.load(7)


@pytest.mark.usefixtures("unchecked")
def test_a_kind_that_is_no_class_is_refused(tmp_path):
    with WORDS.raises(ResultError, "kind_no_class_refused", "'flow'"):
        icl.load(tmp_path, kind="flow")

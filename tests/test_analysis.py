"""`analyze`: the same numbers as the single studies, kept together, saved together."""

import dataclasses
import json
import re

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import MissingResult, ResultError
from icl_mech.reports.markup import text_html
from icl_mech.results import FORMAT
from tests.engine.cases import Edge, ragged
from tests.margins import apart, assert_top
from tests.results.test_files import assert_same
from tests.said import Words
from tests.saved import as_earlier, contents
from tests.tiny import tiny_model

WORDS = Words(__file__)

SAME = {"rtol": 1e-4, "atol": 3e-6}


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture(scope="module")
def analysis(model):
    return icl.analyze(model, ragged(), maps=2)


def test_one_pass_gives_what_the_studies_give(model, analysis):
    flow = icl.flow_scores(model, ragged())
    torch.testing.assert_close(analysis.flow.per_prompt, flow.per_prompt, **SAME)
    torch.testing.assert_close(analysis.flow.low, flow.low, **SAME)
    predicted = icl.predict(model, ragged())
    found = analysis.predictions
    torch.testing.assert_close(found.label_logits, predicted.label_logits, rtol=0, atol=5e-5)
    assert_top(found.predicted[:, None], predicted.label_logits)
    maps = icl.saliency_maps(model, ragged()[:2])
    for one, other in zip(analysis.saliency_maps.values, maps.values, strict=True):
        torch.testing.assert_close(one, other, **SAME)
    assert analysis.saliency_maps.tokens == maps.tokens


@pytest.mark.slow
@pytest.mark.parametrize("edits", [(), (Edge(0, dest=2, src=1, factor=0.0, term=3.0),)])
def test_variants_and_interventions_reach_every_result(model, edits):
    options = {"loss": "vocab", "reduction": "abs_then_sum", "interventions": edits}
    found = icl.analyze(model, ragged(), **options)
    flow = icl.flow_scores(model, ragged(), **options)
    (values,) = icl.saliency_maps(model, ragged()[:1], **options).values
    logits = icl.predict(model, ragged(), interventions=edits).label_logits
    torch.testing.assert_close(found.flow.per_prompt, flow.per_prompt, **SAME)
    torch.testing.assert_close(found.saliency_maps.values[0], values, **SAME)
    torch.testing.assert_close(found.predictions.label_logits, logits, rtol=0, atol=5e-5)
    for name, result in found.results.items():
        if name != "predictions":
            assert (
                result.provenance["variants"].items()
                >= {"loss": "vocab", "reduction": "abs_then_sum"}.items()
            )
        assert result.provenance["interventions"] == [edit.to_dict() for edit in edits]


@pytest.mark.slow
def test_without_answers(model):
    found = icl.analyze(model, ragged(answers=False))
    assert found.flow.provenance["variants"]["loss"] == "prediction"
    assert found.predictions.answers is None
    assert bool(apart(icl.predict(model, ragged()).label_logits).all())
    expected = icl.flow_scores(model, ragged(), loss="prediction")
    torch.testing.assert_close(found.flow.per_prompt, expected.per_prompt, **SAME)


def test_number_of_maps(model):
    assert len(icl.analyze(model, ragged(), maps=99).saliency_maps.values) == 5
    without = icl.analyze(model, ragged(), maps=0)
    assert list(without.results) == ["predictions", "flow", "untrained", "untrained_flow"]
    with WORDS.raises(ResultError, "number_maps", "'saliency_maps'"):
        _ = without.saliency_maps


def test_summary(analysis):
    lines = analysis.summary().split("\n")
    assert lines[0] == analysis.title
    WORDS.exactly(analysis.title, "title", "tiny-llama", "5")
    assert [line.split()[0] for line in lines[1:5]] == [
        "predictions",
        "flow",
        "untrained",
        "saliency_maps",
    ]
    assert analysis.flow.summary() in lines[2]
    assert repr(analysis) == analysis.summary()


@pytest.fixture
def folder(analysis, tmp_path):
    return analysis.save(tmp_path / "analysis")


def test_round_trip(analysis, folder):
    found = icl.Analysis.load(folder)
    assert found.title == analysis.title
    assert list(found.results) == list(analysis.results)
    for name, result in analysis.results.items():
        assert_same(found.results[name], result)
    assert found.summary() == analysis.summary()


def test_what_an_earlier_version_saved_has_the_names_of_now(analysis, tmp_path):
    earlier = dataclasses.replace(
        analysis, results={"saliency": analysis.saliency_maps, "flow": analysis.flow}
    )
    folder = as_earlier(earlier.save(tmp_path / "earlier"))
    file = folder / "saliency" / "result.json"
    file.write_text(file.read_text().replace('"SaliencyMapsResult"', '"SaliencyMaps"'))
    assert '"SaliencyMaps"' in file.read_text()
    found = icl.Analysis.load(folder)
    assert list(found) == ["saliency_maps", "flow"]
    assert_same(found.saliency, analysis.saliency_maps)
    assert found["saliency"] is found.saliency is found.saliency_maps
    assert "saliency" in found
    assert "compression" not in found
    with WORDS.raises(MissingResult, "what_earlier_version_saved", "'compare_compression'"):
        _ = found.compression


def test_saving_again_replaces_if_told_so(model, analysis, folder):
    less = icl.analyze(model, ragged(), maps=0)
    with WORDS.raises(ResultError, "saving_again_replaces_if"):
        less.save(folder)
    less.save(folder, overwrite=True)
    assert not (folder / "saliency_maps").exists()
    assert list(icl.Analysis.load(folder).results) == [
        "predictions",
        "flow",
        "untrained",
        "untrained_flow",
    ]


def test_notes_of_the_user_stay_beside_and_inside(model, folder):
    mine = {"notes.txt": b"mine", "saliency_maps/notes.txt": b"mine", "flow/notes.txt": b"mine"}
    for name, content in mine.items():
        (folder / name).write_bytes(content)
    icl.analyze(model, ragged(), maps=0).save(folder, overwrite=True)
    found = contents(folder)
    assert {name: found[name] for name in mine} == mine
    assert [name for name in found if "saliency_maps" in name] == ["saliency_maps/notes.txt"]


def test_saved_with_its_page(analysis, tmp_path):
    folder = analysis.save(tmp_path / "run", page=True)
    assert 'id="flow-plot"' in (folder / "index.html").read_text(encoding="utf-8")
    analysis.save(folder, page=True, overwrite=True)
    assert list(icl.Analysis.load(folder)) == list(analysis)


def test_a_page_that_cannot_be_drawn_costs_no_results(analysis, tmp_path, monkeypatch):
    monkeypatch.setattr(icl.Analysis, "page", lambda _: 1 / 0)
    with WORDS.raises(ResultError, "page_cannot_drawn_costs"):
        analysis.save(tmp_path / "run", page=True)
    assert list(icl.Analysis.load(tmp_path / "run")) == list(analysis)


@pytest.mark.slow
def test_the_layout_without_checksums_is_read_and_replaced(model, analysis, folder):
    as_earlier(folder)
    assert icl.Analysis.load(folder).summary() == analysis.summary()
    less = icl.analyze(model, ragged(), maps=0)
    less.save(folder, overwrite=True)
    assert not (folder / "saliency_maps").exists()
    assert icl.Analysis.load(folder).summary() == less.summary()


def test_an_analysis_of_a_newer_version(folder):
    file = folder / "analysis.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": FORMAT + 1}))
    with pytest.raises(ResultError, match="newer icl_mech"):
        icl.Analysis.load(folder)


@pytest.mark.parametrize("content", ["{", '{"format": 1, "title": "x"}'])
def test_a_damaged_analysis(folder, content):
    (folder / "analysis.json").write_text(content)
    with WORDS.raises(ResultError, "damaged_analysis"):
        icl.Analysis.load(folder)


def test_a_result_is_no_analysis(analysis, tmp_path):
    folder = analysis.flow.save(tmp_path / "flow")
    with WORDS.raises(ResultError, "result_no_analysis", "No"):
        icl.Analysis.load(folder)


@pytest.mark.slow
def test_page(analysis, tmp_path):
    page = analysis.to_html(tmp_path / "page.html", offline=False).read_text(encoding="utf-8")
    sections = analysis.sections()
    keys = [section.key for section in sections]
    assert list(dict.fromkeys(keys)) == ["predictions", "flow", "untrained", "saliency_maps"]
    numbered = (
        r'<h2><span class="no">(\d+)</span> (?:.*<span class="whole">)?(.+?)(?:</span>)?</h2>'
    )
    shown = re.findall(numbered, page)
    # Two figures first, of results that say more than how many answers are right; then the others.
    names = [str(text_html(own.name)) for own in sections]
    first = [own for own, section in zip(names, sections, strict=True) if section.key == "flow"][:2]
    assert [name for _, name in shown] == [*first, *(own for own in names if own not in first)]
    assert [int(number) for number, _ in shown] == list(range(1, len(sections) + 1))
    for section in sections:
        assert str(text_html(section.sentence)) in page


def test_the_page_says_what_it_is_of(analysis, tmp_path):
    page = analysis.page()
    names = [fact.name for fact in page.origin.facts]
    assert names[:3] == ["Model", "Task", "Prompts"]
    assert page.origin.facts[0].detail.startswith("3 layers × ")
    assert page.prompt.tokens == analysis.saliency_maps.tokens[0]
    assert page.prompt.ids == analysis.prompts[0][0].tokens
    WORDS(page.origin.command, "page_says_what", "2")
    old = dataclasses.replace(analysis, prompts=(), made={}).page()
    assert old.prompt.tokens == page.prompt.tokens
    assert old.prompt.ids == ()
    assert old.origin.command == ""
    assert icl.Analysis({}, "nothing").page().sections == []

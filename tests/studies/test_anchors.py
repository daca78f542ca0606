"""The study of anchors: its parts are the single analyses; notes say what is left out."""

import pytest
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.studies.anchors import ORDER
from tests.tiny import tiny_model

TEXTS = [
    "The film was good. It was a story! Was it bad? The plot was good. We left. It is a movie. Bye.",
    "Stocks fell on Monday. The home team won. A movie is good. Who is it? It was. Bad. Good. No.",
]


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def prompts(model):
    return icl.texts(TEXTS, model)


@pytest.fixture(scope="module")
def study(model, prompts):
    return icl.analyze(model, prompts, study="anchors", progress=False)


def test_it_holds_every_part(study):
    assert tuple(study) == ORDER
    assert len(study.notes) == 1
    assert "distance of 2 or more, not of 4, which takes 12 spans" in study.notes[0]


def test_its_parts_are_the_single_analyses(model, prompts, study):
    flow = icl.span_flow(model, prompts, proximity=2)
    assert_close(study["span_flow"].kurtosis, flow.kurtosis, atol=1e-4, rtol=0, equal_nan=True)
    saliency = icl.span_flow(model, prompts, of="saliency")
    assert_close(study["span_saliency"].matrices[1], saliency.matrices[1], atol=1e-6, rtol=1e-3)
    tokens = icl.anchor_tokens(model, prompts)
    assert study["anchor_tokens"].anchors == tokens.anchors
    effects = icl.suppression(model, prompts)
    assert_close(study["suppression"].divergence[0], effects.divergence[0], equal_nan=True)
    agreed = icl.anchor_agreement(model, prompts, proximity=2)
    assert_close(study["anchor_agreement"].correlation, agreed.correlation)


def test_its_page(study, tmp_path):
    page = study.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Which parts of a text does" in page
    for question in (
        "Which spans does later text depend on?",
        "Do the spans that are read most matter most?",
        "Which heads read a few spans much more",
        "Do last tokens of spans stand out",
    ):
        assert question in page


def test_it_goes_on_where_it_was_stopped(model, prompts, tmp_path):
    first = icl.analyze(model, prompts, study="anchors", out=tmp_path / "run", progress=False)
    again = icl.analyze(model, prompts, study="anchors", out=tmp_path / "run", progress=False)
    assert tuple(again) == tuple(first) == ORDER
    loaded = icl.load_analysis(tmp_path / "run")
    assert loaded["suppression"].spans == first["suppression"].spans
    assert loaded.prompts[0].text_spans == prompts.text_spans


def test_short_texts_are_told(model):
    prompts = icl.texts(["It was good. It was bad. We left."], model)
    study = icl.analyze(model, prompts, study="anchors", progress=False)
    assert "anchor_agreement" not in study
    assert any("The shortest text has 3 spans" in note for note in study.notes)
    assert any("takes 4 spans in every text" in note for note in study.notes)

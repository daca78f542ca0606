"""The study of anchors: its parts are the single analyses; notes say what is left out."""

import re

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.looks.spans import numbered
from icl_mech.measurements.anchors.anchor_agreement import AnchorAgreementResult
from icl_mech.measurements.anchors.between import names_of
from icl_mech.prompts import Prompt
from icl_mech.reports.tables import shape_tables
from icl_mech.shapes import shortened
from icl_mech.studies.analysis import Analysis
from icl_mech.studies.anchors import ANCHORS
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

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
    assert tuple(study) == tuple(ANCHORS.gives)
    assert len(study.notes) == 1
    WORDS(study.notes[0], "holds_every_part", "2", "4", "12")


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
    WORDS(page, "page")
    for question in ("suppression", "agreement", "receiver heads", "ends of spans"):
        WORDS(page, question)


def test_it_goes_on_where_it_was_stopped(model, prompts, tmp_path):
    first = icl.analyze(model, prompts, study="anchors", out=tmp_path / "run", progress=False)
    again = icl.analyze(model, prompts, study="anchors", out=tmp_path / "run", progress=False)
    assert tuple(again) == tuple(first) == tuple(ANCHORS.gives)
    loaded = icl.Analysis.load(tmp_path / "run")
    assert loaded["suppression"].spans == first["suppression"].spans
    assert loaded.prompts[0].text_spans == prompts.text_spans


def test_no_two_entries_of_the_contents_are_alike(study):
    shorts = [own.short for own in study.sections()]
    assert len(set(shorts)) == len(shorts)
    WORDS(shorts, "no_two_entries_contents")


def test_short_texts_are_told(model):
    prompts = icl.texts(["It was good. It was bad. We left."], model)
    study = icl.analyze(model, prompts, study="anchors", progress=False)
    assert "anchor_agreement" not in study
    WORDS(study.notes, "shortest_text", "3")
    WORDS(study.notes, "spans_in_every_text", "5")


def test_the_headline_names_the_spans_and_not_a_correlation(study):
    text = study.results["suppression"]
    question, answer = ANCHORS.headline(study.results, (), "tiny", "texts")
    WORDS.exactly(question, "headline_names_spans_correlation")
    assert not answer.startswith(("Yes", "No", "Cannot"))
    place = int(text.scores(0, text.proximity).nan_to_num(nan=-1.0).argmax())
    assert f"hiding span {place} (“" in answer
    WORDS(answer, "headline_names_spans_correlation_2")
    assert "correlation" not in answer


def correlations(texts, values):
    """An agreement whose texts all scatter around these correlations: control, score."""
    spread = torch.linspace(-0.05, 0.05, texts)[:, None, None]
    return AnchorAgreementResult(correlation=torch.tensor(values) + spread, provenance={})


def test_what_includes_0_is_said_and_what_receiver_heads_are():
    found = correlations(12, [[0.9, 0.6, 0.8], [0.3, 0.0, 0.4]])
    (figure,) = found.figures()
    WORDS(figure.answer, "what_includes_0_said", "0")
    assert "0.60" in figure.answer
    assert "0 lies in" not in figure.answer.split("replaced by ranks")[0]
    WORDS(figure.caption, "five_heads", "5")
    WORDS(figure.caption, "chosen_from_other_texts")
    nothing = correlations(12, [[0.9, 0.6, 0.8], [0.0, 0.0, 0.0]])
    WORDS(nothing.figures()[0].answer, "what_includes_0_said_2", "0")


NAMED = [
    "Lighthouses were built on the island of the gulls by men of the north. They stood. It fell."
]


def test_names_of_spans_begin_with_their_first_word_and_are_cut_between_words(model):
    prompt = icl.texts(NAMED, model)[0]
    assert prompt.text_spans[0][0] == 1  # the first token of a text is in no span
    first = names_of(prompt)[0]
    assert first.split()[0] == "Lighthouses" or not prompt.pieces[1][:1].isalnum()
    pieces = ("L", "ighthouses", " were", " built", ".")
    own = Prompt.from_spans([1, 2, 3, 4, 5], [(1, 5)], pieces=pieces)
    assert names_of(own) == ("Lighthouses were built.",)
    assert shortened("Lighthouses were built.") == "Lighthouses were…"
    assert shortened("Donaudampfschifffahrtsgesellschaft") == "Donaudampfschifff…"
    assert shortened("0 Donaudampfschifffahrtsgesellschaft") == "0 Donaudampfschif…"


def test_figures_cut_names_and_hovering_shows_the_whole(model, tmp_path):
    """Ticks and headings hold the beginnings, hover texts all of it."""
    found = icl.suppression(model, icl.texts(NAMED, model), progress=False)
    longest = max(numbered(found, 0), key=len)
    WORDS.ends(longest, "figures_cut_names_hovering")
    fig = found.plot()
    assert longest not in fig.layout.yaxis.ticktext
    assert all(len(tick) <= 24 for tick in fig.layout.yaxis.ticktext)
    assert any(longest in text for row in fig.data[0].customdata for text in row)
    (table,) = shape_tables(found.drawing())
    assert {cell.whole for cell, *_ in table.rows} == set(numbered(found, 0))
    assert all(len(cell.text) <= 20 for cell, *_ in table.rows)
    page = Analysis({"suppression": found}, title="t").to_html(tmp_path / "page.html")
    assert f'<th scope="row" title="{longest}">' in page.read_text(encoding="utf-8")


def test_coloured_texts_open_on_their_colours(study, tmp_path):
    """Of print and of a first look it is the colours that are read; the prompt itself opens on roles."""
    page = study.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    views = re.findall(r'data-prompt="([^"]+)".*?(value="[^"]+") checked>', page, re.DOTALL)
    assert dict(views)["prompt"] == 'value="roles"'
    assert {mode for name, mode in views if name != "prompt"} == {'value="0"'}

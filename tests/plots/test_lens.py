"""The lens as a table of words."""

import numpy as np
import pytest
import torch

from icl_mech.measurements.lens.logit_lens import LogitLensResult
from icl_mech.plots import figure
from icl_mech.shapes import LensTable
from icl_mech.studies.analysis import Analysis
from icl_mech.studies.pages import sections_of
from tests.said import Words

WORDS = Words(__file__)


def table(layers=3, columns=("bare", "true demonstrations"), words=(" Sports", "\n", "</s>")):
    rows = tuple(tuple(words for _ in range(layers)) for _ in columns)
    probs = torch.tensor([0.5, 0.3, 0.1]).repeat(len(columns), layers, 1)
    probs[:, :, 0] = torch.linspace(0, 1, layers)
    return LensTable("Lens", tuple(columns), rows, probs, (" Sports",), note="prompt 1 of 8")


def test_layers_down_with_the_embedding_on_top():
    fig = figure(table())
    assert fig.layout.yaxis.range[0] > fig.layout.yaxis.range[1]
    assert list(fig.data[0].y) == [0, 1, 2]
    assert fig.layout.yaxis.title.text == "layer"  # no room for more
    assert "0: the embedding" in figure(table(layers=12)).layout.yaxis.title.text


def test_cells_are_coloured_by_the_probability_of_the_first_word():
    (cells,) = figure(table()).data
    np.testing.assert_allclose(cells.z, [[0, 0], [0.5, 0.5], [1, 1]])
    assert (cells.zmin, cells.zmax) == (0, 1)


def test_label_words_are_bold_and_all_words_are_text():
    (cells,) = figure(table()).data
    assert cells.text[0][0] == "<b>␣Sports</b>"
    (other,) = figure(table(words=("<b>x", "\n", ""))).data
    WORDS.exactly(other.text[0][0], "label_words_bold_all")
    assert "“↵” 0.300" in other.customdata[0][0][1]
    assert "“⋯” 0.100" in other.customdata[0][0][1]


@pytest.mark.parametrize("columns", [("last token",), tuple(f"before label {i}" for i in range(9))])
def test_one_and_many_columns(columns):
    fig = figure(table(columns=columns, layers=2))
    assert len(fig.layout.xaxis.ticktext) == len(columns)
    assert fig.layout.xaxis.domain[1] <= 1


def test_long_words_are_cut_and_whole_on_hovering():
    (cells,) = figure(table(words=("a" * 40, "b", "c"))).data
    assert len(cells.text[0][0]) < 25
    assert "a" * 40 in cells.customdata[0][0][1]


def test_columns_of_one_name_stay_apart():
    (cells,) = figure(table(columns=("same", "same"))).data
    assert len(set(cells.x)) == 2


def test_eighty_layers_stay_below_a_megabyte():
    assert len(figure(table(layers=81, columns=("a", "b", "c"))).to_json()) < 200_000


def lens_of(prompts):
    """A lens of so many prompts of two classes."""
    torch.manual_seed(0)
    return LogitLensResult(
        label_logits=torch.randn(prompts, 14, 2),
        answers=torch.arange(prompts) % 2,
        labels=("no", "yes"),
        provenance={"prompts": {"count": prompts}},
    )


@pytest.mark.parametrize(("prompts", "drawn"), [(2, False), (5, False), (6, True)])
def test_too_few_prompts_for_intervals_are_points_without_a_band_and_the_note_says_so(
    prompts, drawn
):
    found = lens_of(prompts)
    assert found.sel().high.isfinite().all()  # the numbers are there, whatever is drawn
    fig = found.plot()
    bands = [trace for trace in fig.data if trace.fill == "toself"]
    assert bool(bands) is drawn
    assert [trace.name for trace in fig.data if trace.name] == [
        found.drawn().names[0],
        "chance 0.50",
    ]
    WORDS.only_if(not drawn, fig.layout.title.subtitle.text, "too_few_prompts", prompts, "6")
    assert ("95 % intervals" in found.drawn().note) is drawn


def test_captions_promise_no_band_that_is_not_drawn():
    from icl_mech.measurements.anchors.suppression import SuppressionResult

    told = {}
    for texts in (3, 6):
        values = tuple(torch.rand(4, 4).tril(-1) for _ in range(texts))
        spans = tuple(tuple((i, i + 1) for i in range(4)) for _ in range(texts))
        tokens = tuple((f"a{text}", "b", "c", "d") for text in range(texts))
        own = SuppressionResult(
            divergence=values,
            change=values,
            by_token=values,
            spans=spans,
            names=tokens,
            tokens=tokens,
        )
        found = sections_of(Analysis({"suppression": own}, title="anchors"))
        told[texts] = next(one.caption for one in found if "by distance" in one.caption)
    WORDS(told[3], "captions_promise_no_band", "3")
    WORDS(told[3], "captions_promise_no_band_2", "No")
    WORDS(told[6], "captions_promise_no_band_3", "6", "95")


def test_a_page_says_that_intervals_of_too_few_prompts_are_not_drawn():
    for prompts, said in ((2, True), (6, False)):
        (section,) = sections_of(Analysis({"lens": lens_of(prompts)}, title="lens"))
        WORDS.only_if(said, section.caption, "no_intervals_drawn", "6")
        assert section.figure.low.isnan().all() == said

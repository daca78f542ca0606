"""The lens as a table of words, and as curves of each class."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from icl_mech.errors import ResultError
from icl_mech.measurements.lens.logit_lens import LogitLensResult
from icl_mech.measurements.lens.top_words import BARE, TopWordsResult
from icl_mech.metrics import mean_ends
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
        section, _ = sections_of(Analysis({"lens": lens_of(prompts)}, title="lens"))
        WORDS.only_if(said, section.caption, "no_intervals_drawn", "6")
        assert section.figure.low.isnan().all() == said


# --- each class ---


def by_hand(log_sum=True):
    """Queries of classes 0, 0 and 1 at three entries; label words hold .05, .2 and .9."""
    probs = torch.tensor([
        [[0.5, 0.5], [0.9, 0.1], [0.8, 0.2]],
        [[0.5, 0.5], [0.7, 0.3], [0.6, 0.4]],
        [[0.5, 0.5], [0.8, 0.2], [0.1, 0.9]],
    ])  # fmt: skip
    space = torch.tensor([0.05, 0.2, 0.9])
    return LogitLensResult(
        label_logits=probs.log(),
        log_sum=-space.log().expand(3, 3) if log_sum else None,
        answers=torch.tensor([0, 0, 1]),
        labels=("no", "yes"),
        provenance={"prompts": {"count": 3}},
    )


def test_each_class_over_its_own_queries_and_over_all():
    found = by_hand()
    own, every = found.sel("class_prob").values, found.sel("label_prob").values
    np.testing.assert_allclose(own, [[0.5, 0.5], [0.8, 0.2], [0.7, 0.9]], atol=1e-6)
    np.testing.assert_allclose(every, [[0.5, 0.5], [0.8, 0.2], [0.5, 0.5]], atol=1e-6)
    np.testing.assert_allclose(found.sel("label_space").values, [0.05, 0.2, 0.9], atol=1e-6)
    low, high = mean_ends(found.label_probs[:2, :, 0], "outcome")
    np.testing.assert_allclose(found.sel("class_prob", label="no").low, low, atol=1e-6)
    np.testing.assert_allclose(found.sel("class_prob", label="no").high, high, atol=1e-6)


def test_a_class_without_queries_has_its_prior_alone():
    found = replace(by_hand(), answers=torch.ones(3).long())
    assert found.sel("class_prob", label="no").values.isnan().all()
    WORDS(found.figures()[1].answer, "preferred_prior_alone", "no", "1", "20", "0.80", "0.50")


def test_the_class_a_lens_prefers_is_told_with_what_label_words_hold():
    most = by_hand().by_class.preferred
    assert (most.label, most.layer) == ("no", 1)
    assert [*most.there, *most.last, most.space] == pytest.approx([0.8, 0.8, 0.5, 0.7, 0.2])
    WORDS(by_hand().figures()[1].answer, "preferred", "no", "1", "20", "0.80", "0.50", "0.70")
    without = by_hand(log_sum=False)
    WORDS(without.figures()[1].answer, "preferred_without_mass", "no", "1", "0.80", "0.50", "0.70")
    assert without.by_class.weak == ()


def test_layers_where_label_words_hold_little_are_pale():
    shape = by_hand().drawn(show="classes")
    assert shape.weak == (True, False, False)
    assert [panel.title for panel in shape.panels] == ["no", "yes"]
    assert shape.nulls == (1, 3)
    lines = [trace for trace in figure(shape).data if "lines" in trace.mode and trace.legendgroup]
    pale = [trace for trace in lines if trace.opacity]
    clear = [trace for trace in lines if not trace.opacity and trace.name in shape.names]
    assert [trace.y for trace in clear[:2]] == [(None, 0.8, 0.7), (None, 0.8, 0.5)]
    assert [trace.y for trace in pale[:2]] == [(0.5, None, None), (0.5, 0.8, None)]
    assert not any(trace.opacity for trace in figure(by_hand(False).drawn(show="classes")).data)


def test_intervals_of_pale_layers_are_pale():
    shape = lens_of(24).drawn(show="classes")
    whole = [t.opacity for t in figure(shape).data if t.fill == "toself"]
    faded = [
        t.opacity for t in figure(replace(shape, weak=(True,) * 14)).data if t.fill == "toself"
    ]
    assert max(faded[::2]) < min(whole)


def test_many_classes_are_those_that_the_lens_prefers():
    logits = torch.zeros(20, 3, 10)
    logits[..., [1, 4, 5, 6, 8, 9]] = 1.0
    found = LogitLensResult(
        label_logits=logits, answers=torch.arange(20) % 10, labels=tuple("abcdefghij")
    )
    shape = found.drawn(show="classes")
    assert [panel.title for panel in shape.panels] == [*"befgij"]
    assert "6 of 10 classes" in shape.note


def test_a_page_warns_that_a_class_near_one_is_the_prior():
    _, section = sections_of(Analysis({"lens": by_hand()}, title="lens"))
    WORDS(section.caption, "prior_not_answer", "1")
    WORDS(section.caption, "pale_caption", "10")
    assert section.figure.weak == (True, False, False)


def test_only_known_classes_have_curves():
    assert lens_of(6).on_page() == ("curves", "classes")
    for other in (
        replace(lens_of(6), answers=None),
        replace(lens_of(6), provenance={"prompts": {"answer_kind": "choices"}}),
    ):
        assert other.on_page() == ("curves",)
        with pytest.raises(ResultError):
            other.drawn(show="classes")


def bare_of(space=0.5):
    """Two queries of one entry each, without demonstrations: .8 and .4 of the label words' probability for "no"."""
    probs = torch.tensor([[0.8, 0.2], [0.4, 0.6]])[:, None, None].expand(2, 1, 3, 2)
    return TopWordsResult(
        sides=(BARE,),
        top_tokens=torch.zeros(2, 1, 3, 2).long(),
        top_probs=torch.zeros(2, 1, 3, 2),
        label_probs=probs * space,
        labels=("no", "yes"),
    )


def test_zero_shot_queries_are_beside_the_classes_where_they_were_read():
    run = {"lens": by_hand(), "top_words": bare_of()}
    shape = sections_of(Analysis(run, title="lens"))[1].figure
    names = [[shape.names[i] for i in panel.curves] for panel in shape.panels]
    assert names == [["its own queries", "all queries", "zero-shot, 2 queries"]] * 2
    np.testing.assert_allclose(shape.values[4:], [[0.6] * 3, [0.4] * 3], atol=1e-6)
    assert shape.nulls == (1, 3, 4, 5)
    for other in (
        replace(bare_of(), labels=("a", "b")),
        replace(bare_of(), sides=("true demonstrations",)),
        replace(bare_of(), provenance={"variants": {"lens": {"lens": "tuned"}}}),
    ):
        sections = sections_of(Analysis({**run, "top_words": other}, title="lens"))
        assert len(sections[1].figure.names) == 4

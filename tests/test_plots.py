"""Figures show the values of their shapes, and nothing else."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from icl_mech.plots import PALETTE, figure, to_notebook
from icl_mech.plots.style import MARKS
from icl_mech.shapes import LabelMatrices, LabelMatrix, LayerCurves, TokenMatrix, TokenStrips

CURVES = LayerCurves(
    title="Flow",
    names=("wp", "pq"),
    values=torch.tensor([[0.5, 0.25, 0.0], [0.125, 0.5, 0.75]]),
    low=torch.tensor([[0.4, 0.2, 0.0], [0.1, 0.4, 0.7]]),
    high=torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.6, 0.8]]),
    y_title="share",
    note="7 prompts",
)
TOKENS = TokenMatrix(
    title="Saliency",
    values=torch.arange(1.0, 33.0).reshape(2, 4, 4),
    tokens=("Review", ":", "\n", " Positive"),
    roles=("format", "format", "demo_text", "label_word"),
    quantity="saliency",
    layer=1,
)
STRIPS = TokenStrips(
    title="Attention",
    names=("head 0", "head 1"),
    values=torch.tensor([[0.1, 0.2, 0.3, 0.0, 0.4], [0.8, 0.05, 0.0, 0.1, 0.05]]),
    tokens=("<s>", " dog", "\n\n", " animal", ":"),
    marks=("", "b", "", "a", ""),
    quantity="attention",
    note="marked tokens are framed",
    first=1,
)
LABELS = LabelMatrix(
    title="Confusion",
    values=torch.tensor([[5.0, 3.0], [1.0, 1.5]]),
    rows=("no", "yes"),
    columns=("no", "yes"),
    row_title="true class",
    column_title="predicted class",
    quantity="prompts",
)


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found, dtype=float), np.asarray(expected), rtol=1e-6)


# --- curves ---


def curves_and_bands():
    traces = figure(CURVES).data
    return [t for t in traces if t.fill is None], [t for t in traces if t.fill == "toself"]


def test_curves_hold_the_values():
    curves, _ = curves_and_bands()
    assert [curve.name for curve in curves] == ["wp", "pq"]
    for curve, values in zip(curves, CURVES.values, strict=True):
        close(curve.x, [0, 1, 2])
        close(curve.y, values)


def test_bands_run_along_the_high_ends_and_back_along_the_low_ones():
    _, bands = curves_and_bands()
    close(bands[0].x, [0, 1, 2, 2, 1, 0])
    close(bands[0].y, [0.6, 0.3, 0.1, 0.0, 0.2, 0.4])
    close(bands[1].y, [0.2, 0.6, 0.8, 0.7, 0.4, 0.1])


def test_a_band_belongs_to_its_curve():
    curves, bands = curves_and_bands()
    for i, (curve, band) in enumerate(zip(curves, bands, strict=True)):
        assert curve.line.color == band.fillcolor == PALETTE[i]
        assert curve.legendgroup == band.legendgroup == CURVES.names[i]
        assert band.showlegend is False
        assert band.hoverinfo == "skip"


def test_hovering_a_curve_tells_value_and_interval():
    curve = curves_and_bands()[0][1]
    close(curve.customdata, [[0.1, 0.2], [0.4, 0.6], [0.7, 0.8]])
    for part in ("%{x}", "%{y:.3f}", "%{customdata[0]:.3f}", "%{customdata[1]:.3f}"):
        assert part in curve.hovertemplate


def test_axes_and_title_of_curves():
    layout = figure(CURVES).layout
    assert (layout.title.text, layout.title.subtitle.text) == ("Flow", "7 prompts")
    assert (layout.xaxis.title.text, layout.yaxis.title.text) == ("layer", "share")
    assert layout.xaxis.range == (-0.5, 2.5)


def test_more_curves_than_colours():
    many = LayerCurves("t", tuple("abcdefgh"), *(torch.rand(8, 2) for _ in range(3)), "y")
    curves = [trace for trace in figure(many).data if trace.fill is None]
    assert curves[6].line.color == curves[0].line.color
    assert len({curve.line.color for curve in curves}) == len(PALETTE)


# --- token matrices ---


def test_a_heatmap_per_layer_holds_what_is_below_the_diagonal():
    traces = figure(TOKENS).data
    assert len(traces) == 2
    for trace, values in zip(traces, TOKENS.values, strict=True):
        shown = np.asarray(trace.z, dtype=float)
        for dest in range(4):
            for src in range(4):
                if src < dest:
                    assert shown[dest, src] == values[dest, src]
                else:
                    assert math.isnan(shown[dest, src])
        assert trace.hoverongaps is False


def test_a_layer_has_its_own_colour_range():
    first, second = figure(TOKENS).data
    below = [5.0, 9.0, 10.0, 13.0, 14.0, 15.0]
    assert first.zmin == second.zmin == 0
    assert first.zmax == pytest.approx(np.quantile(below, 0.998))
    assert second.zmax == pytest.approx(np.quantile(below, 0.998) + 16)


def test_the_slider_shows_one_layer_at_a_time():
    fig = figure(TOKENS)
    assert [trace.visible for trace in fig.data] == [False, True]
    (slider,) = fig.layout.sliders
    assert slider.active == 1
    assert [step.label for step in slider.steps] == ["0", "1"]
    assert [step.args[0]["visible"] for step in slider.steps] == [[True, False], [False, True]]
    assert [step.method for step in slider.steps] == ["update", "update"]


def test_hovering_a_cell_tells_token_position_role_and_value():
    trace = figure(TOKENS).data[1]
    assert list(trace.x) == list(trace.y)
    assert trace.x[3] == "3: ' Positive' (label word)"
    assert trace.x[2] == "2: '\\n' (demo text)"
    for part in ("to %{y}", "from %{x}", "saliency %{z:.3g}", "layer 1"):
        assert part in trace.hovertemplate


def test_axes_show_tokens_destinations_downwards():
    layout = figure(TOKENS).layout
    assert layout.xaxis.ticktext == ("Review", ":", "↵", " Positive")
    assert layout.yaxis.ticktext == layout.xaxis.ticktext
    assert tuple(layout.xaxis.tickvals) == tuple(figure(TOKENS).data[0].x)
    assert layout.yaxis.autorange == "reversed"
    assert layout.yaxis.title.text == "destination token"
    assert layout.xaxis.title.text == "source token"


def test_tokens_that_look_like_html_are_shown_as_text():
    """Plotly reads tags in labels and hover texts."""
    risky = TokenMatrix("t", torch.ones(1, 2, 2), ("<b>", "</s>"), ("bos", "target"), "q")
    fig = figure(risky)
    assert fig.layout.xaxis.ticktext == ("&lt;b&gt;", "&lt;/s&gt;")
    assert fig.data[0].x[1] == "1: '&lt;/s&gt;' (target)"


def test_equal_tokens_keep_their_own_rows():
    twice = TokenMatrix("t", torch.ones(1, 3, 3), ("a", "a", "a"), ("format",) * 3, "q")
    assert len(set(figure(twice).data[0].x)) == 3


def test_one_token():
    alone = TokenMatrix("t", torch.ones(1, 1, 1), ("a",), ("target",), "q")
    assert math.isnan(figure(alone).data[0].z[0][0])


# --- tokens as text ---


def strips(tokens, marks=None, values=None, names=("one", "two")):
    n = len(tokens)
    values = torch.arange(float(len(names) * n)).reshape(-1, n) if values is None else values
    return TokenStrips("t", names, values, tuple(tokens), marks or ("",) * n, "q")


def split(fig):
    """Heatmaps, and what stands in the legend."""
    return (
        [trace for trace in fig.data if trace.type == "heatmap"],
        [trace for trace in fig.data if trace.type == "scatter"],
    )


def texts(fig):
    """The tokens of each line, empty cells left out."""
    rows = split(fig)[0][0].text
    return [[text for text in row if text] for row in rows]


def test_strips_hold_the_values_where_their_tokens_stand():
    heatmaps, _ = split(figure(STRIPS))
    assert len(heatmaps) == 2
    for trace, values in zip(heatmaps, STRIPS.values, strict=True):
        assert trace.z.shape == (2, 8)
        close(trace.z[0, :3], values[:3])
        close(trace.z[1, :2], values[3:])
        assert np.isnan(trace.z).sum() == 16 - 5
        assert trace.hoverongaps is False


def test_strips_are_read_like_text():
    fig = figure(STRIPS)
    assert texts(fig) == [["&lt;s&gt;", "dog", "↵↵"], ["animal", ":"]]
    for trace in split(fig)[0]:
        assert trace.texttemplate == "%{text}"
    assert fig.layout.yaxis.autorange == "reversed"
    assert (fig.layout.xaxis.visible, fig.layout.yaxis.visible) == (False, False)
    assert fig.layout.title.text == "Attention"
    assert fig.layout.title.subtitle.text == "marked tokens are framed"


@pytest.mark.parametrize(
    ("tokens", "lines"),
    [
        (["a"] * 16, [16]),
        (["a"] * 17, [16, 1]),
        (["a"] * 35, [16, 16, 3]),
        (["a", "\n", "a", "a"], [2, 2]),
        (["a", ".\n", "a"], [2, 1]),
        (["a", "\n", "\n", "a"], [3, 1]),
        (["a", "\n"], [2]),
        (["\n", "a"], [1, 1]),
        # A break at the end of a full line leaves no empty one behind.
        (["a"] * 15 + ["\n"] + ["a"] * 2, [16, 2]),
        (["a"] * 16 + ["\n"] + ["a"] * 2, [16, 1, 2]),
        # Counting starts again after a break.
        (["a"] * 3 + ["\n"] + ["a"] * 17, [4, 16, 1]),
    ],
)
def test_lines_of_strips(tokens, lines):
    fig = figure(strips(tokens))
    assert [len(line) for line in texts(fig)] == lines
    for row, trace in enumerate(split(fig)[0]):
        shown = trace.z[~np.isnan(trace.z)]
        close(shown, torch.arange(len(tokens)) + row * len(tokens))
        for line, length in zip(trace.z, lines, strict=True):
            assert np.isnan(line[length:]).all()
    assert fig.layout.height == 260 + 26 * len(lines)


def test_tokens_as_they_fit_into_cells():
    tokens = [" ", "", "  two ", "\n", "</s>", "<b>bold</b>", "abcdefghi", "abcdefghij", "a&b"]
    expected = ["␣", "␣", "two", "↵", "&lt;/s&gt;", "&lt;b&gt;bold&lt;…", "abcdefghi"]
    fig = figure(strips(tokens))
    assert [text for line in texts(fig) for text in line] == [*expected, "abcdefgh…", "a&amp;b"]


def test_hovering_a_strip_tells_the_whole_token_its_mark_and_the_row():
    fig = figure(STRIPS)
    for trace, name in zip(split(fig)[0], STRIPS.names, strict=True):
        assert trace.customdata[0][0] == "0: '&lt;s&gt;'"
        assert trace.customdata[0][1] == "1: ' dog'<br>b"
        assert trace.customdata[0][2] == r"2: '\n\n'"
        assert trace.customdata[1][0] == "3: ' animal'<br>a"
        assert (
            trace.hovertemplate == f"%{{customdata}}<br>attention %{{z:.3g}}<extra>{name}</extra>"
        )
    long = figure(strips(["a rather long token"]))
    assert long.data[0].customdata[0][0] == "0: 'a rather long token'"


def test_rows_of_strips_share_one_colour_range():
    for trace in split(figure(STRIPS))[0]:
        assert trace.zmin == 0
        assert trace.zmax == pytest.approx(0.8)


def test_strips_of_zeros():
    (trace,) = figure(strips(["a", "b"], values=torch.zeros(1, 2), names=("one",))).data
    assert (trace.zmin, trace.zmax) == (0, 1)
    close(trace.z[0, :2], [0, 0])


def test_the_slider_of_strips_leaves_the_legend_alone():
    fig = figure(STRIPS)
    assert [trace.type for trace in fig.data] == ["heatmap"] * 2 + ["scatter"] * 2
    heatmaps, legend = split(fig)
    assert [trace.visible for trace in heatmaps] == [False, True]
    assert [trace.visible for trace in legend] == [None, None]
    (slider,) = fig.layout.sliders
    assert slider.active == 1
    assert [step.label for step in slider.steps] == ["head 0", "head 1"]
    assert [step.method for step in slider.steps] == ["update", "update"]
    assert [step.args[0]["visible"] for step in slider.steps] == [
        [True, False, True, True],
        [False, True, True, True],
    ]


def test_rows_of_one_name_are_shown_one_at_a_time():
    fig = figure(strips(["a"], names=("same", "same")))
    assert [trace.visible for trace in fig.data] == [True, False]


def test_one_row_stands_in_the_title():
    """Plotly draws no slider with a single step."""
    assert figure(strips(["a"], names=("head 3",))).layout.title.text == "t: head 3"


def test_frames_stand_around_the_marked_tokens():
    fig = figure(STRIPS)
    legend = split(fig)[1]
    assert [(trace.name, trace.marker.color) for trace in legend] == [
        ("a", MARKS[0]), ("b", MARKS[1]),
    ]  # fmt: skip
    assert all(trace.showlegend for trace in legend)
    colours = dict(zip("ab", MARKS, strict=False))
    found = {}
    for shape in fig.layout.shapes:
        assert shape.type == "rect"
        assert 0.9 < shape.x1 - shape.x0 < 1
        assert 0.9 < shape.y1 - shape.y0 < 1
        cell = ((shape.y0 + shape.y1) / 2, (shape.x0 + shape.x1) / 2)
        found[cell] = shape.line.color
    # (line, place) of " dog" and " animal".
    assert found == {(0, 1): colours["b"], (1, 0): colours["a"]}


def test_frames_follow_their_tokens_into_later_lines():
    marks = tuple("m" if i in (3, 16, 20) else "" for i in range(21))
    shapes = figure(strips(["a"] * 21, marks)).layout.shapes
    assert [((s.y0 + s.y1) / 2, (s.x0 + s.x1) / 2) for s in shapes] == [(0, 3), (1, 0), (1, 4)]


def test_without_marks_there_is_no_legend():
    fig = figure(strips(["a", "b"]))
    assert fig.layout.shapes == ()
    assert [trace.type for trace in fig.data] == ["heatmap"] * 2
    assert [step.args[0]["visible"] for step in fig.layout.sliders[0].steps] == [
        [True, False], [False, True],
    ]  # fmt: skip


def test_more_kinds_of_marks_than_colours():
    fig = figure(strips("abcd", ("w", "x", "y", "z")))
    assert [trace.name for trace in split(fig)[1]] == ["w", "x", "y", "z"]
    assert len(fig.layout.shapes) == 4
    assert len(fig.layout.sliders[0].steps[0].args[0]["visible"]) == len(fig.data)


# --- label matrices ---


def test_a_label_matrix():
    fig = figure(LABELS)
    (trace,) = fig.data
    close(trace.z, LABELS.values)
    assert (list(trace.x), list(trace.y)) == (["no", "yes"], ["no", "yes"])
    assert trace.texttemplate == "%{z:.3g}"
    for part in ("true class %{y}", "predicted class %{x}", "prompts %{z:.3g}"):
        assert part in trace.hovertemplate
    assert fig.layout.title.text == "Confusion"
    assert fig.layout.yaxis.autorange == "reversed"
    assert fig.layout.xaxis.title.text == "predicted class"


@pytest.mark.parametrize("rows", [("no", "yes"), ("other", "rows")])
def test_label_matrices_name_equal_rows_once(rows):
    other = replace(LABELS, rows=rows, values=-LABELS.values)
    shown = figure(LabelMatrices(title="Two", matrices=(LABELS, other), note=""))
    for trace, matrix in zip(shown.data, (LABELS, other), strict=True):
        close(trace.z, matrix.values)
        assert tuple(trace.y) == matrix.rows
    assert shown.layout.coloraxis.cmin == -5.0
    assert shown.layout.coloraxis.cmax == 5.0
    once = rows == LABELS.rows
    assert (shown.layout.yaxis2.showticklabels is False) == once
    assert (shown.layout.yaxis2.title.text is None) == once


def test_a_figure_for_a_notebook_cell():
    html = to_notebook(figure(LABELS))
    assert "<html" not in html
    assert html.count("cdn.plot.ly/plotly-") == 1
    assert len(html) < 100_000

"""Figures show the values of their shapes, where nothing hides them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from icl_mech.plots import figure, narrow_figure
from icl_mech.plots.axes import USUAL
from icl_mech.plots.labels import size
from icl_mech.plots.style import LOOKS, WIDTH, heading
from icl_mech.shapes import (
    Bars,
    Behind,
    Grid,
    Grids,
    LabelMatrices,
    LabelMatrix,
    LayerCurves,
    Panel,
    Scatter,
    TokenMatrix,
    TokenStrips,
    Windows,
)
from tests.said import Words

WORDS = Words(__file__)

CURVES = LayerCurves(
    title="Flow",
    names=("texts", "label words"),
    values=torch.tensor([[0.5, 0.25, 0.0], [0.125, 0.5, 0.75]]),
    low=torch.tensor([[0.4, 0.2, 0.0], [0.1, 0.4, 0.7]]),
    high=torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.6, 0.8]]),
    y_title="share",
    note="7 prompts",
    meanings=("text", "label"),
)
WINDOWS = Windows(
    "Loyalty", (0, 2), (1, 3), ("label loyalty", "word loyalty"),
    *(torch.tensor([[0.25, 1.0], [0.1, 0.9]]) + d for d in (0.0, -0.1, 0.1)), 4, note="8 prompts",
    levels=(((0.3, "always “Sports”"),), ()),
)  # fmt: skip
LABELS = LabelMatrix(
    "Confusion", torch.tensor([[5.0, 3.0], [1.0, 1.5]]), ("no", "yes"), ("no", "yes"),
    "true class", "predicted class", "prompts", counts=True, diagonal=True,
)  # fmt: skip
TOKENS = TokenMatrix(
    title="Saliency",
    values=torch.arange(1.0, 33.0).reshape(2, 4, 4),
    tokens=("Review", ":", "<s>", " Positive"),
    roles=("format", "format", "demo_text", "label_word"),
    quantity="saliency",
    layer=1,
)
STRIPS = TokenStrips(
    "Attention", ("2.1", "3.0"), torch.tensor([[0.1, 0.2, 0.7], [0.8, 0.2, 0.0]]),
    ("<s>", " dog", ":"), ("", "animal", ""), "attention", first=1,
)  # fmt: skip
DOTS = Bars(
    "t", ("a", "b"), ("one", "two"), *(torch.tensor([[0.2, 0.5], [0.4, 0.6]]) + d for d in (0, -0.1, 0.1)),
    "share", levels=((0.25, "chance 0.25"), (0.25, "always “x”")),
)  # fmt: skip
PANELS = replace(CURVES, panels=(Panel("First k", (0,)), Panel("Last k", (1,))))


def titles(fig):
    """Font sizes of all axis titles, as far as they are written."""
    axes = [fig.layout[key] for key in fig.layout if key.startswith(("xaxis", "yaxis"))]
    return {axis.title.font.size for axis in axes if axis.title.text}


def test_columns_with_names_are_labelled_by_them():
    fig = figure(replace(CURVES, x_names=("early", "late", "all"), x_title="cut layers"))
    assert fig.layout.xaxis.tickvals == (0, 1, 2)
    assert fig.layout.xaxis.ticktext == ("early", "late", "all")
    assert [row[2] for row in fig.data[0].customdata] == ["early", "late", "all"]


def test_curves_hold_the_values_and_their_ends():
    lines = [trace for trace in figure(CURVES).data if trace.name]
    for i, line in enumerate(lines):
        np.testing.assert_allclose(line.y, CURVES.values[i])
        np.testing.assert_allclose([pair[0] for pair in line.customdata], CURVES.low[i], rtol=1e-4)
        assert line.line.color == LOOKS[CURVES.meanings[i]].light
    dashes = {(line.line.dash, line.marker.symbol) for line in lines}
    assert len(dashes) == len(lines)


def test_a_curve_that_is_named_as_its_axis_is_not_named_again():
    one = replace(CURVES, names=("AUC",), y_title="AUC", values=CURVES.values[:1],
                  low=CURVES.low[:1], high=CURVES.high[:1], meanings=("label",))  # fmt: skip
    assert not [note for note in figure(one).layout.annotations if note.name == "curve"]
    named = replace(one, names=("label words",))
    assert [note.text for note in figure(named).layout.annotations if note.name == "curve"]


@pytest.mark.parametrize("shape", [CURVES, PANELS, WINDOWS, LABELS, DOTS], ids=lambda s: s.title)
@pytest.mark.parametrize("lines", [1, 4])
def test_nothing_stands_on_the_title_or_the_lines_below_it(shape, lines):
    fig = figure(replace(shape, note="word " * (WIDTH // 5 * lines - 2)))
    assert (fig.layout.title.yref, fig.layout.title.y, fig.layout.title.yanchor) == (
        "container",
        1,
        "top",
    )
    above = fig.layout.margin.t - heading("word " * (WIDTH // 5 * lines - 2))
    height = fig.layout.height - fig.layout.margin.t - fig.layout.margin.b
    for note in fig.layout.annotations:
        if str(note.yref).endswith("domain"):
            number = str(note.yref).split()[0][1:]
            top = (fig.layout[f"yaxis{number}"].domain or (0, 1))[1]
        elif note.yref == "paper":
            top = note.y
        else:
            continue
        over = (top - 1) * height + (note.yshift or 0) + 16
        assert over <= above, note.text


@pytest.mark.parametrize("shape", [CURVES, PANELS, WINDOWS, LABELS, DOTS], ids=lambda s: s.title)
def test_names_of_axes_are_no_larger_than_their_numbers(shape):
    assert titles(figure(shape)) <= {13}


def test_windows_have_their_reference_levels():
    fig = figure(WINDOWS)
    dashed = [s for s in fig.layout.shapes if s.line.dash == "dash"]
    assert [(s.y0, s.yref) for s in dashed] == [(0.3, "y")]
    # Above the axes, where no bar is.
    (note,) = (note for note in fig.layout.annotations if "always “Sports”" in note.text)
    assert (note.yref, note.y, note.yanchor) == ("y domain", 1, "bottom")


def test_dots_of_shares_have_the_whole_axis_and_one_line_for_equal_levels():
    fig = figure(DOTS)
    assert fig.layout.xaxis.range[0] <= 0
    assert fig.layout.xaxis.range[1] >= 1
    assert [s.x0 for s in fig.layout.shapes] == [0.25]
    assert all(s.layer == "below" for s in fig.layout.shapes)
    WORDS.exactly([note.text for note in fig.layout.annotations], "equal_levels", "0.25", "“x”")


@pytest.mark.parametrize("columns", [1, 2])
def test_different_measures_have_axes_of_their_own(columns):
    fig = figure(replace(DOTS, apart=("label loyalty", "word loyalty"), columns=columns))
    assert [trace.xaxis for trace in fig.data] == ["x", "x2"]
    assert (fig.layout.xaxis.title.text, fig.layout.xaxis2.title.text) == (
        "label loyalty",
        "word loyalty",
    )
    assert fig.layout.showlegend is False
    assert {s.xref for s in fig.layout.shapes} == {"x"}  # levels are of the first


def test_single_draws_are_named_once():
    drawn = replace(DOTS, spread=((0, 0, (0.1, 0.2)), (0, 1, (0.3,))))
    traces = [trace for trace in figure(drawn).data if "single draws" in trace.name]
    assert [trace.showlegend for trace in traces] == [True, False]


def test_points_have_reference_lines():
    points = Scatter("t", torch.tensor([1.0]), torch.tensor([2.0]), ("p",), ("g",), "x", "y",
                     levels=((1.0, "equally fast"),))  # fmt: skip
    fig = figure(points)
    assert [s.y0 for s in fig.layout.shapes] == [1.0]
    assert [note.text for note in fig.layout.annotations] == ["equally fast"]


def test_a_label_matrix_writes_counts():
    (trace,) = figure(LABELS).data
    np.testing.assert_allclose(trace.z, LABELS.values)
    assert [list(row) for row in trace.text] == [["5", "3"], ["1", "1.5"]]
    WORDS(trace.customdata[0][1], "label_matrix_writes_counts")


@pytest.mark.parametrize("rows", [("no", "yes"), ("other", "rows")])
def test_label_matrices_name_equal_rows_once(rows):
    other = replace(LABELS, rows=rows, values=-LABELS.values)
    fig = figure(LabelMatrices(title="Two", matrices=(LABELS, other)))
    assert (fig.layout.yaxis2.showticklabels is False) == (rows == LABELS.rows)


def test_a_matrix_of_tokens_shows_one_layer_below_the_diagonal():
    (trace,) = figure(TOKENS).data
    below = np.tril(np.ones((4, 4)), -1).astype(bool)
    shown = np.array(trace.customdata, dtype=float)
    np.testing.assert_allclose(shown[below], TOKENS.values[1].numpy()[below])
    assert np.isnan(shown[~below]).all()
    assert not any("<s>" in name for name in trace.x)


def test_strips_show_text_and_change_with_the_slider():
    fig = figure(STRIPS)
    (slider,) = fig.layout.sliders
    assert (slider.active, [step.label for step in slider.steps]) == (1, ["2.1", "3.0"])
    WORDS("".join(fig.data[-1].text), "strips_show_text_change")
    assert [s.line.color for s in fig.layout.shapes]  # the marked token is framed
    assert not figure(
        replace(STRIPS, names=("2.1",), values=STRIPS.values[:1], first=0)
    ).layout.sliders


MAP = Grid("map", torch.rand(9, 30), "head", "layer", "score", marked=((1, 2),), names=("2.1",))


def test_on_a_phone_panels_stand_one_below_the_other():
    """Where the usual figure has them side by side."""
    for shape in (PANELS, WINDOWS, replace(DOTS, apart=("label loyalty", "word loyalty"))):
        wide, narrow = figure(shape), narrow_figure(shape)
        for fig, same in ((wide, False), (narrow, True)):
            axes = [fig.layout[key].domain for key in ("xaxis", "xaxis2")]
            assert (axes[0] == axes[1]) == same, shape.title
    assert narrow_figure(CURVES) is None
    maps = Grids("maps", (MAP, MAP))
    assert narrow_figure(maps).layout.height < figure(maps).layout.height


def test_names_at_the_ends_of_curves_leave_every_panel_a_readable_width():
    """Crossing curves have no room for their names beside them: panels go below each other instead of shrinking."""
    torch.manual_seed(0)
    values = torch.rand(7, 31)
    names = tuple(f"demonstrations of kind {i}" for i in range(7))
    crossing = LayerCurves(
        "t", names, values, values - 0.3, values + 0.3, "accuracy",
        panels=(Panel("Accuracy", (0, 1, 2, 3, 4, 5)), Panel("Gap", (6,), "gap")),
    )  # fmt: skip
    fig = figure(crossing)
    margin = fig.layout.margin
    for axes, room in (
        ((fig.layout.xaxis, fig.layout.xaxis2), USUAL - margin.l - margin.r),
        ((fig.layout.yaxis, fig.layout.yaxis2), fig.layout.height - margin.t - margin.b),
    ):
        for axis in axes:
            assert room * (axis.domain[1] - axis.domain[0]) >= 220 - 1e-6


# --- names at the ends of lines, baselines as outlines ---

NULLS = replace(
    CURVES, names=("label words", "random tokens"), meanings=("label", "label"), nulls=(1,)
)


def ends_of(fig):
    """Text, vertical position and height of each name at the end of a line, in pixels."""
    low, high = fig.layout.yaxis.range
    tall = fig.layout.height - fig.layout.margin.t - fig.layout.margin.b
    for note in fig.layout.annotations:
        if note.name in ("curve", "end"):
            yield note.text, (note.ay - low) / (high - low) * tall, size(note.text.split("<br>"))[1]


def test_a_baseline_is_an_outline_in_the_colour_of_its_curve():
    band, own, outline, null = figure(NULLS).data
    assert {own.line.color, null.line.color, outline.line.color} == {LOOKS["label"].light}
    assert (band.fill, outline.fill) == ("toself", None)
    assert outline.line.width == null.line.width == 1
    assert (own.marker.symbol, null.marker.symbol) == ("square", "square-open")
    assert own.line.dash != null.line.dash


def test_the_range_of_a_control_is_an_outline_in_the_colour_of_its_curve():
    area = Behind("untrained", 1, (0.1, 0.1, 0.1), (0.2, 0.3, 0.2))
    fig = figure(replace(CURVES, behind=(area,)))
    (own,) = (trace for trace in fig.data if trace.name == "untrained")
    assert (own.fill, own.line.color) == (None, LOOKS["label"].light)
    assert max(own.y) == 0.3
    assert min(own.y) == 0.1
    (note,) = (note for note in fig.layout.annotations if note.text == "untrained")
    assert note.font.color == LOOKS["label"].light


def test_names_stand_at_the_ends_of_their_lines_outside_the_frame_and_apart():
    flat = torch.ones(4, 3)
    many = replace(CURVES, names=("a", "b", "c", "d"), values=flat, low=flat, high=flat,
                   meanings=("text", "label", "other", "query"), levels=((1.0, "chance 1.00"),))  # fmt: skip
    for shape in (CURVES, many, replace(CURVES, levels=((0.01, "chance"),))):
        fig = figure(shape)
        for note in fig.layout.annotations:
            assert note.ax > fig.layout.xaxis.range[1]
            assert note.xanchor == "left"
        named = [note for note in fig.layout.annotations if note.name == "curve"]
        assert [(note.x, note.y) for note in named] == [
            (2.0, float(value)) for value in shape.values[:, -1]
        ]
        placed = sorted((at, tall) for _, at, tall in ends_of(fig))
        for (below, tall), (above, taller) in pairwise(placed):
            assert above - below >= (tall + taller) / 2 - 1e-6


def test_categories_are_not_joined_and_stand_side_by_side():
    fig = figure(replace(NULLS, x_names=("early", "late", "all")))
    assert {trace.mode for trace in fig.data} == {"markers"}
    own, null = fig.data
    assert all(a < b for a, b in zip(own.x, null.x, strict=True))
    assert own.error_y.array is not None
    assert {trace.mode for trace in figure(NULLS).data} == {"lines", "lines+markers"}


def test_a_level_is_in_the_legend_of_a_narrow_page():
    fig = figure(replace(CURVES, levels=((0.25, "chance 0.25"),)))
    (level,) = (trace for trace in fig.data if trace.name == "chance 0.25")
    assert (level.mode, set(level.y)) == ("lines", {0.25})
    assert list(level.x) == list(fig.layout.xaxis.range)
    assert level.hoverinfo != "skip"

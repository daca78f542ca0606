"""Figures show the values of their shapes, and nothing else."""

import math

import numpy as np
import pytest
import torch

from icl_mech.plots import PALETTE, figure, to_notebook
from icl_mech.results import LabelMatrix, LayerCurves, TokenMatrix

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


def test_a_figure_for_a_notebook_cell():
    html = to_notebook(figure(LABELS))
    assert "<html" not in html
    assert html.count("cdn.plot.ly/plotly-") == 1
    assert len(html) < 100_000

"""Maps: true numbers on the axes, one frame for the same head in every map, scales from 0."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from icl_mech.plots import figure
from icl_mech.plots.style import SCALE, SIGNED_SCALE
from icl_mech.results.figures import usual
from icl_mech.shapes import Grid, Grids

MARKED = ((5, 17), (7, 22), (2, 22))
NAMES = ("17.5", "22.7", "22.2")


def head_map(heads, layers, signed=False, **more):
    values = torch.rand(heads, layers) - 0.5 * signed
    return Grid("Scores", values, "head", "layer", "score", signed=signed, **more)


def frames(fig):
    """Framed cells by axes: centre, colour and width."""
    return [
        ((s.x0 + s.x1) / 2, (s.y0 + s.y1) / 2, s.xref, s.line.color, s.line.width)
        for s in fig.layout.shapes
    ]


@pytest.mark.parametrize(("layers", "heads"), [(2, 1), (2, 2), (30, 9), (40, 32)])
def test_axes_end_with_the_last_layer_and_head(layers, heads):
    fig = figure(head_map(heads, layers))
    assert tuple(fig.layout.xaxis.range) == (-0.5, layers - 0.5)
    assert tuple(fig.layout.yaxis.range) == (heads - 0.5, -0.5)
    assert fig.layout.xaxis.tickvals[-1] == layers - 1
    assert fig.layout.yaxis.tickvals[-1] == heads - 1
    assert max(fig.layout.xaxis.tickvals) == layers - 1
    assert (fig.layout.xaxis.title.text, fig.layout.yaxis.title.text) == ("layer", "head")


def test_cells_are_square():
    fig = figure(head_map(9, 30))
    assert fig.layout.yaxis.scaleanchor == "x"
    assert (fig.layout.xaxis.constrain, fig.layout.yaxis.constrain) == ("domain", "domain")


def test_a_small_map_has_no_huge_cells():
    fig = figure(head_map(2, 2))
    assert fig.layout.xaxis.domain[1] < 0.2


def test_scores_start_at_zero_and_signed_ones_stand_around_it():
    plain, signed = head_map(4, 6), head_map(4, 6, signed=True)
    (trace,) = figure(plain).data
    assert trace.zmin == 0
    assert trace.zmax == pytest.approx(float(plain.values.max()), abs=1e-4)
    assert [colour for _, colour in trace.colorscale] == list(SCALE)
    (trace,) = figure(signed).data
    assert trace.zmin == -trace.zmax
    assert trace.zmax == pytest.approx(float(signed.values.abs().max()), abs=1e-4)
    assert [colour for _, colour in trace.colorscale] == list(SIGNED_SCALE)


@pytest.mark.parametrize(
    "values", [torch.zeros(2, 3), torch.full((2, 3), math.nan), -torch.ones(2, 3)]
)
def test_maps_without_anything_above_zero(values):
    for signed in (False, True):
        (trace,) = figure(Grid("t", values, "head", "layer", "q", signed=signed)).data
        assert trace.zmin < trace.zmax or trace.zmin == 0 < trace.zmax


def test_frames_are_white_under_black_around_the_cell():
    fig = figure(head_map(9, 30, marked=MARKED, names=NAMES))
    found = frames(fig)
    for head, layer in MARKED:
        own = [frame[3:] for frame in found if frame[:2] == (layer, head)]
        assert own == [("white", 4), ("black", 2)]
    assert len(found) == 6


def test_names_stand_outside_above_their_column():
    fig = figure(head_map(9, 30, marked=MARKED, names=NAMES))
    named = {note.text: note for note in fig.layout.annotations}
    assert set(named) == {"17.5", "22.7, 22.2"}
    for text, layer in (("17.5", 17), ("22.7, 22.2", 22)):
        assert named[text].x == layer
        assert (named[text].yref, named[text].y, named[text].yanchor) == ("y domain", 1, "bottom")


def test_the_same_heads_are_framed_in_every_map():
    maps = tuple(head_map(9, 30, signed, marked=MARKED, names=NAMES) for signed in (False, True))
    fig = figure(Grids("Scores", maps))
    first = [frame[:2] for frame in frames(fig) if frame[2] == "x"]
    second = [frame[:2] for frame in frames(fig) if frame[2] == "x2"]
    assert first == second
    assert len(first) == 6
    assert [trace.zmin < 0 for trace in fig.data] == [False, True]
    one, two = fig.layout.yaxis.domain, fig.layout.yaxis2.domain
    assert two[0] >= 0
    assert two[1] < one[0]


def test_hovering_tells_the_cell_its_value_and_interval():
    ends = torch.zeros(2, 3), torch.ones(2, 3)
    (trace,) = figure(head_map(2, 3, low=ends[0], high=ends[1])).data
    for part in ("layer %{x}", "head %{y}", "%{z:.3f}", "%{customdata[0]:.3f}"):
        assert part in trace.hovertemplate
    np.testing.assert_allclose(np.asarray(trace.customdata)[1, 2], [0, 1])


def test_maps_of_a_large_model_are_small():
    ends = torch.rand(32, 40), torch.rand(32, 40)
    maps = tuple(
        head_map(32, 40, signed, low=ends[0], high=ends[1], marked=((0, 0),), names=("0.0",))
        for signed in (False, True)
    )
    assert len(figure(Grids("Scores", maps)).to_json()) < 1_000_000


def test_layers_are_columns_of_the_map_of_an_own_result():
    values = torch.rand(3, 2)
    found = SimpleNamespace(
        name="mine", dims=("layer", "head"), labels=((0, 1, 2), (0, 1)), values=values,
        low=values - 0.1, high=values + 0.1, unit="score", note="",
    )  # fmt: skip
    grid = usual(found, "Mine", [], [])
    assert (grid.row_title, grid.column_title) == ("head", "layer")
    torch.testing.assert_close(grid.values, values.T)
    torch.testing.assert_close(grid.low, values.T - 0.1)

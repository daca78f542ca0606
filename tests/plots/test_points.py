"""Dots with intervals around a zero line, and named points."""

import math

import pytest
import torch

from icl_mech.plots import figure
from icl_mech.plots.style import INK, LOOKS
from icl_mech.shapes import Bars, Scatter

VALUES = torch.tensor([[0.1, -0.2], [math.nan, 0.05], [0.0, 0.3]])
DOTS = Bars(
    "Ablation",
    ("late layers", "chosen heads", "random heads"),
    ("true demonstrations", "false demonstrations"),
    VALUES,
    VALUES - 0.1,
    VALUES + 0.2,
    "change",
    "24 pairs",
    meanings=("true", "false"),
    sides=("hurts", "helps"),
    spread=((2, 1, (0.1, 0.5)),),
    levels=((0.3, "the gap"),),
)


def traces(fig, name):
    return [trace for trace in fig.data if trace.name == name]


def test_dots_not_bars():
    fig = figure(DOTS)
    assert {trace.type for trace in fig.data} == {"scatter"}


@pytest.mark.parametrize(("place", "meaning"), [(0, "true"), (1, "false")])
def test_a_dot_has_value_interval_and_the_look_of_its_meaning(place, meaning):
    (dots,) = traces(figure(DOTS), DOTS.names[place])
    assert [v for v in dots.x if v == v] == pytest.approx(
        [v for v in VALUES[:, place].tolist() if v == v]
    )
    assert dots.error_x.array[2] == pytest.approx(0.2)
    assert dots.error_x.arrayminus[2] == pytest.approx(0.1)
    assert dots.marker.color == LOOKS[meaning].light
    assert dots.marker.symbol == LOOKS[meaning].marker
    assert dots.customdata[2][2] == "random heads"


def test_sides_of_a_line_do_not_hide_each_other():
    true, false = (traces(figure(DOTS), name)[0] for name in DOTS.names)
    assert all(one < other for one, other in zip(true.y, false.y, strict=True))
    assert [round(y) for y in true.y] == [0, 1, 2]


def test_the_zero_line_is_ink_and_says_what_its_sides_are():
    fig = figure(DOTS)
    assert [s.x0 for s in fig.layout.shapes if s.line.color == INK.light] == [0]
    texts = {note.text: note.xanchor for note in fig.layout.annotations}
    assert (texts["← hurts"], texts["helps →"]) == ("right", "left")
    plain = figure(Bars("t", ("a",), ("b",), *(torch.ones(1, 1),) * 3, "y"))
    assert not plain.layout.shapes


def test_single_draws_stand_behind_their_dot():
    fig = figure(DOTS)
    (drawn,) = traces(fig, "random heads, single draws")
    (dots,) = traces(fig, "false demonstrations")
    assert list(drawn.x) == [0.1, 0.5]
    assert set(drawn.y) == {dots.y[2]}
    assert drawn.marker.symbol.endswith("-open")
    order = [trace.name for trace in fig.data]
    assert order.index(drawn.name) < order.index(dots.name)


def test_groups_from_top_to_bottom_and_levels():
    fig = figure(DOTS)
    assert fig.layout.yaxis.ticktext == DOTS.groups
    assert fig.layout.yaxis.range[0] > fig.layout.yaxis.range[1]
    assert any(note.text == "the gap" for note in fig.layout.annotations)


def test_published_values_are_hollow_triangles():
    fig = figure(
        Bars(
            "t", ("a",), ("b",), *(torch.ones(1, 1),) * 3, "y", published=((0, 0, 0.4),),
            source="GPT-J",
        )
    )  # fmt: skip
    (own,) = traces(fig, "GPT-J")
    assert (own.marker.symbol, list(own.x)) == ("triangle-up-open", [0.4])


def test_groups_that_look_like_html_are_text():
    fig = figure(Bars("t", ("<b>x</b>",), ("<i>",), *(torch.ones(1, 1),) * 3, "y"))
    assert fig.layout.yaxis.ticktext == ("&lt;b&gt;x&lt;/b&gt;",)


def points(n=40, **more):
    x = torch.linspace(0, 1, n)
    groups = tuple("chosen" if i >= n - 2 else "other" for i in range(n))
    names = tuple(f"{i}.0" for i in range(n))
    return Scatter("t", x, x.sin(), names, groups, "x", "y", **more)


def test_chosen_points_and_extremes_carry_their_names():
    fig = figure(points(order=("chosen", "other"), meanings=("false", "other"), named=(0, 38, 39)))
    written = {text.removeprefix("<b>").removesuffix("</b>") for t in fig.data for text in t.text}
    assert written == {"", "0.0", "38.0", "39.0"}
    chosen = traces(fig, "chosen")[0]
    assert chosen.marker.symbol == LOOKS["false"].marker
    assert traces(fig, "other")[0].marker.symbol == f"{LOOKS['other'].marker}-open"
    assert fig.data[-1].name == "chosen"  # over the others


def test_every_point_is_named_on_hovering():
    fig = figure(points(named=(39,)))
    assert {name for trace in fig.data for name in trace.customdata} == {
        f"{i}.0" for i in range(40)
    }


def test_names_of_close_points_stand_on_different_sides():
    x = torch.tensor([0.0, 0.0, 1.0])
    y = torch.tensor([0.0, 0.02, 1.0])
    fig = figure(Scatter("t", x, y, ("a", "b", "c"), ("g",) * 3, "x", "y", named=(0, 1, 2)))
    sides = fig.data[0].textposition
    assert sides[0] != sides[1]


@pytest.mark.parametrize("x", [torch.zeros(1), torch.tensor([math.nan, 1.0])])
def test_few_and_undefined_points(x):
    n = len(x)
    shape = Scatter("t", x, x, ("p",) * n, ("g",) * n, "x", "y", named=tuple(range(n)))
    assert figure(shape).data

"""Loyalty under isolation: intervals, paired differences, table, summary and figures."""

from dataclasses import replace

import pytest
import torch
from pandas.testing import assert_frame_equal

from icl_mech.errors import ResultError
from icl_mech.measurements.isolation.isolation import IsolationResult, isolation
from icl_mech.measurements.isolation.isolation_map import isolation_map
from icl_mech.metrics import wilson_interval
from icl_mech.plots import figure
from icl_mech.results import Result
from tests.measurements.isolation.cases import many
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)


def known(draw_loyalty=None):
    """Ten prompts; label words in the first layers cost four of them, random tokens one half."""
    label_kept = torch.ones(4, 10).double()
    label_kept[0, :4] = 0.0
    label_kept[2, 0] = 0.5
    word_overlap = label_kept / 2
    return IsolationResult(
        windows=(("first", 5, "label"), ("last", 5, "label"),
                 ("first", 5, "random"), ("last", 5, "random")),
        label_kept=label_kept,
        word_overlap=word_overlap,
        draw_loyalty=label_kept.mean(1, keepdim=True).expand(-1, 2)
        if draw_loyalty is None
        else draw_loyalty,
        predicted=torch.tensor([0] * 7 + [1] * 3),
        n_layers=12,
        top_k=5,
    )  # fmt: skip


def test_intervals():
    """Wilson for label loyalty; with an effective n for averages over draws and word loyalty."""
    result = known()
    expected = wilson_interval(torch.tensor([False] * 4 + [True] * 6))
    first = {"side": "first", "depth": 5}
    assert tuple(result.interval(tokens="label", **first)) == pytest.approx(tuple(expected))
    last = result.interval("label_loyalty", side="last", depth=5, tokens="label")
    assert tuple(last) == pytest.approx((1.0, 0.7224672, 1.0))
    random = result.interval(tokens="random", **first)
    assert tuple(random) == pytest.approx((0.95, 0.7107, 0.9932), abs=1e-4)
    word = result.interval("word_loyalty", tokens="label", **first)
    assert tuple(word) == pytest.approx((0.3, 0.1613, 0.4886), abs=1e-3)


def test_one_draw_is_a_share_of_zeros_and_ones():
    result = known(draw_loyalty=torch.ones(4, 1).double())
    last = result.interval(side="last", depth=5, tokens="random")
    assert tuple(last) == pytest.approx((1.0, 0.7224672, 1.0))


def test_differences_are_paired():
    """Four of ten prompts differ by 1: Tango's interval."""
    found = known().difference(("first", 5, "label"), ("last", 5, "label"))
    assert tuple(found) == pytest.approx((-0.4, -0.6873, -0.0115), abs=1e-4)
    # The first prompt counts one half less: pairing leaves 0.5 + 3 in the mean.
    found = known().difference(("first", 5, "label"), ("first", 5, "random"))
    assert tuple(found) == pytest.approx((-0.35, -0.637, 0.0043), abs=1e-3)
    result = known()
    equal = replace(result, label_kept=result.label_kept[[0, 0, 2, 3]])
    none = equal.difference(("first", 5, "label"), ("last", 5, "label"))
    # z^2 / (n + z^2): as far as ten equal pairs can be from a difference.
    assert tuple(none) == pytest.approx((0.0, -0.2775, 0.2775), abs=1e-4)
    words = known().difference(("first", 5, "label"), ("last", 5, "label"), "word_loyalty")
    assert tuple(words) == pytest.approx((-0.2, -0.395, -0.035), abs=1e-3)


def test_table():
    table = known().to_pandas()
    assert list(table.columns) == [
        "tokens", "side", "depth", "label_loyalty", "label_loyalty_low", "label_loyalty_high",
        "word_loyalty", "word_loyalty_low", "word_loyalty_high", "low", "high", "draw_min", "draw_max",
    ]  # fmt: skip
    row = table[(table.side == "first") & (table.tokens == "label")].iloc[0]
    assert (row.depth, row.label_loyalty, row.word_loyalty) == (
        5,
        pytest.approx(0.6),
        pytest.approx(0.3),
    )
    assert (row.low, row.high) == (row.label_loyalty_low, row.label_loyalty_high)


def test_summary_says_what_is_clear():
    result = known()
    WORDS.exactly(result.summary(), "summary_says_what_clear", "5", "12", "10", "0.60")
    WORDS(result.summary(), "loyalty_below")
    same = replace(result, label_kept=torch.ones(4, 10).double())
    WORDS.only_if(False, same.summary(), "loyalty_below")
    WORDS.ends(same.summary(), "summary_says_what_clear_2")
    equal = replace(same, word_overlap=torch.ones(4, 10).double())
    WORDS.ends(equal.summary(), "summary_says_what_clear_3")


def test_a_difference_of_shares_stays_possible():
    draws = torch.tensor([[0.6, 0.6], [1.0, 1.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    found = known(draw_loyalty=draws).difference(("first", 5, "label"), ("first", 5, "random"))
    assert found.low == -1.0  # draws that differ so much would give -2.3


def test_spread_between_draws():
    draws = torch.tensor([[0.6, 0.6], [1.0, 1.0], [0.9, 1.0], [1.0, 1.0]], dtype=torch.float64)
    result = known(draw_loyalty=draws)
    assert "random tokens: −0.35 [−1.00, +0.38], −0.17 [−0.36, −0.02]" in result.summary()
    table = result.to_pandas()
    assert table.draw_min.tolist() == [0.6, 1.0, 0.9, 1.0]
    assert table.draw_max.tolist() == [0.6, 1.0, 1.0, 1.0]


def test_summary_without_a_comparison():
    result = known()
    alone = replace(result, windows=(("last", 5, "random"),), label_kept=result.label_kept[:1],
                    word_overlap=result.word_overlap[:1], draw_loyalty=result.draw_loyalty[:1])  # fmt: skip
    WORDS.starts(alone.summary(), "summary_without_comparison", "5", "12", "10")
    assert "minus" not in alone.summary()


def test_figure():
    shape = known().drawing()
    kinds = ("label words", "random tokens")
    assert shape.names == tuple(f"{kind}, {side} k" for side in ("first", "last") for kind in kinds)
    assert shape.nulls == (1, 3)
    assert shape.meanings == ("label", "label", "text", "text")
    assert shape.x == (5.0,)
    WORDS.exactly(shape.x_title, "figure")
    torch.testing.assert_close(
        shape.values[:4, 0], torch.tensor([0.6, 0.95, 1.0, 1.0], dtype=torch.float64)
    )
    assert not shape.panels  # none for lines that are flat
    assert shape.levels == ((0.3, "always “class 1” 0.30"), (0.7, "always “class 0” 0.70"))
    WORDS(shape.note, "figure_2", "2")
    words = known().drawing(show="word_loyalty")
    assert words.values[0, 0] == pytest.approx(0.3)
    assert words.levels == ()
    drawn = figure(shape)
    # Every point is at its number of layers: none is moved aside.
    assert {x for trace in drawn.data if trace.mode == "lines+markers" for x in trace.x} == {5.0}
    assert drawn.layout.xaxis.tickvals == (5.0,)
    assert "label words" in drawn.to_html()


def test_selections():
    """Axes of the table: tokens, side, depth; per-prompt values stay with them."""
    result = known()
    found = result.sel(tokens="label", depth=5)
    assert (found.dims, found.labels) == (("side",), (("first", "last"),))
    torch.testing.assert_close(found.values, torch.tensor([0.6, 1.0], dtype=torch.float64))
    torch.testing.assert_close(found.per_prompt, result.label_kept[:2].T)
    words = result.to_xarray()["word_loyalty"]
    assert words.dims == ("prompt", "tokens", "side", "depth")
    chosen = words.sel(tokens="random", side="first", depth=5).values.tolist()
    assert chosen == result.word_overlap[2].tolist()
    assert float(result.estimates()["word_loyalty"].sel(end="high").max()) == pytest.approx(
        0.5918, abs=1e-4
    )


def test_windows_that_were_not_run_are_blank():
    result = known()
    some = [0, 3]
    odd = replace(
        result, windows=tuple(result.windows[i] for i in some), label_kept=result.label_kept[some],
        word_overlap=result.word_overlap[some], draw_loyalty=result.draw_loyalty[some],
    )  # fmt: skip
    whole, table = result.to_pandas(), odd.to_pandas()
    assert_frame_equal(table.iloc[some], whole.iloc[some], rtol=1e-12)
    assert bool(table.iloc[[1, 2]].drop(columns=["tokens", "side", "depth"]).isna().all(axis=None))
    assert odd.loyalty(("first", 5, "label")) == result.loyalty(("first", 5, "label"))
    with WORDS.raises(ResultError, "windows_run_blank", "'last'", "5", "'label'"):
        odd.loyalty(("last", 5, "label"))
    WORDS.starts(odd.summary(), "windows_run_blank_2", "5", "12", "10")
    assert len(odd.drawing().names) == 4


def test_figures_of_a_page():
    result = known()
    (loyalty,) = [own for own in result.figures() if own.show == "label_loyalty"]
    WORDS.exactly(loyalty.question, "figures_page")
    WORDS.starts(loyalty.answer, "figures_page_2", "Not shown")
    WORDS(loyalty.answer, "figures_page_3", "0.60", "[0.31, 0.83]")
    assert "(difference −0.35 [−0.64, +0.004])" in loyalty.answer
    assert "(difference −0.40 [−0.69, −0.01])" in loyalty.answer


def test_what_is_not_there(unchecked):
    with WORDS.raises(ResultError, "what_there", "'first'", "3"):
        known().difference(("first", 3, "label"), ("last", 5, "label"))
    with WORDS.raises(ResultError, "what_there", "'first'", "3"):
        known().interval(side="first", depth=3, tokens="label")
    with WORDS.raises(ResultError, "what_there_2"):
        known().drawing(show="words")
    with WORDS.raises(ResultError, "what_there_3", "'word'", "'word_loyalty'"):
        known().difference(("first", 5, "label"), ("last", 5, "label"), "word")


@pytest.mark.parametrize("study", [isolation, isolation_map])
def test_round_trip(tmp_path, study):
    result = study(tiny_model("gpt2"), many(5, shared=True), draws=2)
    loaded = Result.load(result.save(tmp_path / "result"))
    assert type(loaded) is type(result)
    assert loaded.summary() == result.summary()
    assert loaded.to_pandas().equals(result.to_pandas())
    WORDS(loaded.drawing().note, "round_trip")
    assert loaded.plot().to_html() != ""

"""Isolation map: every window against single runs, blank cells, summary and figure."""

from dataclasses import replace

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import Isolate, ZeroHeads
from icl_mech.measurements import running
from icl_mech.measurements.isolation.agreement import LOYALTIES
from icl_mech.measurements.isolation.isolation import isolation
from icl_mech.measurements.isolation.isolation_map import (
    IsolationMap,
    IsolationMapResult,
    isolation_map,
)
from icl_mech.measurements.predictions import predict
from icl_mech.metrics import mean_interval
from icl_mech.plots import figure
from tests.engine.cases import ragged
from tests.margins import clear_prompts
from tests.measurements.isolation.cases import cuts_of, many
from tests.said import Words
from tests.tiny import N_LAYERS, tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


def test_map_holds_every_window(gpt2):
    middle = [Isolate([1])]
    prompts = clear_prompts(gpt2, many(20), [*cuts_of(tokens=["label"]), middle])
    found = isolation_map(gpt2, prompts, widths=[1, 2, 3])
    assert (found.widths, found.starts) == ((1, 2, 3), (0, 1, 2))
    expected_nan = torch.tensor([[False, False, False], [False, False, True], [False, True, True]])
    torch.testing.assert_close(found.values.isnan(), expected_nan)
    ends = isolation(gpt2, prompts, depths=[1, 2, 3], tokens="label")
    for row, width in enumerate(found.widths):
        for side, column in (("first", 0), ("last", N_LAYERS - width)):
            loyalty = ends.interval(side=side, depth=width, tokens="label")
            cell = [float(table[row, column]) for table in (found.values, found.low, found.high)]
            assert cell == pytest.approx(tuple(loyalty))
            place = ends.windows.index((side, width, "label"))
            torch.testing.assert_close(found.word_overlap[row, column], ends.word_overlap[place])
    moved = predict(gpt2, prompts, interventions=middle).predicted
    kept = (moved == predict(gpt2, prompts).predicted).double()
    torch.testing.assert_close(found.label_kept[0, 1], kept)
    assert 0 < float(found.values.nan_to_num(0.5).min()) < 1


def test_map_of_random_tokens_and_wider_steps(gpt2):
    cuts = [[Isolate([layer], "random", seed=seed)] for layer in (0, 2) for seed in range(3)]
    prompts = clear_prompts(gpt2, many(6), [(), *cuts])
    found = isolation_map(gpt2, prompts, widths=[1], step=2, tokens="random", draws=3)
    assert found.starts == (0, 2)
    ends = isolation(gpt2, prompts, depths=[1], tokens="random", draws=3)
    torch.testing.assert_close(found.label_kept[0], ends.label_kept)
    low = ends.interval(side="first", depth=1, tokens="random").low
    assert float(found.low[0, 0]) == pytest.approx(low)


def known_map():
    kept = torch.ones(2, 3, 4).double()
    kept[1, 1, :3] = 0.0
    kept[1, 2] = torch.nan
    values = kept.mean(-1)
    return IsolationMapResult(
        widths=(1, 2), starts=(0, 1, 2), values=values, low=values / 2, high=values,
        label_kept=kept, word_overlap=kept, predicted=torch.tensor([0, 1, 1, 0]), tokens="label",
    )  # fmt: skip


def single_layers(*kept):
    """A map of windows of one layer, by the answers kept in each."""
    rows = torch.tensor([kept]).double()
    values = rows.mean(-1)
    return replace(
        known_map(), widths=(1,), starts=tuple(range(len(kept))), values=values, low=values,
        high=values, label_kept=rows, word_overlap=rows,
        predicted=torch.zeros(rows.shape[-1], dtype=torch.long),
    )  # fmt: skip


def test_map_summary_table_and_figure():
    result = known_map()
    WORDS.starts(result.summary(), "map_summary_table_figure", "0.25", "[0.12, 0.25]")
    table = result.to_pandas()
    assert len(table) == 6
    assert int(table.label_loyalty.isna().sum()) == 1  # beyond the last layer
    assert list(table.columns[-3:]) == ["tokens", "low", "high"]
    assert table[(table.width == 2) & (table.start == 1)].label_loyalty.item() == 0.25
    shape = result.drawing()
    assert (shape.first, shape.last, shape.n_layers) == ((0, 1, 2, 0, 1), (0, 1, 2, 1, 2), 3)
    assert shape.names == ("label loyalty", "word loyalty")
    assert shape.values.tolist() == [[1.0, 1.0, 1.0, 1.0, 0.25]] * 2
    assert (float(shape.low[0, 4]), float(shape.low[1, 4])) == (
        0.125,
        pytest.approx(0.0456, abs=1e-4),
    )
    label_levels, word_levels = shape.levels
    assert [height for height, _ in label_levels] == [0.5]
    assert word_levels == ()
    drawn = figure(shape)
    bars = [one for one in drawn.layout.shapes if one.type == "line" and one.y0 == one.y1 == 0.25]
    assert [(round(one.x0), round(one.x1)) for one in bars] == [(1, 2), (1, 2)]
    heads = [one.text for one in drawn.layout.annotations]
    WORDS(heads, "map_summary_table_figure_2", "2")
    WORDS(drawn.to_html(), "map_summary_table_figure_3")
    words = result.drawing(show="word_loyalty")
    assert (words.names, words.values.tolist()) == (("word loyalty",), shape.values[1:].tolist())
    assert {trace.name for trace in figure(words).data} == {"word loyalty"}


def test_a_page_compares_the_lowest_window_with_the_next():
    lost, some, whole = [0] * 8, [0, 0] + [1] * 6, [1] * 8
    (clear,) = single_layers(whole, lost, whole).figures()
    WORDS.exactly(clear.answer, "page_compares_lowest_window", "1", "0.00", "[0.00, 0.00]", "1.00")
    assert "8 prompts" in clear.caption
    assert "selected from 3" in clear.limits
    (unclear,) = single_layers(whole, some, whole).figures()
    WORDS.starts(unclear.answer, "page_compares_lowest_window_2", "1")
    WORDS.ends(unclear.answer, "page_compares_lowest_window_3")
    (nothing,) = single_layers(whole, whole).figures()
    WORDS.starts(nothing.answer, "page_compares_lowest_window_4", "2")
    (few,) = known_map().figures()
    WORDS.starts(
        few.answer, "page_compares_lowest_window_5", "Cannot be judged", "4", "0.25", "[0.12, 0.25]"
    )


def test_blank_cells_have_no_numbers_anywhere():
    result = known_map()
    estimates = result.estimates()
    for name in LOYALTIES:
        cells = estimates[name].sel(width=2, start=2)
        assert bool(cells.isnull().all())
        assert int(estimates[name].sel(end="value").notnull().sum()) == 5
    for show in result.shows:
        shape = result.drawing(show=show)
        assert (2, 3) not in zip(shape.first, shape.last, strict=True)
        assert bool(torch.stack([shape.values, shape.low, shape.high]).isfinite().all())
    words = result.interval("word_loyalty", width=2, start=1)
    assert tuple(words) == pytest.approx((0.25, 0.0456, 0.6994), abs=1e-4)
    assert result.interval(width=2, start=1) == (0.25, 0.125, 0.25)  # the stored ends
    assert bool(result.plot("word_loyalty").data)


def test_map_under_interventions_and_its_difference(gpt2):
    edits = [ZeroHeads([(0, 1), (1, 0)], at="all")]
    prompts = clear_prompts(gpt2, many(16), [(), *cuts_of(tokens=["label"], edits=edits)])
    plain = isolation_map(gpt2, prompts, widths=[1, 2])
    ablated = isolation_map(gpt2, prompts, widths=[1, 2], interventions=edits)
    ends = isolation(gpt2, prompts, depths=[1, 2], tokens="label", interventions=edits)
    for row, width in enumerate(ablated.widths):
        for side, column in (("first", 0), ("last", N_LAYERS - width)):
            place = ends.windows.index((side, width, "label"))
            torch.testing.assert_close(ablated.label_kept[row, column], ends.label_kept[place])
            torch.testing.assert_close(ablated.word_overlap[row, column], ends.word_overlap[place])
    assert not torch.equal(ablated.word_overlap.nan_to_num(), plain.word_overlap.nan_to_num())
    found = plain - ablated
    assert (found.name, found.dims) == ("label_loyalty", ("width", "start"))
    for row, width in enumerate(plain.widths):
        for column, start in enumerate(plain.starts[: N_LAYERS - width + 1]):
            gap = plain.label_kept[row, column] - ablated.label_kept[row, column]
            cell = found.interval(width=width, start=start)
            assert tuple(cell) == pytest.approx(tuple(mean_interval(gap, "change")), abs=1e-12)
    assert bool(found.values[1, 2].isnan() & found.low[1, 2].isnan())
    assert float(found.values.nan_to_num().abs().max()) > 0.05
    assert found.plot().data


def test_the_measurement_is_what_the_function_does(gpt2):
    prompts, options = many(6), {"widths": [2, 1], "step": 2, "mode": "zero"}
    alone = isolation_map(gpt2, prompts, **options)
    found = icl.measure(gpt2, prompts, IsolationMap(**options)).isolation_map
    assert torch.equal(found.label_kept.nan_to_num(), alone.label_kept.nan_to_num())
    assert found.provenance == {**alone.provenance, "date": found.provenance["date"]}
    assert alone.provenance["variants"] == {
        "mode": "zero", "redraw": "set", "draws": 5, "top_k": 5, "seed": 0,
        "widths": [1, 2], "step": 2, "tokens": "label",
    }  # fmt: skip


def test_unknown_figures(unchecked):
    with WORDS.raises(ResultError, "unknown_figures", "'word'", "'word_loyalty'"):
        known_map().drawing(show="word")


def test_refused_maps(gpt2, monkeypatch):
    monkeypatch.setattr(running, "run_variants", None)
    with WORDS.raises(RunError, "refused_maps", "5", "1", "3"):
        isolation_map(gpt2, ragged(), widths=[5])
    with pytest.raises(RunError, match="step=0"):
        isolation_map(gpt2, ragged(), step=0)

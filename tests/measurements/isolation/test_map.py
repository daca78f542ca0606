"""Isolation map: every window against single runs, blank cells, summary and figure."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import Isolate, ZeroHeads
from icl_mech.measurements import running
from icl_mech.measurements.isolation.map import IsolationMap, IsolationWindows, isolation_map
from icl_mech.measurements.isolation.windows import isolation
from icl_mech.measurements.predictions import predict
from icl_mech.metrics import mean_interval
from icl_mech.plots import figure
from tests.engine.cases import ragged
from tests.margins import clear_prompts
from tests.measurements.isolation.cases import cuts_of, many
from tests.tiny import N_LAYERS, tiny_model


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
    return IsolationMap(
        widths=(1, 2), starts=(0, 1, 2), values=values, low=values / 2, high=values,
        label_kept=kept, word_overlap=kept, predicted=torch.tensor([0, 1, 1, 0]), tokens="label",
    )  # fmt: skip


def test_map_summary_table_and_figure():
    result = known_map()
    assert result.summary().startswith(
        "label loyalty is lowest, 0.25 [0.125, 0.25], with label words isolated in layers 1 to 2 "
        "(of 5 windows;"
    )
    table = result.to_pandas()
    assert len(table) == 5
    assert table[(table.width == 2) & (table.start == 1)].label_loyalty.item() == 0.25
    shape = result.drawing()
    assert (shape.rows, shape.columns, shape.marked) == ((1, 2), (0, 1, 2), ((1, 1),))
    drawn = figure(shape)
    assert drawn.data[0].reversescale
    assert drawn.layout.yaxis.tickvals == (1, 2)
    assert drawn.layout.plot_bgcolor != "white"  # blank cells differ from light ones
    assert "isolated layers" in drawn.to_html()
    assert "first isolated layer" in figure(result.drawing(show="word_loyalty")).to_html()


def test_blank_cells_have_no_numbers_anywhere():
    result = known_map()
    estimates = result.estimates()
    for name in result.shows:
        cells = estimates[name].sel(width=2, start=2)
        assert bool(cells.isnull().all())
        assert int(estimates[name].sel(end="value").notnull().sum()) == 5
    words = result.interval("word_loyalty", width=2, start=1)
    assert tuple(words) == pytest.approx((0.25, 0.0, 0.75))
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
            assert tuple(cell) == pytest.approx(tuple(mean_interval(gap)), abs=1e-12)
    assert bool(found.values[1, 2].isnan() & found.low[1, 2].isnan())
    assert float(found.values.nan_to_num().abs().max()) > 0.05
    assert found.plot().data


def test_the_measurement_is_what_the_function_does(gpt2):
    prompts, options = many(6), {"widths": [2, 1], "step": 2, "mode": "zero"}
    alone = isolation_map(gpt2, prompts, **options)
    report = icl.measure(gpt2, prompts, IsolationWindows(**options))
    assert torch.equal(report.isolation_map.label_kept.nan_to_num(), alone.label_kept.nan_to_num())
    assert report.isolation_map.provenance == alone.provenance
    assert alone.provenance["variants"] == {
        "mode": "zero", "redraw": "set", "draws": 5, "top_k": 5, "seed": 0,
        "widths": [1, 2], "step": 2, "tokens": "label",
    }  # fmt: skip


def test_unknown_figures(unchecked):
    with pytest.raises(ResultError, match=r"show='word'. Did you mean 'word_loyalty'"):
        known_map().drawing(show="word")


def test_refused_maps(gpt2, monkeypatch):
    monkeypatch.setattr(running, "run_variants", None)
    with pytest.raises(RunError, match=r"widths=\(5,\).*between 1 and 3"):
        isolation_map(gpt2, ragged(), widths=[5])
    with pytest.raises(RunError, match="step=0"):
        isolation_map(gpt2, ragged(), step=0)

"""Averages over levels, differences, tables, drawings: against numbers made by hand."""

import math
from dataclasses import dataclass
from itertools import product

import pandas as pd
import pytest
import torch
from scipy import stats

from icl_mech._typing import Float, Tensor
from icl_mech.errors import SweepError
from icl_mech.measurements.extraction.extraction import extraction_result
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.metrics import (
    Interval,
    bootstrap_interval,
    cumulative_share,
    normalised_flow,
    over_units,
)
from icl_mech.results import Quantity, Result
from icl_mech.studies import Analysis
from icl_mech.studies.claim import Effect
from icl_mech.studies.study import quantities
from icl_mech.sweeps import Sweep
from icl_mech.sweeps.averages import DEPTHS, of_tasks
from icl_mech.sweeps.item import Item
from tests.said import Words

WORDS = Words(__file__)

SEEDS = (0, 1, 2)


def item(**dims):
    return Item(
        **{"model": "m", "task": "t", "study": "measurements", "labels": "correct",
           "false_share": None, "shots": 1, "format": "", "demonstrations": "shared", "n": 8,
           "seed": 0, "pair": False, "balanced": True, "measured": {}, "sources": {}, **dims}
    )  # fmt: skip


def made(values, **more):
    """A sweep of scores of one kind: {(task, seed): scores of prompts}."""
    items, analyses = [], {}
    for place, scores in values.items():
        own = item(**dict(zip(("task", "seed"), place, strict=True)), **more)
        items.append(own)
        analyses[own.key] = Analysis({"scores": Scores(scores=torch.tensor(scores))}, "x")
    return Sweep(items, analyses=analyses)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scores(Result):
    scores: Float[Tensor, " batch"]

    @property
    def middle(self):
        return Interval(0.6, 0.5, 0.7)


def test_student_over_seeds_by_hand():
    values = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    found = over_units(values, values - 0.01, values + 0.01)
    half = stats.t.ppf(0.975, 2) * 0.3 / math.sqrt(3)
    assert found.value == pytest.approx(0.5)
    assert (float(found.low), float(found.high)) == pytest.approx((0.5 - half, 0.5 + half))


def test_never_narrower_than_over_prompts():
    values = torch.full((4,), 0.5, dtype=torch.float64)
    found = over_units(values, values - 0.2, values + 0.4)
    assert (float(found.low), float(found.high)) == pytest.approx((0.4, 0.7))
    one = over_units(values[:1], values[:1] - 0.2, values[:1] + 0.4)
    assert (float(one.low), float(one.high)) == pytest.approx((0.3, 0.9))
    spread = torch.tensor([0.0, 1.0], dtype=torch.float64)
    kept = over_units(spread, spread - 0.1, spread + 0.1, sampled=False)
    assert float(kept.high) == pytest.approx(0.5 + 0.1 * math.sqrt(2) / 2)


def test_ends_that_are_unknown_are_no_width_of_zero():
    """A unit without an interval says nothing of its prompts; it must not pass for a sure one."""
    unknown = torch.tensor([math.nan], dtype=torch.float64)
    one = over_units(torch.tensor([0.8]).double(), unknown, unknown)
    assert float(one.value) == pytest.approx(0.8)
    assert one.low.isnan()
    assert one.high.isnan()
    values = torch.tensor([0.6, 0.6, 0.6]).double()
    low = torch.tensor([0.4, math.nan, 0.4]).double()
    found = over_units(values, low, 1.2 - low)  # as wide as if all three had ends
    assert float(found.high) == pytest.approx(0.6 + 0.2 / math.sqrt(3))
    just_these = over_units(values, low, 1.2 - low, sampled=False)
    assert bool(torch.stack(just_these[1:]).isnan().all())
    none = over_units(values, values * math.nan, values * math.nan)
    assert bool(torch.stack(none[1:]).isnan().all())
    spread = torch.tensor([0.2, 0.5, 0.8]).double()
    found = over_units(spread, spread * math.nan, spread * math.nan)
    half = stats.t.ppf(0.975, 2) * 0.3 / math.sqrt(3)
    assert float(found.high) == pytest.approx(0.5 + half)
    # A share f of the pool: the spread, if all of it is that of queries, leaves f / (1 - f) of itself.
    found = over_units(spread, spread * math.nan, spread * math.nan, drawn=0.5)
    assert float(found.high) == pytest.approx(0.5 + half * 2)


def test_shared_queries_by_hand():
    """Four seeds that draw 64 % of the pool: their own half-widths shrink to 0.8 of themselves at most."""
    values = torch.full((4,), 0.5, dtype=torch.float64)
    found = over_units(values, values - 0.2, values + 0.1, drawn=0.64)
    below, above = (half * math.sqrt(0.36 / 4 + 0.64) for half in (0.2, 0.1))
    assert (float(found.low), float(found.high)) == pytest.approx((0.5 - below, 0.5 + above))
    spread = torch.tensor([0.2, 0.8]).double()
    found = over_units(spread, spread - 0.1, spread + 0.1, drawn=0.64)
    between = stats.t.ppf(0.975, 1) * 0.3
    assert float(found.high) == pytest.approx(0.5 + math.hypot(between, 0.08))
    kept = over_units(spread, spread - 0.1, spread + 0.1, sampled=False, drawn=1.0)
    assert float(kept.high) == pytest.approx(0.6)  # all seeds ask all there is: no more than one


def test_a_sweep_knows_which_share_of_the_queries_seeds_draw():
    values = {("t", seed): [0.5 + seed / 100] * 7 + [0.9] for seed in SEEDS}
    free, pool = made(values), made(values)
    for analysis in pool._analyses.values():
        origin = {"model": {"name": "m"}, "prompts": {"pool": 10, "count": 8}}
        analysis.results["scores"].provenance.update(origin)
    (reading, *_) = pool.readings("scores.scores")
    assert reading.drawn == 0.8
    assert free.readings("scores.scores")[0].drawn == 0.0
    (own,) = pool.average("scores.scores").cells
    readings = pool.readings("scores.scores")
    ends = [torch.stack([getattr(o, side) for o in readings]) for side in ("value", "low", "high")]
    assert (own.value, own.low, own.high) == over_units(*ends, drawn=0.8)
    (before,) = free.average("scores.scores").cells
    assert float(own.high - own.low) > 1.2 * float(before.high - before.low)


@dataclass(frozen=True)
class Counted(Effect):
    """An effect that knows its own number of prompts."""

    def count(self, run):
        return 4


def test_an_effect_may_say_how_many_prompts_it_rests_on():
    """Of a test half the item's number is twice too many."""
    sweep = made({("t", seed): [0.5, 0.7] * 4 for seed in SEEDS})

    def half(run):
        return Interval(0.6, 0.5, 0.7)

    assert sweep.readings(half)[0].prompts == 8
    assert sweep.readings(Effect("half", half))[0].prompts == 8
    assert [own.prompts for own in sweep.readings(Counted("half", half))] == [4, 4, 4]
    assert sweep.average(Counted("half", half)).cells[0].prompts == 4


def test_what_is_known_of_a_number_says_on_how_many_prompts_it_rests():
    sweep = made({("t", 0): [0.5, 0.7] * 4})
    (own,) = sweep.readings(lambda run: run["scores"].sel())
    assert own.prompts == 8
    (own,) = sweep.readings(lambda run: halved(run["scores"]).sel())
    assert own.prompts == 3
    for result in (run["scores"] for _, run in sweep):
        result.provenance["prompts"] = {"count": 5}
    assert sweep.readings("scores.middle")[0].prompts == 5


def halved(scores):
    return Scores(scores=scores.scores[:3])


def test_a_number_alone_has_no_interval():
    sweep = made({("t", 0): [0.5, 0.7] * 4})
    (cell,) = sweep.average(lambda run: 0.8).cells
    assert float(cell.value) == 0.8
    assert cell.low.isnan()
    assert cell.high.isnan()


def test_a_unit_without_a_value_leaves_the_mean_undefined():
    """A mean over the other seeds would pass for one over all."""
    values = torch.tensor([[0.2, 0.2], [0.6, torch.nan]]).double()
    found = over_units(values, values, values)
    assert float(found.value[0]) == pytest.approx(0.4)
    assert float(found.high[0]) == pytest.approx(0.4 + stats.t.ppf(0.975, 1) * 0.2)
    assert bool(torch.stack(found)[:, 1].isnan().all())


def test_auc_is_averaged_over_tasks_before_it_is_summed():
    """Of two independent samples; every task counts alike."""
    results = {}
    for task, n in (("a", 40), ("b", 30)):
        truth = torch.arange(n) % 2
        attention = torch.rand(n, 6, 2, generator=torch.Generator().manual_seed(n))
        attention[torch.arange(n), 3:, truth] += 0.5
        results[task] = extraction_result(attention, truth, ("yes", "no"))
    plan = {task: item(task=task) for task in results}
    analyses = {plan[task].key: Analysis({"extraction": own}, "x") for task, own in results.items()}
    sweep = Sweep(list(plan.values()), analyses=analyses)
    (cell,) = sweep.average("extraction.auc", over="task", fixed="task").cells
    one, other = results.values()
    mean = (one.auc + other.auc) / 2
    assert torch.allclose(cell.value, mean, rtol=0, atol=1e-12)
    widths = [one.auc_high - one.auc_low, other.auc_high - other.auc_low, cell.high - cell.low]
    together = (widths[0] ** 2 + widths[1] ** 2).sqrt() / 2
    assert torch.allclose(widths[2], together, rtol=0.15, atol=0.01)
    shares = cumulative_share(cell.value)
    assert torch.allclose(shares, (mean - 0.5).cumsum(0) / (mean - 0.5).sum(), rtol=0, atol=1e-12)
    assert float((shares - (one.cumulative + other.cumulative) / 2).abs().max()) > 1e-4


def test_tasks_first_then_seeds():
    values = {
        (task, seed): [base + seed / 10] * 8
        for task, base in (("a", 0.1), ("b", 0.5))
        for seed in SEEDS
    }
    sweep = made(values)
    found = sweep.average("scores.scores", ("seed", "task"))
    assert found.over == ("task", "seed")
    (cell,) = found.cells
    assert float(cell.value) == pytest.approx(0.4)
    assert cell.points.tolist() == pytest.approx([0.2, 0.6])
    assert cell.units == ("a", "b")
    WORDS.exactly(found.basis(cell), "tasks_first_then_seeds", "2", "3", "8")
    half = stats.t.ppf(0.975, 1) * torch.tensor([0.2, 0.6]).double().std() / math.sqrt(2)
    assert float(cell.high - cell.value) == pytest.approx(float(half))
    fixed = sweep.average("scores.scores", ("seed", "task"), fixed="task").cells[0]
    own = stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3)
    assert float(fixed.high - fixed.value) == pytest.approx(own / math.sqrt(2))
    by_task = sweep.average("scores.scores")
    assert [cell.dims["task"] for cell in by_task.cells] == ["a", "b"]
    assert by_task.varied == ("task",)
    assert by_task.one(task="b").counts == {"seed": 3}
    with WORDS.raises(SweepError, "tasks_first_then_seeds_2"):
        by_task.one()


def test_differences_are_paired_over_prompts():
    noise = torch.linspace(0, 1, 16).tolist()
    one = made({("a", 0): noise}, labels="correct")
    two = made({("a", 0): [x + 0.1 for x in noise]}, labels="permuted")
    both = Sweep([*one.plan, *two.plan], analyses={**one._analyses, **two._analyses})
    found = both.average("scores.scores", minus={"labels": "correct"}).cells[0]
    assert float(found.value) == pytest.approx(0.1, abs=1e-6)
    assert float(found.high - found.low) < 1e-6  # every prompt changes alike
    assert found.dims["labels"] == "permuted"
    with WORDS.raises(SweepError, "differences_paired_over_prompts"):
        both.average("scores.scores", minus={"labels": "random"})
    with WORDS.raises(SweepError, "differences_paired_over_prompts_2"):
        one.average("scores.scores", minus={"labels": "correct"})
    # Other tasks have other queries.
    tasks = made({("a", 0): noise, ("b", 0): [x + 0.1 for x in noise]})
    wide = tasks.average("scores.scores", minus={"task": "a"}).cells[0]
    assert float(wide.high - wide.low) > 0.2


def test_functions_of_an_analysis():
    sweep = made({("a", 0): [0.25] * 4, ("a", 1): [0.75] * 4})

    def half(analysis):
        return Interval(float(analysis.scores.scores.mean()) / 2, 0.0, 1.0)

    assert float(sweep.average(half).cells[0].value) == pytest.approx(0.25)
    assert sweep.average(lambda a: 1.5, name="one").name == "one"
    with WORDS.raises(SweepError, "functions_analysis"):
        sweep.average(lambda a: "x")
    with WORDS.raises(SweepError, "functions_analysis_2", "2"):
        sweep.average(lambda a: a.flow.difference("first"))


@pytest.mark.parametrize(
    ("quantity", "options", "message"),
    [
        ("score.scores", {}, "scores"),
        ("scores.score", {}, "scores"),
        ("scores.scores", {"over": "seeds"}, "seed"),
        ("scores.scores", {"layer": 3}, "layer"),
        ("scores.scores", {"task": "b"}, "task=b"),
        ("scores.scores", {"over": ()}, ""),
        (3, {}, "quantity 3"),
    ],
)
def test_what_cannot_be_averaged(quantity, options, message):
    sweep = made({("a", 0): [0.5] * 4})
    if not message:
        assert len(sweep.average(quantity, **options).cells) == 1
        return
    with WORDS.raises(SweepError, message):
        sweep.average(quantity, **options)


# --- along layers ---


def flows(layers=6, models=("m",), tasks=("a",), seeds=SEEDS):
    items, analyses = [], {}
    for model in models:
        for task in tasks:
            for seed in seeds:
                own = item(model=model, task=task, seed=seed)
                generator = torch.Generator().manual_seed(seed + 10 * len(model))
                size = layers + 4 * (model != models[0])
                values = torch.rand(8, 3, size, generator=generator, dtype=torch.float64)
                items.append(own)
                analyses[own.key] = Analysis({"flow": flow_of(values)}, "x")
    return Sweep(items, analyses=analyses)


def flow_of(values):
    low, high = bootstrap_interval(values, normalised_flow)
    return FlowScores(per_prompt=values, values=normalised_flow(values.mean(0)), low=low, high=high)


def test_along_axes():
    sweep = flows()
    found = sweep.average("flow.values", score="wp")
    assert found.axes == ("layer",)
    own = torch.stack([a.flow.values[0] for _, a in sweep])
    assert torch.allclose(found.cells[0].value, own.mean(0))
    table = found.to_pandas()
    assert list(table.columns) == [
        "quantity", "model", "task", "layer", "value", "low", "high", "seeds", "prompts", "items",
        "points",
    ]  # fmt: skip
    assert len(table) == 6
    assert table.points[2] == pytest.approx(own[:, 2].tolist())
    assert bool(((table.low >= 0) & (table.high <= 1)).all())
    many = flows(seeds=range(5)).average("flow.values", score="wp").to_pandas()
    assert "points" not in many.columns


def test_models_of_other_depths_share_an_axis():
    sweep = flows(models=("m", "deeper"))
    found = sweep.average("flow.values", score="wp")
    assert found.axes == ("depth",)
    assert found.labels == (DEPTHS,)
    whole = sweep.average("flow.values", ("model", "seed"), score="wp")
    WORDS.exactly(whole.basis(whole.cells[0]), "models_other_depths_share", "2", "3", "8")
    first = flows().average("flow.values", score="wp", relative=True).cells[0].value
    plain = flows().average("flow.values", score="wp").cells[0].value
    assert float(first[0]) == pytest.approx(float(plain[0]))
    assert float(first[-1]) == pytest.approx(float(plain[-1]))
    assert float(first[4]) == pytest.approx(float(plain[1]))  # a fifth of the depth
    with pytest.raises(SweepError, match="has \\[0, 1"):
        sweep.average("flow.values", score="wp", relative=False)


def test_tables_of_papers():
    latex = flows(tasks=("a_b", "c")).average("flow.values", layer=0).to_latex("score", digits=2)
    lines = latex.splitlines()
    assert lines[0] == r"\begin{tabular}{lccc}"
    WORDS.exactly(lines[2], "tables_papers")
    assert lines[4].startswith(r"a\_b & $0.")
    assert lines[-1].endswith("3 seeds × 8 prompts.")
    assert latex.count("scriptsize") == 6
    with pytest.raises(SweepError, match="columns='seed'"):
        flows().average("flow.values").to_latex("seed")
    csv = flows().average("flow.values").to_csv()
    assert len(csv.splitlines()) == 1 + 3 * 6


def test_drawings():
    sweep = flows(tasks=("a", "b"))
    shape = sweep.average("flow.values").drawing()
    assert [panel.title for panel in shape.panels] == ["a", "b"]
    assert shape.names == ("S_wp", "S_pq", "S_ww") * 2
    assert shape.meanings == ("text", "label", "other") * 2
    assert "3 seeds × 8 prompts" in shape.note
    WORDS(shape.note, "drawings")
    assert len(shape.spread) == 6 * 3
    figure = sweep.plot("flow.values")
    assert sum(trace.mode == "markers" for trace in figure.data) == 18
    bars = sweep.average("flow.values", score="wp", layer=2).drawing()
    assert bars.groups == ("a", "b")
    assert len(bars.spread) == 2
    with pytest.raises(SweepError, match="panels='seed'"):
        sweep.plot("flow.values", panels="seed")


def test_doses_run_across():
    items, analyses = [], {}
    for share in (0.2, 0.6, 1.0):
        for seed in SEEDS:
            own = item(labels="permuted", false_share=share, seed=seed)
            items.append(own)
            analyses[own.key] = Analysis({"scores": Scores(scores=torch.full((8,), share))}, "x")
    shape = Sweep(items, analyses=analyses).average("scores.scores").drawing()
    assert shape.x == (0.2, 0.6, 1.0)
    WORDS.exactly(shape.x_title, "doses_run_across")
    assert shape.values[0].tolist() == pytest.approx([0.2, 0.6, 1.0])


def test_names_of_the_papers_are_quantities():
    sweep = flows()
    found = sweep.average("early flow")
    own = [a.flow.difference("first").value for _, a in sweep]
    assert float(found.cells[0].value) == pytest.approx(sum(own) / 3)
    assert found.name == "early flow"
    assert "mean flow" in quantities()
    assert sweep.average("mean flow").name == "mean flow"


def test_selecting_and_looking():
    sweep = flows(tasks=("a", "b"))
    assert len(sweep.select(task="b", seed=[0, 2])) == 2
    assert isinstance(sweep.items, pd.DataFrame)
    WORDS(repr(sweep), "selecting_looking", "6", "2", "3")
    with WORDS.raises(SweepError, "selecting_looking_2", "'task'"):
        sweep.select(tasks="a")
    with WORDS.raises(SweepError, "selecting_looking_3", "'x'"):
        sweep.analysis("x")


def test_items_are_counted_as_a_product_only_where_they_are_one():
    paired = {"correct": "shared", "permuted": "per_prompt"}
    plan = [
        item(task=task, labels=labels, demonstrations=how, seed=seed)
        for task, seed in product("ab", (0, 1))
        for labels, how in paired.items()
    ]
    WORDS(Sweep(plan).summary(), "items_counted_product_only", "8", "2")
    WORDS(Sweep(plan[1:]).summary(), "items_counted_product_only_2", "7", "2")
    WORDS(Sweep(plan[:1]).summary(), "items_counted_product_only_3", "1")


def test_points_are_those_of_the_first_level_with_several():
    found = flows().average("flow.values", ("task", "seed"), score="wp", layer=1)
    (cell,) = found.cells
    assert cell.units == SEEDS
    plain = flows().average("flow.values", "seed", score="wp", layer=1).cells[0]
    assert cell.points.tolist() == plain.points.tolist()
    assert (float(cell.low), float(cell.high)) == (float(plain.low), float(plain.high))
    WORDS(found.drawing().note, "points_first_level_several")


def test_ends_are_cut_only_where_all_values_lie_between_them():
    class Share(Scores):
        def quantities(self):
            return {"part": Quantity((), self.scores, unit="share of its sum")}

    for values, cut in (((0.1, 0.9), True), ((0.1, 1.4), False)):
        sweep = made({("a", seed): [value] * 4 for seed, value in enumerate(values)})
        for key, analysis in sweep._analyses.items():
            sweep._analyses[key] = Analysis({"s": Share(scores=analysis.scores.scores)}, "x")
        cell = sweep.average("s.part").cells[0]
        assert (float(cell.high) == 1.0) is cut
        assert (float(cell.low) == 0.0) is cut


def test_settings_of_tasks_are_no_items_that_are_lacking():
    one, other = made({("a", 0): [0.0] * 8, ("a", 1): [1.0] * 8}), made({("b", 0): [1.0] * 8}, n=9)
    analyses = {item.key: analysis for part in (one, other) for item, analysis in part}
    whole = Sweep([*one.plan, *other.plan], analyses=analyses)
    assert of_tasks(whole.plan) == ["n"]
    assert of_tasks(one.plan) == []
    assert of_tasks([item(task="a"), item(task="b"), item(task="b", n=9)]) == []  # both have n = 8
    cell = (found := whole.average("scores.scores", ("task", "n", "seed"))).one()
    assert float(cell.value) == pytest.approx(0.75)  # of tasks, not of items
    WORDS.exactly(found.basis(cell), "settings_tasks_no_items", "2", "8", "3", "4")

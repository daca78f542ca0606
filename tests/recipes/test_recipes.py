"""Recipes: read and checked, run and gone on with, beside published numbers."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from icl_mech.errors import SweepError, TaskError
from icl_mech.measurements import Predict
from icl_mech.models import known_models
from icl_mech.recipes import recipe, recipes, reproduce, shown_in_papers
from icl_mech.recipes.comparing import INSIDE
from icl_mech.recipes.recipe import MEAN
from icl_mech.recipes.reproducing import _grids
from icl_mech.recipes.table import laid_out
from icl_mech.studies import published
from icl_mech.tasks import known_tasks
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

ROWS = [
    *(f"a fine film, number {i},Positive" for i in range(12)),
    *(f"a dull plot, number {i},Negative" for i in range(12)),
]
OWN = """
title: Accuracy of films
paper: label_words
place: table 9
measures: Accuracy.
models: [gpt2-xl]
sweep:
  tasks:
    films: {{path: films.csv, template: "Review: {{text}}\\nSentiment: {{label}}", labels: [Negative, Positive]}}
    plots: {{path: films.csv, template: "Plot: {{text}}\\nSentiment: {{label}}", labels: [Negative, Positive]}}
  measurements: [compare_compression: {{methods: [hidden_anchor]}}]
  seeds: 0-1
  n: 1000
least: 4
offline:
  tasks: {{films: reviews}}
numbers:
  - name: accuracy
    quantity: compare_compression.full_accuracy
    percent: true
    published: {{gpt2-xl: {{films: {films}, mean: {mean}}}}}
  - name: label loyalty
    quantity: compare_compression.label_loyalty
    at: {{method: hidden_anchor}}
"""


def written(folder, films=50.0, mean=50.0, more=""):
    with (folder / "films.csv").open("w") as file:
        file.write(
            "\n".join(
                ["a,text,label", *(f"0,{row.replace(', number', ' number')}" for row in ROWS)]
            )
        )
    path = folder / "own.yaml"
    path.write_text(OWN.format(films=films, mean=mean) + more)
    return path


# --- those of the package ---


RECIPES = recipes()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_what_is_there(name):
    own = RECIPES[name]
    assert own.name == name
    loadable = {*own.models} & {known.name for known in known_models()}
    assert loadable == (set() if own.unnamed else {*own.models})
    known = {task.name: task.offline for task in known_tasks()}
    if isinstance(own.sweep.get("tasks"), dict):  # texts of its own
        known |= dict.fromkeys(own.sweep["tasks"], True)
    assert {*own.tasks} <= {*known}
    assert {*own.offline["tasks"]} <= {*own.tasks}
    assert all(known[task] for task in own.offline["tasks"].values())
    assert own.notes
    assert all(len(number.name) < 90 for number in own.numbers)
    assert len({number.name for number in own.numbers}) == len(own.numbers)
    places = [(number.row, number.column, number.along) for number in own.numbers]
    assert all(places.count(place) == 1 for place in places if any(place))


def test_heads_are_scored_on_the_task_of_the_table():
    """By default the overthinking study chooses heads on another task than the one it is run on."""
    for name, own in RECIPES.items():
        if own.sweep.get("study") == "overthinking":
            assert own.sweep["heads_from"] == "unnatural", name


def test_every_recipe_stands_in_the_list_of_the_papers_and_the_rest_says_why():
    shown = shown_in_papers()
    assert {own["recipe"] for own in shown if "recipe" in own} == {*RECIPES}
    assert all(("recipe" in own) != ("why" in own) for own in shown)
    assert {*map(frozenset, shown)} <= {
        frozenset({"paper", "place", "what", last}) for last in ("recipe", "why")
    }


def numbers(name):
    return {number.name: number.published for number in RECIPES[name].numbers}


def test_published_numbers_are_those_that_studies_show():
    first, second = numbers("lw-table-1"), numbers("lw-table-2")
    assert (*first["accuracy, re-weighted"]["gpt2-xl"].values(),)[:4] == published.REWEIGHTING[
        "anchor re-weighting"
    ]
    for model, key in (("gpt2-xl", "gpt2-xl"), ("gpt-j-6b", "gpt-j")):
        assert second["accuracy, full demonstrations"][model][MEAN] == published.FULL_ACCURACY[key]
        assert (
            second["word loyalty, Hidden_anchor"][model][MEAN]
            == published.COMPRESSION[key]["hidden_anchor"].word_loyalty
        )
    heads = numbers("ot-heads")
    removed = heads["calibrated accuracy, false, heads removed"]["gpt-j-6b"]
    for task, own in published.HEAD_ABLATION.items():
        name = f"ot-{task}" if task in ("sst2", "agnews", "trec") else task
        assert removed[name] == pytest.approx(own.ablated_false, abs=0.006)
    gap = heads["share of the gap that closes, ratio of means"]["gpt-j-6b"][MEAN]
    assert gap == published.GAP_REDUCTION["ratio_of_means"]
    settings = numbers("ot-settings")
    for kind, own in published.GAP.items():
        assert settings[f"gap, {kind.replace('_', ' ')} labels"]["gpt-j-6b"][MEAN] == pytest.approx(
            own, abs=0.006
        )


def test_means_are_those_of_the_tasks():
    for name, own in RECIPES.items():
        for number in own.numbers:
            for tasks in number.published.values():
                if len(tasks) == len(own.tasks) + 1 and name != "ot-late-components":
                    mean = sum(value for task, value in tasks.items() if task != MEAN) / len(
                        own.tasks
                    )
                    assert tasks[MEAN] == pytest.approx(mean, abs=0.02), (name, number.name)


# --- what is refused ---


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ("title:", "titel:", "titel title"),
        ("place: table 9\n", "", "no place"),
        ("paper: label_words", "paper: label_word", "label_word label_words"),
        ("    percent: true", "    percents: true", "percents percent"),
        ("percent: true", "percent: 7", "percent=7"),
        ("compression.full_accuracy", "compressoin.full_accuracy", "compare_compression"),
        ("films: 50.0", "film: 50.0", "film films"),
        ("published: {gpt2-xl", "published: {gpt2", "gpt2 gpt2-xl"),
        ("films: 50.0", "films: half", "published half"),
        ("hidden_anchor]", "hidden_ancor]", "hidden_anchor"),
        ("  seeds: 0-1", "  seed: 0-1", "seed seeds"),
        ("n: 1000", "n: [10, 20]", "n=[10, 20]"),
        ("{films: reviews}", "{film: reviews}", "offline film"),
        ("least: 4", "least: 4\ngrids: [{measurements: [flow]}]", "measurements of grids"),
        ("numbers:\n", "numbers: 3\nnotes:\n", "numbers=3"),
        ("quantity: compare_compression.full", "along: label\n    quantity: compare_compression.full", "along and published"),
        ("least: 4", "least: 4\nshow: [flaw]", "show flaw"),
        ("title: Accuracy of films", "- a", "no YAML"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_recipe_is_refused_in_words(was, now, message, tmp_path):
    path = written(tmp_path)
    text = path.read_text()
    assert text.replace(was, now, 1) != text
    path.write_text(text.replace(was, now, 1))
    with WORDS.raises(SweepError, message):
        recipe(path)


def test_names_models_and_scales_are_refused_before_anything_runs(tmp_path):
    with WORDS.raises(SweepError, "names_models_scales_refused", "'lw-table-9'"):
        reproduce("lw-table-9", "gpt2", out=tmp_path / "x")
    with WORDS.raises(SweepError, "names_models_scales_refused_2", "No", "'all'", "2", "'offline'"):
        reproduce("lw-table-1", out=tmp_path / "x")
    with WORDS.raises(SweepError, "all_but_unnamed", "'all'"):
        reproduce("ot-tuned", "all", tasks="offline", out=tmp_path / "x")
    with WORDS.raises(SweepError, "names_models_scales_refused_3", "2.0"):
        reproduce("lw-table-1", "gpt2", scale=2.0, out=tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_without_the_hub_the_way_out_is_named(tmp_path, monkeypatch):
    def unreachable(*_):
        raise TaskError("No connection.")

    monkeypatch.setattr("icl_mech.recipes.reproducing.task_sources", unreachable)
    with WORDS.raises(TaskError, "without_hub_way_out", "No", "'offline'"):
        reproduce("lw-table-1", "gpt2", out=tmp_path / "x")


# --- what is run ---


def grids(tmp_path, tasks, scale, more=""):
    return list(_grids(recipe(written(tmp_path, more=more)), tasks, scale))


def test_scale_takes_fewer_prompts_and_seeds_but_as_many_as_an_item_needs(tmp_path):
    (whole,) = grids(tmp_path, None, 1.0)
    assert [*whole["tasks"]] == ["films", "plots"]
    assert (whole["seeds"], whole["measurements"][0].methods) == ([0, 1], ("hidden_anchor",))
    there = whole["n"]
    assert 4 < there < 24  # not 1000: as many as the file gives
    (half,) = grids(tmp_path, None, 0.5)
    assert (half["n"], half["seeds"]) == (round(there / 2), [0])
    assert grids(tmp_path, None, 0.01)[0]["n"] == 4


def test_offline_tasks_take_the_place_of_those_they_stand_for(tmp_path):
    more = "grids: [{shots: 1}, {shots: 2, tasks: [films]}]\n"
    found = [(g["shots"], [*g["tasks"]], g["n"]) for g in grids(tmp_path, "offline", 0.1, more)]
    assert found == [(1, ["reviews"], 14), (2, ["reviews"], 14)]
    assert [[*g["tasks"]] for g in grids(tmp_path, "headlines", 1.0)] == [["headlines"]]


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def run(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipe")
    return reproduce(written(folder), {"gpt2-xl": model}, out=folder / "run", progress=False)


def test_own_values_are_averages_of_the_sweep(run):
    assert run.sweep.items.state.tolist() == ["done"] * 4
    first, mean, loyalty = run.rows
    assert [(row.number.name, row.task) for row in run.rows] == [
        ("accuracy", "films"), ("accuracy", MEAN), ("label loyalty", MEAN),
    ]  # fmt: skip
    here = run.sweep.average("compare_compression.full_accuracy", "seed", task="films").one()
    assert first.own.value == pytest.approx(100 * float(here.value))
    # The mean is of just these tasks: their spread is no part of its interval.
    whole = run.sweep.average(
        "compare_compression.full_accuracy", ("task", "seed"), fixed="task"
    ).one()
    assert mean.own.value == pytest.approx(100 * float(whole.value))
    assert mean.own.low == pytest.approx(100 * float(whole.low), abs=1e-6)
    assert mean.basis.startswith("2 tasks")
    own = run.sweep.average(
        "compare_compression.label_loyalty", ("task", "seed"), fixed="task", method="hidden_anchor"
    )
    assert loyalty.own.value == pytest.approx(float(own.one().value))  # no percentage
    WORDS.exactly(loyalty.why, "paper_gives_no_number")


def test_what_is_left_to_run_is_forecast_and_nothing_is_written(run, model, tmp_path):
    path = written(tmp_path)
    found = reproduce(path, {"gpt2-xl": model}, out=tmp_path / "run", plan=True, progress=False)
    # Items that differ in their seed alone are one row.
    assert sorted(found.to_pandas()["items"]) == [2, 2]
    assert found.fits
    assert not (tmp_path / "run").exists()
    out = run.sweep.folder
    again = reproduce(path, {"gpt2-xl": model}, out=out, resume=True, plan=True, progress=False)
    assert sum(again.items[0].rows.values()) == 0


def edited(run, model, tmp_path, **published):
    out = run.sweep.folder
    return reproduce(
        written(tmp_path, **published), {"gpt2-xl": model}, out=out, resume=True, progress=False
    )


def test_an_edited_copy_goes_on_with_what_was_measured(run, model, tmp_path, monkeypatch):
    def measured(*_, **__):
        pytest.fail("an item was measured again")

    monkeypatch.setattr("icl_mech.sweeps.work.measure", measured)
    own = run.rows[0].own
    found = edited(run, model, tmp_path, films=own.value, mean=own.value + 200)
    inside, outside, _ = found.rows
    assert (inside.verdict, inside.difference) == (INSIDE, pytest.approx(0))
    assert outside.verdict == "differs"
    assert outside.difference == pytest.approx(run.rows[1].own.value - own.value - 200)
    WORDS(found.lead, "edited_copy_goes_what", "2", "1")
    assert f"differs by −{-outside.difference:.2f}" in found.summary()
    below = edited(run, model, tmp_path, films=own.low - 0.01, mean=own.value).rows[0]
    assert (below.verdict, below.difference > 0) == ("differs", True)


def test_a_folder_of_several_scales_is_read_at_the_one_asked_for(run, model, tmp_path):
    path, out = written(tmp_path), tmp_path / "run"
    small = reproduce(path, {"gpt2-xl": model}, out=out, scale=0.5, progress=False)
    whole = reproduce(path, {"gpt2-xl": model}, out=out, resume=True, progress=False)
    assert len(small.sweep) == 2
    (scale,) = [own.value for own in small.page().origin.facts if own.name == "Scale"]
    n = {item.n for item in small.sweep.plan}.pop()
    WORDS.exactly(scale, "folder_several_scales_read", n)
    assert [row.own for row in whole.rows] == [row.own for row in run.rows]


def test_what_is_not_the_paper_s_gets_no_difference(run, model, tmp_path):
    path = written(tmp_path)
    how = {"progress": False, "scale": 0.05}
    other = reproduce(path, {"tiny": model}, out=tmp_path / "a", **how)
    assert len(other.rows[0].why) == 2
    WORDS.exactly(other.rows[0].why, "another_model_and_one_set")
    tasks = reproduce(path, {"gpt2-xl": model}, tasks="offline", out=tmp_path / "b", **how)
    # The mean over one task is that task's.
    assert [row.task for row in tasks.rows] == ["reviews"] * 3
    assert [row.paper_task for row in tasks.rows] == ["films", MEAN, MEAN]
    assert "other tasks" in tasks.rows[0].why
    mine = reproduce(path, {"gpt2-xl": model}, tasks=["reviews"], out=tmp_path / "c", **how)
    assert {row.task for row in mine.rows} == {"reviews"}
    for found in (other, tasks, mine):
        assert all(math.isnan(row.difference) for row in found.rows)
        WORDS(found.lead, "what_paper_s_gets")
    # One seed, of demonstrations that all prompts share, says nothing of others.
    one = reproduce(path, {"gpt2-xl": model}, out=tmp_path / "d", **how)
    WORDS.exactly(one.rows[0].why, "one_set")


def test_a_mean_of_fewer_tasks_is_not_compared(run, monkeypatch):
    part = run.sweep.select()
    lost = part.plan[0]
    monkeypatch.setattr(part, "select", lambda **dims: _lacking(run.sweep.select(**dims), lost))
    found = type(run)(run.recipe, part)
    WORDS.exactly(found.rows[0].why, "one_set")  # one seed is left
    assert found.rows[1].why == ()
    monkeypatch.setattr(
        part, "select", lambda **dims: _lacking(run.sweep.select(**dims), lost.task)
    )
    found = type(run)(run.recipe, part)
    WORDS.exactly(found.rows[0].why, "no_item_finished")
    WORDS.exactly(found.rows[1].why, "fewer_tasks", "1 of 2")


def _lacking(part, lost):
    state = part.state
    part.state = lambda item: "failed" if lost in (item, item.task) else state(item)
    part.error = lambda item: "Too long; use fewer." if lost in (item, item.task) else ""
    return part


# --- the page ---


def test_the_page_holds_numbers_verdicts_notes_and_protocol(run, model, tmp_path):
    own = run.rows[0].own.value
    text = (
        edited(run, model, tmp_path, films=own, mean=own + 200)
        .to_html(tmp_path / "p.html")
        .read_text()
    )
    WORDS(text, "page_holds_numbers_verdicts", "2")
    WORDS(text, "page_holds_numbers_verdicts_2", "2023", "2305.14160", "9")
    WORDS(text, "paper_gives_no_number")
    for part in (INSIDE, "+0.00", "*: the published", "as printed", "2 tasks"):
        assert part in text, part
    frame = run.to_pandas()
    assert frame.paper.tolist()[:2] == [50.0, 50.0]
    assert {"value", "low", "high", "verdict", "over"} <= {*frame}


def test_measurements_are_those_of_the_file(tmp_path):
    path = written(tmp_path)
    path.write_text(path.read_text().replace("measurements: [", "measurements: [predict, ", 1))
    assert next(_grids(recipe(path), None, 1.0))["measurements"][0] == Predict()


def test_several_measurements_of_one_kind_have_options_of_their_own():
    (grid,) = _grids(recipe("opera"), "offline", 1.0)
    plain, beams, penalised = [own.over_trust for own in grid["measurements"]]
    assert plain is None
    assert (beams.weight, penalised.weight, penalised.threshold) == (0.0, 1.0, 15)
    assert {number.part for number in recipe("opera").numbers} == {
        "generate",
        "generate_2",
        "generate_3",
    }


def test_options_of_options_are_checked(tmp_path):
    path = tmp_path / "opera.yaml"
    path.write_text(recipe("opera").text.replace("beams: 5, weight", "beems: 5, weight", 1))
    with WORDS.raises(SweepError, "options_of_options", "'beems'", "'beams'"):
        recipe(path)


# --- the table for a paper ---


def texts_of(found):
    table, notes = laid_out(found.rows, "")
    return table.columns, table.rows, " ".join(notes)


def test_the_table_has_the_paper_s_rows_and_columns_and_says_each_reason_once(run, model, tmp_path):
    own = run.rows[0].own.value
    heads, (here, published, apart, loyalty), notes = texts_of(
        edited(run, model, tmp_path, films=own, mean=own + 200)
    )
    assert heads == ("", "", "films", "mean over tasks")
    assert [line[:2] for line in (here, published, apart)] == [
        ("accuracy", "here"), ("", "published"), ("", "difference"),
    ]  # fmt: skip
    assert here[2] == run.rows[0].here
    assert (published[2], apart[2]) == (f"{own:.2f}", "+0.00")
    assert apart[3].endswith("*")
    # The paper gives no loyalty: a letter for the reason, which a note explains.
    assert loyalty[0] == "label loyalty"
    assert loyalty[3].endswith("] (a)")
    WORDS(notes, "table_notes")
    alone = reproduce(
        written(tmp_path), {"tiny": model}, out=tmp_path / "x", scale=0.1, progress=False
    )
    notes = texts_of(alone)[2]
    for summary in (alone.summary(), alone.page().sections[0].caption, alone.to_latex()):
        assert summary.lower().count("another model") == 1
        assert summary.lower().count("one set of") == 1
    assert notes.lower().count("another model") == 1


def test_numbers_along_an_axis_are_rows_of_the_table(run):
    whole = run.recipe.numbers[1]
    numbers = [
        replace(whole, column=what, along="method", at={}, quantity=f"compare_compression.{name}")
        for what, name in (("label", "label_loyalty"), ("word", "word_loyalty"))
    ]
    found = replace(run, recipe=replace(run.recipe, numbers=numbers))
    heads, lines, _ = texts_of(found)
    assert heads == ("", "label", "word")
    assert [line[0] for line in lines] == ["hidden_anchor"]
    (line,) = found.summary().splitlines()[1:2]  # both numbers in one line
    assert line.startswith("  hidden_anchor, mean over tasks: ")
    assert line.count("[") == 2
    # The same number as with the label given.
    assert lines[0][1].split(" (")[0] == run.rows[2].here
    lost = replace(numbers[0], along="layer")
    (row,) = replace(run, recipe=replace(run.recipe, numbers=[lost])).rows
    assert row.here == "–"
    WORDS.exactly(row.why[1:], "no_single_value")


def test_the_report_shows_figures_of_the_first_run_where_the_recipe_asks(run):
    plain = [section.key for section in run.page().sections]
    shown = replace(run, recipe=replace(run.recipe, show=["compare_compression"]))
    keys = [section.key for section in shown.page().sections]
    assert {*plain} < {*keys}
    more = [own for own in shown.page().sections if own.key not in plain]
    assert all(own.key.startswith("first-compare_compression") for own in more)
    assert all(own.caption.endswith(f"{run.sweep.plan[0].title}.") for own in more)


def test_a_run_without_a_value_is_left_out_of_the_mean_and_the_dash_is_explained(run, monkeypatch):
    number = replace(run.recipe.numbers[1], at={}, undefined="it was lost")
    result = type(run.sweep.analysis(run.sweep.plan[0])["compare_compression"])
    number = replace(number, quantity="compare_compression.of_test")
    lost = ["plots"]
    monkeypatch.setattr(
        result,
        "of_test",
        property(
            lambda own: math.nan if own.provenance["prompts"]["task"]["name"] in lost else 0.5
        ),
        raising=False,
    )
    found = replace(run, recipe=replace(run.recipe, numbers=[number]))
    (row,) = found.rows
    assert row.own.value == 0.5
    WORDS.exactly(row.why, "left_out_of_mean", "2 of 4", "plots")
    # The figures' means are over the same runs.
    assert {item.task for item in row.lost} == {"plots"}
    WORDS(found.page().origin.limits, "figures_leave_out", "plots")
    frames = [own.numbers for own in found.page().sections if own.numbers is not None][1:]
    averages = [frame for frame in frames if "items" in frame]
    assert averages
    assert all({*frame["items"]} == {2} for frame in averages)
    lost.append("films")
    (row,) = (found := replace(found)).rows
    assert row.here == "–"
    WORDS.exactly(row.why, "no_value_at_all")
    (line,), notes = texts_of(found)[1:]
    assert line[-1] == "–"
    WORDS(notes, "dash_explained")


def test_the_latex_table_stands_alone_and_its_caption_says_what_it_is(run, tmp_path):
    run.to_latex(tmp_path / "table.tex")
    text = (tmp_path / "table.tex").read_text()
    assert text == run.to_latex()
    WORDS(text, "latex_caption", run.sweep.plan[0].n)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in rows} == {3}
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    begun = re.findall(r"\\begin\{([^}]+)\}", text)
    assert begun == re.findall(r"\\end\{([^}]+)\}", text)[::-1]


def test_a_value_without_spread_has_no_interval(run, monkeypatch):
    monkeypatch.setattr(type(run.sweep), "average", lambda *given, **more: Flat())
    row = replace(run).rows[0]
    assert row.here == "50.00"
    WORDS("; ".join(row.why), "value_without_spread")


class Flat:
    """An average whose ends are its value."""

    axes, labels = (), ()

    def one(self):
        half = torch.tensor(0.5)
        return SimpleNamespace(
            value=half, low=half, high=half, items=99, counts={"seed": 2, "task": 9}
        )

    def basis(self, cell):
        return "one run"

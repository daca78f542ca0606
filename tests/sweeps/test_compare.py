"""Runs side by side: claims with nested intervals, sections, the page, and the commands."""

import json
from dataclasses import replace

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import SweepError
from icl_mech.measurements import EarlyExit, Extraction, Flow, Isolation, LayerAccuracy, Predict
from icl_mech.metrics import Interval
from icl_mech.own import Claim, Effect, Study
from icl_mech.planted import planted_model, planted_task
from icl_mech.reports import Page, render_page
from icl_mech.reports.figures import drawn
from icl_mech.results.judging import judged as status_of
from icl_mech.results.judging import p_value
from icl_mech.studies.competence import QUESTION
from icl_mech.studies.facts import origin_of, task_name
from icl_mech.studies.judge import Verdict
from icl_mech.studies.study import is_own, known_studies
from icl_mech.sweeps import comparison, fixed_exit, sweep
from icl_mech.sweeps.compare import lead, matrix
from icl_mech.sweeps.item import short_names
from icl_mech.sweeps.verdicts import Judged
from tests.cli.conftest import MODEL, command  # noqa: F401 - a fixture
from tests.said import Words
from tests.sweeps.loaders import OTHER, TASK, other, tiny

WORDS = Words(__file__)

APART = "Apart: it is so"

COLUMNS = ["paper", "claim", "model", "task", "status", "quantity", "value", "low", "high"]

QUIET = {"n": 6, "progress": False}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return sweep(
        tiny, [TASK, OTHER], [Flow(), Isolation(), Extraction(), LayerAccuracy(), EarlyExit()], seeds=(0, 1),
        out=tmp_path_factory.mktemp("runs") / "s", **QUIET,
    )  # fmt: skip


IT = Claim("It: is", [Effect("e", "flow.values")])


def judged(status, claim=IT, effects=None, **how):
    """A claim of one model."""
    verdict = Verdict(claim.text, status, "found", "flow", effects=effects or {}, **how)
    return Judged("m", claim, verdict)


def test_the_claims_of_both_papers_and_of_others():
    claims = {name: study.claims for name, study in known_studies().items() if is_own(study)}
    assert {name: len(own) for name, own in claims.items()} == {
        "label_words": 6, "overthinking": 6, "causal": 8, "contextualise": 3, "anchors": 1, "default": 0,
    }  # fmt: skip
    # Each of them has effects, so that sweeps judge it as pages do.
    assert all(claim.effects for own in claims.values() for claim in own)


@pytest.mark.slow
def test_the_studies_of_the_items_pages_are_judged(found):
    label_words, overthinking = (
        known_studies()[name].source for name in ("label_words", "overthinking")
    )
    for part, papers in (
        (found, {label_words, overthinking}),
        (found.select(labels="correct"), {label_words}),
        (found.select(labels="permuted"), {overthinking}),
    ):
        assert {own.paper for own in comparison(part).judged} == papers
    # By itself, accuracy by layer is of no study: its page judges nothing, and no sweep does.
    alone = sweep(tiny, TASK, [LayerAccuracy()], **QUIET)
    assert all(not run.verdicts() for _, run in alone)
    assert comparison(alone).judged == ()
    empty = comparison(alone).to_pandas()
    assert (list(empty.columns), len(empty)) == (COLUMNS, 0)


@pytest.mark.slow
def test_claims_are_judged_by_means_over_tasks_and_seeds(found):
    by_name = {own.text.split(":")[0]: own for own in comparison(found).judged}
    of_how = {"Shallow aggregation", "Deep extraction", "Critical layer", "Overthinking"}
    assert set(by_name) == {*of_how, "Harm"}
    # This model does neither task, and what it does not do it does not do in any way.
    for name in of_how:
        assert (by_name[name].status, by_name[name].p) == ("cannot be judged", None)
        WORDS.starts(by_name[name].finding, "claims_judged_means_over_2")
    WORDS(by_name["Shallow aggregation"].finding, "claims_judged_means_over")
    harm = by_name["Harm"]
    average = found.average("final gap", ("task", "seed"), fixed="task").cells[0]
    assert harm.effects["final gap"] == pytest.approx(
        (float(average.value), float(average.low), float(average.high))
    )
    WORDS(harm.finding, "claims_judged_means_over_3", "2", "6")
    assert harm.status == status_of(harm.effects["final gap"]) == "not shown"
    WORDS(harm.finding, "claims_judged_means_over_4", "4", "2")
    assert "prompts instead" not in harm.finding
    # Two tasks with two seeds each, which stand for themselves alone.
    assert harm.p == pytest.approx(p_value(harm.effects["final gap"], prompts=4))
    table = comparison(found).to_pandas()
    assert list(table.columns) == COLUMNS
    rows = table[table.quantity == "final gap"].set_index("task")
    assert list(rows.index) == ["tiny", "other", "all tasks"]
    assert rows.loc["all tasks", "value"] == pytest.approx(harm.effects["final gap"].value)
    for task in ("tiny", "other"):
        cell = found.select(task=task).average("final gap", ("task", "seed"), fixed="task").cells[0]
        assert rows.loc[task, "value"] == pytest.approx(float(cell.value))
        assert rows.loc[task, "status"] == status_of(
            Interval(*(float(end) for end in (cell.value, cell.low, cell.high)))
        )
    alone = comparison(found.select(task="tiny"))
    assert set(alone.to_pandas().task) == {"tiny"}  # of one task there is no mean
    assert [own.tasks[TASK.name].status for own in alone.judged] == [o.status for o in alone.judged]


@pytest.mark.slow
def test_one_run_of_a_task_rests_on_its_prompts(found):
    one = comparison(found.select(task="tiny", seed=0))
    (harm,) = [own for own in one.judged if "final gap" in own.effects]
    # Two units would leave one degree of freedom, in which hardly anything is clear.
    assert harm.p == pytest.approx(p_value(harm.effects["final gap"], prompts=6))


@pytest.mark.slow
def test_single_runs_of_two_tasks_rest_on_their_prompts(found):
    two = comparison(found.select(seed=0))
    (harm,) = [own for own in two.judged if "final gap" in own.effects]
    WORDS(harm.finding, "single_runs_two_tasks", "2", "1", "6")
    assert harm.p == pytest.approx(p_value(harm.effects["final gap"], prompts=6))


def test_nothing_disagrees_with_what_cannot_be_judged():
    own, unsaid = judged("supported"), judged("cannot be judged")
    found = [replace(unsaid, tasks={"a": own, "b": unsaid}), replace(own, model="k")]
    assert "iffer" not in lead([], found)
    WORDS(
        lead([], [replace(own, tasks={"a": own, "b": judged("mixed")})]),
        "nothing_disagrees_what_cannot",
    )


def test_few_prompts_are_no_sign_of_a_model_that_answers_badly():
    known = {"e": Interval(0.3, 0.1, 0.5)}
    clear, few, none = (
        judged(status, effects=known) for status in ("supported", "cannot be judged", "not shown")
    )
    for tasks, told in (
        ({"a": few, "b": few}, "few prompts"),
        ({"a": none, "b": none}, "not shown"),
        ({"a": none, "b": few, "c": clear}, "both, m on a, m on b"),
    ):
        WORDS.starts(lead([replace(clear, tasks=tasks)], []), told)


def test_tasks_that_failed_are_no_places():
    """Nothing was found of them: neither that the model fails there, nor that a mean is of them."""
    task = planted_task()
    few = replace(task, test=task.test[:4])
    half = sweep(
        {"a": planted_model()}, {"one": task, "two": few}, [Predict(), Flow()], seeds=0, n=12, progress=False
    )  # fmt: skip
    assert len(half.failures()) == 1
    page = comparison(half).page()
    assert page.matrix.columns == (("a", ("one",)),)
    assert "two" not in page.lead


@pytest.mark.slow
def test_the_page(found, tmp_path):
    page = comparison(found).page()
    keys = [section.key for section in page.sections]
    assert keys == [
        "isolation", "layer_accuracy", "flow", "flow-tasks", "extraction", "extraction-share",
        "layer_accuracy-tasks", "early_exit", "fixed_exit",
    ]  # fmt: skip
    # The first figure of each study.
    assert [own.key for own in page.sections if own.first] == ["isolation", "layer_accuracy"]
    WORDS.exactly(page.title, "page", "2")
    text = comparison(found).to_html(tmp_path / "page.html").read_text()
    assert "hierarchical 95 % intervals" in text
    assert "2 seeds × 6 prompts" in text


@pytest.mark.slow
def test_runs_of_other_kinds_side_by_side(found, tmp_path):
    prompts = icl.build_prompts(TASK, tiny(), n=6)
    icl.measure(tiny(), prompts, Flow(), Predict(), progress=False).save(tmp_path / "one")
    both = icl.compare(found.folder, tmp_path / "one", names=["many", "single"])
    # The single one is judged by the claims of the others that its flow bears on, which it does not decide.
    single = {own.text.split(":")[0]: own.status for own in both.judged if own.model == "single"}
    assert single == dict.fromkeys(("Shallow aggregation", "Deep extraction"), "cannot be judged")
    assert {own.model for own in both.judged} == {"many", "single"}
    assert len(both.sweep) == len(found) + 1
    shape = both.sweep.average("mean flow", ("task", "seed")).drawing(panels="model")
    assert [panel.title for panel in shape.panels] == ["many", "single"]
    assert "many" in both.summary()
    one = both.sweep.average("mean flow", ("task", "seed")).one(model="single")
    assert one.counts == {"task": 1, "seed": 1}


@pytest.mark.parametrize(
    ("runs", "names", "message"),
    [
        (["x"], None, "two runs least"),
        (["x", "y"], None, "neither sweep nor"),
        ([3, 4], None, "give path"),
    ],
)
def test_what_cannot_be_compared(runs, names, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with WORDS.raises(SweepError, message):
        icl.compare(*runs, names=names)


def test_names_are_one_for_each(found):
    with WORDS.raises(SweepError, "names_each", "2"):
        icl.compare(found, found, names=["a", "a"])
    assert icl.compare(found, found).names == ("tiny (1)", "tiny (2)")


def test_runs_are_called_by_their_models_not_their_folders(tmp_path):
    prompts, places = (
        icl.build_prompts(TASK, tiny(), n=6),
        (tmp_path / "first", tmp_path / "second"),
    )
    run = icl.measure(tiny(), prompts, Flow(), progress=False)
    for place in places:
        run.save(place)
    model = run["flow"].provenance["model"]["name"]
    assert icl.compare(*places).names == (f"{model} (first)", f"{model} (second)")


def test_differences_have_the_colours_of_everywhere(found):
    prompts = icl.build_prompts(TASK, tiny(), n=6)
    flow = icl.flow_scores(tiny(), prompts, progress=False)
    assert (flow - flow).drawing().meanings == flow.drawing().meanings[:3]


# --- the matrix, and what stands before it ---


@pytest.fixture(scope="module")
def apart(found):
    """Two runs of which tasks and models disagree: the second says the opposite of one task."""

    def of(run):
        task = task_name(origin_of(run.results))
        return (
            Interval(0.3, 0.2, 0.4)
            if (task == "tiny" or id(run) in second)
            else Interval(-0.3, -0.4, -0.2)
        )

    claim = Claim(APART, [Effect("apart", of)], "predictions")
    study = Study("disagreeing", [Flow(), Predict()], [claim])
    runs = {
        name: icl.sweep(
            {"tiny": tiny()}, [TASK, OTHER], n=6, seeds=(0, 1), study=study, progress=False
        )
        for name in "ab"
    }
    second = {id(analysis) for _, analysis in runs["b"]}
    return icl.compare(*runs.values(), names=list(runs))


@pytest.mark.slow
def test_the_matrix_has_a_sign_for_every_claim_model_and_task(apart):
    page = apart.page()
    matrix = page.matrix
    assert matrix.columns == (
        ("a", ("tiny", "other", "all tasks")),
        ("b", ("tiny", "other", "all tasks")),
    )
    first, own = matrix.rows[0], matrix.rows[-1]
    assert first.claim == QUESTION  # whether the task is done stands above how it is
    assert (own.claim, own.effects) == (APART, ("apart",))
    assert [sign.status for sign in own.signs] == [
        "supported", "opposite", "mixed", "supported", "supported", "supported",
    ]  # fmt: skip
    assert own.signs[1].effects[0].startswith("−0.30 [−0.")
    table = apart.to_pandas()
    statuses = table[table.claim == own.claim].status
    assert list(statuses) == [sign.status for sign in own.signs]


def test_disagreement_is_named_before_any_mean(apart):
    page = apart.page()
    tasks, models, means = (
        page.lead.index(text)
        for text in (
            "Verdicts differ between tasks on Apart",
            "between models on Apart",
            "from means over tasks",
        )
    )
    assert page.lead.index("baseline") < tasks < models < means
    (remark,) = [own for own in page.matrix.remarks if own.startswith("**Apart**")]
    WORDS.exactly(remark, "disagreement_named_before_any")
    same = icl.compare(
        apart.sweep.select(model="b"), apart.sweep.select(model="b"), names=["c", "d"]
    )
    assert "differ" not in same.page().lead


def test_remarks_are_two_lines_at_most():
    claim = replace(IT, text="Long: it is")
    found = [
        replace(
            judged("mixed", claim, remark=f"{i}: {'a long reason ' * 6}".strip()),
            model=f"model {i}",
        )
        for i in range(5)
    ]
    (remark,) = matrix(found).remarks
    assert len(remark) < 240
    assert remark.endswith("; more below.")
    WORDS.starts(remark, "remarks_two_lines_most", "0")


def test_large_matrices_keep_intervals_to_what_sums_up():
    own = judged("supported", effects={"e": Interval(0.5, 0.25, 0.75)})

    def of(models, tasks):
        return matrix(
            [
                replace(own, model=f"m{i}", tasks={f"t{j}": own for j in range(tasks)})
                for i in range(models)
            ]
        )

    small, large = of(2, 2), of(10, 6)
    assert (small.full, large.full) == (True, False)
    assert small.ends == ["start ", "", "whole", "start ", "", "whole"]
    text = render_page(Page("t", [], matrix=large))
    assert text.count('<span class="ci">[+0.25, +0.75]</span>') == 10
    assert render_page(Page("t", [], matrix=small)).count("[+0.25, +0.75]</span>") == 6


@pytest.mark.slow
def test_the_matrix_is_a_table_that_can_be_read_aloud(apart):
    text = render_page(apart.page(), offline=False)
    table = text[text.index('<table class="claims">') :]
    table = table[: table.index("</table>")]
    assert "<caption>" in table
    assert table.count('scope="colgroup" colspan="3"') == 2
    assert table.count('scope="col"') == 6
    rows = len(apart.page().matrix.rows)
    assert (table.count('scope="rowgroup"'), table.count("<tbody>")) == (rows, rows)
    own = table[table.index("Apart") :]
    assert [
        own.count(f'<span class="unseen">{s}</span>') for s in ("supported", "opposite", "mixed")
    ] == [4, 1, 1]
    assert 'title="Apart −0.30' in own
    first = text[text.index("<header>") : text.index("</header>")]
    assert 'class="findings"' not in first  # in full they stand in the appendix
    assert 'class="findings"' in text
    WORDS(first, "matrix_table_can_read", "0")  # it scrolls by itself


# --- figures ---


@pytest.mark.slow
def test_curves_keep_their_colours_in_every_figure(found, apart):
    flow = icl.flow_scores(tiny(), icl.build_prompts(TASK, tiny(), n=6), progress=False).drawing()
    usual = dict(zip(("S_wp", "S_pq", "S_ww"), flow.meanings[:3], strict=True))
    pages = (comparison(found).page(), apart.page())
    shapes = [
        s.figure
        for page in pages
        for s in page.sections
        if s.key.startswith("flow-tasks") or s.key == "flow"
    ]
    shapes.append(apart.sweep.average("mean flow", "seed").drawing(panels="task"))
    assert len(shapes) == 5
    for shape in shapes:
        scores = [name.split(", ")[-1].split(":")[0] for name in shape.names]
        assert {*scores} == {*usual}
        assert shape.meanings == tuple(map(usual.get, scores))


def test_panels_of_models_and_tasks_share_an_axis(apart):
    (section,) = [own for own in apart.page().sections if own.key == "flow-tasks"]
    panels = section.figure.panels
    assert [own.title for own in panels] == ["a, tiny", "a, other", "b, tiny", "b, other"]
    assert len({own.y_range for own in panels}) == 1
    low, high = panels[0].y_range
    assert low < 0 < float(section.figure.high.nan_to_num().max()) < high


@pytest.mark.slow
def test_beside_two_models_stands_their_difference(tmp_path):
    both = icl.sweep(
        {"one": tiny(), "two": other()}, [TASK, OTHER], [Flow(), Extraction()],
        n=6, seeds=(0, 1), progress=False,
    )  # fmt: skip
    page = comparison(both).page()
    (section,) = [own for own in page.sections if own.key == "flow"]
    shape = section.figure
    assert [own.title for own in shape.panels] == ["one", "two", "two minus one"]
    apart = both.average("mean flow", ("task", "seed"), fixed="task", minus={"model": "one"}).cells[
        0
    ]
    own = list(shape.panels[-1].curves)
    for end, wanted in (
        (shape.values, apart.value),
        (shape.low, apart.low),
        (shape.high, apart.high),
    ):
        assert torch.allclose(end[own], wanted)
    assert shape.panels[-1].levels == ((0.0, ""),)
    assert shape.panels[0].y_range == shape.panels[1].y_range
    assert shape.panels[-1].y_range is None  # differences have other ends
    WORDS(section.caption, "beside_two_models_stands")
    others = [own.figure for own in page.sections if own.key != "flow-tasks"]
    heads = [[panel.title for panel in own.panels] or list(own.groups) for own in others]
    assert all(own.count("two minus one") == 1 for own in heads)
    wide = drawn(shape)["wide"]["layout"]
    assert "xaxis3" in wide
    assert "xaxis4" not in wide  # no empty axes beside the difference
    three = icl.compare(both, both.select(model="one"), names=["x", "y"])
    assert not any("minus" in own.caption for own in three.page().sections)


@pytest.mark.slow
def test_models_of_other_depths_are_subtracted_over_shares_of_them():
    both = icl.sweep(
        {"six": planted_model(), "seven": planted_model(circuit="heads")},
        planted_task(),
        [Flow()],
        n=6,
        progress=False,
    )
    apart = both.average("flow.values", "seed", minus={"model": "six"})
    assert apart.axes == ("score", "depth")
    one, two = (both.average("flow.values", "seed").one(model=name) for name in ("six", "seven"))
    assert torch.allclose(apart.cells[0].value, two.value - one.value)


def test_a_layer_for_all_is_tested_on_other_seeds(found):
    layer, change = fixed_exit(found, over=("task", "seed"))
    scores = [
        a.layer_accuracy.pair_scores[:, 1].double().mean(0)
        for _, a in found.select(seed=1) if "layer_accuracy" in a
    ]  # fmt: skip
    own = [float(s[layer] - s[-1]) for s in scores]
    assert float(change.cells[0].value) == pytest.approx(sum(own) / 2)
    assert change.cells[0].counts["seed"] == 1
    with WORDS.raises(SweepError, "layer_all_tested_other"):
        fixed_exit(found.select(seed=0))


STUDY = f"""
models: {{tiny: {MODEL}}}
tasks: films.csv
measurements: [flow]
seeds: 0-1
n: 2
"""


def films(folder):
    rows = "\n".join(f"a film {i},{'Positive' if i % 2 else 'Negative'}" for i in range(12))
    (folder / "films.csv").write_text(f"text,label\n{rows}\n")
    text = STUDY.replace(
        "films.csv",
        '{films: {path: films.csv, template: "Review: {text}\\nSentiment: {label}", '
        "labels: [Negative, Positive]}}",
    )
    (folder / "study.yaml").write_text(text)


@pytest.mark.slow
def test_the_commands(command, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    films(tmp_path)
    code, out, err = command("sweep", "study.yaml", "--out", "runs/s")
    assert (code, "2 done" in out) == (0, True), err
    assert (tmp_path / "runs/s/index.html").exists()
    WORDS.exactly(
        json.loads((tmp_path / "runs/s/sweep.json").read_text())["made"]["command"], "commands"
    )
    code, out, err = command("sweep", "study.yaml", "--out", "runs/s")
    assert code == 1
    assert "resume" in err
    code, out, err = command("sweep", "study.yaml", "--out", "runs/s", "--resume", "--json")
    assert code == 0
    assert [own["state"] for own in json.loads(out)["items"]] == ["done", "done"]
    item = next((tmp_path / "runs/s/items").iterdir())
    code, out, err = command("compare", "runs/s", item, "--names", "a,b")
    assert (code, "Page: " in out) == (0, True), err
    assert (tmp_path / "comparison.html").exists()
    (tmp_path / "study.yaml").write_text("models: a\ntasks: b\nseed: 3")
    code, out, err = command("sweep", "study.yaml", "--out", "runs/t")
    assert code == 1
    WORDS(err, "commands_2", "'seeds'")


def test_runs_of_one_model_on_different_tasks_are_compared_by_task(tmp_path):
    places = tmp_path / "reviews", tmp_path / "headlines"
    for place, task in zip(places, (TASK, OTHER), strict=True):
        icl.sweep(tiny, [task], [Flow()], out=place, **QUIET)
    together = icl.compare(*places)
    assert together.names == ("tiny",)
    assert {item.model for item in together.sweep.plan} == {"tiny"}
    page = together.page()
    assert "reviews" not in page.title
    assert len({item.task for item in together.sweep.plan}) == 2
    named = icl.compare(*places, names=["before", "after"]).page()
    keys = [own.key for own in named.sections]
    assert "flow" in keys
    assert "flow-tasks" not in keys  # it would be the same figure: each run has one task
    assert "flow-tasks" in [own.key for own in page.sections]


def test_folders_with_the_same_last_part_are_two_models():
    assert short_names(["/a/b/model", "/c/b/model", "/d/other", "hub/name"]) == {
        "/a/b/model": "a/b/model", "/c/b/model": "c/b/model", "/d/other": "other",
        "hub/name": "hub/name",
    }  # fmt: skip
    assert [*short_names(["/x/model", "/x/model"]).values()] == ["model"]

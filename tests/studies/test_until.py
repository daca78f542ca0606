"""`analyze(until=)`: stages, the numbers of the last one, what is kept of them, and what is refused."""

import json

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements import Predict
from icl_mech.measurements.base import Options
from icl_mech.metrics import Interval
from icl_mech.models import adapt
from icl_mech.planted import planted_model, planted_task
from icl_mech.prompts.given import drawn_again, room
from icl_mech.results import Result
from icl_mech.studies import FLOW, LABEL_WORDS, Study, study
from icl_mech.studies.bench import Bench
from icl_mech.studies.claim import Claim, Effect
from icl_mech.studies.until import FIRST, GROWTH, Goal, following, goal_of, in_stages, narrow
from icl_mech.sweeps import sweep
from icl_mech.sweeps.config import read_config
from icl_mech.sweeps.sections import facts
from tests.cli.conftest import MODEL, command  # noqa: F401 - a fixture
from tests.said import Words

WORDS = Words(__file__)

ACCURACY = "predictions.accuracy"
RIGHT = Effect("share of right answers", ACCURACY)
QUIET = {"progress": False}


@pytest.fixture(scope="module")
def model():
    return planted_model()


@pytest.fixture
def right(monkeypatch):
    """A study of predictions alone, with one claim."""
    monkeypatch.setattr(study, "_KNOWN", dict(study._KNOWN))
    return Study("right", [Predict()], [Claim("Right: it answers", [RIGHT], "predictions")])


def prompts_of(model, n=24, **options):
    options = {"shots": 1, "demonstrations": "per_prompt"} | options
    return icl.build_prompts(planted_task(), model, n=n, **options)


@pytest.fixture(scope="module")
def prompts(model):
    return prompts_of(model)


def half(interval):
    return (interval.high - interval.low) / 2


# --- the rule ---


def test_the_rule_looks_at_widths_alone_and_goes_on_in_bounds():
    assert narrow(48, (1 + 12 / 48) ** -0.5)
    assert not narrow(48, (1 + 12 / 48) ** -0.5 + 1e-9)
    assert following(48, 1.3, 500) == 112  # 1.1 * 60 * 1.69 = 111.5
    assert following(48, 5.0, 500) == GROWTH * 48
    assert following(96, 5.0, 200) == 200
    assert following(48, float("inf"), 500) == GROWTH * 48
    for n in range(48, 400, 8):
        ratio = (1 + 12 / n) ** -0.5 + 1e-6
        assert following(n, ratio, 10_000) > n  # what does not stop goes on


@pytest.mark.slow
def test_stages_do_not_depend_on_where_an_interval_lies(model, prompts):
    """The same widths at other places, signs and sides of 0 ask for the same prompts."""

    own = Effect("e", lambda run: run["s"].provenance["e"])

    def stages(place):
        seen = []

        def run(data, folder):
            seen.append(len(data))
            reach = 0.4 / len(data) ** 0.5
            ends = Interval(place, place - reach, place + reach)
            return Bench(adapt(model), Options(), results={"s": Result(provenance={"e": ends})})

        in_stages(Goal({own: 0.04}, 120), prompts, model, run, None)
        return seen

    assert stages(0.0) == stages(-3.0) == stages(0.03) == [48, 120]


# --- runs ---


def test_the_numbers_are_those_of_one_run_with_the_last_number(model, prompts, right):
    run = icl.analyze(model, prompts, study=right, until=0.08, most=128, **QUIET)
    kept = run.made["until"]
    assert [own["n"] for own in kept["stages"]] == [FIRST, len(run.prompts[0])]
    assert kept["reached"]
    assert kept["most"] == 128
    assert kept["half_widths"] == {RIGHT.name: 0.08}
    found = run.predictions.accuracy
    assert kept["stages"][-1]["half_widths"][RIGHT.name] == pytest.approx(half(found))
    assert half(found) <= 0.08 < kept["stages"][0]["half_widths"][RIGHT.name]
    plain = icl.analyze(model, prompts_of(model, len(run.prompts[0])), study=right, **QUIET)
    assert plain.prompts[0].digest == run.prompts[0].digest
    assert torch.equal(plain.predictions.label_logits, run.predictions.label_logits)
    assert plain.predictions.accuracy == found
    assert "until=0.08, most=128" in run.made["call"]
    (note,) = (own for own in run.notes if own.startswith("until:"))
    WORDS(note, "numbers_run_last_number", "0.0996", "48", "0.0738", "104")
    assert "until" not in plain.made


@pytest.mark.slow
def test_the_first_stage_may_do_and_names_choose_effects(model):
    given = prompts_of(model, 60)
    run = icl.analyze(model, given, until={"late flow": 0.05}, maps=0, nulls=0, **QUIET)
    assert [own["n"] for own in run.made["until"]["stages"]] == [60]
    assert run.prompts[0].digest == given.digest
    run = icl.analyze(model, given, until=0.05, maps=0, nulls=0, **QUIET)
    assert set(run.made["until"]["half_widths"]) == {"early flow", "late flow"}


@pytest.mark.slow
@pytest.mark.parametrize(("most", "why"), [(64, "most="), (1000, "no_more_examples")])
def test_a_budget_and_a_task_come_to_their_end(model, prompts, right, most, why):
    run = icl.analyze(model, prompts, study=right, until=0.01, most=most, **QUIET)
    kept = run.made["until"]
    assert not kept["reached"]
    assert len(run.prompts[0]) == kept["stages"][-1]["n"] == min(most, len(planted_task().test))
    WORDS(run.notes, why)
    assert any("not reached" in limit for limit in run.page().origin.limits)


@pytest.mark.slow
def test_an_effect_without_an_interval_stops_at_once_and_says_so(model, prompts, monkeypatch):
    monkeypatch.setattr(study, "_KNOWN", dict(study._KNOWN))
    never = Claim("Never: there", [Effect("nothing", lambda run: None)])
    own = Study("never_there", [Predict()], [never])
    run = icl.analyze(model, prompts, study=own, until=0.1, **QUIET)
    assert [stage["n"] for stage in run.made["until"]["stages"]] == [FIRST]
    assert not run.made["until"]["reached"]
    WORDS(run.notes, "no_interval", "nothing", "0.1", "48")
    wanted = {"nothing": 0.1, ACCURACY: 0.4}  # what has one does not speak for what has none
    run = icl.analyze(model, prompts, study=own, until=wanted, **QUIET)
    assert run.made["until"]["stages"][-1]["half_widths"][ACCURACY] < 0.4
    assert not run.made["until"]["reached"]
    (note,) = (own for own in run.notes if own.startswith("until:"))
    WORDS.ends(note, "effect_without_interval_stops")


def test_stages_are_kept_and_a_stopped_run_goes_on(model, prompts, right, tmp_path, monkeypatch):
    options = {"study": right, "until": 0.08, "most": 128, "out": tmp_path / "run", **QUIET}
    run = icl.analyze(model, prompts, **options)
    n = len(run.prompts[0])
    assert {own.name for own in (tmp_path / "run" / "stages").iterdir()} == {"48", str(n)}
    loaded = icl.load(tmp_path / "run")
    assert loaded.made["until"] == json.loads(json.dumps(run.made["until"]))
    assert loaded.predictions.accuracy == run.predictions.accuracy

    def fail(*_, **__):
        pytest.fail("it was measured again")

    monkeypatch.setattr(
        "icl_mech.studies.bench.completed", lambda _, left, __: fail() if left else []
    )
    again = icl.analyze(model, prompts, **options)
    assert again.predictions.accuracy == run.predictions.accuracy
    assert again.made["resumed"] == 1
    monkeypatch.undo()
    icl.analyze(model, prompts, study=FLOW, maps=0, nulls=0, out=tmp_path / "plain", **QUIET)
    with WORDS.raises(RunError, "stages_kept_stopped_run"):
        icl.analyze(model, prompts, study=FLOW, until=0.1, out=tmp_path / "plain", **QUIET)


@pytest.mark.slow
def test_pairs_are_drawn_again(model):
    pair = icl.build_prompt_pairs(planted_task(), model, shots=1, n=8, seed=3)
    true, false = drawn_again(pair, model, 16)
    wanted = icl.build_prompt_pairs(planted_task(), model, shots=1, n=16, seed=3)
    assert (true.digest, false.digest) == (wanted[0].digest, wanted[1].digest)
    assert room(pair, model, 8, 500) == len(planted_task().test)


@pytest.mark.slow
def test_a_forecast_counts_the_first_stage_and_the_most(model, prompts, right):
    def rows(**options):
        found = icl.analyze(model, prompts, study=right, plan=True, **options, **QUIET)
        return found.items[0]

    own, first = rows(until=0.05, most=96), rows()
    assert own.prompts == 96
    assert own.rows["forward"] > 3 * first.rows["forward"]
    WORDS(own.notes, "last_stage", "96")


# --- what is refused ---


@pytest.mark.parametrize(
    "until", [0, -0.1, float("nan"), float("inf"), True, {"early flow": 0}, {}]
)
def test_widths_that_cannot_be(model, prompts, until):
    with pytest.raises(RunError, match="until="):
        icl.analyze(model, prompts, until=until, **QUIET)


def test_words_and_budgets_that_cannot_be(model, prompts, right):
    with WORDS.raises(RunError, "words_budgets_cannot", "'0.1'"):
        goal_of(FLOW, (), "0.1", None)
    with WORDS.raises(RunError, "words_budgets_cannot_2"):
        goal_of(FLOW, (), {3: 0.1}, None)
    with pytest.raises(RunError, match="give until="):
        icl.analyze(model, prompts, most=100, **QUIET)
    with WORDS.raises(RunError, "words_budgets_cannot_3", "40", "48"):
        icl.analyze(model, prompts, until=0.1, most=40, **QUIET)
    others = ("mean flow", "flow.share", "isolation loyalty", "predictions.answers")
    for name in ("flow.shape_of_it", "late_flow", "reweighting.gain", *others):
        with WORDS.raises(RunError, "words_budgets_cannot_2"):
            icl.analyze(model, prompts, until={name: 0.1}, **QUIET)
    empty = Study("empty_of_claims", [Predict()])
    with WORDS.raises(RunError, "words_budgets_cannot_4"):
        icl.analyze(model, prompts, study=empty, until=0.1, **QUIET)


def test_prompts_of_which_no_more_can_be_drawn(model, prompts, tmp_path):
    queries = planted_task().test[:8]
    chosen = prompts_of(model, None, queries=queries)
    saved = type(prompts).from_dict(prompts.to_dict())
    for given in (chosen, saved, prompts[:6]):
        with WORDS.raises(PromptError, "prompts_no_more_can_2", "No"):
            icl.analyze(model, given, until=0.1, **QUIET)
    few = icl.Task(
        "few", planted_task().template, planted_task().labels, planted_task().train,
        planted_task().test[:10] + planted_task().test[-10:],
    )  # fmt: skip
    given = icl.build_prompts(few, model, shots=1, n=8, balanced=False)
    with WORDS.raises(PromptError, "prompts_no_more_can", "20", "48"):
        icl.analyze(model, given, until=0.1, **QUIET)


def test_effects_of_a_claim_are_those_a_number_is_for():
    goal = goal_of(LABEL_WORDS, (), 0.1, None)
    assert [*goal.halves] == [*LABEL_WORDS.claims[0].effects]
    assert len(goal.halves) == 3
    goal = goal_of(LABEL_WORDS, (), {"re-weighting gain": 0.1, "extraction.last_third": 0.2}, None)
    assert [(own.name, width) for own, width in goal.halves.items()] == [
        ("re-weighting gain", 0.1), ("extraction.last_third", 0.2),
    ]  # fmt: skip
    assert goal_of(LABEL_WORDS, (), None, None) is None


# --- sweeps and the command line ---


@pytest.mark.slow
def test_a_sweep_and_its_file(model, tmp_path):
    found = sweep(
        {"planted": model}, planted_task(), study="default", n=24, seeds=(0, 1), maps=0, nulls=0,
        demonstrations="per_prompt", until={ACCURACY: 0.085}, most=128, **QUIET,
    )  # fmt: skip
    for _, run in found:
        assert run.made["until"]["half_widths"] == {ACCURACY: 0.085}
        assert half(run.predictions.accuracy) <= 0.085
        assert len(run.prompts[0]) > 24
    assert {own.name: own.value for own in facts(found)}["Prompts"] == "24 or more (until=)"
    text = "models: a\ntasks: b\nuntil: {predictions.accuracy: 0.085}\nmost: 128\n"
    (tmp_path / "study.yaml").write_text(text)
    read = read_config(tmp_path / "study.yaml")
    assert (read["until"], read["most"]) == ({ACCURACY: 0.085}, 128)
    with pytest.raises(RunError, match="until=-1"):
        sweep({"planted": model}, planted_task(), study="default", until=-1, **QUIET)


@pytest.mark.slow
def test_on_the_command_line(command, tmp_path):  # noqa: F811
    rows = "".join(f"a film {i}\tPositive\na plot {i}\tNegative\n" for i in range(60))
    (tmp_path / "films.tsv").write_text("text\tlabel\n" + rows)
    words = ["--model", MODEL, "--task", tmp_path / "films.tsv", "--nulls", 0, "--n", 8]
    words += ["--template", "{text}: {label}", "--label-words", "Negative, Positive"]
    words += ["--until", f"{ACCURACY}=0.13", "--most", 60]
    code, out, err = command("analyze", *words, "--out", tmp_path / "run", "--json")
    assert (code, err) == (0, "")
    assert f"--until {ACCURACY}=0.13 --most 60" in json.loads(out)["command"]
    kept = icl.load(tmp_path / "run").made["until"]
    assert kept["half_widths"] == {ACCURACY: 0.13}
    assert kept["most"] == 60
    for wrong, why in (
        ("x", "half a width"),
        ("-1", "--until -1"),
        ("a=1", "--until a"),
        (f"0.1,{ACCURACY}=0.2", "alone"),
        ("0.1,0.2", "alone"),
    ):
        code, _, err = command("analyze", *words[:-4], "--until", wrong, "--out", tmp_path / "no")
        assert code
        WORDS(err, why)
    assert not (tmp_path / "no").exists()
